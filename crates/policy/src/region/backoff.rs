//! When a region may be promoted again after a promotion that led to no merges, and when its pages
//! may be queued again after much of it was busy.
//!
//! Each failed promotion doubles the wait. A sweep that met many busy pages makes the region wait,
//! too, and no page of it is queued during that wait.
//!
//! Without it: pinned pages take 3.9 s of CPU in twelve minutes instead of 1.7.

use crate::command::Nanos;

/// The longest wait after failed promotions is 2^this rounds.
const MAX_FAILED: u32 = 7;

/// The waits of one region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    /// Number of merges at its last promotion from the bottom.
    merges_at_promotion: Option<u64>,
    /// Number of promotions in a row that led to too few merges.
    failed: u32,
    until: Nanos,
    /// Whether much of it was busy at its last sweep.
    was_busy: bool,
}

impl Backoff {
    /// Whether a region with `merges` merges may be promoted `now`: if its last promotion gained
    /// `worth` pages, or was long enough ago.
    pub(crate) fn may_promote(
        &mut self,
        merges: u64,
        worth: f64,
        now: Nanos,
        round: Nanos,
    ) -> bool {
        if let Some(before) = self.merges_at_promotion.take() {
            if crate::convert::float(merges - before) < worth {
                self.failed = (self.failed + 1).min(MAX_FAILED);
                self.until = now + (round << self.failed);
            } else {
                self.failed = 0;
            }
        }
        if now < self.until {
            return false;
        }
        self.merges_at_promotion = Some(merges);
        true
    }

    /// Forgets failed promotions: there is reason to expect partners now.
    pub(crate) fn forget_failed_promotions(&mut self) {
        self.merges_at_promotion = None;
        if !self.was_busy {
            self.until = 0;
        }
    }

    /// The last promotion came before the region was filled, so it does not count as failed.
    pub(crate) fn excuse_promotion(&mut self) {
        self.merges_at_promotion = None;
    }

    /// A sweep is over; `was_busy` if it met many busy pages.
    pub(crate) fn set_busy(&mut self, was_busy: bool) {
        self.was_busy = was_busy;
    }

    /// The end of the region's current or last wait because it was busy.
    pub(crate) fn busy_until(&self) -> Option<Nanos> {
        self.was_busy.then_some(self.until)
    }

    /// Whether the region waits at `now` because it was busy.
    pub(crate) fn is_waiting(&self, now: Nanos) -> bool {
        self.was_busy && now < self.until
    }
}
