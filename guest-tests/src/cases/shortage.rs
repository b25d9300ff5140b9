//! Where memory is short, frames that save nothing become pages that can be swapped.
//!
//! # Problem
//! When one of two processes has written its merged pages, the other one keeps frames that save
//! nothing, and that the kernel cannot swap out. Memory is short then: the written pages took it.
//!
//! # Approach
//! A daemon merges two processes; then one writes all its pages, and a third process takes more
//! memory than is left, and goes on using it. While the daemon is stopped no page of the second
//! process can be swapped. Once it runs again it gives the frames back, and the kernel swaps the
//! pages, which nobody uses, by itself.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::accounting::{events, number, numbers};
use crate::fixtures::daemon::{Daemon, status_text};
use crate::fixtures::memory::{BASE, Huge, Memory};
use crate::fixtures::pagemap::{entries, is_merged};
use crate::fixtures::peer::{Peer, pages_shared_by};
use crate::fixtures::process::{fork_alone, signal, wait};
use crate::fixtures::swapping::swapped;
use crate::fixtures::zram;

cases! { "daemon::shortage":
    where_memory_is_short_frames_with_one_mapping_are_given_back_and_swapped Normal Stock 240,
}

const PAGES: usize = 8192;
const SEED: u64 = 89;
/// Swap, in MiB.
const SWAP: u64 = 256;
/// Pages by which the third process exceeds what is available, at first and in the end, and by
/// which it grows each time.
const EXCESS: usize = PAGES;
const MAX_EXCESS: usize = 4 * PAGES;
const STEP: usize = PAGES / 16;
/// Time for which the daemon is stopped, or longer, until something else is swapped.
const STOPPED: Duration = Duration::from_secs(8);
/// Limit of the time until all pages are merged, and of that until half of them are given back,
/// which takes 1 to 5 s. When the kernel swaps an eighth of them depends on the third process.
const MAX_TIME: Duration = Duration::from_secs(60);
const MAX_LEFT: usize = PAGES / 2;

/// Pages of the peer that are frames.
fn frames(peer: &Peer) -> usize {
    let entries = entries(peer.pid(), 0..PAGES);
    let pfns = entries.iter().filter_map(|entry| entry.pfn());
    pfns.filter(|&pfn| is_merged(pfn)).count()
}

/// Takes more than is available, and uses it again and again.
fn take_too_much() -> ! {
    let available = number("/proc/meminfo", "MemAvailable") / 4;
    let available = usize::try_from(available).expect("few pages");
    let (mut pages, most) = (available + EXCESS, available + MAX_EXCESS);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let mut memory = Memory::at(BASE, most, flags, -1);
    memory.advise_huge(Huge::Never);
    for turn in 1_u64.. {
        (0..pages).for_each(|page| memory.set_word(page, 0, turn));
        sleep(Duration::from_millis(200));
        pages = most.min(pages + STEP);
    }
    unreachable!("it is killed")
}

fn where_memory_is_short_frames_with_one_mapping_are_given_back_and_swapped(context: &mut Context) {
    let _swap = zram::swap(context, SWAP);
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let daemon = Daemon::start(&[&peers[0], &peers[1]]);
    let begun = Instant::now();
    while pages_shared_by(&peers, PAGES) < PAGES {
        assert!(begun.elapsed() < MAX_TIME, "the pages should be merged");
        sleep(Duration::from_millis(200));
    }
    signal(daemon.pid(), libc::SIGSTOP);
    peers[0].run(|own| own.memory.flip(0..PAGES));
    let (kills, out_before) = (events("oom_kill"), events("pswpout"));
    let taker = fork_alone(|| take_too_much());
    let begun = Instant::now();
    while begun.elapsed() < STOPPED || events("pswpout") == out_before {
        assert!(begun.elapsed() < MAX_TIME, "memory should be short");
        sleep(Duration::from_millis(200));
    }
    let before = swapped(&peers[1], 0..PAGES);
    signal(daemon.pid(), libc::SIGCONT);
    let continued = Instant::now();
    let mut left = PAGES;
    while left > MAX_LEFT && continued.elapsed() < MAX_TIME {
        sleep(Duration::from_millis(500));
        left = frames(&peers[1]);
    }
    let given_back = continued.elapsed();
    let mut most = 0;
    while most < PAGES / 8 && continued.elapsed() < 2 * MAX_TIME {
        sleep(Duration::from_millis(500));
        most = swapped(&peers[1], 0..PAGES);
    }
    context.note(format!(
        "{left} of {PAGES} frames were left after {given_back:?}, {most} pages swapped after {:?}",
        continued.elapsed()
    ));
    let state = format!("{} {:?}", status_text(), numbers("/proc/meminfo"));
    signal(taker, libc::SIGKILL);
    wait(taker);
    daemon.stop();
    assert_eq!(before, 0, "frames cannot be swapped");
    assert!(left <= MAX_LEFT, "{left} frames are left: {state}");
    assert!(most >= PAGES / 8, "only {most} pages are swapped");
    assert_eq!(events("oom_kill"), kills, "nobody should be killed");
    peers[0].run(|own| own.memory.flip(0..PAGES));
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}
