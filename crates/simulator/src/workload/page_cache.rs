//! The page cache of a guest: the block of its disk in each page.
//!
//! The pages used longest ago are dropped first. Pages are taken in an order as in a guest that has
//! run for a while: short runs of neighbours at random places.

use std::collections::HashMap;

use uksm_policy::mix::SplitMix64;

use crate::layout::{between, cut, shuffle};

/// Longest run of free neighbours.
const RUN: u64 = 127;
/// No page.
const NONE: u32 = u32::MAX;

/// A page cache.
#[derive(Debug, Clone)]
pub(super) struct PageCache {
    /// Pages that were never used; the last one is used next.
    free: Vec<u32>,
    cached: HashMap<u64, u32>,
    /// The block of each page, and the pages that were used just before and just after it.
    block: Vec<u64>,
    before: Vec<u32>,
    after: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl PageCache {
    /// An empty one.
    pub(super) fn new(pages: u32, random: &mut SplitMix64) -> PageCache {
        let lengths = cut(u64::from(pages), || between(1, RUN, random));
        let mut first = 0;
        let mut runs: Vec<(u32, u32)> = vec![];
        for length in lengths {
            let length = u32::try_from(length).expect("a part of the pages");
            runs.push((first, first + length));
            first += length;
        }
        shuffle(&mut runs, random);
        let mut free: Vec<u32> = runs.into_iter().flat_map(|(from, to)| from..to).collect();
        free.reverse();
        let count = free.len();
        PageCache {
            free,
            cached: HashMap::new(),
            block: vec![0; count],
            before: vec![NONE; count],
            after: vec![NONE; count],
            oldest: NONE,
            newest: NONE,
        }
    }

    /// The page of a block, if it is cached.
    pub(super) fn page_of(&self, block: u64) -> Option<u32> {
        self.cached.get(&block).copied()
    }

    /// Uses a block; returns its page, and whether the block is new in the cache.
    pub(super) fn use_block(&mut self, block: u64) -> (u32, bool) {
        if let Some(page) = self.page_of(block) {
            self.unlink(page);
            self.link(page);
            return (page, false);
        }
        let page = self.free.pop().unwrap_or_else(|| {
            let page = self.oldest;
            self.unlink(page);
            self.cached.remove(&self.block[page as usize]);
            page
        });
        self.cached.insert(block, page);
        self.block[page as usize] = block;
        self.link(page);
        (page, true)
    }

    fn link(&mut self, page: u32) {
        self.before[page as usize] = self.newest;
        self.after[page as usize] = NONE;
        if self.newest == NONE {
            self.oldest = page;
        } else {
            self.after[self.newest as usize] = page;
        }
        self.newest = page;
    }

    fn unlink(&mut self, page: u32) {
        let (before, after) = (self.before[page as usize], self.after[page as usize]);
        if before == NONE {
            self.oldest = after;
        } else {
            self.after[before as usize] = after;
        }
        if after == NONE {
            self.newest = before;
        } else {
            self.before[after as usize] = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_is_dropped_first() {
        let mut cache = PageCache::new(6, &mut SplitMix64::new(1));
        let pages: Vec<u32> = (0..6).map(|block| cache.use_block(block).0).collect();
        let mut sorted = pages.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
        assert_eq!(cache.use_block(0), (pages[0], false));
        assert_eq!(cache.use_block(3), (pages[3], false));
        let dropped: Vec<u32> = (6..11).map(|block| cache.use_block(block).0).collect();
        assert_eq!(dropped, [1, 2, 4, 5, 0].map(|block| pages[block]));
        assert_eq!(cache.page_of(0), None);
        assert_eq!(cache.page_of(3), Some(pages[3]));
    }
}
