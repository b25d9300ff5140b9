//! Drivers that migrate memory to a device leave frames where they are.
//!
//! # Problem
//! Such a driver makes the kernel take pages out of the page table before it isolates them. The
//! kernel cannot put a frame back, so the process would die at its next access, and the kernel with
//! it.
//!
//! # Approach
//! `migration_collector`, a module of these tests, makes the calls of such a driver, and gets no
//! memory of its device: all must be as before. `uksm_guard` has to ensure that with `uksm` loaded
//! and without. Where the guard is switched off, FOLD must map no frame. The negative control shows
//! the damage without the guard. Each page that is lost there is locked before anything else, with
//! which the kernel can unmap it at the exit of its process.
//!
//! # Source
//! `kernel/guard_migration.c`, `guest-tests/kernel/migration_collector.c`.

use std::ops::Range;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use uksm_linux::module::raw::UKSM_FEATURE_GUARD;
use uksm_policy::command::{FoldKind, FrameId, Lines, PageState, Reason, SpaceId, Status};
use uksm_vm_protocol::machine::{COLLECTOR, GUARD, MODULE};

use super::Context;
use crate::fixtures::domain::{Domain, OutcomeCounts, Permit, address, entry};
use crate::fixtures::pagemap::pfns;
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{self, fork, fork_alone, pause};

cases! { "guard":
    a_driver_that_collects_merged_pages_leaves_them_as_they_are Normal Faults 90,
    orphans_are_left_as_they_are_without_the_module Normal Faults 90,
    the_guard_stays_when_the_module_goes Normal Faults 30,
    no_frame_is_mapped_while_the_guard_is_switched_off Normal Faults 90,
    a_migration_that_began_before_the_guard_is_waited_for Normal Faults 60,
    without_the_guard_merged_pages_are_lost NegativeControl Faults 60,
}

const PAGES: usize = 64;
const SEED: u64 = 53;
const STATES: Lines = Lines { from: 0, to: 0 };
const COLLECT: &str = "/sys/module/migration_collector/parameters/collect";
const LOCK: &str = "/sys/module/migration_collector/parameters/lock";
const UNLOCK: &str = "/sys/module/migration_collector/parameters/unlock";
const GPU_MIGRATION: &str = "/sys/module/uksm_guard/parameters/gpu_migration";
const FTRACE: &str = "/proc/sys/kernel/ftrace_enabled";
const KPROBES: &str = "/sys/kernel/debug/kprobes/enabled";

/// An order to the collector: the range, and the time for which it has the lock before, in ms.
fn order(pid: i32, pages: Range<usize>, hold: u32) -> String {
    let [start, end] = [pages.start, pages.end].map(address);
    format!("{pid} {start:x} {end:x} {hold}")
}

/// Pages and holes of a process that a driver could migrate.
fn collected(context: &Context, pid: i32, pages: Range<usize>) -> usize {
    set(context, COLLECT, &order(pid, pages, 0));
    let number = context.read(COLLECT).unwrap_or_else(|why| panic!("{why}"));
    number.parse().expect("a number")
}

fn set(context: &Context, path: &str, value: &str) {
    context
        .write(path, value)
        .unwrap_or_else(|why| panic!("{value}: {why}"));
}

/// A switch of the guard that is off until this is dropped.
struct SwitchedOff<'a> {
    context: &'a Context,
    path: &'static str,
    on: &'static str,
}

impl<'a> SwitchedOff<'a> {
    fn new(context: &'a Context, path: &'static str, [on, off]: [&'static str; 2]) -> Self {
        set(context, path, off);
        SwitchedOff { context, path, on }
    }
}

impl Drop for SwitchedOff<'_> {
    fn drop(&mut self) {
        let _told_by_the_next_test = self.context.write(self.path, self.on);
    }
}

const LEFT_ALONE: [&str; 2] = ["0", "1"];
const STOPPED: [&str; 2] = ["1", "0"];

fn peers() -> [Peer; 2] {
    [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES))
}

fn merge(domain: &mut Domain, peers: &[Peer; 2]) -> [SpaceId; 2] {
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    spaces
}

fn assert_intact(peers: &mut [Peer]) {
    for peer in peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}

/// Writes to all pages of a peer, and back.
fn write_and_restore(peer: &mut Peer) {
    peer.run(|own| own.memory.flip(0..PAGES));
    peer.run(|own| own.memory.flip(0..PAGES));
}

