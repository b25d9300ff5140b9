//! When frames with one mapping are given back.
//!
//! # Problem
//! A frame whose other sharers have written their pages, or ended, saves nothing, and can be
//! neither moved nor swapped out. The machine can give its last page a copy of its own again, but
//! only in the space of that page, and neither the kernel nor the engine keeps a list of the
//! mappings of a frame.
//!
//! # Approach
//! A listing of the frames counts those that have had one mapping for
//! [`STAY`](super::frames::STAY): one whose next sharer comes sooner is left alone. If they are
//! worth a pass over all merged pages, a *sweep* begins: the machine is asked to give back in all
//! ranges in which pages were merged, one after the other (`engine/give_back_turn.rs`). The next
//! listing frees the frames. Until then no page joins a frame with one mapping: the page that was
//! given back would be the first.
//!
//! Where the machine refuses frames, any frame with one mapping counts: each takes the place of one
//! that would save something. So it does where memory is short, since it cannot be swapped. When
//! memory becomes short, a listing does not wait for its share.
//!
//! A sweep that was worth its cost is followed by another one after the next listing: it may have
//! ended for want of memory, and pages that were given back can be swapped. What a sweep leaves
//! that was not worth it is in spaces without memory for copies, or in spaces that are not
//! followed. Such frames are no reason for a sweep for some time, which doubles where memory is not
//! short; but each sweep tries them, too.
//!
//! A frame that a false match has made is known with its page, and is given back at once.
//!
//! # Units
//! Frames; nanoseconds. Decision 58 has what other [`WORTH_DIVISOR`]s cost; the waits are chosen.

use crate::command::{Nanos, SpaceId};
use crate::lookup::frames::Singles;
use crate::params::SECOND;

/// A sweep is worth its cost for one frame in this many.
const WORTH_DIVISOR: u64 = 128;
/// Time for which memory counts as short after it was: longer than between two looks.
const SHORT_TIME: Nanos = 30 * SECOND;
/// The shortest and the longest wait for a sweep because of frames that the last one left. One
/// because of others waits for the shortest.
const MIN_WAIT: Nanos = 10 * SECOND;
const MAX_WAIT: Nanos = 640 * SECOND;

/// The pass over all merged pages that is under way.
#[derive(Debug, Clone, Copy)]
struct SinglesSweep {
    /// Where it continues.
    space: SpaceId,
    address: u64,
    /// Frames for which it was made, and pages given back so far.
    expected: u64,
    given: u64,
}

/// The schedule.
#[derive(Debug, Default)]
pub(crate) struct GivingBack {
    sweep: Option<SinglesSweep>,
    /// A sweep began, and no listing has freed its frames yet.
    is_open: bool,
    /// Frames were refused since the last listing.
    are_refused: bool,
    /// Until then memory counts as short.
    short_until: Nanos,
    /// Memory became short, and the frames were not listed since.
    is_newly_short: bool,
    /// No sweep begins before this time.
    earliest: Nanos,
    /// Frames that the last sweep did not give back. They are no reason for another one before
    /// `retry`, which is `wait` after it.
    left: u64,
    retry: Nanos,
    wait: Nanos,
    /// Pages that false matches have made frames of. A batch has at most 256 sets, and they are
    /// given back before the next batch.
    false_matches: Vec<(SpaceId, u64)>,
    /// Pages given back so far.
    pages: u64,
}

impl GivingBack {
    /// The machine refuses new frames.
    pub(super) fn frames_refused(&mut self, singles: Singles, now: Nanos) {
        self.are_refused = true;
        self.consider(singles, now);
    }

    /// Memory is short just now.
    pub(super) fn memory_is_short(&mut self, now: Nanos) {
        if !self.is_short(now) {
            self.is_newly_short = true;
            (self.earliest, self.retry) = (now, now);
        }
        self.short_until = now + SHORT_TIME;
    }

    /// Whether memory was short a moment ago.
    pub(super) fn is_short(&self, now: Nanos) -> bool {
        now < self.short_until
    }

