//! Targets that hold their own locks: no call waits for them for long.
//!
//! # Problem
//! Any process can hold the lock of its mappings, or that of its exec, for ever, by means of a file
//! whose server never answers. A caller of the module would wait with it.
//!
//! # Approach
//! Each call on such a target is timed, and returns `EAGAIN` or its progress; afterwards it works.
//! The module's test build lengthens the moment between the last check of a page that BREAK gives
//! its own copy and the fault that makes the copy: a target that empties the entry meanwhile must
//! not cause a read of the file. In the control, BREAK takes the fault of the unchanged mapping:
//! then the file is read.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use uksm_linux::module::{self, MappingsAnswer};
use uksm_policy::command::SpaceId;

use super::Context;
use crate::fixtures::domain::{Domain, Permit, address};
use crate::fixtures::fault_switches::{BREAK_READS, SLOW_BREAK, with_faults};
use crate::fixtures::fuse::{FuseFile, Reads};
use crate::fixtures::held_locks::{
    await_held, exec_with_a_read_under_way, hold_mappings, map_without_pause,
};
use crate::fixtures::memory::{BASE, Memory};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{signal, wait};
use crate::fixtures::requests::attach;

cases! { "held_locks":
    calls_on_a_target_that_holds_its_mmap_lock_end Normal Stock 60,
    attaching_a_process_whose_exec_does_not_end_ends Normal Stock 60,
    a_target_that_maps_without_a_pause_is_worked_on_nevertheless Normal Stock 120,
    a_page_that_goes_while_it_is_broken_has_no_file_read Normal Faults 60,
    without_the_look_away_from_the_file_it_is_read NegativeControl Faults 60,
}

const PAGES: usize = 64;
const SEED: u64 = 53;
/// A call waits for a tenth of a second; an emulated machine may halt for this long.
const LONG: Duration = Duration::from_secs(5);
/// The program that a process executes.
const SLEEPER: &str = "/tmp/uksm-sleeper";

/// The result of a call, which must return soon.
fn soon<R>(name: &str, call: impl FnOnce() -> module::Result<R>) -> Result<R, Errno> {
    let begin = Instant::now();
    let answer = call();
    let took = begin.elapsed();
    assert!(took < LONG, "{name} took {took:?}");
    answer.map_err(|error| error.errno().expect("an errno"))
}

/// Two peers with equal pages, merged.
fn merged_pair(domain: &mut Domain) -> ([Peer; 2], [SpaceId; 2]) {
    let peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let spaces = [&peers[0], &peers[1]].map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    (peers, spaces)
}

fn calls_on_a_target_that_holds_its_mmap_lock_end(context: &mut Context) {
    let mut domain = Domain::open();
    let (mut peers, spaces) = merged_pair(&mut domain);
    let mut file = FuseFile::new(context, 1, SEED);
    hold_mappings(&mut peers[0], &mut file);
    let [held, free] = spaces;
    await_held(&mut domain, held);

    let mut mappings = Vec::new();
    let listed = soon("MAPPINGS", || {
        domain.device.mappings(held, 0, &mut mappings)
    });
    assert_eq!(listed, Err(Errno::AGAIN));
    let end = address(PAGES);
    let counted = soon("COUNT", || domain.device.count(held, BASE, end));
    assert_eq!(counted.map(|counted| counted.next), Err(Errno::AGAIN));
    let broken = soon("BREAK", || domain.device.break_range(held, BASE, end));
    assert_eq!(broken.map(|broken| broken.next), Err(Errno::AGAIN));
    // Attaching takes another lock, which is not held.
    assert_eq!(attach(&domain, peers[0].pid()), Ok(held));
    // No other call is delayed.
    assert_eq!(
        domain.count(free, PAGES).pages.iter().sum::<u64>(),
        PAGES as u64
    );
    assert_eq!(domain.unmerge(free, 0..PAGES), PAGES as u64);

    drop(file);
    let begin = Instant::now();
    while domain.device.count(held, BASE, end).is_err() {
        assert!(begin.elapsed() < LONG, "the lock should be free again");
    }
    let listed = domain.device.mappings(held, 0, &mut mappings);
    assert!(!mappings.is_empty(), "{listed:?}");
    assert_eq!(domain.unmerge(held, 0..PAGES), PAGES as u64);
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    domain.assert_all_frames_return();
}

/// Whether the exec of [`exec_with_a_read_under_way`] has exchanged the program.
fn has_new_program(pid: i32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    !name.is_empty() && SLEEPER.strip_prefix("/tmp/") == Some(name.trim())
}

/// Whether this kernel's exec drops its lock before it waits.
fn is_7_2_or_later(release: &str) -> bool {
    let mut numbers = release.split('.').map(|part| part.parse::<u32>().ok());
    (numbers.next().flatten(), numbers.next().flatten()) >= (Some(7), Some(2))
}

/// Whether ATTACH finds the exec of this process locked, before the new program is in place.
fn is_seen_locked(domain: &Domain, pid: i32) -> bool {
    let begin = Instant::now();
    loop {
        let answer = soon("ATTACH", || Ok(attach(domain, pid))).expect("it is timed");
        if answer == Err(Errno::AGAIN) || has_new_program(pid) {
            return answer == Err(Errno::AGAIN);
        }
        let is_late = begin.elapsed() > LONG * 4;
        assert!(!is_late, "its exec should have begun: {answer:?}");
    }
}

