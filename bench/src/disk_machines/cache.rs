//! The page cache of a machine: the block in each page.
//!
//! The pages used longest ago are dropped first. Pages are taken in an order as in a guest that has
//! run for a while: short runs of neighbours at random places.

use std::collections::{BTreeMap, HashMap};

use super::{Machine, SLOTS};
use crate::rng::{Rng, shuffle};

/// Lengths of runs of free pages.
const RUNS: std::ops::RangeInclusive<usize> = 1..=127;

/// A page cache.
pub(super) struct Cache {
    /// Pages that were never used; the last one is used next.
    free: Vec<usize>,
    /// The page of each cached block, and the time of its use.
    cached: HashMap<u64, (usize, u64)>,
    /// Cached blocks by the time of their use.
    by_use: BTreeMap<u64, u64>,
    uses: u64,
}

impl Cache {
    /// The empty page cache of a machine.
    pub(super) fn of(machine: &Machine) -> Cache {
        let pages = machine.cache_pages();
        let mut draws = Rng::new(machine.seed, SLOTS + machine.number);
        let mut runs = Vec::new();
        let mut first = 0;
        while first < pages {
            let end = (first + draws.in_octaves(&RUNS)).min(pages);
            runs.push(first..end);
            first = end;
        }
        shuffle(&mut runs, &mut draws);
        let mut free: Vec<usize> = runs.into_iter().flatten().collect();
        free.reverse();
        Cache {
            free,
            cached: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    /// The page of a block, if it is cached.
    pub(super) fn page_of(&self, block: u64) -> Option<usize> {
        self.cached.get(&block).map(|&(page, _)| page)
    }

    /// Uses a block; returns the page to be filled with it, if it was not cached.
    pub(super) fn use_block(&mut self, block: u64) -> Option<usize> {
        self.uses += 1;
        let found = self.cached.get_mut(&block);
        let missing = found.is_none();
        let page = match found {
            Some((page, used)) => {
                self.by_use.remove(used);
                *used = self.uses;
                *page
            }
            None => {
                let page = self.free.pop().or_else(|| {
                    let (_, oldest) = self.by_use.pop_first()?;
                    self.cached.remove(&oldest).map(|(page, _)| page)
                })?;
                self.cached.insert(block, (page, self.uses));
                page
            }
        };
        self.by_use.insert(self.uses, block);
        missing.then_some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;

    #[test]
    fn what_was_used_longest_ago_is_dropped_first() {
        let mut cache = Cache::of(&machine(8));
        let pages: Vec<usize> = (0..6)
            .map(|block| cache.use_block(block).unwrap())
            .collect();
        let mut sorted = pages.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
        assert_eq!(cache.use_block(0), None);
        assert_eq!(cache.use_block(6), Some(pages[1]));
        assert_eq!(cache.page_of(0), Some(pages[0]));
        assert_eq!(cache.page_of(1), None);
    }
}
