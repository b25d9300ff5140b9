//! Memory that a virtual machine has freed: zeroed in the background, or dropped under frames.
//!
//! # Problem
//! A guest that reports its free pages has its host drop them (MADV_DONTNEED), merged ones as well:
//! their frames lose a mapping each, and what they saved must no longer be counted. Another guest
//! zeroes what it frees, uses a part of it again and zeroes that, for as long as it runs: nearly
//! all that can be saved of it is zeros.
//!
//! # Approach
//! Processes do to their memory what the machine would do. What is saved is read from page maps: a
//! frame that both map saves a page, and so does each mapping of the zero page. What the status has
//! saved must come to the same, and no status may have more zero pages than are mapped: not even
//! the first one after memory was freed.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::accounting::number;
use crate::fixtures::contents::{Content, WORDS};
use crate::fixtures::daemon::{Daemon, cpu_time};
use crate::fixtures::explanation::explanation_text;
use crate::fixtures::memory::{Huge, Memory};
use crate::fixtures::pagemap;
use crate::fixtures::peer::Peer;
use crate::fixtures::two_groups::status;

cases! { "daemon::freed_memory":
    pages_dropped_under_frames_are_freed_and_no_longer_counted Normal Stock 300,
    zeroed_memory_is_merged_while_parts_of_it_are_used_and_zeroed_again Long Stock 300,
}

const SEED: u64 = 83;
/// Pages of a process: equal ones, zeros, and its own.
const PAGES: usize = 2048;
const EQUAL: usize = 1024;
const ZEROS: usize = 512;
/// Largest difference between status and page maps: processes have memory beside that under test.
const SLACK: u64 = 96;
/// Longest wait for a state on an emulated machine.
const BOUND: Duration = Duration::from_secs(90);

/// The number of the kernel's zero page.
fn zero_page() -> u64 {
    let own = i32::try_from(std::process::id()).expect("a process id");
    let memory = Memory::anonymous(1, Huge::Never);
    assert!(memory.is_zero(0));
    let number = pagemap::pfns(own, 0..1)[0];
    memory.unmap(0..1).expect("munmap");
    number
}

/// Pages among the first ones of a process that map the zero page.
fn zeros(peer: &Peer, pages: usize, zero: u64) -> u64 {
    let entries = pagemap::entries(peer.pid(), 0..pages).into_iter();
    entries.filter(|entry| entry.pfn() == Some(zero)).count() as u64
}

/// Pages that two processes save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Saving {
    /// Frames that both map.
    frames: u64,
    /// Mappings of the zero page.
    zeros: u64,
}

impl Saving {
    /// Counts them in page maps.
    fn mapped(pair: &[Peer; 2], zero: u64) -> Saving {
        let shared = pagemap::shared(pair[0].pid(), pair[1].pid(), PAGES) as u64;
        let [one, other] = [0, 1].map(|at| zeros(&pair[at], PAGES, zero));
        Saving {
            // The zero page is no frame.
            frames: shared - if other > 0 { one } else { 0 },
            zeros: one + other,
        }
    }

    fn is_about(self, other: Saving) -> bool {
        self.frames.abs_diff(other.frames) <= SLACK && self.zeros.abs_diff(other.zeros) <= SLACK
    }
}

/// What the status has as saved.
fn counted() -> Saving {
    let status = status();
    let pages = |field: &str| status["saved"][field].as_i64().expect("a number of pages");
    Saving {
        // Frames that one process maps save nothing, and those that nobody maps less than that.
        frames: u64::try_from(pages("frames_pages")).unwrap_or(0),
        zeros: u64::try_from(pages("zero_pages")).expect("zero pages"),
    }
}

/// Asserts that the status has no zero pages that are no more. `mapped` were mapped after it was
/// made, and none became less meanwhile.
fn assert_no_more_zeros(counted: u64, mapped: u64) {
    assert!(
        counted <= mapped + SLACK,
        "{counted} zero pages are counted, {mapped} are mapped"
    );
}

/// Waits until page maps and the status have the expected savings; returns the time.
fn await_saved(daemon: &mut Daemon, pair: &[Peer; 2], zero: u64, expected: Saving) -> Duration {
    // A status has a count of zero pages that is up to a second old.
    sleep(Duration::from_secs(1));
    let begun = Instant::now();
    loop {
        let counted = counted();
        let mapped = Saving::mapped(pair, zero);
        assert_no_more_zeros(counted.zeros, mapped.zeros);
        if mapped.is_about(expected) && counted.is_about(mapped) {
            return begun.elapsed();
        }
        daemon.assert_running();
        assert!(
            begun.elapsed() < BOUND,
            "{mapped:?} in page maps, {counted:?} in the status, {expected:?} expected: {}",
            explanation_text(pair[0].pid())
        );
        sleep(Duration::from_millis(50));
    }
}

