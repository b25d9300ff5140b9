//! The pages of a region that are believed to be merged, and the times of the last evidence.
//!
//! # Problem
//! Whether merged pages are written too soon depends on the time that they had: some pages that
//! were merged an hour ago will have been written. But a region's pages are merged and checked at
//! all times, and a time for each page would take as much memory as the index.
//!
//! # Approach
//! One bit a page. For each *stretch* of neighbours, the number of merged pages and the mean of the
//! times at which they were last known to be merged: merged just then, or checked and found merged.
//! Mostly a sweep merges or checks neighbours together, and they have one time; otherwise each page
//! moves the mean by its part.
//!
//! # Units
//! Pages; nanoseconds. A bit a page and 32 bytes a stretch, in regions with merged pages only.

use std::ops::Range;

use crate::command::Nanos;
use crate::convert;

/// Pages that one page table maps.
const TABLE_PAGES: u32 = 512;
const WORD: u32 = u64::BITS;

#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    /// Sum of the times at which its merged pages were last known to be merged.
    known: u128,
    merged: u32,
}

impl Stretch {
    /// The mean of these times; 0 if no page is merged.
    fn known_at(&self) -> Nanos {
        let mean = self.known.checked_div(u128::from(self.merged));
        mean.map_or(0, |mean| Nanos::try_from(mean).expect("a mean of times"))
    }

    /// `pages` of its merged pages are known to be merged now.
    fn seen_again(&mut self, pages: u32, now: Nanos) {
        let before = self.known_at();
        self.known -= u128::from(before) * u128::from(pages);
        self.known += u128::from(now) * u128::from(pages);
    }
}

/// The merged pages of one region.
#[derive(Debug, Clone)]
pub(crate) struct MergedPages {
    bits: Box<[u64]>,
    stretches: Box<[Stretch]>,
    len: u32,
}

