//! The memory of a region, and the order in which it is read.

use super::*;
use proptest::prelude::*;

fn region(start: u64, pages: u32) -> Region {
    Region::new(NewRegion {
        start,
        pages,
        space: SpaceSlot(0),
        mapping_kind: 0,
        lifetime_class: 0,
        born: 0,
    })
}

proptest! {
    #[test]
    fn a_cycle_of_either_cursor_sees_every_page_once(
        start in 0u64..4096, pages in 1u32..3000, seed: u64,
    ) {
        let permutations = Permutations::new(seed);
        let mut scattered = region(start * PAGE_SIZE, pages);
        let mut swept = scattered.clone();
        let mut seen = vec![0; pages as usize];
        for _ in 0..pages {
            seen[scattered.next_page(&permutations) as usize] += 1;
        }
        prop_assert!(seen.iter().all(|&n| n == 1));
        loop {
            let (block, done) = swept.next_block(&permutations, 0);
            let (first, count) = swept.block_pages(block);
            for page in first..first + count {
                prop_assert_eq!(swept.block_of(page), block);
                seen[page as usize] += 1;
            }
            if done {
                break;
            }
        }
        prop_assert!(seen.iter().all(|&n| n == 2));
    }
}

#[test]
fn regions_of_similar_size_are_read_in_one_order() {
    let permutations = Permutations::new(1);
    let (mut a, mut b) = (region(0, 30_000), region(1 << 40, 31_000));
    let first = |r: &mut Region| {
        (0..100)
            .map(|_| r.next_page(&permutations))
            .collect::<Vec<_>>()
    };
    let (a, b) = (first(&mut a), first(&mut b));
    let common = a.iter().filter(|page| b.contains(page)).count();
    assert!(common > 90, "{common} of 100");
}

#[test]
fn merged_pages_survive_growing_and_not_shrinking() {
    let mut r = region(0, 100);
    for page in [0, 63, 64, 99] {
        r.set_merged(page, true, 1);
        r.set_merged(page, true, 1);
    }
    assert_eq!(r.merged_now(), 4);
    r.resize(5000);
    assert!(r.is_merged(99) && !r.is_merged(4999));
    r.resize(64);
    assert_eq!(r.merged_now(), 2);
    r.set_merged(0, false, 1);
    assert_eq!((r.merged_now(), r.is_merged(0)), (1, false));
}

#[test]
fn holes_lower_the_weight_and_never_to_nothing() {
    let mut r = region(0, 1 << 20);
    assert_eq!(r.weight(), 1 << 20);
    for _ in 0..100 {
        r.missed(1);
    }
    assert_eq!((r.resident(), r.weight()), (0, 1 << 10));
    for _ in 0..100 {
        r.found(1);
    }
    assert_eq!(r.resident(), 1 << 19);
}

#[test]
fn an_id_is_not_given_again_at_once() {
    let mut regions = Regions::default();
    let first = regions.insert(region(0, 1));
    regions.remove(first);
    assert!(regions.find(first, 0).is_none());
    assert_ne!(regions.insert(region(0, 1)), first);
    assert_eq!(regions.len(), 1);
}

#[test]
fn a_small_region_that_was_swept_takes_no_more_than_before() {
    let permutations = Permutations::new(1);
    let mut r = region(0, 16);
    assert!(r.bytes() <= 152, "{}", r.bytes());
    let before = r.bytes();
    assert_eq!(r.next_block(&permutations, 1), (0, true));
    r.begin_answer(true, 2);
    r.took(0..16);
    r.swept(16);
    assert!(r.bytes() > before && r.is_sweep_over());
    assert_eq!(r.end_sweep(2, 1, 0.1, false), SweepEnd::Done);
    r.forget_samples();
    assert!(r.bytes() == before && r.was_swept());
}

#[test]
fn a_region_that_was_lost_and_found_again_takes_no_more_than_before() {
    let mut r = region(0, 16);
    let before = r.bytes();
    r.lose(7);
    assert!(r.bytes() > before && r.is_lost_before(7) && !r.is_lost_before(6));
    r.enter_ladder(0);
    assert_eq!(r.bytes(), before);
}
