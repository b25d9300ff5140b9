//! Blocks are offered where they have partners, and nowhere else.

use std::collections::BTreeSet;

use super::*;

const SPACE: SpaceId = SpaceId(1);
const OTHER: SpaceId = SpaceId(2);
const V_DUP: f64 = 0.1;

/// Contents of memory: a hash for an address, or nothing.
type Memory<'a> = &'a dyn Fn(SpaceId, u64) -> Option<u64>;

fn mapping(start_block: u64, blocks: u64) -> Mapping {
    Mapping {
        start: start_block * BLOCK,
        end: (start_block + blocks) * BLOCK,
        kind: 1,
    }
}

/// Samples until the pass is through; returns the advice, and the number of pages read.
fn pass(estimates: &mut Estimates, memory: Memory<'_>, merged: bool) -> (Vec<AdviceChange>, u64) {
    let before = estimates.sampled();
    let mut changes = Vec::new();
    while let Some(probe) = estimates.next_probe() {
        let seen = probe.pages.iter().map(|&page| {
            assert_eq!(page % PAGE_SIZE, 0);
            match memory(probe.space, page) {
                None => ProbedPage::Absent,
                Some(hash) if merged => ProbedPage::Merged(hash),
                Some(hash) => ProbedPage::Alone(hash),
            }
        });
        let seen: Vec<ProbedPage> = seen.collect();
        changes.extend(estimates.answer(&probe, &seen));
    }
    (changes, estimates.sampled() - before)
}

/// Contents without a partner.
fn random(space: SpaceId, page: u64) -> u64 {
    crate::mix::mix(page ^ (u64::from(space.0) << 50))
}

fn blocks(changes: &[AdviceChange]) -> BTreeSet<(u32, u64)> {
    let offers = changes.iter().filter(|change| change.offer);
    offers
        .map(|change| (change.space.0, change.start / BLOCK))
        .collect()
}

#[test]
fn of_identical_and_random_memory_the_identical_half_is_offered_for_an_eighth_of_the_rest() {
    let mut estimates = Estimates::new(V_DUP, 7);
    estimates.set_mappings(SPACE, &[mapping(10, 64), mapping(100, 64)], false);
    let memory = |space, page: u64| {
        let is_identical = page < 74 * BLOCK;
        Some(if is_identical { 5 } else { random(space, page) })
    };
    let (changes, read) = pass(&mut estimates, &memory, false);
    let all: BTreeSet<_> = (10..74).map(|block| (1, block)).collect();
    assert_eq!(blocks(&changes), all);
    assert_eq!(
        read,
        64 * 8 + 64 * 64,
        "all stages of what has no partner, one of the rest"
    );
    assert!(estimates.gain() > 64 * BLOCK_PAGES * 9 / 10);
    assert!(estimates.is_due());
}

#[test]
fn aligned_copies_are_found_by_the_first_stage() {
    let mut estimates = Estimates::new(V_DUP, 7);
    for space in [SPACE, OTHER] {
        estimates.set_mappings(space, &[mapping(10, 16)], false);
    }
    let copies = |_, page| Some(random(SPACE, page));
    let (changes, read) = pass(&mut estimates, &copies, false);
    assert_eq!(blocks(&changes).len(), 32, "both copies");
    assert_eq!(read, 32 * 8);
}

#[test]
fn copies_at_another_offset_are_found_by_the_last_stage() {
    let mut estimates = Estimates::new(V_DUP, 7);
    for space in [SPACE, OTHER] {
        estimates.set_mappings(space, &[mapping(10, 64)], false);
    }
    let copies = |space: SpaceId, page| {
        let shift = u64::from(space.0) * 37 * PAGE_SIZE;
        Some(random(SPACE, page + shift))
    };
    let (changes, _) = pass(&mut estimates, &copies, false);
    let found = blocks(&changes).len();
    assert!(found > 128 * 3 / 4, "{found} of 128 blocks");
}

#[test]
fn what_is_random_or_empty_is_never_offered() {
    let mut estimates = Estimates::new(V_DUP, 7);
    estimates.set_mappings(SPACE, &[mapping(10, 64), mapping(100, 64)], false);
    let memory = |space, page: u64| (page < 74 * BLOCK).then(|| random(space, page));
    for _ in 0..5 {
        let (changes, _) = pass(&mut estimates, &memory, false);
        assert_eq!(changes, []);
        estimates.begin_pass();
    }
    assert_eq!((estimates.gain(), estimates.is_due()), (0, false));
}