fn write_zeros(memory: &mut Memory, page: usize) {
    (0..WORDS).for_each(|word| memory.set_word(page, word, 0));
}

fn resident(peer: &Peer) -> u64 {
    number(&format!("/proc/{}/smaps_rollup", peer.pid()), "Rss") / 4
}

/// Drops half of the equal pages, and half of the zeros; returns the pages by which the process got
/// smaller.
fn drop_half(peer: &mut Peer) -> u64 {
    let before = resident(peer);
    peer.run(|own| {
        for pages in [0..EQUAL / 2, EQUAL..EQUAL + ZEROS / 2] {
            let dropped = own.memory.advise(pages, libc::MADV_DONTNEED);
            dropped.expect("MADV_DONTNEED");
        }
    });
    before.saturating_sub(resident(peer))
}

fn pages_dropped_under_frames_are_freed_and_no_longer_counted(context: &mut Context) {
    let zero = zero_page();
    let mut pair = [1, 2].map(|own: u64| {
        let mut peer = Peer::new(PAGES);
        peer.run(move |it| {
            for page in 0..PAGES {
                match page {
                    0..EQUAL => it.memory.fill_page(page, Content::new(SEED, page as u64)),
                    page if page < EQUAL + ZEROS => write_zeros(&mut it.memory, page),
                    _ => it
                        .memory
                        .fill_page(page, Content::new(SEED + own, page as u64)),
                }
            }
        });
        peer
    });
    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], &[]);
    let [equal, zeros] = [EQUAL, ZEROS].map(|pages| pages as u64);
    let saved = |frames, zeros| Saving { frames, zeros };
    await_saved(&mut daemon, &pair, zero, saved(equal, 2 * zeros));
    // One guest frees: only the other maps its frames, and they save nothing.
    let smaller = drop_half(&mut pair[0]);
    assert!(smaller.abs_diff(equal / 2) <= SLACK, "{smaller} pages less");
    let expected = saved(equal / 2, 2 * zeros - zeros / 2);
    let one = await_saved(&mut daemon, &pair, zero, expected);
    // The other frees the same: nothing maps these frames, and they are freed.
    let smaller = drop_half(&mut pair[1]);
    assert!(smaller.abs_diff(equal / 2) <= SLACK, "{smaller} pages less");
    let both = await_saved(&mut daemon, &pair, zero, saved(equal / 2, zeros));
    let held = status()["frames"]["held"].as_u64().expect("frames held");
    assert!(held <= equal / 2 + SLACK, "{held} frames are held");
    // Lazily freed pages are kept or become zeros, and either is counted correctly.
    let wrong = pair[0].run(|own| {
        let pages = EQUAL / 2..EQUAL;
        let freed = own.memory.advise(pages.clone(), libc::MADV_FREE);
        freed.expect("MADV_FREE");
        let is_right = |page: usize| {
            own.memory.holds(page, Content::new(SEED, page as u64)) || own.memory.is_zero(page)
        };
        pages.filter(|&page| !is_right(page)).count()
    });
    assert_eq!(wrong, 0, "neither kept nor zeros");
    let left = Saving::mapped(&pair, zero);
    await_saved(&mut daemon, &pair, zero, left);
    // Freed pages are used again.
    for peer in &mut pair {
        peer.run(|own| {
            for page in 0..EQUAL / 2 {
                own.memory
                    .fill_page(page, Content::new(SEED + 9, page as u64));
            }
        });
    }
    let again = saved(left.frames + equal / 2, left.zeros);
    let again = await_saved(&mut daemon, &pair, zero, again);
    for peer in &mut pair {
        let wrong = peer.run(|own| {
            let memory = &own.memory;
            let is_right = |page: &usize| memory.holds(*page, Content::new(SEED + 9, *page as u64));
            (0..EQUAL / 2).filter(|page| !is_right(page)).count()
        });
        assert_eq!(wrong, 0);
    }
    for (what, time) in [
        ("counted after one process has dropped its pages", one),
        ("counted after both have", both),
        ("merged again", again),
    ] {
        context.metric(what, time.as_secs_f64(), "s");
    }
    daemon.stop();
}

