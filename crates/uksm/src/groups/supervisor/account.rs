//! The account of a group: its cost and its savings, for the ledger.
//!
//! # Problem
//! A worker that was killed, or that its control group slows down to nothing, must be accounted for
//! like any other.
//!
//! # Approach
//! Only savings and indexes come from the worker. The supervisor itself reads processor time and
//! the counts of the domain. `turns/ledger_writer.rs` decides when a record is written.

use std::sync::Arc;

use jiff::Timestamp;
use uksm_linux::clock;
use uksm_linux::module::{Device, Info};
use uksm_policy::command::Nanos;

use crate::account::cpu::WorkersCpu;
use crate::account::ledger::Ledger;
use crate::account::meter::{Counts, GroupFigures, Meter, WorkerFigures};
use crate::account::redistributed::RedistributedTotals;

/// Costs and savings of one group, over all its workers.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) meter: Meter,
    cpu: WorkersCpu,
    /// Memory that its members were given.
    pub(super) given: RedistributedTotals,
    /// A worker has ended, so a record is due.
    pub(super) is_due: bool,
}

impl Account {
    /// The account of a group that is to run; `kept` is the domain of an earlier supervisor.
    pub(super) fn new(group: &str, ledger: Arc<Ledger>, kept: Option<&Device>) -> Account {
        let kept = kept.map(|domain| counts(domain).unwrap_or_default());
        Account {
            meter: Meter::new(group, ledger, clock::now(), kept),
            cpu: WorkersCpu::default(),
            given: RedistributedTotals::default(),
            is_due: false,
        }
    }

    /// Processor time of all workers since the first one.
    pub(super) fn cpu(&self) -> Nanos {
        self.cpu.total()
    }

    /// A worker was moved to the control group that pays.
    pub(super) fn moved(&self, pid: u32) {
        self.cpu.moved(pid);
    }

    /// A worker has begun.
    pub(super) fn begun(&mut self, pid: u32) {
        self.cpu.begun(pid);
    }

    /// Waits for the worker by `wait`, and notes its end.
    pub(super) fn reap<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let (answer, has_ended) = self.cpu.reap(wait);
        if has_ended {
            self.meter.lose_worker(clock::now());
            self.is_due = true;
        }
        answer
    }

    /// Writes a record, with the domain's counts and the worker's figures, if there are any.
    ///
    /// # Errors
    /// It was not written: one line, which was logged already.
    pub(super) fn write(
        &mut self,
        domain: Option<&Device>,
        figures: Option<WorkerFigures>,
        restarts: u64,
    ) -> Result<(), String> {
        let reading = GroupFigures {
            cpu: self.cpu.total(),
            counts: domain.and_then(counts),
            worker: figures,
            restarts,
            given: self.given,
        };
        self.meter.take(clock::now(), &reading);
        let is_last = std::mem::take(&mut self.is_due);
        self.meter.write(Timestamp::now(), self.cpu.last(), is_last)
    }
}

/// The counts of a domain; if there are none now, the next record includes their growth.
pub(super) fn counts(domain: &Device) -> Option<Counts> {
    info(domain).map(|info| Counts::of(&info))
}

/// The module's figures of a domain; none if it does not answer.
pub(super) fn info(domain: &Device) -> Option<Info> {
    let answer = domain.info();
    answer
        .inspect_err(|error| tracing::debug!("a domain's counts cannot be read: {error}"))
        .ok()
}
