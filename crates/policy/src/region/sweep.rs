//! A full pass over a region's blocks, as the top level makes it, and its counts.

use super::residency::has_holes;
use crate::command::Nanos;
use crate::convert;

/// The next step for a region that was swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SweepEnd {
    /// It is swept again at once.
    Again,
    /// It is done, and was not full: more pages may appear.
    Unfilled,
    /// It is done.
    Done,
}

/// The sweep of one region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sweep {
    /// Blocks swept since it began.
    blocks: u32,
    /// Candidates and merged pages met.
    pages: u32,
    /// Pages that could not be merged just now.
    failed: u32,
    /// Pages that had been merged and no longer were.
    broken: u32,
    /// Whether the last of its blocks was chosen.
    is_over: bool,
}

impl Sweep {
    /// Goes on to the next of `blocks`; returns whether it is the last one.
    pub(super) fn next(&mut self, blocks: u32) -> bool {
        self.blocks += 1;
        let is_last = self.blocks >= blocks;
        self.is_over = is_last;
        if is_last {
            self.blocks = 0;
        }
        is_last
    }

    /// Blocks swept so far.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Candidates and merged pages met.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// All blocks are to be swept again, and pages counted anew.
    pub(super) fn restart(&mut self) {
        self.blocks = 0;
        self.pages = 0;
        self.is_over = false;
    }

    /// Whether its last block was chosen, and its end is not known yet.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Forgets everything, as on another level.
    pub(super) fn reset(&mut self) {
        *self = Sweep::default();
    }

    /// `pages` candidates or merged pages were met.
    pub(super) fn found(&mut self, pages: u32) {
        self.pages += pages;
    }

    /// A page could not be merged just now.
    pub(super) fn failed(&mut self) {
        self.failed += 1;
    }

    /// Pages that could not be merged just now.
    pub(super) fn failures(&self) -> u32 {
        self.failed
    }

    /// A page had been merged and no longer was.
    pub(super) fn broken(&mut self) {
        self.broken += 1;
    }

    /// Whether an eighth or more of `pages` was not met.
    pub(super) fn has_holes(&self, pages: u32) -> bool {
        has_holes(self.pages, pages)
    }

    /// The sweep is over, `since` after the one before. Returns the next step, and whether more
    /// than `v_dup` of the pages was busy. With the COW filter off, a region of which more than
    /// `v_dup` is broken a round is swept again and again: an operator who turns the filter off
    /// wants such pages merged.
    pub(super) fn end(
        &mut self,
        since: Nanos,
        round: Nanos,
        v_dup: f64,
        is_cow_off: bool,
    ) -> (SweepEnd, bool) {
        self.is_over = false;
        let met = u64::from(self.pages.max(1));
        let share = |pages: u32| convert::ratio(u64::from(pages), met);
        let rewritten = share(self.broken) * convert::float(round) / convert::float(since.max(1));
        let is_rewritten = is_cow_off && rewritten > v_dup;
        let was_busy = share(self.failed) > v_dup;
        if is_rewritten {
            self.reset();
            return (SweepEnd::Again, was_busy);
        }
        (SweepEnd::Done, was_busy)
    }
}