fn attaching_a_process_whose_exec_does_not_end_ends(context: &mut Context) {
    // Where the read ends before the exec, there is nothing to wait for.
    const MAX_EXECS: usize = 3;
    let mut file = FuseFile::new(context, 1, SEED);
    file.set(Reads::Ignore);
    let domain = Domain::open();
    let drops_its_lock = is_7_2_or_later(context.kernel_release());
    let mut pid = exec_with_a_read_under_way(&file, SLEEPER);
    let mut is_locked = is_seen_locked(&domain, pid);
    for _ in 1..MAX_EXECS {
        if is_locked || drops_its_lock {
            break;
        }
        signal(pid, libc::SIGKILL);
        wait(pid);
        pid = exec_with_a_read_under_way(&file, SLEEPER);
        is_locked = is_seen_locked(&domain, pid);
    }
    assert!(is_locked || drops_its_lock, "its exec should hold its lock");
    let answer = soon("ATTACH", || Ok(attach(&domain, pid))).expect("it is timed");
    if is_locked {
        assert_eq!(answer, Err(Errno::AGAIN), "it stays there");
    } else {
        context.note("this kernel's exec holds no lock while it waits");
        answer.expect("the new program is attached");
    }
    drop(file);
    let begin = Instant::now();
    while attach(&domain, pid).is_err() {
        assert!(begin.elapsed() < LONG, "its exec should have ended");
    }
    signal(pid, libc::SIGKILL);
    wait(pid);
}

/// Calls until the work is complete; returns the number of calls, and of calls without progress.
fn until_through(
    name: &str,
    mut call: impl FnMut(u64) -> module::Result<Option<u64>>,
) -> (usize, usize) {
    let end = Instant::now() + Duration::from_secs(30);
    let (mut at, mut calls, mut nowhere) = (0, 0, 0);
    loop {
        assert!(Instant::now() < end, "{name} should end; it is at {at:#x}");
        calls += 1;
        match soon(name, || call(at)) {
            Ok(None) => return (calls, nowhere),
            Ok(Some(next)) => {
                assert!(next > at, "a call that says 0 has come further");
                at = next;
            }
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN, "{name}");
                nowhere += 1;
            }
        }
    }
}

fn a_target_that_maps_without_a_pause_is_worked_on_nevertheless(context: &mut Context) {
    let mut domain = Domain::open();
    let (mut peers, [busy, _]) = merged_pair(&mut domain);
    map_without_pause(&mut peers[0]);
    let end = address(1 << 20);
    let mut mappings = Vec::new();
    let note = |name: &str, (calls, nowhere): (usize, usize)| {
        context.note(format!("{name}: {calls} calls, {nowhere} came nowhere"));
    };
    let listed = until_through("MAPPINGS", |at| {
        Ok(match domain.device.mappings(busy, at, &mut mappings)? {
            MappingsAnswer::Until(next) => Some(next),
            MappingsAnswer::Through | MappingsAnswer::Gone => None,
        })
    });
    note("MAPPINGS", listed);
    let mut frames = 0;
    let counted = until_through("COUNT", |at| {
        let counted = domain.device.count(busy, at, end)?;
        frames += counted.pages[uksm_policy::command::PageState::Frame as usize];
        Ok((counted.next < end).then_some(counted.next))
    });
    note("COUNT", counted);
    assert_eq!(frames, PAGES as u64);
    let mut broken = 0;
    let unmerged = until_through("BREAK", |at| {
        let part = domain.device.break_range(busy, at, end)?;
        broken += part.pages;
        assert!(!part.stopped, "there is memory");
        Ok((part.next < end).then_some(part.next))
    });
    note("BREAK", unmerged);
    assert_eq!(broken, PAGES as u64);
}

/// Pages of [`racing_breaks`].
const FEW: usize = 8;

/// Merges private pages of a file, drops the file's own pages, and breaks them while their process
/// gives them back. Returns the number of reads of the file for that.
fn racing_breaks(context: &Context, faults: u32) -> u64 {
    let mut domain = Domain::open();
    let file = FuseFile::new(context, FEW, SEED);
    let mut peers = [(); 2].map(|()| Peer::new(FEW));
    for peer in &mut peers {
        peer.run(|own| {
            let file = FuseFile::open();
            let number = std::os::fd::AsRawFd::as_raw_fd(&file);
            own.memory = Memory::at(BASE, FEW, libc::MAP_PRIVATE, number);
            own.memory.fill(SEED + 1, FEW);
        });
    }
    let spaces = [&peers[0], &peers[1]].map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces, 0..FEW, Permit::default());
    assert_eq!(counts.merged(), 2 * FEW, "{counts:?}");
    FuseFile::drop_cache();
    let before = file.reads();
    with_faults(context, faults, || {
        // A page is on the way for 100 ms.
        let giving_back = peers[0].begin(|own| {
            for _ in 0..40 {
                std::thread::sleep(Duration::from_millis(25));
                own.memory
                    .advise(0..FEW, libc::MADV_DONTNEED)
                    .expect("MADV_DONTNEED");
            }
        });
        let broken = soon("BREAK", || {
            domain.device.break_range(spaces[0], BASE, address(FEW))
        });
        assert!(broken.is_ok(), "{broken:?}");
        giving_back.end();
    });
    let reads = file.reads() - before;
    let kept = peers[1].run(|own| own.memory.changed(SEED + 1, FEW, 0..FEW));
    assert_eq!(kept, 0);
    reads
}

fn a_page_that_goes_while_it_is_broken_has_no_file_read(context: &mut Context) {
    assert_eq!(racing_breaks(context, SLOW_BREAK), 0);
}

fn without_the_look_away_from_the_file_it_is_read(context: &mut Context) {
    // On a busy machine the process may not run while a page is on the way.
    let mut reads = (0..10).map(|_| racing_breaks(context, SLOW_BREAK | BREAK_READS));
    assert!(reads.any(|reads| reads > 0));
}
