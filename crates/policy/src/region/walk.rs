//! The order in which the pages of a region are read.
//!
//! # Problem
//! Thin samples of two clones should meet, dense ones should be cheap to read, and none should
//! read a page twice before it has read all.
//!
//! # Approach
//! There are three cursors. The *scatter* cursor walks a permutation of the next power of two of
//! the region's size and leaves out pages beyond its end, so regions of similar size, and not only
//! of equal size, are sampled in one order. The *anchors* are the first pages of that order. The
//! *block* cursor walks a permutation of the 2 MiB blocks, each of which is read whole: neighbours
//! share a page-table lock. It is separate, because most regions are in one block.
//!
//! # Source
//! UKSM §5.3: a region-specific permutation with a full cycle.

use super::permutation::Permutation;
use crate::convert;
use crate::mix::mix;

/// Limit of places of anchors in a region.
const MAX_ANCHORS: u32 = 64;

/// The cursors of one region, except that of its blocks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Walk {
    scatter: u32,
    /// Places of anchors read in this era, at most [`MAX_ANCHORS`], see [`Walk::next_anchor`].
    anchored: u8,
}

/// The cursor of a region's blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BlockWalk(u32);

impl Walk {
    /// The next of `pages` pages in scattered order.
    pub(super) fn next_page(&mut self, pages: u32, permutations: &Permutations) -> u32 {
        let order = permutations.of(pages);
        loop {
            let page = order.at(u64::from(self.scatter));
            self.scatter += 1;
            if u64::from(self.scatter) >= order.len() {
                self.scatter = 0;
            }
            if page < u64::from(pages) {
                return convert::narrow(page);
            }
        }
    }

    /// The next anchor, if some are left. Anchors are read first, and again in every era of the
    /// hash, so that they are always indexed: a clone that arrives reads the same ones and meets
    /// them, however thinly the rest has been sampled.
    pub(super) fn next_anchor(&mut self, pages: u32, permutations: &Permutations) -> Option<u32> {
        let order = permutations.of(pages);
        while self.has_anchors_left(pages) {
            let page = order.at(u64::from(self.anchored));
            self.anchored += 1;
            if page < u64::from(pages) {
                return Some(convert::narrow(page));
            }
        }
        None
    }

    /// The first pages of the scattered order, at most `most`: the same each time.
    pub(super) fn first_pages(pages: u32, most: u32, permutations: &Permutations) -> Vec<u32> {
        let order = permutations.of(pages);
        let places = 0..order.len();
        let here = places
            .map(|at| order.at(at))
            .filter(|&page| page < u64::from(pages));
        here.take(convert::index(most))
            .map(convert::narrow)
            .collect()
    }

    /// Whether anchors, or places of anchors, are left to be read.
    pub(super) fn has_anchors_left(self, pages: u32) -> bool {
        let places = pages.next_power_of_two();
        u32::from(self.anchored) < (places.isqrt() / 2).clamp(2, MAX_ANCHORS).min(places)
    }

    /// All anchors are to be read again.
    pub(super) fn restart_anchors(&mut self) {
        self.anchored = 0;
    }

    /// The region has another length. The scatter cursor keeps its position if the order stays the
    /// same.
    pub(super) fn resize(&mut self, before: u32, after: u32) {
        if before.next_power_of_two() != after.next_power_of_two() {
            self.scatter = 0;
        }
    }
}

impl BlockWalk {
    /// The next of `blocks` blocks.
    pub(super) fn next(&mut self, blocks: u32, permutations: &Permutations) -> u32 {
        let order = permutations.of(blocks);
        loop {
            let block = order.at(u64::from(self.0));
            self.0 = if u64::from(self.0) + 1 >= order.len() {
                0
            } else {
                self.0 + 1
            };
            if block < u64::from(blocks) {
                return convert::narrow(block);
            }
        }
    }
}

/// The orders in which regions are read, one for each power of two.
#[derive(Debug, Clone)]
pub(crate) struct Permutations(Vec<Permutation>);

impl Permutations {
    /// The orders that belong to a seed.
    pub(crate) fn new(seed: u64) -> Permutations {
        Permutations(
            (0..=32)
                .map(|bits| Permutation::new(1 << bits, mix(seed ^ bits)))
                .collect(),
        )
    }

    fn of(&self, len: u32) -> &Permutation {
        let bits = u64::from(len).next_power_of_two().trailing_zeros();
        &self.0[convert::index(bits)]
    }
}