fn a_driver_that_collects_merged_pages_leaves_them_as_they_are(context: &mut Context) {
    const HOLES: usize = 8;
    const KEPT: usize = PAGES - HOLES;
    context.load(COLLECTOR).expect("the collector");
    let mut domain = Domain::open();
    let mut peers = peers();
    let spaces = merge(&mut domain, &peers);
    peers[0].run(|own| {
        let emptied = own.memory.advise(KEPT..PAGES, libc::MADV_DONTNEED);
        emptied.expect("MADV_DONTNEED");
    });
    let before = pfns(peers[0].pid(), 0..KEPT);
    let child = peers[1].run(|_| fork_alone(|| pause()));
    let sharers = |domain: &mut Domain| -> Vec<u32> {
        let frames = domain.frames(STATES, false);
        frames.iter().map(|frame| frame.sharers).collect()
    };
    let expected = sharers(&mut domain);
    assert_eq!(expected.iter().sum::<u32>() as usize, KEPT + 2 * PAGES);

    // A hole may have memory of a device.
    assert_eq!(collected(context, peers[0].pid(), 0..PAGES), HOLES);
    assert_eq!(collected(context, peers[1].pid(), 0..PAGES), 0);
    assert_eq!(collected(context, child, 0..PAGES), 0);

    assert_eq!(sharers(&mut domain), expected);
    assert_eq!(
        domain.in_state(spaces[1], 0..PAGES, PageState::Frame),
        PAGES
    );
    assert_eq!(pfns(peers[0].pid(), 0..KEPT), before);
    assert_eq!(pfns(child, 0..KEPT), before);
    process::signal(child, libc::SIGKILL);
    peers[1].run(move |_| process::wait(child));
    assert_intact(&mut peers[1..]);
    write_and_restore(&mut peers[1]);
    // The written pages are ordinary memory, which the guard leaves alone as well.
    assert_eq!(collected(context, peers[1].pid(), 0..PAGES), 0);
    assert_intact(&mut peers[1..]);
    let first = peers[0].run(|own| own.memory.changed(SEED, PAGES, 0..KEPT));
    assert_eq!(first, 0);
    peers.into_iter().for_each(Peer::exit);
    domain.assert_all_frames_return();
}

fn orphans_are_left_as_they_are_without_the_module(context: &mut Context) {
    context.load(COLLECTOR).expect("the collector");
    let mut domain = Domain::open();
    let mut peers = peers();
    let _spaces = merge(&mut domain, &peers);
    drop(domain);
    context.unload(MODULE).expect("unloading the module");
    let before = pfns(peers[0].pid(), 0..PAGES);
    for peer in &peers {
        assert_eq!(collected(context, peer.pid(), 0..PAGES), 0);
        assert_eq!(pfns(peer.pid(), 0..PAGES), before);
    }
    assert_intact(&mut peers);
    let status = peers[1].run(|own| {
        let memory = &mut own.memory;
        process::wait(fork(|| {
            memory.flip(0..PAGES);
            i32::from(memory.changed(SEED, PAGES, 0..PAGES) != PAGES)
        }))
    });
    assert_eq!(status, 0, "a child should copy what it writes");
    write_and_restore(&mut peers[0]);
    assert_intact(&mut peers);
    context.load(MODULE).expect("loading the module again");
    let mut domain = Domain::open();
    let spaces = merge(&mut domain, &peers);
    assert_eq!(collected(context, peers[0].pid(), 0..PAGES), 0);
    assert_eq!(
        domain.in_state(spaces[0], 0..PAGES, PageState::Frame),
        PAGES
    );
    assert_intact(&mut peers);
    peers.into_iter().for_each(Peer::exit);
    domain.assert_all_frames_return();
}

fn the_guard_stays_when_the_module_goes(context: &mut Context) {
    context
        .unload(GUARD)
        .expect_err("a guard in use should stay");
    context.unload(MODULE).expect("unloading the module");
    context
        .unload(GUARD)
        .expect_err("a guard should stay until the machine ends");
    assert!(context.is_loaded(GUARD));
    context.load(MODULE).expect("loading the module");
}

fn assert_no_frame_is_mapped(domain: &mut Domain, spaces: [SpaceId; 2], frame: FrameId) {
    let refused = (Status::Full, Reason::Guard);
    assert_eq!(domain.info().features & UKSM_FEATURE_GUARD, 0);
    let mut counts = OutcomeCounts::default();
    for at in 2..PAGES {
        let set = spaces.map(|space| entry(space, at, FoldKind::Set(0)));
        counts.add(&domain.fold(&set, Permit::default()));
    }
    assert_eq!(
        counts.with(refused.0, refused.1),
        2 * (PAGES - 2),
        "{counts:?}"
    );
    let known = entry(spaces[1], 1, FoldKind::Frame(frame));
    let outcome = domain.fold(&[known], Permit::default())[0];
    assert_eq!((outcome.status, outcome.reason), refused);
    let zeros = domain.merge_zero(spaces[1], 1..3);
    assert_eq!(
        zeros.with(Status::Differed, Reason::Content),
        2,
        "{zeros:?}"
    );
    assert_eq!(domain.info().frames, 1);
}

/// Whether a switch refuses to be switched off: since 7.3 the one of ftrace does.
fn is_without_effect(path: &str) -> bool {
    let refused = |why: std::io::Error| why.raw_os_error() == Some(libc::EOPNOTSUPP);
    std::fs::write(path, STOPPED[1]).is_err_and(refused)
}

