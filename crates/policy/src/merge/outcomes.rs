//! What became of pages that were to be merged: the counts and their equation.
//!
//! Problem: every page tried must be accounted for, or savings cannot be believed. Approach: one
//! counter for each status of the contract, and `tried` counted apart. Units: pages.

use crate::command::Status;

/// Outcomes of merging. `tried` is the sum of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// Pages tried.
    pub tried: u64,
    /// Map a frame now.
    pub merged: u64,
    /// Mapped the frame or the zero page before.
    pub already: u64,
    /// Map the zero page now.
    pub zeroed: u64,
    /// Contents were not the same, or had changed.
    pub differed: u64,
    /// In use just then.
    pub busy: u64,
    /// No longer there.
    pub gone: u64,
    /// A limit was reached.
    pub full: u64,
    /// Of a kind that is never merged.
    pub refused: u64,
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
