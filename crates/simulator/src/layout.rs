//! The positions of equal pages.
//!
//! # Problem
//! The time to find duplicates depends on their layout: page by page or in runs, at the same
//! offsets or at others.
//!
//! # Approach
//! A layout gives the contents of each of several equally large mappings, of which a share is equal
//! in all. The equal pages are cut into runs. Each mapping has all of them in an order of its own,
//! with its own pages in runs between them.
//!
//! # Source
//! The lengths of [`Arrangement::GuestRuns`] were measured on two Debian guests that read files of
//! one image in different order: `docs/simulator.md`.

use std::str::FromStr;

use uksm_policy::mix::{SplitMix64, mix};

use crate::Content;

/// Relative positions of the equal pages of two mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// At the same offsets, chosen one by one.
    Same,
    /// Anywhere, one by one.
    Singly,
    /// Anywhere, in runs of this length.
    Runs(u64),
    /// Anywhere, in runs as long as those of guests' page caches.
    GuestRuns,
}

/// Shares of equal pages by the length of the run they are in, in percent: least and most pages of
/// a run. Runs longer than 512 were measured as one class; 2048 is a file of 8 MiB.
const GUEST_RUNS: [(u64, u64, u64); 5] = [
    (14, 1, 1),
    (9, 2, 8),
    (24, 9, 64),
    (34, 65, 512),
    (19, 513, 2048),
];

/// Longest run of pages that only one guest has.
const GUEST_OWN_RUN: u64 = 4096;

/// Contents that are equal for equal pool and number.
///
/// # Panics
/// If the pool is above 2^21, or the number above 2^40.
#[must_use]
pub fn pooled(pool: u64, number: u64) -> Content {
    assert!(pool < 1 << 21 && number < 1 << 40);
    Content::new(1 << 62 | pool << 40 | number)
}

/// Contents that only this page of this owner has.
///
/// # Panics
/// As [`pooled`].
#[must_use]
pub fn own(owner: u64, page: u64) -> Content {
    assert!(owner < 1 << 21 && page < 1 << 40);
    Content::new(1 << 61 | owner << 40 | page)
}

/// Shuffles a slice.
pub fn shuffle<T>(slice: &mut [T], random: &mut SplitMix64) {
    for last in (1..slice.len()).rev() {
        let other = random.below(last as u64 + 1);
        slice.swap(last, usize::try_from(other).expect("within the slice"));
    }
}

/// A length from `least` to `most`; lengths of each octave are drawn equally often.
pub(crate) fn between(least: u64, most: u64, random: &mut SplitMix64) -> u64 {
    let octaves = most.div_ceil(least).next_power_of_two().ilog2();
    let low = least << random.below(u64::from(octaves.max(1)));
    (low + random.below(low)).min(most)
}

/// Cuts `pages` in runs of lengths that a function draws.
pub(crate) fn cut(pages: u64, mut draw: impl FnMut() -> u64) -> Vec<u64> {
    let mut lengths = vec![];
    let mut left = pages;
    while left > 0 {
        let length = draw().clamp(1, left);
        lengths.push(length);
        left -= length;
    }
    lengths
}

impl FromStr for Arrangement {
    type Err = String;

    fn from_str(text: &str) -> Result<Arrangement, String> {
        let runs = |length: &str| length.parse().ok().filter(|&length| length > 0);
        match (text, text.strip_prefix("runs:").and_then(runs)) {
            ("same", _) => Ok(Arrangement::Same),
            ("singly", _) => Ok(Arrangement::Singly),
            ("guest", _) => Ok(Arrangement::GuestRuns),
            (_, Some(length)) => Ok(Arrangement::Runs(length)),
            _ => Err(format!(
                "'{text}' is not same, singly, guest or runs:LENGTH"
            )),
        }
    }
}

/// Mappings of which a share is equal.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Pages of each mapping.
    pub pages: u64,
    /// Share of them that is equal, in percent.
    pub percent: u64,
    /// Their relative positions.
    pub place: Arrangement,
    /// Pool of the contents: layouts of one pool and seed have equal ones.
    pub pool: u64,
    /// Seed of all random choices for all mappings.
    pub seed: u64,
}

impl Layout {
    /// The contents of one mapping, whose own pages belong to an owner.
    #[must_use]
    pub fn contents(&self, owner: u64) -> Vec<Content> {
        match self.place {
            Arrangement::Same => self.at_same_offsets(owner),
            _ => self.in_runs(owner),
        }
    }

    fn at_same_offsets(&self, owner: u64) -> Vec<Content> {
        let is_equal = |page: u64| mix(self.seed ^ mix(page + 1)) % 100 < self.percent;
        let content = |page| {
            if is_equal(page) {
                pooled(self.pool, page)
            } else {
                own(owner, page)
            }
        };
        (0..self.pages).map(content).collect()
    }