fn no_frame_is_mapped_while_the_guard_is_switched_off(context: &mut Context) {
    let mut domain = Domain::open();
    let mut peers = peers();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let first = spaces.map(|space| entry(space, 0, FoldKind::Set(0)));
    let merged = domain.fold_with_retries(&first, Permit::default());
    let frame = FrameId(merged[0].frame);
    assert_ne!(frame.0, 0, "{merged:?}");
    for (path, values) in [
        (GPU_MIGRATION, LEFT_ALONE),
        (FTRACE, STOPPED),
        (KPROBES, STOPPED),
    ] {
        // A kernel built for tests has no ftrace; kprobes are breakpoints there.
        if path == FTRACE && !Path::new(path).exists() {
            context.note(format!("{path}: this kernel has none"));
            continue;
        }
        if path == FTRACE && is_without_effect(path) {
            context.note(format!("{path}: this kernel does not stop ftrace"));
            assert_ne!(domain.info().features & UKSM_FEATURE_GUARD, 0, "{path}");
            continue;
        }
        let off = SwitchedOff::new(context, path, values);
        assert_no_frame_is_mapped(&mut domain, spaces, frame);
        drop(off);
        assert_ne!(domain.info().features & UKSM_FEATURE_GUARD, 0, "{path}");
    }
    let counts = domain.merge(&spaces, 1..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * (PAGES - 1), "{counts:?}");
    assert_intact(&mut peers);
    peers.into_iter().for_each(Peer::exit);
    domain.assert_all_frames_return();
}

/// The mmap lock of a peer is held for this long, in ms, as by a driver that migrates.
fn with_lock_held<R>(context: &Context, peer: &Peer, work: impl FnOnce() -> R) -> R {
    const HOLD: u32 = 4000;
    const BEGUN: Duration = Duration::from_millis(500);
    let text = order(peer.pid(), 0..PAGES, HOLD);
    let driver = fork(|| i32::from(context.write(COLLECT, &text).is_err()));
    sleep(BEGUN);
    let result = work();
    assert_eq!(process::wait(driver), 0, "the driver should have collected");
    result
}

fn a_migration_that_began_before_the_guard_is_waited_for(context: &mut Context) {
    context.load(COLLECTOR).expect("the collector");
    let mut domain = Domain::open();
    let mut peers = peers();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let set = |page| spaces.map(|space| entry(space, page, FoldKind::Set(0)));
    let outcomes = with_lock_held(context, &peers[1], || {
        domain.fold(&set(0), Permit::default())
    });
    assert_eq!(
        (outcomes[1].status, outcomes[1].reason),
        (Status::Busy, Reason::Lock),
        "{outcomes:?}"
    );
    let outcomes = domain.fold_with_retries(&set(1), Permit::default());
    assert!(outcomes.iter().all(|o| o.status == Status::Merged));
    // From now on no such migration is under way: later ones are harmless.
    let outcomes = with_lock_held(context, &peers[1], || {
        domain.fold(&set(2), Permit::default())
    });
    assert!(
        outcomes.iter().all(|o| o.status == Status::Merged),
        "{outcomes:?}"
    );
    assert_intact(&mut peers);
    peers.into_iter().for_each(Peer::exit);
    domain.assert_all_frames_return();
}

fn without_the_guard_merged_pages_are_lost(context: &mut Context) {
    context.load(COLLECTOR).expect("the collector");
    let mut domain = Domain::open();
    let peers = peers();
    let spaces = merge(&mut domain, &peers);
    let mut other = Peer::filled(PAGES, SEED + 1, PAGES);
    assert_eq!(collected(context, other.pid(), 0..PAGES), 0);
    let frames = pfns(peers[0].pid(), 0..PAGES);

    let off = SwitchedOff::new(context, GPU_MIGRATION, LEFT_ALONE);
    // Ordinary pages can be migrated, and come back where a device has no memory for them.
    assert_eq!(collected(context, other.pid(), 0..PAGES), PAGES);
    assert_eq!(
        other.run(|own| own.memory.changed(SEED + 1, PAGES, 0..PAGES)),
        0
    );
    let migratable = collected(context, peers[0].pid(), 0..PAGES);
    for frame in &frames {
        set(context, LOCK, &frame.to_string());
    }
    drop(off);
    assert_eq!(migratable, 0, "no frame can be migrated");
    // No page of the process is there any more. No other code may read these page tables.
    assert_eq!(domain.in_state(spaces[0], 0..PAGES, PageState::Swap), PAGES);
    let left = domain.frames(STATES, false);
    assert!(left.iter().all(|frame| frame.sharers == 1), "{left:?}");
    let [lost, kept] = peers;
    lost.kill();
    set(context, UNLOCK, "1");
    kept.exit();
    domain.assert_all_frames_return();
}