    /// Whether listings do not wait for their share.
    pub(super) fn is_urgent(&self) -> bool {
        self.is_open || self.is_newly_short
    }

    /// A listing of all frames is complete.
    pub(super) fn listed(&mut self, singles: Singles, now: Nanos) {
        self.is_newly_short = false;
        if self.sweep.is_none() {
            self.is_open = false;
            self.consider(singles, now);
            self.are_refused &= self.sweep.is_some();
        }
    }

    /// Begins a sweep if it is worth its cost.
    fn consider(&mut self, singles: Singles, now: Nanos) {
        let expected = if self.are_refused || self.is_short(now) {
            singles.now
        } else {
            singles.lasting
        };
        self.left = self.left.min(singles.now);
        let new = if now >= self.retry {
            expected
        } else {
            expected.saturating_sub(self.left)
        };
        let is_worth = new > 0 && new * WORTH_DIVISOR >= singles.frames;
        if is_worth && self.sweep.is_none() && now >= self.earliest {
            self.is_open = true;
            self.sweep = Some(SinglesSweep {
                space: SpaceId(0),
                address: 0,
                expected,
                given: 0,
            });
        }
    }

    /// Where the sweep under way continues.
    pub(crate) fn sweep_at(&self) -> Option<(SpaceId, u64)> {
        self.sweep.map(|sweep| (sweep.space, sweep.address))
    }

    /// The sweep continues here.
    pub(crate) fn sweep_from(&mut self, (space, address): (SpaceId, u64)) {
        if let Some(sweep) = &mut self.sweep {
            (sweep.space, sweep.address) = (space, address);
        }
    }

    /// The sweep is through, or has to stop. Returns the number of pages that it gave back.
    pub(super) fn end_sweep(&mut self, now: Nanos) -> u64 {
        let Some(sweep) = self.sweep.take() else {
            return 0;
        };
        if sweep.given > 0 && sweep.given * WORTH_DIVISOR >= sweep.expected {
            (self.left, self.wait) = (0, 0);
        } else {
            self.left = sweep.expected.saturating_sub(sweep.given);
            let longest = if self.is_short(now) {
                MIN_WAIT
            } else {
                MAX_WAIT
            };
            self.wait = (self.wait * 2).clamp(MIN_WAIT, longest);
        }
        self.earliest = now + self.wait.min(MIN_WAIT);
        self.retry = now + self.wait;
        sweep.given
    }

    /// Whether a sweep began, and no listing has freed its frames yet: pages may not join frames
    /// with one mapping.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// A page became a frame, and no other page of its set equals it.
    pub(crate) fn matched_falsely(&mut self, space: SpaceId, address: u64) {
        self.false_matches.push((space, address));
    }

    /// The next of such pages.
    pub(crate) fn next_false_match(&mut self) -> Option<(SpaceId, u64)> {
        self.false_matches.pop()
    }

    /// `pages` pages were given back.
    pub(super) fn given(&mut self, pages: u64) {
        self.pages += pages;
        if let Some(sweep) = &mut self.sweep {
            sweep.given += pages;
        }
    }

