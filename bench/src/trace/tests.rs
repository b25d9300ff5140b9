//! A written trace is read back correctly, for all changes of processes.

use std::collections::{BTreeMap, HashMap};

use super::writing::{CapturedPage, Recording, Snapshot};
use super::*;
use crate::rng::Rng;

fn seen(hash: u64) -> CapturedPage {
    let zero_lines = if hash == 0 { u64::MAX } else { hash % 3 };
    CapturedPage { hash, zero_lines }
}

fn snapshot(mappings: &[(u64, u64)], pages: &[(u64, u64)]) -> Snapshot {
    let pages = pages.iter().map(|&(page, hash)| (page, seen(hash)));
    Snapshot {
        mappings: mappings.to_vec(),
        pages: pages.collect(),
    }
}

fn recording(moments: Vec<Vec<Snapshot>>) -> Recording {
    Recording {
        source: "a test".to_owned(),
        every_ms: 7,
        names: (0..moments[0].len()).map(|n| format!("p{n}")).collect(),
        moments,
    }
}

#[test]
fn equal_pages_have_equal_numbers_and_the_page_of_zeros_has_0() {
    let one = snapshot(&[(10, 14)], &[(10, 99), (11, 98), (13, 0)]);
    let other = snapshot(&[(100, 102)], &[(100, 98), (101, 97)]);
    let text = recording(vec![vec![one, other]]).text().unwrap();
    let header = header(&text).unwrap();
    assert_eq!((header.every_ms, header.moments), (7, 1));
    assert_eq!(header.processes[0].mappings, [(10, 4)]);
    let numbers = |mapping, count| -> Vec<Option<u64>> {
        let pages = pages(&text, mapping, count, 0).unwrap();
        pages
            .iter()
            .map(|page| page.map(|held| held.number))
            .collect()
    };
    assert_eq!(numbers(0, 4), [Some(1), Some(2), None, Some(0)]);
    assert_eq!(numbers(1, 2), [Some(2), Some(3)]);
}

#[test]
fn a_heap_that_grows_and_a_stack_that_grows_down_are_one_mapping_each() {
    let before = snapshot(&[(10, 12), (90, 95), (200, 300)], &[(10, 1), (94, 2)]);
    let after = snapshot(&[(10, 20), (85, 95)], &[(10, 1), (19, 3), (85, 2)]);
    let text = recording(vec![vec![before], vec![after]]).text().unwrap();
    let header = header(&text).unwrap();
    assert_eq!(
        header.processes[0].mappings,
        [(10, 10), (85, 10)],
        "what never had a page is left out"
    );
    let stack = pages(&text, 1, 10, 1).unwrap();
    assert_eq!(
        (stack[0].is_some(), stack[9]),
        (true, None),
        "the old page is gone"
    );
}

#[test]
fn whatever_changes_is_read_as_it_was() {
    let mut draws = Rng::new(3, 1 << 44);
    let mut one = || {
        let pages: BTreeMap<u64, u64> = (0..60)
            .filter_map(|page| {
                let below = draws.below(4);
                let value = if below == 1 {
                    40 + page
                } else {
                    draws.below(6) as u64
                };
                (below > 0).then_some((page, value))
            })
            .collect();
        let pages: Vec<(u64, u64)> = pages.into_iter().collect();
        snapshot(&[(0, 20), (20, 60)], &pages)
    };
    let moments: Vec<Vec<Snapshot>> = (0..12).map(|_| vec![one(), one()]).collect();
    let text = recording(moments.clone()).text().unwrap();
    let mut numbers: HashMap<u64, u64> = HashMap::from([(0, 0)]);
    for (at, moment) in moments.iter().enumerate() {
        for (process, snapshot) in moment.iter().enumerate() {
            for (part, (first, count)) in [(0, 20), (20, 40)].into_iter().enumerate() {
                let read = pages(&text, process * 2 + part, count, at).unwrap();
                for (page, held) in (first..).zip(read) {
                    let seen = snapshot.pages.get(&page);
                    assert_eq!(held.is_some(), seen.is_some(), "{at} {process} {page}");
                    if let Some((held, seen)) = held.zip(seen) {
                        let number = *numbers.entry(seen.hash).or_insert(held.number);
                        assert_eq!(held.number, number);
                        assert_eq!(held.zero_lines, seen.zero_lines);
                    }
                }
            }
        }
    }
    let distinct: std::collections::HashSet<u64> = numbers.values().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "different ones differ");
}

#[test]
fn what_is_no_trace_says_so() {
    assert!(header("").is_err());
    let other = r#"{"format":2,"source":"","every_ms":1,"moments":1,"processes":[]}"#;
    assert_eq!(
        header(other).unwrap_err().to_string(),
        "its format is 2, not 1"
    );
    let error = |line: &str| {
        let error = pages(&format!("\n{line}"), 0, 4, 0).unwrap_err();
        format!("{error:#}")
    };
    assert_eq!(error("[0,0,[3,2,1,0,0]]"), "line 2: no pages 3 to 5");
    assert_eq!(
        error("[0,0,[3,1]]"),
        "line 2: a run has 5 numbers, the last one 2"
    );
    assert_eq!(
        error("[0,0,[3,1,1,9,0]]"),
        "line 2: a run cannot go on as 9"
    );
}
