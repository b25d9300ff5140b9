//! Samples of all that is on the ladder, for a search of the hash strength.
//!
//! # Problem
//! A search compares strengths by their samples. Samples of the regions of one level, or of blocks
//! of one region, would differ from strength to strength. A host has hundreds of thousands of
//! regions.
//!
//! # Approach
//! Single pages of the regions of all levels, by their weight: each region passed adds its weight
//! to a sum, and is sampled when the sum reaches the weight of a sample. One call passes a bounded
//! number of regions, and the next one goes on behind them.
//!
//! # Source
//! UKSM §6.1.

use super::level::Level;
use crate::ids::RegionId;

/// The place of the next samples.
#[derive(Debug, Default)]
pub(super) struct StrengthSamples {
    level: usize,
    slot: usize,
    /// The weight of the regions passed since the last sample, times the samples wanted.
    carry: u64,
}

impl StrengthSamples {
    /// Passes at most `most_regions` regions; returns those to be sampled with the number of their
    /// pages: `wanted` in all, or fewer.
    pub(super) fn next(
        &mut self,
        levels: &[Level],
        most_regions: usize,
        wanted: u64,
    ) -> Vec<(RegionId, u64)> {
        let total = levels.iter().map(Level::total).sum::<u64>().max(1);
        let all: usize = levels.iter().map(|level| level.slots() + 1).sum();
        let (mut picked, mut left) = (vec![], wanted);
        for _ in 0..all.min(most_regions) {
            if left == 0 {
                break;
            }
            let Some(member) = levels[self.level].member(self.slot) else {
                self.level = (self.level + 1) % levels.len();
                self.slot = 0;
                // Otherwise a region that was just missed would be missed each time.
                self.carry = (self.carry + total / 8 * 5) % total;
                continue;
            };
            self.slot += 1;
            if let Some((id, weight)) = member {
                self.carry += u64::from(weight) * wanted;
                let pages = (self.carry / total).min(left);
                self.carry %= total;
                if pages > 0 {
                    picked.push((id, pages));
                    left -= pages;
                }
            }
        }
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Governor, Params};
    use std::collections::BTreeMap;

    fn levels() -> Vec<Level> {
        Level::all(&Params::governor(Governor::Full))
    }

    #[test]
    fn regions_of_all_levels_are_sampled_by_their_weight() {
        let mut levels = levels();
        let weights = [1000, 3000, 6000, 10_000];
        for (number, (level, &weight)) in (0..).zip(levels.iter_mut().zip(&weights)) {
            level.insert(RegionId(number), weight);
        }
        let (mut spread, mut sampled) = (StrengthSamples::default(), BTreeMap::new());
        for _ in 0..100 {
            let picked = spread.next(&levels, 100, 10);
            assert!(picked.iter().map(|(_, pages)| pages).sum::<u64>() <= 10);
            for (id, pages) in picked {
                *sampled.entry(id.0).or_insert(0) += pages;
            }
        }
        let all: u64 = sampled.values().sum();
        assert!((900..=1000).contains(&all), "{all}");
        for (&number, &pages) in &sampled {
            let expected = u64::from(weights[number as usize]) / 20;
            assert!(pages.abs_diff(expected) * 4 <= expected, "{sampled:?}");
        }
    }

    #[test]
    fn very_many_regions_are_gone_through_in_several_steps() {
        let mut levels = levels();
        for number in 0..3000 {
            levels[0].insert(RegionId(number), 1);
        }
        let mut spread = StrengthSamples::default();
        let picked: Vec<usize> = (0..4)
            .map(|_| spread.next(&levels, 1000, 300).len())
            .collect();
        assert!(
            picked[..3].iter().all(|few| (95..=100).contains(few)),
            "{picked:?}"
        );
        assert_eq!(StrengthSamples::default().next(&self::levels(), 10, 5), []);
    }
}
