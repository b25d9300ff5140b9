//! Extends matches: the neighbours of two equal pages are proposed as equal, too.
//!
//! # Problem
//! Equal pages of real memory come in runs: files read by two guests, heaps of two like processes.
//! An index that is smaller than the memory holds only some pages of a run, so that the rest of the
//! run is not met.
//!
//! # Approach
//! Blocks are read in order. Once a page has met its twin, the page after it is proposed as the
//! twin of the page after the twin, without being looked up; the module compares. And the pages
//! before it, which met nothing, are proposed backwards. The reach depends on the number of pages
//! per entry of the index. A run that is met again in the index is followed for as long again as
//! its length so far, so that a long run costs few lookups and a chance match a few comparisons.
//! Matches are extended only when the index has no room for all pages: else a page that met nothing
//! has no twin. Deduplication of files extends matches in this way.
//!
//! Without it: with an index for a sixth of the pages, of runs of 64 pages 16 % are merged after a
//! minute, instead of 90 % after half a second.
//!
//! # Units
//! A proposal that fails costs a comparison that ends at the first difference.

use std::collections::VecDeque;

use crate::convert;
use crate::lookup::RegionPage;

/// Number of missed entries of the index in a run after which a run ends.
const MAX_MISSES: u32 = 4;
/// Limit of pages that are proposed after a chance match, and before it.
const MAX_GUESSES: u32 = 256;

/// The pages of an answer that follow their twins. `C` is kept for a page that met nothing.
#[derive(Debug)]
pub(super) struct TwinRun<C> {
    /// The last page.
    last: Option<RegionPage>,
    /// Its twin, or the page proposed as its twin.
    twin: Option<RegionPage>,
    /// Pages from the first match to the last one.
    length: u32,
    /// Pages proposed since the last match.
    guesses: u32,
    /// Pages right before the next one that met nothing, at most `reach`.
    unmatched: VecDeque<C>,
    /// Pages that are proposed after a match, and before it, at any length of the run.
    reach: u32,
}

impl<C> Default for TwinRun<C> {
    fn default() -> TwinRun<C> {
        TwinRun {
            last: None,
            twin: None,
            length: 0,
            guesses: 0,
            unmatched: VecDeque::new(),
            reach: 0,
        }
    }
}

impl<C> TwinRun<C> {
    /// Moves to the next page: the run ends if it is not the neighbour of the last. One of
    /// `pages_per_entry` pages is in the index.
    pub(super) fn go_to(&mut self, place: RegionPage, pages_per_entry: u32) {
        self.reach = pages_per_entry.saturating_mul(MAX_MISSES).min(MAX_GUESSES);
        if self.last.and_then(after) != Some(place) {
            self.end();
            self.unmatched.clear();
        }
        self.last = Some(place);
    }

    /// The page met `twin`. If that is not the expected place, another run begins.
    pub(super) fn meet(&mut self, twin: RegionPage) {
        if self.twin.and_then(after) == Some(twin) {
            self.length += self.guesses + 1;
        } else {
            self.length = 1;
        }
        self.guesses = 0;
        self.twin = Some(twin);
        self.unmatched.clear();
    }

    /// The page met a frame or the zero page: its twin is merged, too, and the run may go on.
    pub(super) fn pass(&mut self) {
        self.twin = self.twin.and_then(after);
        self.unmatched.clear();
    }

    /// The twin to propose for a page that met nothing.
    pub(super) fn guess(&self) -> Option<RegionPage> {
        let is_worth_it = self.guesses < self.length.max(self.reach);
        self.twin.filter(|_| is_worth_it).and_then(after)
    }

    /// The guess was proposed.
    pub(super) fn follow(&mut self, twin: RegionPage) {
        self.twin = Some(twin);
        self.guesses += 1;
    }

    /// The page met nothing, and nothing was proposed for it.
    pub(super) fn miss(&mut self, page: C) {
        self.end();
        if self.unmatched.len() >= convert::index(self.reach) {
            self.unmatched.pop_front();
        }
        self.unmatched.push_back(page);
    }

    /// The pages right before one that met `twin`, the nearest first, each with the page that may
    /// be its twin.
    pub(super) fn take_unmatched(
        &mut self,
        twin: RegionPage,
    ) -> impl Iterator<Item = (C, RegionPage)> + use<C> {
        let twins = std::iter::successors(before(twin), |&twin| before(twin));
        std::mem::take(&mut self.unmatched)
            .into_iter()
            .rev()
            .zip(twins)
    }

    fn end(&mut self) {
        self.twin = None;
        self.length = 0;
        self.guesses = 0;
    }
}

/// The page after this one.
fn after(place: RegionPage) -> Option<RegionPage> {
    let page = place.page.checked_add(1)?;
    Some(RegionPage { page, ..place })
}

/// The page before this one.
fn before(place: RegionPage) -> Option<RegionPage> {
    let page = place.page.checked_sub(1)?;
    Some(RegionPage { page, ..place })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RegionId;

    fn place(region: u32, page: u32) -> RegionPage {
        RegionPage {
            region: RegionId(region),
            page,
        }
    }

    #[test]
    fn a_match_proposes_its_neighbours_in_both_directions() {
        let mut twin_run = TwinRun::default();
        for page in 10..13 {
            twin_run.go_to(place(1, page), 2);
            assert_eq!(twin_run.guess(), None);
            twin_run.miss(page);
        }
        twin_run.go_to(place(1, 13), 2);
        let behind: Vec<_> = twin_run.take_unmatched(place(2, 52)).collect();
        assert_eq!(
            behind,
            [(12, place(2, 51)), (11, place(2, 50)), (10, place(2, 49))]
        );
        twin_run.meet(place(2, 52));
        twin_run.go_to(place(1, 14), 2);
        assert_eq!(twin_run.guess(), Some(place(2, 53)));
    }

    #[test]
    fn a_trail_ends_when_too_many_entries_were_missed_or_pages_are_left_out() {
        let mut twin_run = TwinRun::<()>::default();
        twin_run.go_to(place(1, 0), 2);
        twin_run.meet(place(2, 0));
        let mut proposed = 0;
        for page in 1..100 {
            twin_run.go_to(place(1, page), 2);
            match twin_run.guess() {
                Some(twin) => twin_run.follow(twin),
                None => break,
            }
            proposed += 1;
        }
        assert_eq!(proposed, 8, "four entries, each of two pages");
        twin_run.meet(place(2, 40));
        twin_run.go_to(place(1, 41), 2);
        assert_eq!(twin_run.guess(), None, "not a neighbour");
    }

    #[test]
    fn a_long_trail_goes_on_for_as_long_again() {
        let mut twin_run = TwinRun::<()>::default();
        for page in 0..50 {
            twin_run.go_to(place(1, page), 1);
            twin_run.meet(place(2, page));
        }
        let mut proposed = 0;
        for page in 50..200 {
            twin_run.go_to(place(1, page), 1);
            let Some(twin) = twin_run.guess() else { break };
            twin_run.follow(twin);
            proposed += 1;
        }
        assert_eq!(proposed, 50);
    }
}
