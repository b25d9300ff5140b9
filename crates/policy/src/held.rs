//! Which pages of a region are believed to be merged, and since when that is known.
//!
//! # Problem
//! Whether merged pages are written too soon can be judged only against the time that they had:
//! of pages that were merged an hour ago some will have been written. But a region's pages are
//! merged and looked at at all times, and a time for each page would take as much memory as the
//! index.
//!
//! # Approach
//! One bit a page. For each *stretch* of neighbours, the number of merged pages and the mean of the
//! times at which they were last known to be merged: merged just then, or looked at and found
//! merged. Neighbours are mostly merged and looked at together, by a sweep, and have one time
//! then; where they are not, each moves the mean by its part.
//!
//! # Units
//! Pages; nanoseconds. A bit a page and 16 bytes a stretch, in regions with merged pages only.

use crate::command::Nanos;
use crate::number;

/// Pages of a stretch: as many as a page table maps.
const STRETCH: u32 = 512;
const WORD: u32 = u64::BITS;

#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    known_at: Nanos,
    merged: u32,
}

/// The merged pages of one region.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    bits: Box<[u64]>,
    stretches: Box<[Stretch]>,
    len: u32,
}

impl Held {
    /// None of `pages` is merged.
    pub(crate) fn new(pages: u32) -> Held {
        Held {
            bits: vec![0; number::index(pages.div_ceil(WORD))].into_boxed_slice(),
            stretches: vec![Stretch::default(); number::index(pages.div_ceil(STRETCH))]
                .into_boxed_slice(),
            len: 0,
        }
    }

    /// Number of merged pages.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Whether the page is merged.
    pub(crate) fn has(&self, page: u32) -> bool {
        self.bits[number::index(page / WORD)] & 1 << (page % WORD) != 0
    }

    /// About when the page, which is merged, was last known to be.
    pub(crate) fn known_at(&self, page: u32) -> Nanos {
        self.stretches[number::index(page / STRETCH)].known_at
    }

    /// The page is merged, and known to be now.
    pub(crate) fn add(&mut self, page: u32, now: Nanos) {
        let is_new = !self.has(page);
        let stretch = &mut self.stretches[number::index(page / STRETCH)];
        if is_new {
            self.bits[number::index(page / WORD)] |= 1 << (page % WORD);
            stretch.merged += 1;
            self.len += 1;
        }
        let later = now.saturating_sub(stretch.known_at);
        stretch.known_at += later / u64::from(stretch.merged);
    }

    /// The page is no longer merged.
    pub(crate) fn remove(&mut self, page: u32) {
        if self.has(page) {
            self.bits[number::index(page / WORD)] &= !(1 << (page % WORD));
            self.stretches[number::index(page / STRETCH)].merged -= 1;
            self.len -= 1;
        }
    }

    /// The region has this many pages now.
    pub(crate) fn resize(&mut self, pages: u32) {
        let mut bits = std::mem::take(&mut self.bits).into_vec();
        bits.resize(number::index(pages.div_ceil(WORD)), 0);
        if !pages.is_multiple_of(WORD)
            && let Some(last) = bits.last_mut()
        {
            *last &= (1 << (pages % WORD)) - 1;
        }
        let mut stretches = std::mem::take(&mut self.stretches).into_vec();
        stretches.resize(number::index(pages.div_ceil(STRETCH)), Stretch::default());
        for (stretch, words) in stretches
            .iter_mut()
            .zip(bits.chunks(number::index(STRETCH / WORD)))
        {
            stretch.merged = words.iter().map(|word| word.count_ones()).sum();
        }
        self.len = stretches.iter().map(|stretch| stretch.merged).sum();
        self.bits = bits.into_boxed_slice();
        self.stretches = stretches.into_boxed_slice();
    }

    /// Bytes it takes beside itself.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.bits) + size_of_val(&*self.stretches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set_of_pages_whatever_its_size(
            steps in prop::collection::vec((0u32..4, 1u32..3000), 0..200),
        ) {
            let (mut held, mut set, mut pages) = (Held::new(1500), BTreeSet::new(), 1500);
            for (now, (step, page)) in (1..).zip(steps) {
                match step {
                    0 => {
                        pages = page;
                        held.resize(pages);
                        set.retain(|&page| page < pages);
                    }
                    1 => {
                        held.remove(page % pages);
                        set.remove(&(page % pages));
                    }
                    _ => {
                        held.add(page % pages, now);
                        set.insert(page % pages);
                        prop_assert!(held.known_at(page % pages) <= now);
                    }
                }
                prop_assert_eq!(u64::from(held.len()), set.len() as u64);
                prop_assert!((0..pages).all(|page| held.has(page) == set.contains(&page)));
            }
        }
    }

    #[test]
    fn pages_merged_together_are_known_since_then() {
        let mut held = Held::new(1024);
        (0..512).for_each(|page| held.add(page, 1_000_000));
        assert_eq!(held.known_at(0), 1_000_000);
        // All are broken, and merged again an hour later.
        (0..512).for_each(|page| held.remove(page));
        (0..512).for_each(|page| held.add(page, 3_600_000_000_000));
        assert_eq!(held.known_at(511), 3_600_000_000_000);
    }

    #[test]
    fn one_page_of_many_moves_the_time_by_its_part() {
        let mut held = Held::new(512);
        (0..100).for_each(|page| held.add(page, 1_000_000));
        held.remove(7);
        held.add(7, 2_000_000);
        assert_eq!(held.known_at(0), 1_010_000);
    }
}
