//! A search in calm.

use super::*;
use crate::hash::strength::WINDOW;
use crate::params::Governor;

const READING: ReadingCost = ReadingCost {
    pages: 100 * MIN_PAGES,
    all: 100e6,
    indexed: 1e6,
};

/// A hash that has decided once, at the start, to try another strength.
fn searching() -> (AdaptiveHash, Lookup) {
    let params = Params::governor(Governor::Full);
    let mut hash = AdaptiveHash::new(&params, 1);
    let mut lookup = Lookup::new(&params, hash.strength());
    hash.rehashed(&mut lookup, &[], 0, 0, 0);
    hash.sampled(WINDOW, 1_000_000, true);
    assert!(hash.adapt(&lookup, 0, READING) && hash.is_searching());
    (hash, lookup)
}

#[test]
fn a_search_in_calm_samples_when_its_trial_is_due_and_decides() {
    let (mut hash, lookup) = searching();
    assert_eq!(
        hash.samples_missing(SECOND),
        Some(WINDOW),
        "at work at once"
    );
    hash.set_calm(true);
    assert_eq!(hash.samples_missing(SECOND), None);
    // Reading 100 ms again is a 2000th of 200 s.
    let due = 201 * SECOND;
    assert_eq!(hash.samples_missing(due), Some(WINDOW));
    // Samples of the bottom level void the earlier ones, and would do so for ever.
    hash.sampled(WINDOW, 1_000_000, true);
    hash.sampled(10, 10_000, false);
    assert!(!hash.adapt(&lookup, due, READING));
    hash.sampled(WINDOW, 1_000_000, true);
    assert_eq!(hash.samples_missing(due), None);
    let tried = hash.strength();
    assert!(hash.adapt(&lookup, due, READING), "{tried} lines are kept");
}

#[test]
fn a_search_in_calm_goes_on_sooner_if_what_it_tries_misleads() {
    let (mut hash, _) = searching();
    hash.set_calm(true);
    let soon = 14 * SECOND;
    assert_eq!(hash.samples_missing(soon), None);
    hash.matched_falsely(1000, 10_000_000);
    hash.sampled(1000, 1_000_000, false);
    assert_eq!(
        hash.samples_missing(12 * SECOND),
        None,
        "a 128th of the time"
    );
    assert_eq!(hash.samples_missing(soon), Some(WINDOW));
}

#[test]
fn what_one_strength_cost_is_no_reason_against_the_next() {
    let (mut hash, lookup) = searching();
    hash.matched_falsely(1000, 10_000_000);
    hash.sampled(1000, 1_000_000, false);
    assert!(hash.is_misled(LONG_CALM_FACTOR));
    hash.sampled(WINDOW, 1_000_000, true);
    assert!(hash.adapt(&lookup, 201 * SECOND, READING));
    assert!(!hash.is_misled(1));
}

#[test]
fn few_pages_are_not_searched_for_unless_what_collides_misleads_again_and_again() {
    let few = ReadingCost {
        pages: MIN_PAGES - 1,
        ..READING
    };
    let hash_of = |params: &Params| {
        let mut hash = AdaptiveHash::new(params, 1);
        let mut lookup = Lookup::new(params, hash.strength());
        hash.rehashed(&mut lookup, &[], 0, 0, 0);
        hash.sampled(WINDOW, 1_000_000, true);
        hash.adapt(&lookup, 0, few);
        (hash, lookup)
    };
    let mut params = Params::governor(Governor::Full);
    let (mut hash, lookup) = hash_of(&params);
    assert!(!hash.is_searching());
    hash.matched_falsely(1000, 10_000_000);
    hash.sampled(1000, 1_000_000, false);
    assert!(hash.is_misled(LONG_CALM_FACTOR));
    hash.search_in_calm(&lookup, 0, (2 * SECOND, SECOND), few);
    hash.adapt(&lookup, 0, few);
    assert!(!hash.is_searching(), "not in calm, either");

    hash.sampled(WINDOW, 1_000_000, true);
    assert!(hash.adapt(&lookup, 0, READING), "they are not few any more");
    hash.adapt(&lookup, 0, few);
    assert!(hash.is_searching(), "what has begun goes on");

    params.merge_spaces = 3;
    assert!(hash_of(&params).0.is_searching());
}

