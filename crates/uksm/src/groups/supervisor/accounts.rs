//! Accounts of groups: the cost and the savings of each group, for the ledger.
//!
//! # Problem
//! A worker that was killed, or that its control group slows down to nothing, must be accounted for
//! like any other, and may not delay the others.
//!
//! # Approach
//! Only savings and indexes come from the worker: all workers are asked at once, and a worker that
//! does not answer in time (`turns/task_turn.rs`) is booked with its last answer. The supervisor
//! itself reads processor time and the counts of the domain. A record is written at each interval,
//! after the end of a worker, and at the end of a domain or of the supervisor
//! (`turns/ledger_writer.rs`). A worker in whose domain nothing was merged, broken or freed since
//! the last record is not woken: the next record covers up to [`CALM_INTERVALS`] intervals.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use uksm_linux::clock;
use uksm_linux::module::{Device, Info};
use uksm_policy::command::Nanos;

use crate::account::Amounts;
use crate::account::cpu::WorkersCpu;
use crate::account::ledger::Ledger;
use crate::account::meter::{Counts, Meter, Reading, Told};
use crate::account::redistributed::RedistributedTotals;
use crate::config::plan::Plan;
use crate::setting::Daemon;

/// Time of the first record. It is earlier than an interval, but later than the start of all
/// workers and the first check of processes.
const FIRST: Duration = Duration::from_secs(10);

/// Maximum number of intervals in a record of a calm group. Writes of its processes are noticed
/// that late: among hundreds of groups a calm worker lists its frames no sooner, and knows nothing
/// new before.
pub(super) const CALM_INTERVALS: u32 = 60;

/// The times of records, and their ledger.
#[derive(Debug)]
pub(super) struct Accounts {
    pub(super) ledger: Arc<Ledger>,
    pub(super) interval: Duration,
    /// Time of the next records.
    pub(super) due: Instant,
}

impl Accounts {
    /// From the settings of the daemon.
    pub(super) fn new(daemon: &Daemon) -> Accounts {
        let ledger = Ledger::new(daemon.account_dir.clone(), daemon.account_days);
        let interval = Duration::from_nanos(daemon.account_interval);
        Accounts {
            ledger: Arc::new(ledger),
            interval,
            due: Instant::now() + interval.min(FIRST),
        }
    }

    /// Time of the next records, if any are written.
    pub(super) fn next(&self) -> Option<Instant> {
        self.ledger.folder().is_some().then_some(self.due)
    }

    /// Amounts of a group since totals are kept.
    pub(super) fn totals(&self, group: &str) -> Amounts {
        self.ledger.totals(group)
    }

    /// The account of a group that is to run; `kept` is the domain of an earlier supervisor.
    pub(super) fn of_group(&self, plan: &Plan, kept: Option<&Device>) -> Account {
        let ledger = Arc::clone(&self.ledger);
        let kept = kept.map(|domain| counts(domain).unwrap_or_default());
        let meter = Meter::new(&plan.name, ledger, clock::now(), kept);
        Account {
            meter,
            cpu: WorkersCpu::default(),
            given: RedistributedTotals::default(),
            is_due: false,
        }
    }
}

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
        told: Option<Told>,
        restarts: u64,
    ) -> Result<(), String> {
        let reading = Reading {
            cpu: self.cpu.total(),
            counts: domain.and_then(counts),
            told,
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
