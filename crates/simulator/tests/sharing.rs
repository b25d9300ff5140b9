//! Many pages of one content, many contents of one hash, and frames that are full, gone or broken.

mod scene;

use scene::*;
use uksm_policy::command::{PAGE_SIZE, PageState, SpaceId};
use uksm_policy::params::{Contents, Params};
use uksm_policy::report::Standing;
use uksm_simulator::{Content, Fill, Run};

/// `pages` equal pages in one process: the largest saved share, pages that met a full frame, and
/// processor time a page saved.
fn identical(pages: u64) -> (f64, f64, u64) {
    let mut host = host();
    let space = host.spawn(1);
    let same = Fill::Dense(&|_| Content::new(3));
    host.map(space, base(1), pages, HEAP, &same);
    let sharers = u64::from(host.sharer_limit);
    let ideal = pages - pages.div_ceil(sharers);
    let mut run = run(full(), host);
    run.quietly_until(30 * S);
    let report = run.engine.report();
    eprintln!("identical {pages}: {}", show(&run));
    assert_balanced(&run);
    assert_eq!(report.frames.frames, run.host.frames() as u64);
    (
        run.host.saved() as f64 / ideal as f64,
        report.outcomes.full as f64 / report.outcomes.tried as f64,
        run.spent() / run.host.saved().max(1),
    )
}

#[test]
fn identical_pages_fill_one_frame_after_the_other_and_are_not_sent_to_full_ones() {
    let (saved, full, each) = identical(20_000);
    eprintln!("{saved:.4} of the ideal, {full:.4} full, {each} ns a page saved");
    assert!(saved >= 0.95, "{saved}");
    assert!(full < 0.05, "{full}");
}

#[test]
fn a_hundred_thousand_identical_pages_cost_as_much_each_as_a_fifth_of_them() {
    let (_, _, few) = identical(20_000);
    let (saved, full, many) = identical(100_000);
    eprintln!("{saved:.4} of the ideal, {full:.4} full, {few} and {many} ns a page saved");
    assert!(saved >= 0.95 && full < 0.05, "{saved} {full}");
    assert!(many < few * 5 / 4, "{few}, then {many} ns a page saved");
}

/// A hash too weak for this memory.
fn weak() -> Params {
    Params {
        strength: Some(4),
        ..full()
    }
}

#[test]
fn pages_that_hash_like_zeros_merge_with_each_other() {
    let mut host = host();
    let space = host.spawn(1);
    let zeros = Fill::Dense(&|_| Content::ZERO);
    host.map(space, base(1), 4 * MIB, HEAP, &zeros);
    let nearly = |page: u64| Content::nearly_zero(page % 2 + 1, 8);
    host.map(space, base(2), 4 * MIB, HEAP, &Fill::Dense(&nearly));
    let mut run = run(weak(), host);
    merge(&mut run, 95, 60 * S);
}

/// Zeros, pages that a weak hash takes for zeros, and equal pages, in two processes.
fn zeros_among_others(merge: Contents, strength: Option<u16>) -> Run {
    let mut host = host();
    for n in 0..2 {
        let space = host.spawn(1);
        let zeros = Fill::Dense(&|_| Content::ZERO);
        host.map(space, base(1), 4 * MIB, HEAP, &zeros);
        let nearly = |page: u64| Content::nearly_zero(page % 2 + 1, 8);
        host.map(space, base(2), 4 * MIB, HEAP, &Fill::Dense(&nearly));
        let equal = |page: u64| Content::new(page + 1);
        host.map(space, base(3), 4 * MIB, HEAP, &Fill::Dense(&equal));
        let own = move |page: u64| Content::new(1_000_000 * (n + 1) + page);
        host.map(space, base(4), 4 * MIB, HEAP, &Fill::Dense(&own));
    }
    let params = Params {
        merge,
        strength,
        ..full()
    };
    let mut run = run(params, host);
    run.quietly_until(60 * S);
    eprintln!("{}", show(&run));
    assert_balanced(&run);
    run
}

#[test]
fn where_zeros_alone_may_be_merged_nobody_shares_a_frame() {
    for strength in [None, weak().strength] {
        let zero = zeros_among_others(Contents::Zero, strength);
        assert_eq!(zero.host.frames(), 0);
        let saved = zero.host.saved();
        let zeros = 2 * 4 * MIB;
        assert!(
            saved <= zeros && saved >= zeros * 99 / 100,
            "{saved} of {zeros}"
        );
        let report = zero.engine.report();
        assert_eq!(report.frames.frames, 0);
        assert_eq!(report.merged.cross_process, 0);
    }
}

#[test]
fn zeros_alone_cost_less_than_all() {
    let all = zeros_among_others(Contents::All, full().strength);
    assert!(all.host.frames() > 0);
    let zero = zeros_among_others(Contents::Zero, full().strength);
    assert!(
        zero.spent() < all.spent(),
        "{} and {} ns",
        zero.spent(),
        all.spent()
    );
}

