//! Counts mappings of the zero page.

use uksm_policy::command::{PageState, Run};

use super::{LinuxMachine, STATES};
use crate::discovery::Discovery;
use crate::domain::Domain;
use crate::module::{self, raw};

impl<D: Domain, P: Discovery> LinuxMachine<D, P> {
    /// The number of these pages that map the zero page now. Together they are at most
    /// `UKSM_MAX_PAGES`. A page whose state cannot be read is not counted: its process is gone or
    /// holds its locks, or memory is short. Costs up to 0.6 microseconds for a scattered page.
    ///
    /// # Errors
    /// The module fails.
    pub fn zero_pages(&mut self, runs: &[Run]) -> module::Result<u64> {
        let mut zeros = 0;
        for runs in runs.chunks(raw::UKSM_MAX_RUNS) {
            let pages = self.sample(runs, STATES)?.unwrap_or_default();
            let zero = pages.iter().filter(|page| page.state == PageState::Zero);
            zeros += zero.count() as u64;
        }
        Ok(zeros)
    }
}
