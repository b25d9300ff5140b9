//! The module's reaction to a shortage of memory, and its duration.
//!
//! # Problem
//! Reclaim and the OOM killer request memory from the module. Nearly all frames are mapped and
//! cannot be freed, and on a large machine there are tens of millions: scanning them all takes
//! seconds, in which every process that needs memory waits.
//!
//! # Approach
//! A switch makes the module take 300 µs to scan a frame. So some thousand frames stand for many,
//! and the time of a call shows the number of scanned frames. Reclaim is triggered by
//! `drop_caches`; the notice of the OOM killer by a parameter of the test build, since a real one
//! ends a process each time. A process that leaves little memory free shows that the kernel calls
//! the module.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::accounting::{events, free_pages, value};
use crate::fixtures::domain::{Domain, Permit};
use crate::fixtures::fault_switches::{SLOW_SCAN, with_faults};
use crate::fixtures::memory::{BASE, Huge, Memory};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork_alone, leave, wait};

cases! { "reclaim":
    the_notice_before_a_kill_takes_a_bounded_time Normal Faults 90,
    the_notice_before_a_kill_frees_what_it_can_in_turns Normal Faults 90,
    the_notice_before_a_kill_finds_what_is_behind_mapped_frames Normal Faults 90,
    reclaim_does_not_go_on_looking_at_mapped_frames Normal Faults 90,
    unmapped_frames_are_given_to_the_machine Normal Stock 120,
}

const SEED: u64 = 71;
/// Scanning all of them takes 2.5 s.
const FRAMES: usize = 8192;
/// Limit of a notice that frees nothing: 1 s, and the delay of an emulated machine.
const MAX_NOTICE: Duration = Duration::from_millis(1600);
/// The same if a page was freed: it ends after the current piece of each domain.
const MAX_WITH_A_PAGE: Duration = Duration::from_millis(1000);

/// A domain, and two processes that map each of its frames.
fn merged_domain() -> (Domain, [Peer; 2]) {
    let peers = [(); 2].map(|()| Peer::filled(FRAMES, SEED, FRAMES));
    let mut domain = Domain::open();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces, 0..FRAMES, Permit::default());
    assert_eq!(counts.merged(), 2 * FRAMES, "{counts:?}");
    (domain, peers)
}