#[test]
fn what_was_offered_in_vain_is_withdrawn_and_left_alone_longer_each_time() {
    let mut estimates = Estimates::new(V_DUP, 7);
    estimates.set_mappings(SPACE, &[mapping(10, 4)], false);
    let equal = |_, _| Some(5);
    let mut passes = Vec::new();
    let mut offered_in = 0;
    for number in 0..40 {
        let (changes, _) = pass(&mut estimates, &equal, false);
        if !blocks(&changes).is_empty() {
            passes.push(number - offered_in);
            offered_in = number;
            estimates.check();
            let (changes, _) = pass(&mut estimates, &equal, false);
            assert!(changes.len() == 4 && changes.iter().all(|change| !change.offer));
        }
        estimates.begin_pass();
    }
    assert_eq!(passes, [0, 2, 4, 8, 16], "{passes:?}");
    assert_eq!(estimates.totals().withdrawn, 20);
}

#[test]
fn what_was_merged_stays_offered_and_gains_nothing_more() {
    let mut estimates = Estimates::new(V_DUP, 7);
    estimates.set_mappings(SPACE, &[mapping(10, 4)], false);
    let equal = |_, _| Some(5);
    pass(&mut estimates, &equal, false);
    assert!(estimates.is_due());
    estimates.check();
    let (changes, read) = pass(&mut estimates, &equal, true);
    assert_eq!((changes.len(), read), (0, 32));
    assert!(!estimates.is_due());
    assert_eq!(estimates.totals().offered_pages, 4 * BLOCK_PAGES);
    assert_eq!(estimates.offered(Some(SPACE)).len(), 4);
}

#[test]
fn memory_that_is_offered_anyway_is_neither_offered_nor_withdrawn() {
    let mut estimates = Estimates::new(V_DUP, 7);
    estimates.set_mappings(SPACE, &[mapping(10, 4)], true);
    let equal = |_, _| Some(5);
    assert_eq!(pass(&mut estimates, &equal, false).0, []);
    assert!(estimates.is_due());
    estimates.check();
    assert_eq!(pass(&mut estimates, &equal, false).0, []);
    assert_eq!(estimates.offered(None), []);
}

#[test]
fn a_page_is_no_partner_of_itself() {
    let mut estimates = Estimates::new(V_DUP, 7);
    estimates.set_mappings(SPACE, &[mapping(10, 1)], false);
    let memory = |space, page| Some(random(space, page));
    for _ in 0..4 {
        assert_eq!(pass(&mut estimates, &memory, false).0, []);
        estimates.has_grown(SPACE);
    }
}

#[test]
fn ranges_of_one_space_are_bounded() {
    let mut estimates = Estimates::new(V_DUP, 7);
    let apart: Vec<Mapping> = (0..1500).map(|at| mapping(10 + 2 * at, 1)).collect();
    estimates.set_mappings(SPACE, &apart, false);
    let equal = |_, _| Some(5);
    let (changes, _) = pass(&mut estimates, &equal, false);
    assert_eq!(blocks(&changes).len(), MAX_RANGES);
    assert!(estimates.totals().left_out > 0);
    estimates.forget(SPACE);
    assert_eq!(estimates.totals().blocks, 0);
}

#[test]
fn small_pieces_are_left_out_and_sampled_whole_if_they_are_large_enough() {
    let mut estimates = Estimates::new(V_DUP, 7);
    let piece = |block: u64, pages: u64| Mapping {
        start: block * BLOCK + 5 * PAGE_SIZE,
        end: block * BLOCK + (5 + pages) * PAGE_SIZE,
        kind: 1,
    };
    estimates.set_mappings(SPACE, &[piece(1, 15), piece(3, 16)], false);
    assert_eq!(estimates.totals().blocks, 1);
    let equal = |_, _| Some(5);
    let (changes, _) = pass(&mut estimates, &equal, false);
    let offered: Vec<_> = changes.iter().map(|c| (c.start, c.end)).collect();
    assert_eq!(offered, [(piece(3, 16).start, piece(3, 16).end)]);
}

#[test]
fn advice_that_could_not_be_passed_on_is_tried_again_later() {
    let mut estimates = Estimates::new(V_DUP, 7);
    estimates.set_mappings(SPACE, &[mapping(10, 1)], false);
    let equal = |_, _| Some(5);
    let (changes, _) = pass(&mut estimates, &equal, false);
    estimates.undo(&changes[0]);
    assert_eq!(estimates.totals().offered_pages, 0);
    let again = (0..4).find(|_| {
        estimates.begin_pass();
        !pass(&mut estimates, &equal, false).0.is_empty()
    });
    assert_eq!(again, Some(1));
}
