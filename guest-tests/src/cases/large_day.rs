//! A day of writes, beside the installed governor.
//!
//! # Problem
//! Pages that are merged, written and made equal again leave frames with one mapping all the time.
//! If they stayed, memory that can be neither moved nor swapped would grow for as long as the
//! processes live.
//!
//! # Approach
//! The clock of the machine counts instructions, and jumps while nothing runs, so that a day takes
//! minutes. Two processes hold the same. Every ten seconds one of them writes some of its pages,
//! or, where it has written them before, what they held. Every ten minutes all frames are looked
//! at in the page maps.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::contents::Random;
use crate::fixtures::daemon::Daemon;
use crate::fixtures::pagemap::{is_merged, pfns};
use crate::fixtures::peer::{Peer, pages_shared_by};

cases! { "daemon::large_day":
    over_a_day_of_writes_few_frames_have_one_mapping Large Counted 100000,
}

const PAGES: usize = 4096;
const SEED: u64 = 97;
/// Pages of a write: in a day each page is written four times.
const WRITTEN: usize = 4;
const BETWEEN: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Writes between two looks.
const LOOK: u32 = 60;

/// Frames of a pair of processes with the same pages at the same places, and those that only one
/// of them maps.
fn frames(peers: &[Peer; 2]) -> (usize, usize) {
    let [one, two] = peers.each_ref().map(|peer| pfns(peer.pid(), 0..PAGES));
    let mut counts = (0, 0);
    for (one, two) in one.into_iter().zip(two) {
        if one == two {
            counts.0 += 1;
        } else {
            let single = [one, two].into_iter().filter(|&pfn| is_merged(pfn)).count();
            counts.0 += single;
            counts.1 += single;
        }
    }
    counts
}

fn over_a_day_of_writes_few_frames_have_one_mapping(context: &mut Context) {
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let pids = peers.each_ref().map(|peer| peer.pid().to_string());
    let arguments = ["--pid", &pids[0], "--pid", &pids[1]].map(str::to_owned);
    let daemon = Daemon::start_with("low", &arguments);
    let begun = Instant::now();
    while pages_shared_by(&peers, PAGES) < PAGES * 9 / 10 {
        assert!(begun.elapsed() < DAY / 24, "the pages should be merged");
        sleep(BETWEEN);
    }
    let mut random = Random::new(SEED);
    let mut flipped = [const { [false; PAGES] }; 2];
    let (mut all, mut single, mut most) = (0, 0, 0.0_f64);
    let begun = Instant::now();
    for number in 1_u32.. {
        if begun.elapsed() >= DAY {
            break;
        }
        let peer = random.page(2);
        for _ in 0..WRITTEN {
            let page = random.page(PAGES);
            peers[peer].run(move |own| own.memory.flip(page..page + 1));
            flipped[peer][page] ^= true;
        }
        sleep(BETWEEN);
        if number % LOOK == 0 {
            let (frames, alone) = frames(&peers);
            all += frames;
            single += alone;
            most = most.max(alone as f64 / frames as f64);
        }
    }
    let share = single as f64 / all as f64;
    context.note(format!(
        "{:.2} % of the frames had one mapping, at most {:.2} %",
        share * 100.0,
        most * 100.0
    ));
    daemon.stop();
    for (peer, flipped) in peers.iter_mut().zip(flipped) {
        for page in (0..PAGES).filter(|&page| flipped[page]) {
            peer.run(move |own| own.memory.flip(page..page + 1));
        }
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    assert!(share < 0.02, "{share}");
}