impl MergedPages {
    /// A record of `pages` pages, none of them merged.
    pub(crate) fn new(pages: u32) -> MergedPages {
        MergedPages {
            bits: vec![0; convert::index(pages.div_ceil(WORD))].into_boxed_slice(),
            stretches: vec![Stretch::default(); convert::index(pages.div_ceil(TABLE_PAGES))]
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
        self.bits[convert::index(page / WORD)] & 1 << (page % WORD) != 0
    }

    /// The approximate time at which the page, which is merged, was last known to be merged.
    pub(crate) fn known_at(&self, page: u32) -> Nanos {
        self.stretches[convert::index(page / TABLE_PAGES)].known_at()
    }

    /// Calls `each` with ranges of `pages`, ascending, of all that are not merged, or were last
    /// known to be before `since`.
    pub(crate) fn for_each_unmerged(
        &self,
        pages: Range<u32>,
        since: Nanos,
        mut each: impl FnMut(Range<u32>),
    ) {
        let mut page = pages.start;
        while page < pages.end {
            let stretch = &self.stretches[convert::index(page / TABLE_PAGES)];
            let end = pages.end.min((page / TABLE_PAGES + 1) * TABLE_PAGES);
            if stretch.merged == 0 || stretch.known_at() < since {
                each(page..end);
                page = end;
                continue;
            }
            while page < end {
                let shift = page % WORD;
                let unmerged = !self.bits[convert::index(page / WORD)] >> shift;
                let skipped = unmerged.trailing_zeros().min(WORD - shift);
                let count = (!(unmerged >> skipped.min(WORD - 1))).trailing_zeros();
                let from = page + skipped;
                let to = end.min(from + count.min(WORD - shift - skipped));
                if from < to {
                    each(from..to);
                }
                page = to.max(from);
            }
        }
    }

    /// The page is merged, as known `now`; returns whether it was not before.
    #[inline]
    pub(crate) fn add(&mut self, page: u32, now: Nanos) -> bool {
        let stretch = &mut self.stretches[convert::index(page / TABLE_PAGES)];
        let word = &mut self.bits[convert::index(page / WORD)];
        let bit = 1 << (page % WORD);
        let is_new = *word & bit == 0;
        *word |= bit;
        if is_new {
            stretch.merged += 1;
            stretch.known += u128::from(now);
            self.len += 1;
        } else {
            stretch.seen_again(1, now);
        }
        is_new
    }

    /// The first of `pages`, all of which are merged, are known to be merged now. Returns the
    /// number of them in one stretch, and about when they were last known to be merged.
    pub(crate) fn seen_again(&mut self, pages: Range<u32>, now: Nanos) -> (u32, Nanos) {
        let count = pages.end.min((pages.start / TABLE_PAGES + 1) * TABLE_PAGES) - pages.start;
        let stretch = &mut self.stretches[convert::index(pages.start / TABLE_PAGES)];
        let known_at = stretch.known_at();
        stretch.seen_again(count, now);
        (count, known_at)
    }

    /// The page is no longer merged; returns whether it was before.
    pub(crate) fn remove(&mut self, page: u32) -> bool {
        let has = self.has(page);
        if has {
            self.bits[convert::index(page / WORD)] &= !(1 << (page % WORD));
            let stretch = &mut self.stretches[convert::index(page / TABLE_PAGES)];
            stretch.known -= u128::from(stretch.known_at());
            stretch.merged -= 1;
            self.len -= 1;
        }
        has
    }

    /// None of `pages` is merged; returns the number that were.
    pub(crate) fn remove_all(&mut self, pages: Range<u32>) -> u32 {
        let before = self.len;
        let mut next = pages.start;
        while let Some(page) = self.first_of(next..pages.end) {
            self.remove(page);
            next = page + 1;
        }
        before - self.len
    }

    /// The first of `pages` that is merged.
    pub(crate) fn first_of(&self, pages: Range<u32>) -> Option<u32> {
        let mut page = pages.start;
        while page < pages.end {
            let rest = self.bits[convert::index(page / WORD)] >> (page % WORD);
            if rest != 0 {
                page += rest.trailing_zeros();
                return (page < pages.end).then_some(page);
            }
            page = (page / WORD + 1) * WORD;
        }
        None
    }

    /// Access by rank.
    pub(crate) fn by_rank(&self) -> ByRank<'_> {
        ByRank {
            of: self,
            stretch: 0,
            before: 0,
        }
    }

