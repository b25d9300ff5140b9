//! New memory of processes that are long known is reported, and merged soon.
//!
//! # Approach
//! The programs of the daemon are loaded, without a daemon, and a process grows by more or less.
//! Then a daemon with little time merges pages that two calm processes fill, in an old mapping and
//! in a new one.

use std::time::{Duration, Instant};

use uksm_linux::hints::Hints;
use uksm_policy::command::SpaceId;

use super::Context;
use crate::fixtures::contents::{Content, PAGE};
use crate::fixtures::daemon::{Daemon, status_json, status_text};
use crate::fixtures::hinted_reads::{await_programs, pid_arguments};
use crate::fixtures::memory::{BASE, Memory};
use crate::fixtures::peer::{Own, Peer, pages_shared_by};

cases! { "daemon::growth":
    memory_that_appears_is_told_of_followed_processes_and_seldom Normal Stock 60,
    memory_that_appears_in_calm_processes_is_merged_soon_by_a_daemon_with_little_time Long Stock 240,
}

/// Pages that a page table maps.
const TABLE: usize = 512;
/// Pages of two page tables.
const MANY: usize = 2 * TABLE;
/// Too few pages for a report.
const FEW: usize = 100;
/// Longer than the interval of reports on a process.
const LONG: Duration = Duration::from_millis(1200);

fn fill(memory: &mut Memory, pages: std::ops::Range<usize>, seed: u64) {
    for page in pages {
        memory.fill_page(page, Content::new(seed, page as u64));
    }
}

fn memory_that_appears_is_told_of_followed_processes_and_seldom(_: &mut Context) {
    let mut hints = Hints::open().expect("the programs run here");
    assert_eq!(hints.missing(), [] as [String; 0]);
    let mut peers = [(); 2].map(|()| Peer::new(12 * MANY));
    let pid = u32::try_from(peers[0].pid()).expect("a process id");
    hints.follow(pid, SpaceId(7));
    let mut told_of = |order: fn(&mut Own)| -> usize {
        for peer in &mut peers {
            peer.run(order);
        }
        let taken = hints.take();
        assert!(taken.grown.iter().all(|&of| of == SpaceId(7)), "{taken:?}");
        assert!(taken.hints.is_empty(), "{taken:?}");
        taken.grown.len()
    };
    let first = told_of(|own| fill(&mut own.memory, 0..1, 1));
    assert_eq!(first, 0, "what it had before its first table is not told");
    let few = told_of(|own| {
        fill(&mut own.memory, 1..FEW, 1);
        // The next table.
        fill(&mut own.memory, TABLE..TABLE + 1, 1);
    });
    assert_eq!(few, 0, "{FEW} pages are few");
    let begun = Instant::now();
    let many = told_of(|own| fill(&mut own.memory, TABLE + 1..4 * MANY, 1));
    let most = 1 + usize::try_from(begun.elapsed().as_secs()).expect("seconds");
    assert!((1..=most).contains(&many), "{many} times");
    // Any table reports what is not told yet, also one of the program's code. So a table is needed
    // here, and what follows begins with nothing untold.
    std::thread::sleep(LONG);
    let rest = told_of(|own| fill(&mut own.memory, 11 * MANY..11 * MANY + 1, 1));
    assert!(rest <= 1, "{rest} times");
    // It shrinks, and grows, though not to its old size.
    std::thread::sleep(LONG);
    let discarded = told_of(|own| {
        let pages = 0..4 * MANY;
        let done = own.memory.advise(pages, libc::MADV_DONTNEED);
        done.expect("discard");
        fill(&mut own.memory, 8 * MANY..8 * MANY + 1, 2);
    });
    assert_eq!(discarded, 0, "it became small");
    let again = told_of(|own| fill(&mut own.memory, 9 * MANY..11 * MANY, 2));
    assert!(again >= 1, "it has grown again");
    std::thread::sleep(LONG);
    let rest = told_of(|own| fill(&mut own.memory, 11 * MANY + TABLE..11 * MANY + TABLE + 1, 2));
    assert!(rest <= 1, "{rest} times");
    std::thread::sleep(LONG);
    let in_place = told_of(|own| fill(&mut own.memory, 9 * MANY..11 * MANY, 3));
    assert_eq!(in_place, 0, "nothing appeared");
    hints.forget(pid);
    for peer in &mut peers {
        peer.run(|own| fill(&mut own.memory, 4 * MANY..8 * MANY, 3));
    }
    assert_eq!(hints.take().grown, [], "it is followed no longer");
}

/// After this time a daemon of governor low reads sizes each 8 s.
const CALM: Duration = Duration::from_secs(13);
/// Pages that are there when the daemon starts, and pages of each growth.
const OLD: usize = 4096;
const NEW: usize = 2048;
/// The old mapping has room for the first growth; then another follows.
const FIRST: std::ops::Range<usize> = OLD..OLD + NEW;
const SECOND: std::ops::Range<usize> = FIRST.end + 16..FIRST.end + 16 + NEW;

fn memory_that_appears_in_calm_processes_is_merged_soon_by_a_daemon_with_little_time(
    context: &mut Context,
) {
    let mut pair = [1, 2].map(|seed| {
        let mut peer = Peer::new(FIRST.end);
        peer.run(move |own| fill(&mut own.memory, 0..OLD, seed));
        peer
    });
    let mut daemon = Daemon::start_with("low", &pid_arguments(&pair));
    await_programs(&mut daemon);
    let in_place: fn(&mut Own) = |own| fill(&mut own.memory, FIRST, 3);
    let mapped: fn(&mut Own) = |_| {
        let base = BASE + (SECOND.start * PAGE) as u64;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        fill(&mut Memory::at(base, NEW, flags, -1), 0..NEW, 4);
    };
    for (round, (name, order)) in [("in place", in_place), ("mapped", mapped)]
        .into_iter()
        .enumerate()
    {
        // First looks are over, and sizes are read at the longest interval.
        std::thread::sleep(CALM);
        let begun = Instant::now();
        for peer in &mut pair {
            peer.run(order);
        }
        let filled = begun.elapsed();
        while pages_shared_by(&pair, SECOND.end) < round * NEW + NEW * 9 / 10 {
            daemon.assert_running();
            let is_late = begun.elapsed() > Duration::from_secs(30);
            assert!(!is_late, "{name}: {}; {}", status_json(), status_text());
            std::thread::sleep(Duration::from_millis(20));
        }
        let took = begun.elapsed() - filled;
        context.metric(&format!("{name} merged"), took.as_secs_f64(), "s");
        let status: serde_json::Value = serde_json::from_str(&status_json()).expect("JSON");
        let grown = status["hints"]["grown"].as_u64();
        assert!(grown >= Some(2 * (round as u64 + 1)), "{name}: {status}");
    }
    daemon.stop();
}