#[test]
fn where_pages_are_few_a_search_tries_a_quarter_of_the_lines_and_no_more() {
    let strengths = |pages| {
        let reading = ReadingCost { pages, ..READING };
        let params = Params::governor(Governor::Full);
        let mut hash = AdaptiveHash::new(&params, 1);
        let mut lookup = Lookup::new(&params, hash.strength());
        hash.rehashed(&mut lookup, &[], 0, 0, 0);
        let mut strengths = vec![hash.strength()];
        for _ in 0..64 {
            // A line is a 48th of the cost of a sample at the start.
            let lines = u64::from(hash.strength()) + 32;
            hash.sampled(WINDOW, lines * 20_000, true);
            if hash.adapt(&lookup, 0, reading) {
                strengths.push(hash.strength());
            }
        }
        strengths
    };
    assert_eq!(strengths(MIN_PAGES), [START, START / 4]);
    assert_eq!(strengths(100 * MIN_PAGES), [START, START / 2, 1]);
}

/// The reading cost of `times` as much memory.
fn grown(times: f64) -> ReadingCost {
    ReadingCost {
        all: times * READING.all,
        ..READING
    }
}

/// A hash whose search has ended, with [`READING`] to read, at eight lines: sampling one line
/// misled.
fn settled() -> (AdaptiveHash, Lookup) {
    let (mut hash, lookup) = searching();
    search_to_its_end(&mut hash, &lookup, READING, true);
    assert_eq!(hash.strength(), 8);
    (hash, lookup)
}

/// Takes samples, whether or not they are a reason to search; many of them match falsely by less
/// than eight lines.
fn search_to_its_end(
    hash: &mut AdaptiveHash,
    lookup: &Lookup,
    reading: ReadingCost,
    is_reason: bool,
) {
    while hash.is_searching() {
        if hash.strength() < 8 {
            hash.matched_falsely(100, 10_000_000);
        }
        hash.sampled(WINDOW, 1_000_000, is_reason);
        hash.adapt(lookup, 1000 * SECOND, reading);
    }
}

#[test]
fn memory_that_has_grown_is_searched_for_in_calm() {
    let (mut hash, lookup) = settled();
    hash.adapt(&lookup, 1001 * SECOND, grown(9.0));
    assert!(!hash.is_searching(), "it works");
    hash.set_calm(true);
    hash.adapt(&lookup, 1001 * SECOND, grown(7.0));
    assert!(!hash.is_searching(), "it has not grown eightfold");
    hash.adapt(&lookup, 1001 * SECOND, grown(9.0));
    assert_eq!(hash.samples_missing(1001 * SECOND), Some(WINDOW));
    // First sweeps of other memory are no reason.
    hash.sampled(WINDOW, 1_000_000, false);
    assert!(
        hash.adapt(&lookup, 1001 * SECOND, grown(9.0)),
        "at once, and from what was in use: one line did not pay long ago"
    );
    assert_eq!(hash.strength(), 1);
}

#[test]
fn memory_that_comes_and_goes_is_searched_for_once() {
    let (mut hash, lookup) = settled();
    hash.set_calm(true);
    hash.adapt(&lookup, 1001 * SECOND, grown(9.0));
    search_to_its_end(&mut hash, &lookup, grown(9.0), false);
    for times in [1.0, 9.0, 0.1, 70.0] {
        hash.adapt(&lookup, 1002 * SECOND, grown(times));
        assert!(!hash.is_searching());
    }
    hash.adapt(&lookup, 1002 * SECOND, grown(73.0));
    assert!(hash.is_searching());
}
