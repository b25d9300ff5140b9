//! The processes that are shown, and the recent work on each.
//!
//! # Problem
//! The daemon counts from the time when a process was first followed; a user of `uksm top` wants
//! present figures. Processes come and go between answers, ids are reused, and a restarted worker
//! counts from 0.
//!
//! # Approach
//! Two answers are compared: the work on a process between them, divided by the time between them.
//! A process that was not in the earlier answer has done all its work since, unless that answer
//! left some out. Without an earlier answer the mean over the worker's uptime is used.
//!
//! # Units
//! Shares of a core.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::poller::Whose;
use crate::status::processes::{ProcessFigures, ProcessList};

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Savings, or merged pages of a process, largest first.
    Saved,
    /// Further pages that could be merged, largest first.
    Potential,
    /// Recent CPU time, largest first.
    Cpu,
    /// The name.
    Name,
}

/// One process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProcessRow {
    /// Its figures in the answer.
    pub(super) process: ProcessFigures,
    /// Share of a core that reading and merging it took recently.
    pub(super) cpu: f64,
}

/// A list of processes.
#[derive(Debug)]
pub(super) struct List {
    /// The selection of processes.
    pub(super) whose: Whose,
    /// Why there is no newer answer.
    pub(super) fault: Option<String>,
    /// Processes that the answer left out.
    pub(super) left_out: u64,
    /// None before the first answer.
    rows: Option<Vec<ProcessRow>>,
    uptime: f64,
}

impl List {
    /// A list without an answer yet.
    pub(super) fn of(whose: Whose) -> List {
        List {
            whose,
            fault: None,
            left_out: 0,
            rows: None,
            uptime: 0.0,
        }
    }