/// Pages of the process that zeroes its freed pages: 64 MiB.
const LARGE: usize = 16384;
/// Number of times that a part of the zeroed pages is used, and the time of each.
const TURNS: usize = 3;
const A_TURN: Duration = Duration::from_secs(6);

/// Whether the page is among the 70 % that are zeroed, in runs of 16.
fn is_freed(page: usize) -> bool {
    page / 16 % 10 < 7
}

/// The twentieth of all pages that is used in this turn: zeroed pages, in runs of 16.
fn used(turn: usize) -> impl Iterator<Item = usize> {
    (0..LARGE).filter(move |page| page / 16 % 10 == turn % 7 && page / 160 % 2 == 0)
}

/// Waits until 95 % of these zeros are merged; returns the time.
fn await_zeros(daemon: &mut Daemon, peer: &Peer, zero: u64, wanted: u64) -> Duration {
    let begun = Instant::now();
    loop {
        let merged = zeros(peer, LARGE, zero);
        if merged >= wanted * 95 / 100 {
            return begun.elapsed();
        }
        daemon.assert_running();
        assert!(
            begun.elapsed() < BOUND,
            "{merged} of {wanted} zeros are merged: {}",
            explanation_text(peer.pid())
        );
        sleep(Duration::from_millis(50));
    }
}

fn zeroed_memory_is_merged_while_parts_of_it_are_used_and_zeroed_again(context: &mut Context) {
    let zero = zero_page();
    let freed = (0..LARGE).filter(|&page| is_freed(page)).count() as u64;
    for governor in ["full", "low"] {
        let mut peer = Peer::filled(LARGE, SEED, LARGE);
        let pid = peer.pid().to_string();
        let arguments = ["--v-life", "off", "--merge", "zero", "--pid", &pid];
        let arguments = arguments.map(str::to_owned);
        let mut daemon = Daemon::start_with(governor, &arguments);
        // It has read this memory while there was no zero in it.
        sleep(Duration::from_secs(5));
        peer.run(|own| {
            let freed = (0..LARGE).filter(|&page| is_freed(page));
            freed.for_each(|page| write_zeros(&mut own.memory, page));
        });
        let used_before = cpu_time(&daemon);
        let first = await_zeros(&mut daemon, &peer, zero, freed);
        let for_first = (cpu_time(&daemon) - used_before).as_secs_f64();
        let (begun, used_before) = (Instant::now(), cpu_time(&daemon));
        for turn in 0..TURNS {
            peer.run(move |own| {
                for page in used(turn) {
                    own.memory
                        .fill_page(page, Content::new(SEED + 1, page as u64));
                }
                if let Some(before) = turn.checked_sub(1) {
                    used(before).for_each(|page| write_zeros(&mut own.memory, page));
                }
            });
            let turn_begun = Instant::now();
            while turn_begun.elapsed() < A_TURN {
                let counted = counted().zeros;
                assert_no_more_zeros(counted, zeros(&peer, LARGE, zero));
                sleep(A_TURN / 2);
            }
        }
        let share = (cpu_time(&daemon) - used_before).as_secs_f64() / begun.elapsed().as_secs_f64();
        let kept = zeros(&peer, LARGE, zero) as f64 / freed as f64;
        peer.run(|own| used(TURNS - 1).for_each(|page| write_zeros(&mut own.memory, page)));
        let last = await_zeros(&mut daemon, &peer, zero, freed);
        for (what, value, unit) in [
            ("first zeros merged after", first.as_secs_f64(), "s"),
            ("processor time of that", for_first, "s"),
            (
                "share of a core while a twentieth is used at a time",
                share,
                "",
            ),
            ("share of zeros that are merged meanwhile", kept, ""),
            ("all zeros merged again after", last.as_secs_f64(), "s"),
        ] {
            context.metric(&format!("{governor}: {what}"), value, unit);
        }
        let wrong = peer.run(|own| {
            let memory = &own.memory;
            let is_right = |page: usize| {
                if is_freed(page) {
                    memory.is_zero(page)
                } else {
                    memory.holds(page, Content::new(SEED, page as u64))
                }
            };
            (0..LARGE).filter(|&page| !is_right(page)).count()
        });
        assert_eq!(wrong, 0);
        // `full` may use 0.95 of a core; 0.01 to 0.06 were measured.
        assert!(
            share < 0.2,
            "{share} of a core: {}",
            explanation_text(peer.pid())
        );
        daemon.stop();
    }
}
