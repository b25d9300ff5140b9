//! The budget of an analysis.
//!
//! # Units
//! Nanoseconds of CPU time.

use uksm_linux::clock;
use uksm_policy::command::Nanos;

/// What may be spent on what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// In all.
    pub(super) budget: Nanos,
    /// What was spent before the start.
    pub(super) cpu_before: Nanos,
}

impl Plan {
    pub(super) fn spent(&self) -> Nanos {
        clock::process_cpu().saturating_sub(self.cpu_before)
    }

    /// What is kept for reading some pages again.
    pub(super) fn kept(&self) -> Nanos {
        self.budget / 10
    }

    /// Whether more was spent than can be borne.
    pub(super) fn is_over(&self) -> bool {
        self.spent() > self.budget + self.budget / 4
    }
}
