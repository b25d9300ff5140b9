//! Records of the ledger: their times, and how they are written.
//!
//! # Problem
//! A worker that does not answer may not delay the records of others.
//!
//! # Approach
//! All workers are asked at once, and a worker that does not answer in time (`turns/task_turn.rs`)
//! is booked with its last answer. A record is written at each interval, after the end of a worker,
//! and at the end of a domain or of the supervisor. A worker in whose domain nothing was merged,
//! broken or freed since the last record is not woken: the next record covers up to
//! [`MAX_CALM_INTERVALS`] intervals.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::account::Amounts;
use crate::account::ledger::Ledger;
use crate::account::meter::WorkerFigures;
use crate::control::{Answer, Request};
use crate::groups::supervisor::worker_process::WorkerProcess;
use crate::status::written_pages::WrittenPages;

/// Time of the first record. It is earlier than an interval, but later than the start of all
/// workers and the first check of processes.
const FIRST_RECORD_AFTER: Duration = Duration::from_secs(10);

/// Maximum number of intervals in a record of a calm group. Writes of its processes are noticed
/// that late: among hundreds of groups a calm worker lists its frames no sooner, and knows nothing
/// new before.
const MAX_CALM_INTERVALS: u32 = 60;

/// The ledger, and the times of its records.
#[derive(Debug)]
pub(in crate::groups::supervisor) struct LedgerWriter {
    ledger: Arc<Ledger>,
    /// Merged pages that processes of the host wrote.
    written: Rc<WrittenPages>,
    interval: Duration,
    /// Time of the next records.
    due: Instant,
}

impl LedgerWriter {
    /// A writer of records to this ledger, one an interval.
    pub(in crate::groups::supervisor) fn new(
        ledger: Arc<Ledger>,
        written: Rc<WrittenPages>,
        interval: Duration,
    ) -> LedgerWriter {
        LedgerWriter {
            ledger,
            written,
            interval,
            due: Instant::now() + interval.min(FIRST_RECORD_AFTER),
        }
    }

    /// Time of the next records, if any are written.
    pub(in crate::groups::supervisor) fn next(&self) -> Option<Instant> {
        self.ledger.folder().is_some().then_some(self.due)
    }

    /// Amounts of a group since totals are kept.
    pub(in crate::groups::supervisor) fn totals(&self, group: &str) -> Amounts {
        self.ledger.totals(group)
    }

    /// Writes records for workers that have ended; if the interval is over and no task is in
    /// progress, asks workers instead. Answers whether it asked: a task then waits for the answers.
    pub(in crate::groups::supervisor) fn turn(
        &mut self,
        workers: &mut [WorkerProcess],
        is_task_in_progress: bool,
        now: Instant,
    ) -> bool {
        if now >= self.due && !is_task_in_progress {
            let longest = self.interval * MAX_CALM_INTERVALS;
            self.ask(workers, |worker| !worker.is_calm(longest));
            return true;
        }
        for worker in workers.iter_mut().filter(|w| w.account.is_due) {
            let _logged = worker.write_account(None);
        }
        false
    }

    /// Asks the workers of these groups for their savings; none if no records are written.
    pub(in crate::groups::supervisor) fn ask(
        &mut self,
        workers: &mut [WorkerProcess],
        is_meant: impl Fn(&WorkerProcess) -> bool,
    ) {
        self.due = Instant::now() + self.interval;
        if self.ledger.folder().is_none() {
            return;
        }
        let meant = workers.iter_mut().filter(|worker| is_meant(worker));
        meant.for_each(|worker| worker.ask(&Request::Status));
    }

    /// Writes a record for each group that was asked, and answers the folder.
    pub(in crate::groups::supervisor) fn write(&mut self, workers: &mut [WorkerProcess]) -> Answer {
        self.ledger
            .count_host_written(self.written_on_host(workers));
        let mut done = Ok(());
        for worker in workers {
            let figures = match worker.take_answer() {
                None => continue,
                Some(Ok(Answer::Status(status))) => Some(WorkerFigures::of(&status)),
                Some(_) => None,
            };
            done = done.and(worker.write_account(figures));
        }
        Answer::Accounted {
            folder: self.ledger.folder().map(ToOwned::to_owned),
            fault: done.err(),
        }
    }

    /// Merged pages that processes of the host wrote since this supervisor started.
    pub(in crate::groups::supervisor) fn written_on_host(
        &self,
        workers: &[WorkerProcess],
    ) -> Option<u64> {
        self.written
            .count(workers.iter().map(WorkerProcess::broken).sum())
    }
}