    /// The region has this many pages now.
    pub(crate) fn resize(&mut self, pages: u32) {
        let mut bits = std::mem::take(&mut self.bits).into_vec();
        bits.resize(convert::index(pages.div_ceil(WORD)), 0);
        if !pages.is_multiple_of(WORD)
            && let Some(last) = bits.last_mut()
        {
            *last &= (1 << (pages % WORD)) - 1;
        }
        let mut stretches = std::mem::take(&mut self.stretches).into_vec();
        stretches.resize(
            convert::index(pages.div_ceil(TABLE_PAGES)),
            Stretch::default(),
        );
        for (stretch, words) in stretches
            .iter_mut()
            .zip(bits.chunks(convert::index(TABLE_PAGES / WORD)))
        {
            let known_at = u128::from(stretch.known_at());
            stretch.merged = words.iter().map(|word| word.count_ones()).sum();
            stretch.known = known_at * u128::from(stretch.merged);
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

/// Finds merged pages by their ranks, which only grow: the first merged page has rank 0.
#[derive(Debug)]
pub(crate) struct ByRank<'a> {
    of: &'a MergedPages,
    /// The stretch of the last page found, and the number of merged pages before it.
    stretch: usize,
    before: u32,
}

impl ByRank<'_> {
    /// The merged page of this rank, at least that of the call before.
    ///
    /// # Panics
    /// If fewer pages are merged.
    pub(crate) fn page(&mut self, rank: u32) -> u32 {
        while rank - self.before >= self.of.stretches[self.stretch].merged {
            self.before += self.of.stretches[self.stretch].merged;
            self.stretch += 1;
        }
        let mut left = rank - self.before;
        let mut word = self.stretch * convert::index(TABLE_PAGES / WORD);
        let mut bits = self.of.bits[word];
        while left >= bits.count_ones() {
            left -= bits.count_ones();
            word += 1;
            bits = self.of.bits[word];
        }
        for _ in 0..left {
            bits &= bits - 1;
        }
        convert::narrow(word as u64) * WORD + bits.trailing_zeros()
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
            steps in prop::collection::vec((0u32..8, 1u32..3000), 0..200),
        ) {
            let (mut held, mut set, mut pages) = (MergedPages::new(1500), BTreeSet::new(), 1500);
            for (now, (step, page)) in (1..).zip(steps) {
                match step {
                    0 => {
                        pages = page;
                        held.resize(pages);
                        set.retain(|&page| page < pages);
                    }
                    1 => prop_assert_eq!(held.remove(page % pages), set.remove(&(page % pages))),
                    2 => {
                        let range = page % pages..(page % pages + 700).min(pages);
                        let first = set.range(range.clone()).next().copied();
                        prop_assert_eq!(held.first_of(range.clone()), first);
                        let before = set.len();
                        set.retain(|page| !range.contains(page));
                        prop_assert_eq!(held.remove_all(range) as usize, before - set.len());
                    }
                    _ => {
                        prop_assert_eq!(held.add(page % pages, now), set.insert(page % pages));
                        prop_assert!(held.known_at(page % pages) <= now);
                    }
                }
                prop_assert_eq!(u64::from(held.len()), set.len() as u64);
                let mut unmerged = vec![];
                held.for_each_unmerged(3..pages, 0, |range| unmerged.extend(range));
                let others: Vec<u32> = (3..pages).filter(|page| !set.contains(page)).collect();
                prop_assert_eq!(unmerged, others);
                prop_assert!((0..pages).all(|page| held.has(page) == set.contains(&page)));
                let mut by_rank = held.by_rank();
                for (rank, &page) in (0..).zip(&set).step_by(3) {
                    prop_assert_eq!(by_rank.page(rank), page);
                }
            }
        }
    }

    #[test]
    fn pages_merged_together_are_known_since_then() {
        let mut held = MergedPages::new(1024);
        assert!((0..512).all(|page| held.add(page, 1_000_000)));
        assert_eq!(held.known_at(0), 1_000_000);
        // All are broken, and merged again an hour later.
        assert!((0..512).all(|page| held.remove(page)));
        assert!((0..512).all(|page| held.add(page, 3_600_000_000_000)));
        assert_eq!(held.known_at(511), 3_600_000_000_000);
    }

    #[test]
    fn one_page_of_many_moves_the_time_by_its_part() {
        let mut held = MergedPages::new(512);
        assert!((0..100).all(|page| held.add(page, 1_000_000)));
        held.remove(7);
        held.add(7, 2_000_000);
        assert_eq!(held.known_at(0), 1_010_000);
    }

    #[test]
    fn what_was_merged_long_ago_is_read_again() {
        let mut held = MergedPages::new(1024);
        assert!((0..512).all(|page| held.add(page, 1_000_000)));
        assert!((600..1000).all(|page| held.add(page, 2_000_000)));
        let mut unmerged = vec![];
        held.for_each_unmerged(0..1024, 2_000_000, |range| unmerged.extend(range));
        let pages: Vec<u32> = (0..600).chain(1000..1024).collect();
        assert_eq!(unmerged, pages);
    }

    #[test]
    fn pages_found_together_again_are_known_since_then() {
        let mut held = MergedPages::new(1024);
        assert!((0..600).all(|page| held.add(page, 1_000_000)));
        assert_eq!(held.seen_again(0..600, 2_000_000), (512, 1_000_000));
        assert_eq!(held.known_at(0), 2_000_000);
        assert_eq!(held.seen_again(512..556, 2_000_000), (44, 1_000_000));
        assert_eq!(held.known_at(599), 1_500_000);
    }
}