fn time_of(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// Triggers the module's work before the kernel kills a process.
fn notice(context: &Context) -> Duration {
    time_of(|| {
        let done = context.set_parameter("oom", "1");
        done.unwrap_or_else(|failure| panic!("{failure}"));
    })
}

fn reclaim() -> Duration {
    time_of(|| fs::write("/proc/sys/vm/drop_caches", "2").expect("drop_caches"))
}

fn the_notice_before_a_kill_takes_a_bounded_time(context: &mut Context) {
    let (domain, _peers) = merged_domain();
    let least = with_faults(context, SLOW_SCAN, || {
        [(); 3].map(|()| notice(context)).into_iter().min()
    });
    let least = least.expect("three");
    context.note(format!("{FRAMES} slow frames: {least:?}"));
    assert!(least < MAX_NOTICE, "it took {least:?}");
    assert_eq!(domain.info().frames, FRAMES as u64, "all are in use");
}

fn the_notice_before_a_kill_frees_what_it_can_in_turns(context: &mut Context) {
    const MAX_NOTICES: usize = 200;
    // A busy machine may use up the time of a notice in the domain whose frames are all mapped.
    const MAX_IN_VAIN: usize = 3;
    let (domain, peers) = merged_domain();
    let (other, _kept) = merged_domain();
    drop(peers);
    let (mut left, mut notices, mut in_vain) = (FRAMES as u64, 0, 0);
    let mut least = Duration::MAX;
    with_faults(context, SLOW_SCAN, || {
        while left > 0 && notices < MAX_NOTICES {
            least = least.min(notice(context));
            let before = left;
            (left, notices) = (domain.info().frames, notices + 1);
            in_vain = if left < before { 0 } else { in_vain + 1 };
            assert!(in_vain <= MAX_IN_VAIN, "a notice should free something");
        }
    });
    context.note(format!(
        "{FRAMES} frames were freed in {notices} notices, the shortest of {least:?}"
    ));
    assert_eq!(left, 0, "after {notices} notices");
    assert!(least < MAX_WITH_A_PAGE, "it took {least:?}");
    assert!(notices > 1, "one notice should not do all that");
    assert_eq!(other.info().frames, FRAMES as u64, "these are in use");
}

fn the_notice_before_a_kill_finds_what_is_behind_mapped_frames(context: &mut Context) {
    const FEW: usize = 64;
    // Scanning them takes 80 ms, four times as long as a notice that has freed something; a kernel
    // with KASAN takes four times as long, of the second that a notice may take.
    const MAPPED: usize = FRAMES / 32;
    let mapped = [(); 2].map(|()| Peer::filled(MAPPED, SEED, MAPPED));
    let others = [(); 2].map(|()| Peer::filled(FEW, SEED + 1, FEW));
    let mut domain = Domain::open();
    for (peers, pages) in [(&mapped, MAPPED), (&others, FEW)] {
        let spaces = peers.each_ref().map(|peer| domain.attach(peer));
        let counts = domain.merge(&spaces, 0..pages, Permit::default());
        assert_eq!(counts.merged(), 2 * pages, "{counts:?}");
    }
    drop(others);
    let taken = with_faults(context, SLOW_SCAN, || notice(context));
    let frames = domain.info().frames;
    context.note(format!("the first notice took {taken:?}"));
    assert_eq!(frames, MAPPED as u64, "the others should be freed at once");
}

/// Below this number of free pages the kernel reclaims more, at the lowest priority first.
fn low_mark() -> i64 {
    // The mark is a quarter above the kernel's own reserve.
    i64::try_from(value("/proc/sys/vm/min_free_kbytes") / 4 * 5 / 4).expect("a small number")
}

fn unmapped_frames_are_given_to_the_machine(context: &mut Context) {
    const MISSING: i64 = 1024;
    let (domain, peers) = merged_domain();
    // Reclaim finds that all are mapped.
    for _ in 0..4 {
        let _taken = reclaim();
    }
    drop(peers);
    let kills = events("oom_kill");
    let taken = usize::try_from(free_pages() - low_mark() + MISSING).expect("some");
    let taker = fork_alone(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut memory = Memory::at(BASE, taken, flags, -1);
        memory.advise_huge(Huge::Never);
        (0..taken).for_each(|page| memory.set_word(page, 0, 1));
        sleep(Duration::from_secs(2));
        leave(0)
    });
    assert_eq!(wait(taker), 0, "it should get its memory");
    let left = domain.info().frames;
    context.note(format!("{left} of {FRAMES} frames are left"));
    assert!(left < FRAMES as u64 / 4 * 3, "{left} are left");
    assert_eq!(events("oom_kill"), kills, "nobody should be killed");
}

fn reclaim_does_not_go_on_looking_at_mapped_frames(context: &mut Context) {
    let (mut domain, peers) = merged_domain();
    let (first, later) = with_faults(context, SLOW_SCAN, || {
        let first = reclaim();
        let later = [(); 4].map(|()| reclaim()).into_iter().min();
        (first, later.expect("four"))
    });
    context.note(format!("reclaim took {first:?}, and later {later:?}"));
    assert!(
        later < first / 2,
        "nothing can be freed: {first:?}, then {later:?}"
    );
    assert_eq!(domain.info().frames, FRAMES as u64);
    // This result does not hold for ever.
    drop(peers);
    sleep(Duration::from_millis(1500));
    // The last few are too few for one scan, and are deferred.
    for _ in 0..20 {
        let _taken = reclaim();
    }
    assert_eq!(domain.info().frames, 0, "all are free now");
    domain.assert_all_frames_return();
}
