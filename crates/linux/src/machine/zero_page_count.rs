//! Counts mappings of the zero page.

use uksm_policy::command::{PageState, Run};

use super::{LinuxMachine, STATES};
use crate::discovery::Discovery;
use crate::domain::Domain;
use crate::module::{self, raw};

/// States of pages, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZeroPageCount {
    /// Pages that map the zero page.
    pub zeros: u64,
    /// Pages whose state could not be read: their process holds its locks, their mapping may not be
    /// read at present, or memory is short.
    pub unread: u64,
}

impl<D: Domain, P: Discovery> LinuxMachine<D, P> {
    /// How many of these pages map the zero page now. Together they are at most `UKSM_MAX_PAGES`.
    /// Costs up to 0.6 microseconds for a scattered page.
    ///
    /// # Errors
    /// The module fails.
    pub fn count_zero_pages(&mut self, runs: &[Run]) -> module::Result<ZeroPageCount> {
        let mut count = ZeroPageCount::default();
        for runs in runs.chunks(raw::UKSM_MAX_RUNS) {
            let mut unread: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
            for page in self.sample(runs, STATES)?.unwrap_or_default() {
                let is_read = !matches!(page.state, PageState::Retry | PageState::Refused);
                unread -= u64::from(is_read);
                count.zeros += u64::from(page.state == PageState::Zero);
            }
            count.unread += unread;
        }
        Ok(count)
    }
}
