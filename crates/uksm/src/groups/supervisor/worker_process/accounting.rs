//! The records that a group writes into the ledger.

use std::time::Duration;

use uksm_linux::clock;
use uksm_policy::command::Nanos;

use super::WorkerProcess;
use crate::account::meter::WorkerFigures;
use crate::groups::supervisor::account::counts;

impl WorkerProcess {
    /// Whether a record of this group would have no news.
    pub(in crate::groups::supervisor) fn is_calm(&self, longest: Duration) -> bool {
        let longest = Nanos::try_from(longest.as_nanos()).unwrap_or(Nanos::MAX);
        let counts = self.domain.as_ref().and_then(counts);
        let account = &self.account;
        !account.is_due && account.meter.is_calm(clock::now(), counts, longest)
    }

    /// Writes the last record of its domain, whose frames no longer save anything for the group.
    pub(in crate::groups::supervisor) fn close_account(&mut self) {
        self.account.given.end();
        let _logged = self.write_account(Some(WorkerFigures::default()));
    }

    /// Writes a record of this group, with its worker's figures, if there are any.
    ///
    /// # Errors
    /// It was not written: one line, which was logged already.
    pub(in crate::groups::supervisor) fn write_account(
        &mut self,
        figures: Option<WorkerFigures>,
    ) -> Result<(), String> {
        self.account
            .write(self.domain.as_ref(), figures, self.restarts)
    }
}
