//! Tests of layouts: positions, lengths of runs, and dependence on the seed.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::*;

const PAGES: usize = 65_536;
const ALL: [Arrangement; 5] = [
    Arrangement::Same,
    Arrangement::Shuffled,
    Arrangement::Runs(64),
    Arrangement::Runs(1000),
    Arrangement::GuestRuns,
];

fn layout(process: u64, equal_percent: usize, place: Arrangement) -> Layout {
    Layout {
        process,
        equal_percent,
        place,
    }
}

fn numbers(process: u64, equal_percent: usize, place: Arrangement) -> Vec<u64> {
    layout(process, equal_percent, place)
        .numbers(1, PAGES)
        .unwrap()
}

/// The equal pages of two processes, in runs as found by a comparison of contents: pages in runs of
/// each length.
fn found_runs(one: &[u64], other: &[u64]) -> BTreeMap<usize, usize> {
    let twins: HashMap<u64, usize> = other.iter().enumerate().map(|(at, &n)| (n, at)).collect();
    let mut runs = BTreeMap::new();
    let mut at = 0;
    while at < one.len() {
        let Some(&twin) = twins.get(&one[at]) else {
            at += 1;
            continue;
        };
        let pairs = one[at..].iter().zip(&other[twin..]);
        let length = pairs.take_while(|(a, b)| a == b).count();
        *runs.entry(length).or_insert(0) += length;
        at += length;
    }
    runs
}

fn percent_in_runs_from(runs: &BTreeMap<usize, usize>, shortest: usize) -> f64 {
    let all: usize = runs.values().sum();
    let long: usize = runs.range(shortest..).map(|(_, pages)| pages).sum();
    100.0 * long as f64 / all as f64
}

#[test]
fn so_many_pages_are_equal_as_asked_for_and_each_number_occurs_once_in_a_process() {
    for place in ALL {
        for percent in [0, 2, 5, 10, 20, 40, 100] {
            let [one, other] = [0, 1].map(|process| numbers(process, percent, place));
            let distinct: HashSet<u64> = one.iter().copied().collect();
            assert_eq!(distinct.len(), PAGES, "{place:?}");
            let equal = other
                .iter()
                .filter(|number| distinct.contains(number))
                .count();
            assert_eq!(equal, PAGES * percent / 100, "{place:?} {percent}");
        }
    }
}

#[test]
fn at_same_offsets_every_equal_page_lies_where_its_twin_does() {
    let [one, other] = [0, 7].map(|process| numbers(process, 20, Arrangement::Same));
    let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
    assert_eq!(same, PAGES * 20 / 100);
    // Scattered: runs longer than a few pages are an accident of one in thousands.
    let runs = found_runs(&one, &other);
    assert!(percent_in_runs_from(&runs, 5) < 2.0, "{runs:?}");
}

#[test]
fn elsewhere_no_page_lies_where_one_of_its_twins_does() {
    for place in ALL.into_iter().filter(|&place| place != Arrangement::Same) {
        for percent in [5, 100] {
            let all = [0, 1, 2, 7].map(|process| numbers(process, percent, place));
            for (number, one) in all.iter().enumerate() {
                for other in &all[..number] {
                    assert!(one.iter().zip(other).all(|(a, b)| a != b), "{place:?}");
                }
            }
        }
    }
}

#[test]
fn guests_runs_have_the_lengths_that_were_measured() {
    for percent in [5, 10, 34, 100] {
        let [one, other] = [0, 1].map(|process| numbers(process, percent, Arrangement::GuestRuns));
        let runs = found_runs(&one, &other);
        for (shortest, expected) in [(2, 86.0), (9, 77.0), (129, 47.0)] {
            let found = percent_in_runs_from(&runs, shortest);
            assert!(
                (found - expected).abs() < 1.0,
                "{percent} %: {found} % of the pages in runs of {shortest} or more"
            );
        }
    }
}

#[test]
fn runs_of_a_length_have_that_length() {
    let [one, other] = [0, 1].map(|process| numbers(process, 45, Arrangement::Runs(64)));
    let runs = found_runs(&one, &other);
    assert!(percent_in_runs_from(&runs, 64) > 99.0, "{runs:?}");
    assert!(percent_in_runs_from(&runs, 65) < 1.0, "{runs:?}");
}

#[test]
fn too_few_pages_for_a_long_run_are_in_shorter_ones_and_none_is_lost() {
    for equal in 0..600 {
        let lengths = guest_run_lengths(1, equal);
        assert_eq!(lengths.iter().sum::<usize>(), equal);
        assert!(lengths.iter().all(|&length| length > 0));
    }
}

#[test]
fn seed_and_process_decide_the_order_and_nothing_else_does() {
    for place in [Arrangement::Shuffled, Arrangement::GuestRuns] {
        let of = |process, seed| layout(process, 20, place).numbers(seed, 4096).unwrap();
        assert_eq!(of(1, 5), of(1, 5));
        assert_ne!(of(1, 5), of(1, 6));
        assert_ne!(of(1, 5), of(2, 5));
    }
}

#[test]
fn one_run_that_fills_all_memory_cannot_lie_elsewhere() {
    let error = layout(1, 100, Arrangement::Runs(64))
        .numbers(1, 64)
        .unwrap_err();
    assert!(error.to_string().contains("Runs(64)"), "{error}");
}