    /// Takes an answer, or why there is none.
    pub(super) fn take(&mut self, answer: Result<ProcessList, String>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(line) => {
                self.fault = Some(line);
                return;
            }
        };
        let before = self.rows.take();
        let elapsed = answer.uptime_seconds - self.uptime;
        // The answers of a restarted worker cannot be compared with earlier ones.
        let before = before.filter(|_| elapsed > 0.0);
        // One thread does the work, and counts it when a call returns: after a call that began
        // before the earlier answer, the new work can exceed the time between the answers.
        let share = |work: f64, time: f64| (work / time.max(1e-9)).clamp(0.0, 1.0);
        let mean = |work: f64| share(work, answer.uptime_seconds);
        let was_whole = self.left_out == 0;
        let known: Option<BTreeMap<(u32, &str), f64>> = before.as_ref().map(|rows| {
            let rows = rows.iter().map(|row| &row.process);
            rows.map(|it| ((it.pid, it.comm.as_str()), it.sums.work_seconds))
                .collect()
        });
        let cpu = |process: &ProcessFigures| {
            let work = process.sums.work_seconds;
            let Some(known) = &known else {
                return mean(work);
            };
            match known.get(&(process.pid, process.comm.as_str())) {
                // Another program, which counts from 0.
                Some(&before) if before > work => share(work, elapsed),
                Some(&before) => share(work - before, elapsed),
                None if was_whole => share(work, elapsed),
                None => mean(work),
            }
        };
        let rows = answer.processes.iter().map(|process| ProcessRow {
            cpu: cpu(process),
            process: process.clone(),
        });
        self.rows = Some(rows.collect());
        self.fault = None;
        self.left_out = answer.left_out;
        self.uptime = answer.uptime_seconds;
    }

    /// Whether there was an answer.
    pub(super) fn is_known(&self) -> bool {
        self.rows.is_some()
    }

    /// The processes in this order; equal ones by id.
    pub(super) fn sorted(&self, sort: Sort) -> Vec<&ProcessRow> {
        let mut rows: Vec<&ProcessRow> = self.rows.iter().flatten().collect();
        match sort {
            Sort::Saved => rows.sort_by_key(|row| Reverse(row.process.sums.merged_pages)),
            Sort::Potential => rows.sort_by_key(|row| Reverse(row.process.sums.left_pages)),
            Sort::Cpu => rows.sort_by(|one, other| other.cpu.total_cmp(&one.cpu)),
            Sort::Name => rows.sort_by(|one, other| one.process.comm.cmp(&other.process.comm)),
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::tests::fake;

    /// Processes by id, with the work on each.
    fn answer(uptime_seconds: f64, left_out: u64, work: &[(u32, f64)]) -> ProcessList {
        let process = |&(pid, seconds): &(u32, f64)| {
            let mut process = fake::process(pid, "redis", (0, 0));
            process.sums.work_seconds = seconds;
            process
        };
        ProcessList {
            uptime_seconds,
            processes: work.iter().map(process).collect(),
            left_out,
        }
    }

    fn shares(list: &List) -> Vec<(u32, f64)> {
        let rows = list.sorted(Sort::Name).into_iter();
        rows.map(|row| (row.process.pid, row.cpu)).collect()
    }

    #[test]
    fn work_is_that_since_the_answer_before() {
        let mut list = List::of(Whose::Daemon);
        assert!(!list.is_known());
        list.take(Ok(answer(10.0, 0, &[(1, 1.0), (2, 4.0)])));
        assert_eq!(shares(&list), [(1, 0.1), (2, 0.4)], "the mean of all time");
        // 1 has ended, 3 is new, 2 had no work.
        list.take(Ok(answer(12.0, 0, &[(2, 4.0), (3, 0.5)])));
        assert_eq!(shares(&list), [(2, 0.0), (3, 0.25)]);
        // 3 is another program of that name now.
        list.take(Ok(answer(13.0, 9, &[(3, 0.125)])));
        assert_eq!(shares(&list), [(3, 0.125)]);
        // 4 may have been among those left out.
        list.take(Ok(answer(16.0, 9, &[(4, 1.0)])));
        assert_eq!(shares(&list), [(4, 0.0625)]);
        // Another worker.
        list.take(Ok(answer(2.0, 0, &[(4, 0.5)])));
        assert_eq!(shares(&list), [(4, 0.25)]);
    }

    #[test]
    fn no_process_takes_more_than_a_core() {
        let mut list = List::of(Whose::Daemon);
        list.take(Ok(answer(10.0, 0, &[(1, 1.0)])));
        // A call of 300 ms returned 1 ms after the answer before.
        list.take(Ok(answer(10.001, 0, &[(1, 1.3), (2, 0.2)])));
        assert_eq!(shares(&list), [(1, 1.0), (2, 1.0)]);
        list.take(Ok(answer(11.001, 0, &[(1, 1.3), (2, 0.2)])));
        assert_eq!(shares(&list), [(1, 0.0), (2, 0.0)]);
    }

    #[test]
    fn what_is_known_stays_when_nothing_is_answered() {
        let mut list = List::of(Whose::Daemon);
        list.take(Ok(answer(10.0, 0, &[(1, 1.0)])));
        list.take(Err("no daemon answers".to_owned()));
        assert_eq!(list.fault.as_deref(), Some("no daemon answers"));
        assert_eq!(shares(&list), [(1, 0.1)]);
        // The time without answers counts.
        list.take(Ok(answer(20.0, 0, &[(1, 2.0)])));
        assert_eq!((shares(&list), list.fault), (vec![(1, 0.1)], None));
    }

    #[test]
    fn of_equal_processes_the_lowest_id_is_first_in_any_order() {
        let mut list = List::of(Whose::Daemon);
        list.take(Ok(answer(10.0, 0, &[(1, 1.0), (5, 1.0), (9, 1.0)])));
        for sort in [Sort::Saved, Sort::Potential, Sort::Cpu, Sort::Name] {
            let rows = list.sorted(sort).into_iter();
            let pids: Vec<u32> = rows.map(|row| row.process.pid).collect();
            assert_eq!(pids, [1, 5, 9], "{sort:?}");
        }
    }
}
