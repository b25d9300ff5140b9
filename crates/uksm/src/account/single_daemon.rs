//! The account of a daemon without groups: one group with all that it merges.
//!
//! The daemon has no control group of its own that pays, and no supervisor that would outlive it.
//! So it has a meter of its own, and loses the amounts since its last record if it is killed.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use uksm_linux::clock;
use uksm_policy::command::Nanos;

use super::ledger::Ledger;
use super::meter::{Counts, GroupFigures, Meter, WorkerFigures};
use super::{ALL, Amounts};
use crate::account::redistributed::RedistributedTotals;
use crate::setting::DaemonSettings;
use crate::status::Status;

/// The daemon's own account.
#[derive(Debug)]
pub(crate) struct SingleDaemonAccount {
    ledger: Arc<Ledger>,
    meter: Meter,
    interval: Nanos,
    due: Nanos,
}

impl SingleDaemonAccount {
    /// An account that begins with the process: all its processor time is counted.
    pub(crate) fn new(daemon: &DaemonSettings) -> SingleDaemonAccount {
        let ledger = Arc::new(Ledger::new(daemon.account_dir.clone(), daemon.account_days));
        let now = clock::now();
        SingleDaemonAccount {
            meter: Meter::new(ALL, Arc::clone(&ledger), now, Some(Counts::default())),
            ledger,
            interval: daemon.account_interval,
            due: now + daemon.account_interval,
        }
    }

    /// Whether a record is due; the next one is due an interval later.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = clock::now();
        let is_due = self.ledger.folder().is_some() && now >= self.due;
        if is_due {
            self.due = now + self.interval;
        }
        is_due
    }

    /// Writes a record with a status's figures.
    ///
    /// # Errors
    /// It was not written: one line, which was logged already.
    pub(crate) fn write(&mut self, status: &Status) -> Result<(), String> {
        let reading = GroupFigures {
            cpu: clock::process_cpu(),
            counts: Some(Counts::of_status(status)),
            worker: Some(WorkerFigures::of(status)),
            restarts: 0,
            given: RedistributedTotals::default(),
        };
        self.ledger
            .count_host_written(status.merged.written_on_host);
        self.meter.take(clock::now(), &reading);
        self.meter.write(Timestamp::now(), std::process::id(), true)
    }

    /// Costs and savings since totals are kept.
    pub(crate) fn totals(&self) -> Amounts {
        self.ledger.totals(ALL)
    }

    /// The folder of the ledger.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.ledger.folder().map(ToOwned::to_owned)
    }
}
