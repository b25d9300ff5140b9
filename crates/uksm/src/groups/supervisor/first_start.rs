//! The first start of all workers.
//!
//! # Problem
//! The daemon is ready when its workers are; if no worker can start, it should report why and end.
//! A worker in a control group that may use little of a processor takes long to start, and must not
//! delay others.
//!
//! # Approach
//! The supervisor's loop runs from the beginning: it serves groups whose workers are ready. Once a
//! turn [`FirstStart::turn`] checks the workers. The first start is over when each of them works or
//! has died once, or after [`TIMEOUT`]. Workers that have died are restarted meanwhile, as always.
//!
//! # Units
//! Instants of the monotonic clock.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use uksm_linux::selection::GroupId;

use crate::groups::supervisor::worker_process::WorkerProcess;

/// Maximum time of the first start; most workers need less.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The first start, before, while and after it.
#[derive(Debug, Default)]
pub(super) enum FirstStart {
    /// No worker was started.
    #[default]
    Ahead,
    InProgress(StartingWorkers),
    Over,
}

/// Workers that are starting for the first time.
#[derive(Debug)]
pub(super) struct StartingWorkers {
    groups: BTreeSet<GroupId>,
    until: Instant,
    /// Why the first worker that died did.
    fault: Option<String>,
}

/// The state of a worker.
#[derive(Debug, Clone, Copy)]
struct WorkerStatus<'a> {
    id: GroupId,
    name: &'a str,
    /// It works, or waits.
    has_started: bool,
    works: bool,
    has_died: bool,
    fault: Option<&'a str>,
}

impl<'a> From<&'a WorkerProcess> for WorkerStatus<'a> {
    fn from(worker: &'a WorkerProcess) -> WorkerStatus<'a> {
        WorkerStatus {
            id: worker.id,
            name: &worker.plan.name,
            has_started: worker.has_started(),
            works: worker.pid().is_some() && worker.has_started(),
            has_died: worker.restarts > 0,
            fault: worker.fault(),
        }
    }
}

impl FirstStart {
    /// These workers were started.
    pub(super) fn begin(&mut self, workers: &[WorkerProcess], now: Instant) {
        *self = FirstStart::InProgress(StartingWorkers {
            groups: workers.iter().map(|worker| worker.id).collect(),
            until: now + TIMEOUT,
            fault: None,
        });
    }

    /// Answers, when it ends, the groups whose workers are slow to start.
    ///
    /// # Errors
    /// No worker works: the first one's fault, in one line.
    pub(super) fn turn(
        &mut self,
        workers: &[WorkerProcess],
        now: Instant,
    ) -> Option<Result<Vec<String>, String>> {
        let FirstStart::InProgress(starting) = self else {
            return None;
        };
        let done = starting.judge(workers.iter().map(WorkerStatus::from), now)?;
        *self = FirstStart::Over;
        Some(done)
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, FirstStart::Over)
    }

    /// Time of its end, at the latest.
    pub(super) fn next(&self) -> Option<Instant> {
        match self {
            FirstStart::InProgress(starting) => Some(starting.until),
            FirstStart::Ahead | FirstStart::Over => None,
        }
    }
}

impl StartingWorkers {
    fn judge<'a>(
        &mut self,
        workers: impl Iterator<Item = WorkerStatus<'a>>,
        now: Instant,
    ) -> Option<Result<Vec<String>, String>> {
        let workers = workers.filter(|worker| self.groups.contains(&worker.id));
        let workers: Vec<WorkerStatus<'a>> = workers.collect();
        let mut faults = workers.iter().filter(|worker| worker.has_died);
        if let Some(fault) = faults.find_map(|worker| Some((worker.name, worker.fault?))) {
            let (name, why) = fault;
            self.fault
                .get_or_insert_with(|| format!("group {name}: {why}"));
        }
        let is_over = |worker: &WorkerStatus<'_>| worker.has_started || worker.has_died;
        if !workers.iter().all(is_over) && now < self.until {
            return None;
        }
        // A control group can keep its own worker from starting, but must not keep others from it.
        let is_lost = |worker: &WorkerStatus<'_>| worker.has_died && !worker.works;
        Some(match self.fault.take() {
            Some(fault) if workers.iter().all(is_lost) => Err(fault),
            _ => {
                let slow = workers.iter().filter(|worker| !worker.has_started);
                Ok(slow.map(|worker| worker.name.to_owned()).collect())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(id: u32) -> WorkerStatus<'static> {
        WorkerStatus {
            id: GroupId(id),
            name: ["a", "b", "later"][id as usize],
            has_started: false,
            works: false,
            has_died: false,
            fault: None,
        }
    }

    fn works(id: u32) -> WorkerStatus<'static> {
        WorkerStatus {
            has_started: true,
            works: true,
            ..worker(id)
        }
    }

    fn died(id: u32) -> WorkerStatus<'static> {
        WorkerStatus {
            has_started: true,
            has_died: true,
            fault: Some("no memory"),
            ..worker(id)
        }
    }

    fn starting(now: Instant) -> StartingWorkers {
        StartingWorkers {
            groups: [GroupId(0), GroupId(1)].into(),
            until: now + TIMEOUT,
            fault: None,
        }
    }

    #[test]
    fn it_is_over_when_all_of_the_first_workers_work_and_a_slow_one_is_named_in_the_end() {
        let now = Instant::now();
        let mut first = starting(now);
        let slow = [works(0), worker(1), worker(2)];
        assert_eq!(first.judge(slow.into_iter(), now), None);
        assert_eq!(
            first.judge(slow.into_iter(), now + TIMEOUT),
            Some(Ok(vec!["b".to_owned()]))
        );
        let all = [works(0), works(1), worker(2)];
        assert_eq!(first.judge(all.into_iter(), now), Some(Ok(vec![])));
        assert_eq!(
            first.judge(std::iter::empty(), now),
            Some(Ok(vec![])),
            "no group is there yet"
        );
    }

    #[test]
    fn only_if_none_works_it_has_failed_and_the_first_reason_is_kept() {
        let now = Instant::now();
        let mut first = starting(now);
        assert_eq!(first.judge([died(0), worker(1)].into_iter(), now), None);
        // The first one is restarted meanwhile.
        let again = WorkerStatus {
            has_started: false,
            fault: None,
            ..died(0)
        };
        assert_eq!(
            first.judge([again, died(1)].into_iter(), now),
            Some(Err("group a: no memory".to_owned()))
        );
        let mut second = starting(now);
        let mixed = [died(0), works(1)];
        assert_eq!(second.judge(mixed.into_iter(), now), Some(Ok(vec![])));
    }
}
