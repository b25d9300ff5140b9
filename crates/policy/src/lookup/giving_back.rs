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
//! that would save something. So it does where memory is short, since it cannot be swapped; then
//! listings do not wait for their share either.
//!
//! A sweep that gave back less than half of the frames that it was made for has met pages that
//! cannot be given back now, or spaces that are not followed: the next one waits for twice as long.
//!
//! A frame that a false match has made is known with its page, and is given back at once.
//!
//! # Units
//! Frames; nanoseconds. [`WORTH_DIVISOR`], [`MIN_LASTING`] and the waits are chosen, not measured:
//! see decision 58.

use crate::command::{Nanos, SpaceId};
use crate::lookup::frames::Singles;
use crate::params::SECOND;

/// A sweep is worth its cost for one frame in this many.
const WORTH_DIVISOR: u64 = 64;
/// Fewest frames for which a sweep begins where frames are not refused.
const MIN_LASTING: u64 = 64;
/// Time for which memory counts as short after it was: longer than between two looks.
const SHORT_TIME: Nanos = 30 * SECOND;
/// The shortest and the longest wait between two sweeps.
const MIN_WAIT: Nanos = 10 * SECOND;
const MAX_WAIT: Nanos = 640 * SECOND;

/// After this many spaces without memory for copies the machine is taken to have none. A process
/// can fill its own cgroup, which must not keep others from giving back.
const MAX_STOPS: u32 = 8;

/// The pass over all merged pages that is under way.
#[derive(Debug, Clone, Copy)]
struct SinglesSweep {
    /// Where it continues.
    space: SpaceId,
    address: u64,
    /// Frames for which it was made, and pages given back so far.
    expected: u64,
    given: u64,
    /// Spaces without memory for copies.
    stops: u32,
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
    /// No sweep begins before this time; and the wait after the last one.
    earliest: Nanos,
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
        self.short_until = now + SHORT_TIME;
    }

    /// Whether memory was short a moment ago.
    pub(super) fn is_short(&self, now: Nanos) -> bool {
        now < self.short_until
    }

    /// Whether listings do not wait for their share.
    pub(super) fn is_urgent(&self, now: Nanos) -> bool {
        self.is_open || self.is_short(now)
    }

    /// A listing of all frames is complete.
    pub(super) fn listed(&mut self, singles: Singles, now: Nanos) {
        if self.sweep.is_none() {
            self.is_open = false;
            self.consider(singles, now);
            self.are_refused &= self.sweep.is_some();
        }
    }

    /// Begins a sweep if it is worth its cost.
    fn consider(&mut self, singles: Singles, now: Nanos) {
        let (expected, least) = if self.are_refused || self.is_short(now) {
            (singles.now, 1)
        } else {
            (singles.lasting, MIN_LASTING)
        };
        let is_worth = expected >= least && expected * WORTH_DIVISOR >= singles.frames;
        if is_worth && self.sweep.is_none() && now >= self.earliest {
            self.is_open = true;
            self.sweep = Some(SinglesSweep {
                space: SpaceId(0),
                address: 0,
                expected,
                given: 0,
                stops: 0,
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

    /// A space had no memory for copies; returns whether the machine is taken to have none.
    pub(crate) fn note_stop(&mut self) -> bool {
        self.sweep.as_mut().is_some_and(|sweep| {
            sweep.stops += 1;
            sweep.stops >= MAX_STOPS
        })
    }

    /// The sweep is through, or has to stop. Returns the number of pages that it gave back.
    pub(super) fn end_sweep(&mut self, now: Nanos) -> u64 {
        let Some(sweep) = self.sweep.take() else {
            return 0;
        };
        self.wait = if sweep.given * 2 < sweep.expected {
            (self.wait * 2).clamp(MIN_WAIT, MAX_WAIT)
        } else {
            MIN_WAIT
        };
        self.earliest = now + self.wait;
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
        giving.listed(singles(6400, 100, 100), now);
        let does = giving.sweep_at().is_some();
        giving.given(pages);
        giving.end_sweep(now);
        does
    }

    #[test]
    fn a_sweep_begins_for_a_sixty_fourth_of_the_frames_and_not_for_a_few() {
        for (frames, lasting, does) in [(6400, 99, false), (6400, 100, true), (640, 63, false)] {
            let mut giving = GivingBack::default();
            giving.listed(singles(frames, frames, lasting), 0);
            assert_eq!(giving.sweep_at().is_some(), does, "{lasting} of {frames}");
        }
    }

    #[test]
    fn where_frames_are_refused_any_frame_with_one_mapping_counts() {
        let mut giving = GivingBack::default();
        giving.frames_refused(singles(640, 9, 0), 0);
        assert!(giving.sweep_at().is_none());
        giving.frames_refused(singles(640, 10, 0), 0);
        assert!(giving.sweep_at().is_some());
        assert_eq!(giving.end_sweep(0), 0);
        assert!(giving.is_open());
        giving.listed(singles(640, 10, 0), SECOND);
        assert!(!giving.is_open());
    }

    #[test]
    fn where_memory_is_short_any_frame_with_one_mapping_counts_for_a_while() {
        let mut giving = GivingBack::default();
        giving.memory_is_short(SECOND);
        giving.listed(singles(640, 9, 0), 2 * SECOND);
        assert!(giving.sweep_at().is_none());
        giving.listed(singles(640, 10, 0), SECOND + SHORT_TIME);
        assert!(giving.sweep_at().is_none());
        giving.listed(singles(640, 10, 0), SHORT_TIME);
        assert!(giving.sweep_at().is_some());
    }

    #[test]
    fn sweeps_that_give_little_back_become_rare() {
        let mut giving = GivingBack::default();
        let mut now = 0;
        for wait in [10, 20, 40, 80, 160, 320, 640, 640] {
            assert!(sweeps(&mut giving, 49, now));
            assert!(!sweeps(&mut giving, 49, now + wait * SECOND - 1));
            now += wait * SECOND;
        }
        assert!(sweeps(&mut giving, 50, now));
        assert!(sweeps(&mut giving, 50, now + MIN_WAIT));
    }

    #[test]
    fn several_spaces_without_memory_end_a_sweep() {
        let mut giving = GivingBack::default();
        giving.listed(singles(100, 100, 100), 0);
        let stops = (1..=MAX_STOPS).map(|_| giving.note_stop());
        assert_eq!(stops.filter(|&ends| ends).count(), 1);
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
