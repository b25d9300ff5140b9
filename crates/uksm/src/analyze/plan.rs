//! The budget of an analysis.
//!
//! # Units
//! Nanoseconds of CPU time.

use uksm_linux::clock;
use uksm_policy::command::Nanos;

/// The budget and its use.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnalysisPlan {
    /// The whole budget.
    pub(super) budget: Nanos,
    /// CPU time spent before the start.
    pub(super) cpu_before: Nanos,
}

impl AnalysisPlan {
    pub(super) fn spent(&self) -> Nanos {
        clock::process_cpu().saturating_sub(self.cpu_before)
    }

    /// The part that is kept for reading some pages again.
    pub(super) fn kept(&self) -> Nanos {
        self.budget / 10
    }

    /// Whether the budget is exceeded by more than a quarter.
    pub(super) fn is_over(&self) -> bool {
        self.spent() > self.budget + self.budget / 4
    }
}
