//! The unmerged index against an exact map.

use super::*;
use crate::ids::RegionId;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn place(number: u32) -> RegionPage {
    RegionPage {
        region: RegionId(number),
        page: !number & 0x3FFF,
    }
}

/// A hash as line hashes are: spread.
fn hash(number: u64) -> u64 {
    mix(number.wrapping_add(1))
}

/// The layout that the parameters choose by default.
fn layout() -> Layout {
    Layout::new(14, 20)
}

fn index(bytes: usize) -> UnmergedIndex {
    UnmergedIndex::with_bytes(bytes, layout())
}

#[derive(Debug, Clone)]
enum Step {
    Match(u64, u32),
    Remove(u64, u32),
    Replace(u64, u32, u32),
    Era(u16),
    Turn,
    Grow(usize),
    Shrink(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (content, at) = (0u64..60, 0u32..40);
    let step = prop_oneof![
        12 => (content.clone(), at.clone()).prop_map(|(c, p)| Step::Match(c, p)),
        2 => (content.clone(), at.clone()).prop_map(|(c, p)| Step::Remove(c, p)),
        2 => (content, at.clone(), at).prop_map(|(c, p, q)| Step::Replace(c, p, q)),
        1 => (1u16..4).prop_map(Step::Era),
        2 => Just(Step::Turn),
        1 => (1usize..600).prop_map(Step::Grow),
        1 => (1usize..600).prop_map(Step::Shrink),
    ];
    prop::collection::vec(step, 0..400)
}

/// Place and round by (era, hash). The entries that the index may hold; it may lack those that it
/// reports as evicted, and, of other eras, those that it replaced silently.
type Model = BTreeMap<(u16, u64), (RegionPage, u32)>;

/// Bytes of an index in which all that the steps can enter has room, however it grows by them.
const ROOMY_BYTES: usize = 256 << 10;
const MAX_BUCKETS: usize = ROOMY_BYTES / BUCKET_BYTES + 16_384;

#[test]
fn a_roomy_index_has_room_for_each_hash_in_three_eras() {
    for buckets in (ROOMY_BYTES / BUCKET_BYTES..=MAX_BUCKETS).step_by(61) {
        let table = Table::new(buckets, layout());
        let mut in_bucket = BTreeMap::new();
        for content in 0..60 {
            let bucket = table.address(mix(hash(content))).bucket;
            *in_bucket.entry(bucket).or_insert(0) += 3;
        }
        assert!(
            in_bucket.values().all(|&entries| entries <= WAYS),
            "{buckets}"
        );
    }
}

/// Runs `steps`, checking each answer; `exact` when the index is so large that nothing of
/// another era is ever in the way.
fn check(bytes: usize, steps: &[Step], exact: bool) {
    let mut index = index(bytes);
    let mut model = Model::new();
    let (mut era, mut round) = (1, 0u32);
    for step in steps {
        match *step {
            Step::Era(new) => {
                era = new;
                index.set_era(new);
            }
            Step::Turn => round += 1,
            Step::Grow(buckets) => {
                for _ in index.table.buckets()..MAX_BUCKETS.min(index.table.buckets() + buckets) {
                    index.change_by_bucket(Table::grow, round);
                }
            }
            Step::Shrink(buckets) => {
                let least = (bytes / BUCKET_BYTES).max(4);
                for _ in
                    least.max(index.table.buckets().saturating_sub(buckets))..index.table.buckets()
                {
                    index.change_by_bucket(Table::shrink, round);
                }
            }
            Step::Remove(content, at) => {
                let known = model
                    .get(&(era, content))
                    .is_some_and(|entry| entry.0 == place(at));
                let removed = index.remove(hash(content), place(at));
                assert!(!removed || known, "removed what was not there");
                assert!(!exact || removed == known);
                if known {
                    model.remove(&(era, content));
                }
            }
            Step::Replace(content, at, new) => {
                let known = model
                    .get(&(era, content))
                    .is_some_and(|entry| entry.0 == place(at));
                let replaced = index.replace(hash(content), place(at), place(new), round);
                assert!(!replaced || known, "replaced what was not there");
                assert!(!exact || replaced == known);
                if replaced {
                    model.insert((era, content), (place(new), round));
                }
            }
            Step::Match(content, at) => {
                look_up(&mut index, &mut model, (era, round), (content, at), exact);
            }
        }
        let of_era = model.keys().filter(|key| key.0 == era).count() as u64;
        assert!(
            index.len() <= of_era,
            "{} entries, {of_era} at most",
            index.len()
        );
        assert!(!exact || index.len() == of_era);
        assert!(index.len() <= index.slots() as u64);
    }
}

fn look_up(
    index: &mut UnmergedIndex,
    model: &mut Model,
    (era, round): (u16, u32),
    (content, at): (u64, u32),
    exact: bool,
) {
    let known = model.get(&(era, content)).copied();
    assert_eq!(
        index
            .find(hash(content), round)
            .is_some_and(|(found, _)| found == place(at)),
        match index.look_up(hash(content), place(at), round) {
            Match::Partner { place: found, age } => {
                let (of, seen) = known.expect("a partner that was never entered");
                let steps = (round / 4 - seen / 4) % 16;
                assert_eq!((found, u32::from(age)), (of, 4 * steps));
                assert_ne!(found, place(at), "a page is its own partner");
                return;
            }
            Match::Refreshed => true,
            Match::LeftOut => panic!("all hashes are kept"),
            Match::Inserted => {
                assert!(
                    !exact || known.is_none(),
                    "an entry was lost without a word"
                );
                false
            }
        }
    );
    model.insert((era, content), (place(at), round));
}

proptest! {
    #[test]
    fn a_roomy_index_is_an_exact_map_and_no_change_of_size_loses_anything(steps in steps()) {
        check(ROOMY_BYTES, &steps, true);
    }

    #[test]
    fn a_crowded_index_never_names_a_partner_that_was_not_entered(steps in steps()) {
        check(16 * BUCKET_BYTES, &steps, false);
    }

    #[test]
    fn the_smallest_index_never_names_a_partner_that_was_not_entered(steps in steps()) {
        check(1, &steps, false);
    }

    #[test]
    fn a_batch_answers_as_its_visits_one_by_one(
        pages in prop::collection::vec((0u64..300, 0u32..300), 0..600),
    ) {
        let queries: Vec<Query> =
            pages.iter().map(|&(c, p)| Query { hash: hash(c), place: place(p) }).collect();
        let (mut one, mut batch) = (index(1024), index(1024));
        let single: Vec<Match> =
            queries.iter().map(|query| one.look_up(query.hash, query.place, 3)).collect();
        let mut together = Vec::new();
        batch.look_up_batch(&queries, 3, &mut together);
        prop_assert_eq!(single, together);
    }

    #[test]
    fn the_same_calls_make_the_same_index(
        pages in prop::collection::vec((0u64..3000, 0u32..300, 0u32..9), 0..900),
    ) {
        let run = || {
            let mut index = index(256);
            index.fit(1000, usize::MAX);
            let mut matches = vec![];
            for pages in pages.chunks(64) {
                let query = |&(c, p, _): &(u64, u32, u32)| Query { hash: hash(c), place: place(p) };
                let queries: Vec<Query> = pages.iter().map(query).collect();
                index.look_up_batch(&queries, pages[0].2, &mut matches);
            }
            let buckets: Vec<[u64; WAYS]> =
                (0..index.table.buckets()).map(|number| *index.table.bucket(Bucket::numbered(number))).collect();
            (matches, buckets)
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn an_entry_that_was_moved_is_where_its_hash_is_looked_for(
        hashes: [u64; 4], buckets in 4usize..3000, steps in 0usize..9000,
    ) {
        let mut index = index(buckets * BUCKET_BYTES);
        for (number, hash) in (0..).zip(hashes) {
            index.look_up(hash, place(number), 0);
        }
        for _ in 0..steps {
            index.change_by_bucket(Table::grow, 0);
        }
        prop_assert_eq!(index.table.buckets(), buckets + steps);
        for (number, hash) in (0..).zip(hashes) {
            prop_assert_eq!(index.find(hash, 0), Some((place(number), 0)));
        }
        for _ in 0..steps {
            index.change_by_bucket(Table::shrink, 0);
        }
        for (number, hash) in (0..).zip(hashes) {
            prop_assert_eq!(index.find(hash, 0), Some((place(number), 0)));
        }
    }
}

#[test]
fn a_page_is_found_by_its_equal_until_it_is_removed() {
    let mut index = index(4096);
    assert_eq!(index.look_up(5, place(1), 10), Match::Inserted);
    assert_eq!(index.look_up(5, place(1), 11), Match::Refreshed);
    assert_eq!(
        index.look_up(5, place(2), 21),
        Match::Partner {
            place: place(1),
            age: 12
        }
    );
    assert_eq!(index.find(5, 14), Some((place(1), 4)));
    assert!(!index.remove(5, place(2)));
    assert!(index.remove(5, place(1)));
    assert_eq!(index.look_up(5, place(2), 14), Match::Inserted);
    assert_eq!(index.len(), 1);
}

#[test]
fn a_place_that_is_gone_is_replaced() {
    let mut index = index(4096);
    index.look_up(5, place(1), 10);
    assert!(!index.replace(5, place(3), place(2), 12));
    assert!(index.replace(5, place(1), place(2), 12));
    assert_eq!(
        index.look_up(5, place(3), 12),
        Match::Partner {
            place: place(2),
            age: 0
        }
    );
    assert_eq!(index.len(), 1);
}

#[test]
fn another_era_does_not_match_and_comes_back_when_its_room_was_not_needed() {
    let mut index = index(4096);
    index.set_era(32);
    index.look_up(5, place(1), 0);
    index.set_era(31);
    assert!(index.is_empty());
    assert_eq!(index.find(5, 0), None);
    assert!(!index.remove(5, place(1)));
    assert_eq!(index.look_up(5, place(2), 0), Match::Inserted);
    index.set_era(32);
    assert_eq!(
        index.look_up(5, place(3), 1),
        Match::Partner {
            place: place(1),
            age: 0
        }
    );
}

/// Contents whose hashes fall into the first bucket of an index of this size.
fn of_first_bucket(index: &UnmergedIndex) -> Vec<u64> {
    let is_there =
        |&content: &u64| index.table.address(mix(hash(content))).bucket == Bucket::default();
    (0..).filter(is_there).take(WAYS + 3).collect()
}

#[test]
fn room_is_taken_from_other_eras_first_and_then_from_the_oldest() {
    let mut index = index(BUCKET_BYTES);
    let contents = of_first_bucket(&index);
    let enter = |index: &mut UnmergedIndex, at: usize, round: u32| {
        index.look_up(hash(contents[at]), place(u32::try_from(at).unwrap()), round)
    };
    index.set_era(2);
    enter(&mut index, 0, 36);
    index.set_era(1);
    for (at, round) in [
        (1, 20),
        (2, 16),
        (3, 24),
        (4, 32),
        (5, 32),
        (6, 28),
        (7, 32),
    ] {
        enter(&mut index, at, round);
    }
    let lost = |index: &UnmergedIndex| -> Vec<usize> {
        let is_lost = |&at: &usize| index.find(hash(contents[at]), 36).is_none();
        (1..WAYS + 3).filter(is_lost).collect()
    };
    assert_eq!(lost(&index), [8, 9, 10]);
    assert_eq!(
        enter(&mut index, 8, 36),
        Match::Inserted,
        "over the other era"
    );
    assert_eq!(lost(&index), [9, 10]);
    assert_eq!(enter(&mut index, 9, 36), Match::Inserted);
    assert_eq!(lost(&index), [2, 10]);
    assert_eq!(enter(&mut index, 10, 36), Match::Inserted);
    assert_eq!(lost(&index), [1, 2]);
    assert_eq!(index.len(), 8);
}

#[test]
fn ages_survive_the_wrap_of_rounds() {
    let mut index = index(BUCKET_BYTES);
    index.look_up(hash(1), place(1), 60);
    let found = index.look_up(hash(1), place(2), 100);
    assert_eq!(
        found,
        Match::Partner {
            place: place(1),
            age: 40
        }
    );
}

fn enter(index: &mut UnmergedIndex, numbers: std::ops::Range<u64>) {
    let mut matches = vec![];
    for number in numbers.clone().step_by(64) {
        let query = |number: u64| Query {
            hash: hash(number),
            place: place(u32::try_from(number).unwrap()),
        };
        let queries: Vec<Query> = (number..numbers.end.min(number + 64)).map(query).collect();
        index.look_up_batch(&queries, 0, &mut matches);
    }
}

/// The number of the first entered pages that are found.
fn found(index: &UnmergedIndex, numbers: std::ops::Range<u64>) -> u64 {
    let is_found = |&number: &u64| {
        index
            .find(hash(number), 0)
            .is_some_and(|(found, _)| found == place(u32::try_from(number).unwrap()))
    };
    numbers.filter(is_found).count() as u64
}

#[test]
fn two_thirds_of_the_slots_hold_24_of_25_entries_made() {
    // Entries spread over buckets as a Poisson variable does: of 5.33 a bucket of eight, 0.968
    // survive.
    let mut index = index(1 << 20);
    let made = u64::try_from(index.slots()).unwrap() * 2 / 3;
    enter(&mut index, 0..made);
    let found = found(&index, 0..made);
    assert_eq!(found, index.len());
    let share = found as f64 / made as f64;
    assert!((share - 0.968).abs() < 0.01, "{share} of those made");
}

#[test]
fn a_bound_is_kept_and_what_fits_is_chosen_by_contents() {
    let (pages, bound) = (64_000, 96_000);
    let mut index = index(1);
    index.fit(2 * pages, bound);
    // Two clones, one read after the other.
    enter(&mut index, 0..pages);
    assert!(index.bytes() <= bound + 4096);
    let entered = index.len();
    // 12,000 slots for 128,000 pages: at two thirds, 8000 are kept, of either clone 4000.
    assert!((3700..4300).contains(&entered), "{entered} entered");
    let met = (0..pages)
        .filter(|&number| {
            let other = RegionPage {
                region: RegionId(1 << 19),
                page: 0,
            };
            matches!(index.look_up(hash(number), other, 0), Match::Partner { .. })
        })
        .count() as u64;
    assert!(met * 100 > entered * 97, "{met} of {entered} met");
    assert!(index.len() < 4300, "{}", index.len());

    // With more room more are kept; all if there is enough, or no bound is set.
    index.fit(pages / 8, bound);
    assert_eq!(index.kept, ALL);
    index.fit(u64::MAX, usize::MAX);
    assert_eq!(index.kept, ALL);
}

#[test]
fn the_threshold_falls_at_once_and_rises_by_a_quarter_or_not_at_all() {
    let mut index = index(1);
    index.fit(1 << 20, 12 << 18);
    assert_eq!(index.kept, ALL / 4);
    index.fit(1 << 20, 13 << 18);
    assert_eq!(index.kept, ALL / 4);
    index.fit(1 << 20, 11 << 18);
    assert_eq!(index.kept, ALL * 11 / 48);
    index.fit(1 << 20, 24 << 18);
    assert_eq!(index.kept, ALL / 2);
}

#[test]
fn a_hash_that_is_not_there_seldom_looks_like_one_that_is() {
    let mut index = UnmergedIndex::with_bytes(1 << 20, Layout::new(14, 25));
    let made = index.slots() as u64 * 2 / 3;
    enter(&mut index, 0..made);
    let others = 1 << 40..(1 << 40) + 2_000_000;
    let false_matches = others.filter(|&n| index.find(hash(n), 0).is_some()).count();
    // One in 400.
    assert!((4000..5500).contains(&false_matches), "{false_matches}");
}

#[test]
fn memory_is_what_was_asked_for_and_buckets_lie_on_cache_lines() {
    for bytes in [1, 256, 1000, 1 << 20] {
        let index = index(bytes);
        assert!(
            index.bytes() <= bytes.max(256) + 2300,
            "{} bytes for {bytes}",
            index.bytes()
        );
        for bucket in 0..index.table.buckets() {
            assert_eq!(
                index
                    .table
                    .bucket(Bucket::numbered(bucket))
                    .as_ptr()
                    .align_offset(64),
                0
            );
        }
    }
}

mod resize;
