//! Records of the ledger: their times, and how they are written.

use std::time::Instant;

use crate::account::meter::Told;
use crate::control::{Answer, Request};
use crate::groups::supervisor::Supervisor;
use crate::groups::supervisor::accounts::CALM_INTERVALS;
use crate::groups::supervisor::worker_process::WorkerProcess;

impl Supervisor<'_> {
    /// Writes records for workers that have ended; if the interval is over, begins to write all.
    pub(in crate::groups::supervisor) fn account_if_due(&mut self) {
        if Instant::now() >= self.accounts.due && self.task.is_none() {
            let longest = self.accounts.interval * CALM_INTERVALS;
            self.begin_accounts(|worker| !worker.is_calm(longest));
            return;
        }
        for worker in self.workers.iter_mut().filter(|w| w.account.is_due) {
            let _logged = worker.write_account(None);
        }
    }

    /// Asks the workers of these groups for their savings; none if no records are written.
    pub(in crate::groups::supervisor) fn ask_for_accounts(
        &mut self,
        is_meant: impl Fn(&WorkerProcess) -> bool,
    ) {
        self.accounts.due = Instant::now() + self.accounts.interval;
        if self.accounts.ledger.folder().is_none() {
            return;
        }
        let meant = self.workers.iter_mut().filter(|worker| is_meant(worker));
        meant.for_each(|worker| worker.ask(&Request::Status));
    }

    /// Writes a record for each group that was asked, and answers the folder.
    pub(in crate::groups::supervisor) fn write_accounts(&mut self) -> Answer {
        let written = self.written_on_host();
        self.accounts.ledger.count_host_written(written);
        let mut done = Ok(());
        for worker in &mut self.workers {
            let told = match worker.take_answer() {
                None => continue,
                Some(Ok(Answer::Status(status))) => Some(Told::of(&status)),
                Some(_) => None,
            };
            done = done.and(worker.write_account(told));
        }
        Answer::Accounted {
            folder: self.accounts.ledger.folder().map(ToOwned::to_owned),
            fault: done.err(),
        }
    }
}
