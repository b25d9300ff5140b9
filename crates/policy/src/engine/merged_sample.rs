//! A sample of the pages that are believed to be merged, evenly spread over all of them.
//!
//! # Problem
//! The engine believes that a page is merged until it reads the page again. A program can free or
//! write its pages meanwhile, so a count of what is merged must ask the machine. There can be
//! millions of such pages.
//!
//! # Approach
//! Merged pages are numbered in the order in which regions are kept, and divided into strata of
//! equal size. One page of each stratum is taken. Its number in the stratum is a salted hash, so
//! that the sample follows no pattern in memory, and no program can foresee it. The engine itself
//! does not change: a question about the status does not change what it decides.
//!
//! # Units
//! Pages.

use super::Engine;
use crate::command::{PAGE_SIZE, Run, SpaceId};
use crate::convert;
use crate::mix::mix;

impl Engine {
    /// All pages that are believed to be merged, if there are at most `most`; else one page of each
    /// stratum, at most `most`. Runs are sorted by space and address. Costs a pass over all regions
    /// and a step for each 2 MiB of those with merged pages.
    ///
    /// # Panics
    /// If `most` is 0.
    #[must_use]
    pub fn merged_sample(&self, most: u64, salt: u64) -> Vec<Run> {
        let size = self.regions.merged().div_ceil(most).max(1);
        let mut ranks = (0..).map(|stratum: u64| stratum * size + mix(stratum ^ salt) % size);
        let mut rank = ranks.next().expect("ranks do not end");
        let mut before = 0;
        let mut runs: Vec<Run> = vec![];
        for region in self.regions.iter() {
            let Some(merged) = region.merged_pages() else {
                continue;
            };
            let (space, mut by_rank) = (self.spaces.id(region.space()), merged.by_rank());
            let end = before + u64::from(merged.len());
            while rank < end {
                let page = by_rank.page(convert::narrow(rank - before));
                push(&mut runs, space, region.address(page));
                rank = ranks.next().expect("ranks do not end");
            }
            before = end;
        }
        runs.sort_unstable_by_key(|run| (run.space, run.start));
        runs
    }
}

/// Adds a page: to the last run, if it follows that.
fn push(runs: &mut Vec<Run>, space: SpaceId, start: u64) {
    match runs.last_mut() {
        Some(run)
            if run.space == space && run.start + u64::from(run.count) * PAGE_SIZE == start =>
        {
            run.count += 1;
        }
        _ => runs.push(Run {
            start,
            space,
            count: 1,
            stride: 1,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::equal_regions::{self, PAGES};
    use super::*;
    use crate::ids::RegionId;
    use crate::params::{Governor, Params, SECOND};

    /// Three spaces of two regions each, of which all pages but the first are merged in the regions
    /// 1 to 4.
    fn merged() -> (Engine, Vec<(SpaceId, u64)>) {
        let mut engine = equal_regions::with(Params::governor(Governor::Full), (3, 2));
        equal_regions::advance(&mut engine, SECOND);
        let mut places = vec![];
        for id in (1..5).map(RegionId) {
            for page in 1..u32::try_from(PAGES).unwrap() {
                engine.regions.set_merged(id, page, true, SECOND);
                let region = &engine.regions[id];
                places.push((engine.spaces.id(region.space()), region.address(page)));
            }
        }
        (engine, places)
    }

    fn places(runs: &[Run]) -> Vec<(SpaceId, u64)> {
        let pages = runs.iter().flat_map(|run| {
            assert_eq!(run.stride, 1);
            (0..u64::from(run.count)).map(|page| (run.space, run.start + page * PAGE_SIZE))
        });
        pages.collect()
    }

    #[test]
    fn few_merged_pages_are_all_in_the_sample_and_no_others() {
        let (engine, mut all) = merged();
        all.sort_unstable();
        let runs = engine.merged_sample(all.len() as u64, 7);
        assert_eq!(places(&runs), all);
        assert_eq!(runs.len(), 4, "neighbours are one run");
    }

    #[test]
    fn of_many_merged_pages_one_of_each_stratum_is_in_the_sample() {
        let (engine, all) = merged();
        for most in [1, 2, 10, 100, 251] {
            let sample = places(&engine.merged_sample(most, 7));
            let size = all.len().div_ceil(usize::try_from(most).unwrap());
            for stratum in all.chunks_exact(size) {
                let chosen = stratum.iter().filter(|place| sample.contains(place));
                assert_eq!(chosen.count(), 1, "{most}");
            }
            assert!(sample.len() as u64 <= most);
        }
    }

    #[test]
    fn nothing_merged_is_no_sample() {
        let engine = equal_regions::with(Params::governor(Governor::Full), (3, 2));
        assert!(engine.merged_sample(16, 7).is_empty());
    }
}