    fn in_runs(&self, owner: u64) -> Vec<Content> {
        let equal = self.pages * self.percent / 100;
        let mut all = SplitMix64::new(self.seed);
        let mut its_own = SplitMix64::new(mix(self.seed) ^ mix(owner + 1));
        let mut runs: Vec<(Option<u64>, u64)> = vec![];
        let mut first = 0;
        for length in self.equal_runs(equal, &mut all) {
            runs.push((Some(first), length));
            first += length;
        }
        let own_run = match self.place {
            Arrangement::Runs(length) => length,
            Arrangement::GuestRuns => GUEST_OWN_RUN,
            _ => 1,
        };
        let own_runs = cut(self.pages - equal, || match self.place {
            Arrangement::GuestRuns => 1 + its_own.below(own_run),
            _ => own_run,
        });
        runs.extend(own_runs.into_iter().map(|length| (None, length)));
        shuffle(&mut runs, &mut its_own);
        let mut contents = Vec::new();
        for (first, length) in runs {
            let begin = contents.len() as u64;
            contents.extend((0..length).map(|page| match first {
                Some(first) => pooled(self.pool, first + page),
                None => own(owner, begin + page),
            }));
        }
        contents
    }

    /// The lengths of the runs of equal pages; the same for all mappings.
    fn equal_runs(&self, equal: u64, random: &mut SplitMix64) -> Vec<u64> {
        let mut runs = match self.place {
            Arrangement::Runs(length) => cut(equal, || length),
            Arrangement::GuestRuns => {
                let mut runs = vec![];
                let mut left = equal;
                for (percent, least, most) in GUEST_RUNS {
                    let is_last = most == GUEST_RUNS[GUEST_RUNS.len() - 1].2;
                    let pages = if is_last { left } else { equal * percent / 100 };
                    left -= pages;
                    runs.extend(cut(pages, || between(least, most, random)));
                }
                runs
            }
            _ => cut(equal, || 1),
        };
        shuffle(&mut runs, random);
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const PAGES: u64 = 1 << 17;

    fn layout(percent: u64, place: Arrangement) -> Layout {
        Layout {
            pages: PAGES,
            percent,
            place,
            pool: 1,
            seed: 5,
        }
    }

    /// For each page of the second mapping its twin in the first.
    fn twins(layout: &Layout) -> Vec<Option<u64>> {
        let first: HashMap<Content, u64> = layout.contents(1).into_iter().zip(0..).collect();
        let second = layout.contents(2);
        assert_eq!(second.len() as u64, PAGES);
        second
            .into_iter()
            .map(|content| first.get(&content).copied())
            .collect()
    }

    #[test]
    fn the_share_of_equal_pages_is_as_asked_for_in_every_place() {
        for place in [
            Arrangement::Same,
            Arrangement::Singly,
            Arrangement::Runs(64),
            Arrangement::GuestRuns,
        ] {
            for percent in [2, 45, 100] {
                let found = twins(&layout(percent, place)).into_iter().flatten().count();
                let found = found as u64 * 100;
                let asked = PAGES * percent;
                assert!(
                    found.abs_diff(asked) < PAGES,
                    "{place:?} {percent}: {found}"
                );
            }
        }
    }

    #[test]
    fn equal_pages_lie_at_the_same_or_at_other_offsets() {
        for (place, same) in [(Arrangement::Same, true), (Arrangement::Singly, false)] {
            let pairs = twins(&layout(45, place)).into_iter().zip(0..);
            let pairs: Vec<(u64, u64)> = pairs.filter_map(|(twin, at)| Some((twin?, at))).collect();
            let alike = pairs.iter().filter(|(twin, at)| twin == at).count();
            assert_eq!(alike * 2 > pairs.len(), same, "{alike} of {}", pairs.len());
        }
    }

    #[test]
    fn guests_have_runs_of_the_lengths_measured_and_mostly_in_dense_blocks() {
        let twins = twins(&layout(45, Arrangement::GuestRuns));
        let equal = twins.iter().flatten().count() as f64;
        let mut lengths: Vec<usize> = vec![];
        let mut last = None;
        for twin in &twins {
            match (last, twin) {
                (Some(before), Some(twin)) if *twin == before + 1 => {
                    *lengths.last_mut().unwrap() += 1;
                }
                (_, Some(_)) => lengths.push(1),
                _ => {}
            }
            last = *twin;
        }
        let share = |least: usize| {
            let runs = lengths.iter().filter(|&&length| length >= least);
            runs.sum::<usize>() as f64 / equal
        };
        // Measured: 86 % in runs of two or more, 77 % of more than eight, 47 % of more than 128.
        for (least, measured) in [(2, 0.86), (9, 0.77), (129, 0.47)] {
            let here = share(least);
            assert!((here - measured).abs() < 0.04, "{least}: {here:.2}");
        }
        let blocks = twins
            .chunks(512)
            .map(|block| block.iter().flatten().count());
        let dense: usize = blocks.filter(|&equal| equal > 307).sum();
        assert!(dense as f64 > 0.8 * equal, "{dense} of {equal}");
    }
}
