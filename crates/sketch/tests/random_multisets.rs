//! Estimates against exact counts, on random multisets of contents.

use std::collections::BTreeMap;

use proptest::prelude::*;
use uksm_sketch::content::{Content, Salt};
use uksm_sketch::estimate::Estimate;
use uksm_sketch::grouping::{Worth, propose};
use uksm_sketch::sharing::{Joint, Which, among, within};
use uksm_sketch::sketch::Sketch;

/// The contents of a process, with its number of pages of each.
type Contents = BTreeMap<u64, u64>;

fn sketch(contents: &Contents, salt: u64) -> Sketch {
    let mut sketch = Sketch::default();
    for (&number, &pages) in contents {
        for _ in 0..pages {
            sketch.add(Content::Hashed(Salt::new(salt).mix([number, 0])), false);
        }
    }
    sketch
}

/// Some processes of up to some 30,000 pages, with contents of their own, contents that all may
/// have, and copies.
fn processes() -> impl Strategy<Value = Vec<Contents>> {
    let ranges = prop::collection::vec((0..40_000u64, 1..20_000u64, 1..9u64), 1..4);
    let one = ranges.prop_map(|ranges| {
        let mut contents = Contents::new();
        for (start, length, every) in ranges {
            for number in start..start + length {
                // Most contents have one copy, some have several.
                *contents.entry(number).or_default() += if number % 16 < every { 1 } else { 0 };
            }
        }
        contents.retain(|_, pages| *pages > 0);
        contents
    });
    prop::collection::vec(one, 1..5)
}

fn exact_within(contents: &Contents) -> f64 {
    contents.values().map(|pages| pages - 1).sum::<u64>() as f64
}

fn exact_among(processes: &[Contents]) -> f64 {
    let all: usize = processes.iter().map(BTreeMap::len).sum();
    let distinct: std::collections::BTreeSet<&u64> =
        processes.iter().flat_map(BTreeMap::keys).collect();
    (all - distinct.len()) as f64
}

/// Six errors: one in a billion estimates is further off.
fn agrees(estimate: Estimate, exact: f64) -> bool {
    (estimate.pages - exact).abs() <= 6.0 * estimate.error
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn estimates_are_within_their_errors(processes in processes(), salt: u64) {
        let sketches: Vec<Sketch> = processes.iter().map(|one| sketch(one, salt)).collect();
        for (sketch, contents) in sketches.iter().zip(&processes) {
            prop_assert!(sketch.len() <= Sketch::MAX_CONTENTS);
            let (estimate, exact) = (within(sketch, Which::All), exact_within(contents));
            prop_assert!(agrees(estimate, exact), "within: {estimate:?} of {exact}");
            if contents.len() <= Sketch::MAX_CONTENTS {
                prop_assert_eq!(estimate, Estimate::exact(exact));
            }
        }
        let joints: Vec<Joint> = sketches.iter().map(|one| Joint::of(one, Which::All)).collect();
        let (estimate, exact) = (among(&joints.iter().collect::<Vec<_>>()), exact_among(&processes));
        prop_assert!(agrees(estimate, exact), "among: {estimate:?} of {exact}");
        let half = joints.len() / 2;
        if half > 0 {
            let join = |joints: &[Joint]| {
                joints.iter().skip(1).fold(joints[0].clone(), |all, one| all.with(one))
            };
            let exact = exact - exact_among(&processes[..half]) - exact_among(&processes[half..]);
            let estimate = among(&[&join(&joints[..half]), &join(&joints[half..])]);
            prop_assert!(agrees(estimate, exact), "common: {estimate:?} of {exact}");
        }
    }

    #[test]
    fn the_order_of_pages_changes_nothing(processes in processes(), salt: u64, order: u64) {
        let sketches: Vec<Sketch> = processes.iter().map(|one| sketch(one, salt)).collect();
        let shuffled = |contents: &Contents| {
            let copies = |(&number, &pages): (&u64, &u64)| (0..pages).map(move |copy| (number, copy));
            let mut pages: Vec<(u64, u64)> = contents.iter().flat_map(copies).collect();
            pages.sort_by_key(|&(number, copy)| Salt::new(order).mix([number, copy]));
            let mut sketch = Sketch::default();
            for (number, _) in pages {
                sketch.add(Content::Hashed(Salt::new(salt).mix([number, 0])), false);
            }
            sketch
        };
        let others: Vec<Sketch> = processes.iter().map(shuffled).collect();
        let worth = Worth { least_share: 0.05, least_pages: 256.0 };
        prop_assert_eq!(propose(&sketches, worth), propose(&others, worth));
    }

    #[test]
    fn groups_lose_nothing_that_is_not_said(processes in processes(), salt: u64) {
        let sketches: Vec<Sketch> = processes.iter().map(|one| sketch(one, salt)).collect();
        let exact = processes.iter().map(exact_within).sum::<f64>() + exact_among(&processes);
        for least_share in [0.0, 0.1, 0.8] {
            let proposal = propose(&sketches, Worth { least_share, least_pages: 256.0 });
            let all = proposal.groups.iter().map(|group| group.saved).sum::<Estimate>() + proposal.lost;
            prop_assert!(agrees(all, exact), "{least_share}: {all:?} of {exact}");
        }
    }
}

/// The error is neither far too small nor far too large: of 200 salts, estimates are within one
/// error in about two thirds, and their mean is right.
#[test]
fn the_error_is_what_it_says() {
    let a: Contents = (0..30_000)
        .map(|number| (number, 1 + number % 10 / 8))
        .collect();
    let b: Contents = (20_000..45_000).map(|number| (number, 1)).collect();
    let (exact_common, exact_own) = (10_000.0, 6_000.0);
    let mut close = [0; 2];
    let mut sums = [0.0; 2];
    let mut errors = [0.0; 2];
    for salt in 0..200 {
        let sketches = [sketch(&a, salt), sketch(&b, salt)];
        let [first, second] = [0, 1].map(|one| Joint::of(&sketches[one], Which::All));
        let estimates = [among(&[&first, &second]), within(&sketches[0], Which::All)];
        for (index, (estimate, exact)) in estimates
            .into_iter()
            .zip([exact_common, exact_own])
            .enumerate()
        {
            close[index] += u32::from((estimate.pages - exact).abs() <= estimate.error);
            sums[index] += estimate.pages / 200.0;
            errors[index] += estimate.error / 200.0;
        }
    }
    for (index, exact) in [exact_common, exact_own].into_iter().enumerate() {
        assert!((110..=170).contains(&close[index]), "{close:?} of 200");
        let of_mean = errors[index] / 200f64.sqrt();
        assert!(
            (sums[index] - exact).abs() < 4.0 * of_mean,
            "{sums:?}, {errors:?}"
        );
    }
}

/// Sketches of two runs cannot be compared.
#[test]
fn another_salt_makes_sketches_incomparable() {
    let contents: Contents = (0..5_000).map(|number| (number, 1)).collect();
    let joint = |salt| Joint::of(&sketch(&contents, salt), Which::All);
    assert!(among(&[&joint(1), &joint(1)]).pages > 4_000.0);
    assert_eq!(among(&[&joint(1), &joint(2)]).pages, 0.0);
}
