//! The unmerged index against an exact map.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn place(number: u32) -> Place {
    Place {
        region: RegionId(number),
        page: number ^ 0xFFFF,
    }
}

/// A hash as line hashes are: spread.
fn hash(number: u64) -> u64 {
    mix(number.wrapping_add(1))
}

#[derive(Debug, Clone)]
enum Step {
    Match(u64, u32),
    Remove(u64, u32),
    Replace(u64, u32, u32),
    Era(u8),
    Turn,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (content, at) = (0u64..60, 0u32..40);
    let step = prop_oneof![
        12 => (content.clone(), at.clone()).prop_map(|(c, p)| Step::Match(c, p)),
        2 => (content.clone(), at.clone()).prop_map(|(c, p)| Step::Remove(c, p)),
        2 => (content, at.clone(), at).prop_map(|(c, p, q)| Step::Replace(c, p, q)),
        1 => (1u8..4).prop_map(Step::Era),
        2 => Just(Step::Turn),
    ];
    prop::collection::vec(step, 0..400)
}

/// Place and round by (era, hash). What the index may hold; it may hold less by what it says it
/// evicted, and, of other eras, by what it took silently.
type Model = BTreeMap<(u8, u64), (Place, u32)>;

/// Bytes of an index in which no two of the hashes share a bucket.
const ROOMY: usize = 32 << 20;

#[test]
fn a_roomy_index_has_a_bucket_for_each_hash() {
    let index = Unmerged::with_bytes(ROOMY);
    let buckets: std::collections::BTreeSet<usize> = (0..60)
        .map(|content| index.address(hash(content)).0)
        .collect();
    assert_eq!(buckets.len(), 60);
}

/// Runs `steps`, checking each answer; `exact` when the index is so large that nothing of
/// another era is ever in the way.
fn check(bytes: usize, steps: &[Step], exact: bool) {
    let mut index = Unmerged::with_bytes(bytes);
    let mut model = Model::new();
    let (mut era, mut round) = (0, 0u32);
    for step in steps {
        match *step {
            Step::Era(new) => {
                era = new;
                index.set_era(new);
            }
            Step::Turn => round += 1,
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
    index: &mut Unmerged,
    model: &mut Model,
    (era, round): (u8, u32),
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
                assert_eq!((found, u32::from(age)), (of, round - seen));
                assert_ne!(found, place(at), "a page is its own partner");
                return;
            }
            Match::Refreshed => true,
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
    fn a_roomy_index_is_an_exact_map(steps in steps()) {
        check(ROOMY, &steps, true);
    }

    #[test]
    fn a_crowded_index_never_names_a_partner_that_was_not_entered(steps in steps()) {
        check(4 * BUCKET_BYTES, &steps, false);
    }

    #[test]
    fn a_single_bucket_never_names_a_partner_that_was_not_entered(steps in steps()) {
        check(1, &steps, false);
    }

    #[test]
    fn a_batch_answers_as_its_visits_one_by_one(
        pages in prop::collection::vec((0u64..300, 0u32..300), 0..600),
    ) {
        let queries: Vec<Query> =
            pages.iter().map(|&(c, p)| Query { hash: hash(c), place: place(p) }).collect();
        let (mut one, mut batch) = (Unmerged::with_bytes(1024), Unmerged::with_bytes(1024));
        let single: Vec<Match> =
            queries.iter().map(|query| one.look_up(query.hash, query.place, 3)).collect();
        let mut together = Vec::new();
        batch.look_up_batch(&queries, 3, &mut together);
        prop_assert_eq!(single, together);
    }
}

#[test]
fn a_page_is_found_by_its_equal_until_it_is_removed() {
    let mut index = Unmerged::with_bytes(4096);
    assert_eq!(index.look_up(5, place(1), 10), Match::Inserted);
    assert_eq!(index.look_up(5, place(1), 11), Match::Refreshed);
    assert_eq!(
        index.look_up(5, place(2), 14),
        Match::Partner {
            place: place(1),
            age: 3
        }
    );
    assert_eq!(index.find(5, 14), Some((place(1), 3)));
    assert!(!index.remove(5, place(2)));
    assert!(index.remove(5, place(1)));
    assert_eq!(index.look_up(5, place(2), 14), Match::Inserted);
    assert_eq!(index.len(), 1);
}

#[test]
fn a_place_that_is_gone_is_replaced() {
    let mut index = Unmerged::with_bytes(4096);
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
    let mut index = Unmerged::with_bytes(4096);
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
            age: 1
        }
    );
}

#[test]
fn room_is_taken_from_other_eras_first_and_then_from_the_oldest() {
    let mut index = Unmerged::with_bytes(BUCKET_BYTES);
    index.set_era(2);
    index.look_up(hash(0), place(0), 9);
    index.set_era(1);
    for (number, round) in [(1, 5), (2, 4), (3, 6)] {
        index.look_up(hash(number), place(u32::try_from(number).unwrap()), round);
    }
    assert_eq!(
        index.look_up(hash(4), place(4), 9),
        Match::Inserted,
        "over the other era"
    );
    let kept = |index: &Unmerged| [1, 2, 3, 4, 5].map(|n| index.find(hash(n), 9).is_some());
    assert_eq!(kept(&index), [true, true, true, true, false]);
    assert_eq!(index.look_up(hash(5), place(5), 9), Match::Inserted);
    assert_eq!(kept(&index), [true, false, true, true, true]);
    assert_eq!(index.look_up(hash(6), place(6), 9), Match::Inserted);
    assert_eq!(kept(&index), [false, false, true, true, true]);
    assert_eq!(index.len(), 4);
}

#[test]
fn ages_survive_the_wrap_of_rounds() {
    let mut index = Unmerged::with_bytes(BUCKET_BYTES);
    index.look_up(hash(1), place(1), 65_530);
    let found = index.look_up(hash(1), place(2), 65_540);
    assert_eq!(
        found,
        Match::Partner {
            place: place(1),
            age: 10
        }
    );
}

#[test]
fn two_thirds_of_the_slots_hold_nine_of_ten_entries_made() {
    // Entries spread over buckets as a Poisson variable does: of 3 a bucket of four, 0.894 survive
    // and fill 0.670 of the slots, so that one takes 24 bytes.
    let mut index = Unmerged::with_bytes(1 << 20);
    let made = u64::try_from(index.slots()).unwrap() * 3 / 4;
    for number in 0..made {
        index.look_up(hash(number), place(u32::try_from(number).unwrap()), 0);
    }
    let found = (0..made)
        .filter(|&number| index.find(hash(number), 0).is_some())
        .count() as u64;
    assert_eq!(found, index.len());
    let shares = [made, index.slots() as u64].map(|of| found as f64 / of as f64);
    assert!((shares[0] - 0.894).abs() < 0.01, "{shares:?} of those made");
    assert!((shares[1] - 0.670).abs() < 0.01, "{shares:?} of the slots");
}

#[test]
fn memory_is_what_was_asked_for_and_buckets_lie_on_cache_lines() {
    for bytes in [1, 64, 1000, 1 << 20] {
        let index = Unmerged::with_bytes(bytes);
        assert!(
            index.bytes() <= bytes.max(64) + 2300,
            "{} bytes for {bytes}",
            index.bytes()
        );
        assert_eq!(index.bucket(0).as_ptr().align_offset(64), 0);
    }
}
