//! The outcomes of pages that were to be merged: the counts and their equation.
//!
//! Problem: every page tried must be accounted for, or savings cannot be believed. Approach: one
//! counter for each status of the contract, and `tried` counted apart. Units: pages.

use crate::command::Status;

crate::counters! {
    /// Outcomes of merging, by page. `tried` is the sum of the others.
    #[derive(Copy, Eq)]
    pub struct Outcomes {
        /// Pages tried.
        tried: u64,
        /// Map a frame now.
        merged: u64,
        /// Mapped the frame or the zero page before.
        already: u64,
        /// Map the zero page now.
        zeroed: u64,
        /// Had other contents, or their contents changed.
        differed: u64,
        /// Were in use just then.
        busy: u64,
        /// Were no longer there.
        gone: u64,
        /// Met a limit: `max_frames`, `max_sharers` or the control group of the daemon.
        full: u64,
        /// Are never merged.
        refused: u64,
    }
}

impl Outcomes {
    /// Counts one page; one that was not reached is not tried.
    pub(crate) fn count(&mut self, status: Status) {
        let counter = match status {
            Status::Untried => return,
            Status::Merged => &mut self.merged,
            Status::Already => &mut self.already,
            Status::Zeroed => &mut self.zeroed,
            Status::Differed => &mut self.differed,
            Status::Busy => &mut self.busy,
            Status::Gone => &mut self.gone,
            Status::Full => &mut self.full,
            Status::Refused => &mut self.refused,
        };
        *counter += 1;
        self.tried += 1;
    }

    /// Whether every page tried has an outcome.
    #[must_use]
    pub fn balances(&self) -> bool {
        let parts = [
            self.merged,
            self.already,
            self.zeroed,
            self.differed,
            self.busy,
            self.gone,
            self.full,
            self.refused,
        ];
        self.tried == parts.iter().sum::<u64>()
    }
}