#[test]
fn pages_that_hash_like_a_frame_merge_with_each_other() {
    let mut host = host();
    let space = host.spawn(1);
    let first = Fill::Dense(&|_| Content::similar(1, 7, 8));
    host.map(space, base(1), 100, HEAP, &first);
    let mut run = run(weak(), host);
    merge(&mut run, 95, 20 * S);
    let later = |page: u64| Content::similar(page % 2 + 2, 7, 8);
    run.host
        .map(space, base(2), 4 * MIB, HEAP, &Fill::Dense(&later));
    let end = run.now() + 60 * S;
    merge(&mut run, 95, end);
}

#[test]
fn zeros_where_the_zero_page_may_not_be_mapped_share_frames() {
    let mut host = host();
    let space = host.spawn(1);
    let zeros = Fill::Dense(&|_| Content::ZERO);
    host.map(space, base(1), 16 * MIB, HEAP, &zeros);
    host.refuse_zero(space, base(1));
    let mut run = run(full(), host);
    let ideal = 16 * MIB - 16 * MIB / 256;
    let time = run.until_done(60 * S, |host| host.saved() >= ideal * 95 / 100);
    assert!(time.is_some(), "{}", show(&run));
    let report = run.engine.report();
    assert_eq!(report.merged.zero, 0);
    assert!(
        report.outcomes.refused < 16 * MIB / 10,
        "refused once, it is not tried again: {:?}",
        report.outcomes
    );
    let explained = run.engine.explain(space).unwrap();
    assert_ne!(explained.regions[0].standing, Standing::Refused);
}

#[test]
fn frames_that_go_by_themselves_and_numbers_that_come_again_confuse_nobody() {
    let mut run = run(full(), clones(16 * MIB, 0));
    merge(&mut run, 95, 20 * S);
    for last in 0..3u32 {
        let generation = last + 2;
        for number in 1..=2 {
            run.host
                .exit(uksm_policy::command::SpaceId(2 * last + number));
        }
        // Before the engine is notified, the numbers name frames of other contents.
        run.host.shrink(true);
        assert_eq!(run.host.frames(), 0);
        for _ in 0..2 {
            let space = run.host.spawn(1);
            let fill = Fill::Dense(&unique(u64::from(generation)));
            run.host.map(space, base(1), 16 * MIB, HEAP, &fill);
        }
        let end = run.now() + 30 * S;
        merge(&mut run, 95, end);
        // Two listings: the reports on a frame during one are believed until the next.
        run.quietly_until(run.now() + 10 * S);
        let frames = run.engine.report().frames;
        assert_eq!(frames.frames, run.host.frames() as u64);
        assert_eq!(frames.saved, run.host.saved());
    }
}

#[test]
fn a_frame_whose_memory_failed_gets_no_more_pages_and_they_get_another() {
    let mut host = host();
    let space = host.spawn(1);
    let same = Fill::Dense(&|_| Content::new(3));
    host.map(space, base(1), 20, HEAP, &same);
    let mut run = run(full(), host);
    run.quietly_until(20 * S);
    assert_eq!(run.host.saved(), 19);
    let first = run.host.frame_of(space, base(1)).unwrap();
    run.host.poison(first);
    run.host.map(space, base(2), 100, HEAP, &same);
    run.quietly_until(run.now() + 30 * S);
    assert_eq!(run.host.saved(), 19 + 99, "{}", show(&run));
    let second = run.host.frame_of(space, base(2)).unwrap();
    assert_ne!(first, second);
    for page in 0..100 {
        let page = run.host.page(space, base(2) + page * PAGE_SIZE).unwrap();
        assert_eq!(page.state, PageState::Frame);
    }
}

/// Two pairs of processes with the same pages run for half a minute; the pages of the first pair
/// are merged before those of the second. Then one pair ends. Returns the frames without mappings
/// after the last second of ten.
fn unmapped_after_an_end(ends: u64) -> u64 {
    let mut host = host();
    for number in 0..4 {
        let space = host.spawn(number);
        let start = base(number);
        let owner = number / 2;
        host.map(space, start, 256 * MIB, HEAP, &Fill::Dense(&unique(owner)));
    }
    let mut run = run(full(), host);
    merge(&mut run, 99, 20 * S);
    run.quietly_until(30 * S);
    for number in [2 * ends, 2 * ends + 1] {
        run.host.exit(SpaceId(u32::try_from(number).unwrap() + 1));
    }
    run.quietly_until(40 * S);
    let held = run.host.held();
    held.filter(|(_, frame)| frame.sharers == 0).count() as u64
}

#[test]
fn frames_of_processes_that_ended_are_freed_in_seconds() {
    for ends in [0, 1] {
        let unmapped = unmapped_after_an_end(ends);
        assert!(unmapped < 2 * MIB, "{unmapped} frames that nothing maps");
    }
}