    /// Pages given back so far.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn singles(frames: u64, now: u64, lasting: u64) -> Singles {
        Singles {
            frames,
            now,
            lasting,
        }
    }

    /// A sweep begins now if it may, and gives back this number of pages. Returns whether it began.
    fn sweeps(giving: &mut GivingBack, pages: u64, now: Nanos) -> bool {
        giving.listed(singles(25600, 200, 200), now);
        let does = giving.sweep_at().is_some();
        giving.given(pages);
        giving.end_sweep(now);
        does
    }

    #[test]
    fn a_sweep_begins_for_one_in_128_frames() {
        for (frames, lasting, does) in [(12800, 99, false), (12800, 100, true), (0, 0, false)] {
            let mut giving = GivingBack::default();
            giving.listed(singles(frames, frames, lasting), 0);
            assert_eq!(giving.sweep_at().is_some(), does, "{lasting} of {frames}");
        }
    }

    #[test]
    fn where_frames_are_refused_any_frame_with_one_mapping_counts() {
        let mut giving = GivingBack::default();
        giving.frames_refused(singles(1280, 9, 0), 0);
        assert!(giving.sweep_at().is_none());
        giving.frames_refused(singles(1280, 10, 0), 0);
        assert!(giving.sweep_at().is_some());
        assert_eq!(giving.end_sweep(0), 0);
        assert!(giving.is_open());
        giving.listed(singles(1280, 10, 0), SECOND);
        assert!(!giving.is_open());
    }

    #[test]
    fn where_memory_is_short_any_frame_with_one_mapping_counts_for_a_while() {
        let mut giving = GivingBack::default();
        giving.memory_is_short(SECOND);
        giving.listed(singles(1280, 9, 0), 2 * SECOND);
        assert!(giving.sweep_at().is_none());
        giving.listed(singles(1280, 10, 0), SECOND + SHORT_TIME);
        assert!(giving.sweep_at().is_none());
        giving.listed(singles(1280, 10, 0), SHORT_TIME);
        assert!(giving.sweep_at().is_some());
    }

    #[test]
    fn sweeps_that_give_little_back_become_rare() {
        let mut giving = GivingBack::default();
        let mut now = 0;
        for wait in [10, 20, 40, 80, 160, 320, 640, 640] {
            assert!(sweeps(&mut giving, 1, now));
            assert!(!sweeps(&mut giving, 1, now + wait * SECOND - 1));
            now += wait * SECOND;
        }
        assert!(sweeps(&mut giving, 2, now));
        assert!(sweeps(&mut giving, 2, now));
    }

    #[test]
    fn what_a_sweep_left_does_not_delay_the_next_one_for_others() {
        let mut giving = GivingBack::default();
        let mut now = 0;
        for _ in 0..10 {
            giving.listed(singles(12800, 5000, 5000), now);
            giving.end_sweep(now);
            now += MAX_WAIT;
        }
        giving.listed(singles(12800, 5000, 5000), now);
        giving.end_sweep(now);
        for (lasting, does) in [(5099, false), (5100, true)] {
            giving.listed(singles(12800, lasting, lasting), now + MIN_WAIT);
            assert_eq!(giving.sweep_at().is_some(), does, "{lasting}");
        }
        // Those that were left have gone, and others have come.
        giving.given(5100);
        giving.end_sweep(now);
        giving.listed(singles(12800, 0, 0), now + MIN_WAIT);
        giving.listed(singles(12800, 100, 100), now + MIN_WAIT);
        assert!(giving.sweep_at().is_some());
    }

    #[test]
    fn where_memory_is_short_what_was_left_is_tried_at_once_and_then_every_ten_seconds() {
        let mut giving = GivingBack::default();
        giving.listed(singles(12800, 5000, 5000), 0);
        giving.end_sweep(0);
        giving.memory_is_short(SECOND);
        assert!(giving.is_urgent());
        giving.listed(singles(12800, 5000, 5000), SECOND);
        assert!(giving.sweep_at().is_some());
        giving.end_sweep(SECOND);
        giving.listed(singles(12800, 5000, 5000), 2 * SECOND);
        giving.memory_is_short(5 * SECOND);
        assert!(!giving.is_urgent());
        for at in (SECOND..20 * SECOND).step_by(10_000_000_000).skip(1) {
            giving.listed(singles(12800, 5000, 5000), at - 1);
            assert!(giving.sweep_at().is_none());
            giving.listed(singles(12800, 5000, 5000), at);
            assert!(giving.sweep_at().is_some());
            giving.end_sweep(at);
        }
    }

    #[test]
    fn singles_stay_closed_until_a_listing_after_the_sweep() {
        let mut giving = GivingBack::default();
        giving.listed(singles(100, 100, 100), 0);
        assert!(giving.is_open());
        // Another listing, which was worth its cost, passes during the sweep.
        giving.listed(singles(100, 90, 90), 1);
        assert!(giving.is_open());
        giving.end_sweep(2);
        assert!(giving.is_open());
        giving.listed(singles(100, 0, 0), 3);
        assert!(!giving.is_open());
    }
}
