//! Zeros merged in huge pages, which khugepaged then makes part of a huge page again.

mod scene;

use scene::*;
use uksm_policy::command::{Nanos, SpaceId};
use uksm_policy::params::{Contents, Params};
use uksm_simulator::{Content, Fill, Host, Run};

/// 64 MiB.
const PAGES: u64 = 64 * MIB;
const BLOCKS: u64 = PAGES / 512;
/// The kernel's default.
const MAX_PTES_NONE: u64 = 511;

/// One page of each huge page holds data, the others zeros.
fn zeroed() -> (Host, SpaceId) {
    let mut host = host();
    let space = host.spawn(1);
    let content = |page: u64| match page % 512 {
        77 => unique(1)(page),
        _ => Content::ZERO,
    };
    host.map(space, base(1), PAGES, HEAP, &Fill::Huge(&content));
    (host, space)
}

fn zeros() -> Params {
    Params {
        merge: Contents::Zero,
        ..full()
    }
}

/// Runs until `end` while khugepaged passes over all memory each `period`.
fn beside_khugepaged(run: &mut Run, end: Nanos, period: Nanos) {
    let mut next = run.now() + period;
    run.until(end, |host, now| {
        if now >= next {
            host.collapse(MAX_PTES_NONE);
            next = now + period;
        }
    });
}

#[test]
fn zeros_that_khugepaged_undoes_are_left_alone_and_not_counted() {
    for params in [zeros(), full()] {
        let mut run = run(params, zeroed().0);
        beside_khugepaged(&mut run, 100 * S, S);
        let (early, spent) = (run.host.splits, run.spent());
        beside_khugepaged(&mut run, 700 * S, S);
        let report = run.engine.report();
        let share = (run.spent() - spent) as f64 / (600 * S) as f64;
        eprintln!(
            "{early}, {} splits, {share:.5}, {:?}, {:?}, {}",
            run.host.splits,
            report.huge,
            report.merged,
            show(&run)
        );
        // One at first, one after 64 rounds, and one after 256 more; khugepaged may come while a
        // block is being merged.
        assert!(
            early <= BLOCKS + BLOCKS / 8,
            "{early} splits: {}",
            show(&run)
        );
        let most = 3 * (BLOCKS + BLOCKS / 8);
        assert!(
            run.host.splits <= most,
            "{} splits: {}",
            run.host.splits,
            show(&run)
        );
        assert!(share <= 0.005, "{share}");
        assert!(report.huge.again >= BLOCKS, "{:?}", report.huge);
        assert_eq!(report.huge.left_alone, BLOCKS, "{:?}", report.huge);
        assert_eq!(report.merged.now, run.host.saved(), "{:?}", report.merged);
    }
}

#[test]
fn what_khugepaged_undoes_stops_being_counted_within_seconds() {
    let (host, _) = zeroed();
    let mut run = run(zeros(), host);
    let wanted = PAGES * 95 / 100;
    assert!(
        run.until_done(20 * S, |host| host.saved() >= wanted)
            .is_some()
    );
    run.quietly_until(run.now() + 200 * S);
    assert_eq!(run.host.collapse(MAX_PTES_NONE), BLOCKS);
    let undone = run.now();
    while run.engine.report().merged.now > run.host.saved() + PAGES / 50 {
        run.quietly_until(run.now() + 100 * MS);
        assert!(
            run.now() < undone + 30 * S,
            "{:?} {}",
            run.engine.report().merged,
            show(&run)
        );
    }
    eprintln!("known after {} ms", (run.now() - undone) / MS);
}

#[test]
fn zeros_that_lasted_for_an_hour_are_merged_again() {
    let mut run = run(zeros(), zeroed().0);
    beside_khugepaged(&mut run, 3 * 3600 * S - 60 * S, 3600 * S);
    let report = run.engine.report();
    assert!(
        run.host.saved() >= PAGES * 95 / 100,
        "{:?} {}",
        report.huge,
        show(&run)
    );
    assert_eq!(report.huge.again, 2 * BLOCKS, "{:?}", report.huge);
}

/// Merges with frames are not undone, so zeros beside such pages stay merged, too.
#[test]
fn zeros_beside_pages_with_partners_are_merged_and_stay() {
    let mut host = host();
    for number in 0..2 {
        let space = host.spawn(number);
        let content = |page: u64| match page % 2 {
            0 => unique(1)(page),
            _ => Content::ZERO,
        };
        host.map(space, base(1), PAGES, HEAP, &Fill::Huge(&content));
    }
    let mut run = run(full(), host);
    beside_khugepaged(&mut run, 60 * S, S);
    let mergeable = run.host.mergeable();
    assert!(run.host.saved() * 100 >= mergeable * 95, "{}", show(&run));
    assert_eq!(run.engine.report().huge.again, 0);
    assert_eq!(run.host.splits, 2 * BLOCKS);
}
