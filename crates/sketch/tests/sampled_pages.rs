//! Estimates of copies from samples of pages, against exact counts: simulated memory of several
//! shapes, a hundred seeded samples each.

use uksm_sketch::content::Salt;
use uksm_sketch::occupancy::{MeetingCounts, Occupancy, Range};

/// Numbers of contents, with their numbers of pages.
type Shape = Vec<(u64, u64)>;

fn copies(shape: &Shape) -> f64 {
    shape
        .iter()
        .map(|(contents, pages)| contents * (pages - 1))
        .sum::<u64>() as f64
}

fn pages(shape: &Shape) -> f64 {
    shape
        .iter()
        .map(|(contents, pages)| contents * pages)
        .sum::<u64>() as f64
}

/// The shapes of memory: name, contents, and the width that an interval from a twentieth of the
/// pages may have on average, as a part of all pages. Without this bound, an interval of everything
/// would pass.
fn shapes() -> Vec<(&'static str, Shape, f64)> {
    // The content of rank k has some 9400/k pages: a few are everywhere, and thousands once.
    let zipf = (1..=9_000).map(|rank| (1, 1 + 9_400 / rank)).collect();
    vec![
        ("one content", vec![(1, 100_000)], 0.1),
        ("all different", vec![(100_000, 1)], 0.15),
        ("clones in two", vec![(50_000, 2)], 0.55),
        (
            "one page in twenty has a twin",
            vec![(95_000, 1), (2_500, 2)],
            0.2,
        ),
        ("few contents often", zipf, 0.4),
        ("eight clones", vec![(10_000, 8), (20_000, 1)], 0.5),
        (
            "twins, threes and many",
            vec![(10_000, 2), (8_000, 3), (40, 1_000), (20_000, 1)],
            0.5,
        ),
    ]
}

/// A sample with this rate, which the seed chooses.
fn sample(shape: &Shape, rate: f64, seed: u64) -> MeetingCounts {
    let salt = Salt::new(seed);
    let below = rate * 2f64.powi(64);
    let mut met = MeetingCounts::default();
    let mut number = 0;
    for &(contents, pages) in shape {
        for _ in 0..contents {
            number += 1;
            let is_met = |page: &u64| (salt.mix([number, *page]) as f64) < below;
            met.add((0..pages).filter(is_met).count() as u64);
        }
    }
    met
}

fn estimates(shape: &Shape, rate: f64) -> Vec<Range> {
    let occupancy = Occupancy::new(rate);
    (0..100)
        .map(|seed| occupancy.copies(&sample(shape, rate, seed)))
        .collect()
}

#[test]
fn the_truth_lies_in_at_least_95_of_100_intervals_of_each_shape() {
    for (name, shape, widest) in shapes() {
        let (truth, all) = (copies(&shape), pages(&shape));
        for (rate, widest, farthest) in [(0.02, 0.8, 0.2), (0.05, widest, 0.1), (0.3, 0.1, 0.01)] {
            let found = estimates(&shape, rate);
            let mean = |of: &dyn Fn(&Range) -> f64| found.iter().map(of).sum::<f64>() / 100.0 / all;
            let held = found
                .iter()
                .filter(|range| (range.low..=range.high).contains(&truth))
                .count();
            let width = mean(&|range| range.high - range.low);
            let off = mean(&|range| (range.pages - truth).abs());
            println!(
                "{name}, rate {rate}: {:.3} of the pages are copies; {held} held, {width:.3} wide, {off:.4} off",
                truth / all
            );
            assert!(
                held >= 95,
                "{name}, rate {rate}: {held} of 100 hold {truth}: {:?}",
                found[0]
            );
            assert!(
                width <= widest,
                "{name}, rate {rate}: {width} wide: {:?}",
                found[0]
            );
            assert!(
                off <= farthest,
                "{name}, rate {rate}: {off} off: {:?}",
                found[0]
            );
        }
    }
}

/// Pages of zeros do not differ: each that is met counts.
#[test]
fn the_number_of_pages_of_a_kind_lies_in_at_least_95_of_100_intervals() {
    for (pages, rate, widest) in [(30_000, 0.05, 0.12), (400, 0.02, 2.0), (30_000, 0.5, 0.03)] {
        let occupancy = Occupancy::new(rate);
        let found: Vec<Range> = (0..100)
            .map(|seed| occupancy.pages(sample(&vec![(pages, 1)], rate, seed).pages()))
            .collect();
        let truth = pages as f64;
        let held = found
            .iter()
            .filter(|range| (range.low..=range.high).contains(&truth));
        let width = found
            .iter()
            .map(|range| range.high - range.low)
            .sum::<f64>()
            / 100.0;
        let held = held.count();
        assert!(
            held >= 95 && width <= widest * truth,
            "{pages}, rate {rate}: {held}, {width}"
        );
    }
}

/// An interval that ignored the unknown would fail here: the check above can fail.
#[test]
fn a_tenth_of_the_interval_holds_the_truth_in_fewer_than_95() {
    let shape = vec![(50_000, 2)];
    let truth = copies(&shape);
    let is_near = |range: &&Range| (range.pages - truth).abs() <= range.reach() / 10.0;
    let held = estimates(&shape, 0.3).iter().filter(is_near).count();
    assert!(held < 95, "{held}");
}

/// The contents of the whole memory are bounded by those of the sample itself.
#[test]
fn nothing_is_claimed_that_the_sample_excludes() {
    let occupancy = Occupancy::new(0.1);
    let mut one = MeetingCounts::default();
    one.add(1);
    let found = occupancy.copies(&one);
    assert!(found.low == 0.0 && found.high < 120.0, "{found:?}");
    let mut often = MeetingCounts::default();
    often.add(1000);
    let found = occupancy.copies(&often);
    assert!(found.low >= 8_500.0 && found.high <= 11_500.0, "{found:?}");
}
