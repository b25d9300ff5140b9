//! The search for processes, once for all groups.
//!
//! # Problem
//! If each worker searched for its own processes, 200 groups would cost 200 times the search of
//! one, and each worker would need the right to search.
//!
//! # Approach
//! The supervisor follows the processes of all groups (`Processes`), attaches each in the domain
//! of its group, and sends the space to the worker (`handover.rs`). A worker reports each space
//! that it has detached or found dead. The supervisor also measures the sizes of all spaces, so
//! that a worker with idle processes sleeps.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;
use uksm_linux::clock;
use uksm_linux::discovery::detach;
use uksm_linux::domain::Domain;
use uksm_linux::module::{self, Attached, Verb, raw};
use uksm_linux::processes::{Attach, News};
use uksm_linux::selection::{GroupId, Selection};
use uksm_linux::wake::Woken;
use uksm_policy::command::{Nanos, SpaceId};

use crate::groups::supervisor::Supervisor;
use crate::groups::supervisor::discovery_schedule::Events;
use crate::groups::supervisor::task::Task;
use crate::groups::supervisor::worker_process::WorkerProcess;

/// Pause before a worker that does not read is tried again.
const BEHIND: Nanos = 100_000_000;

/// The domains of the groups.
pub(in crate::groups::supervisor) struct Domains<'a>(
    pub(in crate::groups::supervisor) &'a mut [WorkerProcess],
);

impl Attach for Domains<'_> {
    fn attach(&mut self, group: GroupId, process: BorrowedFd<'_>) -> module::Result<Attached> {
        let mut domains = self.0.iter_mut().filter(|worker| worker.id == group);
        match domains.next().and_then(|worker| worker.domain.as_mut()) {
            Some(domain) => Domain::attach(domain, process),
            None => Err(module::Error::Call {
                verb: Verb::Attach,
                errno: Errno::NXIO,
            }),
        }
    }
}

/// Whether a process can have frames of a group that it is not in: it can have been forked there,
/// if it is younger than this supervisor; and before a supervisor that took groups over from an
/// earlier one it can have moved.
fn is_mixed(uptime: Duration, has_taken_over: bool, age: Duration) -> bool {
    has_taken_over || age < uptime
}

impl Supervisor<'_> {
    /// The selections of the configured groups, in the order in which they are tried.
    pub(in crate::groups::supervisor) fn grouping(
        workers: &[WorkerProcess],
    ) -> Vec<(GroupId, Selection)> {
        let named = workers.iter().filter(|worker| worker.plan.formed.is_none());
        let group = |worker: &WorkerProcess| (worker.id, worker.plan.selection.clone());
        named.map(group).collect()
    }

    /// The largest share of a core that any group may use.
    pub(in crate::groups::supervisor) fn share(workers: &[WorkerProcess]) -> f64 {
        let shares = workers.iter().map(|worker| worker.plan.resolved.params.cpu);
        shares.fold(0.0, f64::max)
    }

    /// Reads the messages of workers that are ready.
    pub(in crate::groups::supervisor) fn receive(&mut self) {
        let ready = self.worker_events.ready();
        for worker in &mut self.workers {
            if ready.contains(&worker.id) {
                worker.receive();
            }
        }
        self.leaving.retain_mut(|worker| {
            worker.reap();
            let has_ended = worker.has_ended();
            if has_ended {
                // CPU time since the end of its group.
                let _logged = worker.write_account(None);
            }
            !has_ended
        });
        self.note_reports();
    }

    /// Takes the workers' reports about spaces, and notes which workers have a domain now.
    pub(in crate::groups::supervisor) fn note_reports(&mut self) {
        let mut parted = BTreeSet::new();
        let mut are_any_dead = false;
        for worker in &mut self.workers {
            if worker.domain.is_some() && self.attachable.insert(worker.id) {
                self.processes.has_domain(worker.id);
                self.schedule.hurry();
            }
            let reports = worker.take_reports();
            parted.extend(reports.detached.iter().map(|&space| (worker.id, space)));
            are_any_dead |= !reports.dead.is_empty();
            for space in reports.dead {
                self.processes.note_dead_in((worker.id, space));
            }
        }
        // One walk over all processes, for any number of spaces.
        if !parted.is_empty() {
            self.processes.have_parted(&parted);
        }
        if are_any_dead || !parted.is_empty() {
            self.schedule.hurry_when_repaid();
        }
    }

    /// Searches for processes, if it is time, and passes on their spaces.
    ///
    /// # Errors
    /// The module fails.
    pub(in crate::groups::supervisor) fn discover(&mut self) -> module::Result<()> {
        let now = clock::now();
        let ready = self.processes.ready_at().unwrap_or(Nanos::MAX);
        if now
            < self
                .schedule
                .due()
                .min(ready.max(self.schedule.told_from()))
            && !self.is_told
        {
            return Ok(());
        }
        self.is_told = false;
        let begun = clock::thread_cpu();
        let news = self.processes.look(&mut Domains(&mut self.workers))?;
        let more = news.more;
        self.hand_over(news)?;
        let cost = clock::thread_cpu().saturating_sub(begun);
        let told = match (self.processes.is_told(), self.processes.are_moves_told()) {
            (false, _) => Events::None,
            (true, false) if self.processes.is_moved_between() => Events::Processes,
            (true, _) => Events::All,
        };
        self.schedule.looked(clock::now(), cost, (more, told));
        Ok(())
    }

    /// Measures all spaces, if it is time.
    ///
    /// # Errors
    /// The module fails.
    pub(in crate::groups::supervisor) fn measure(&mut self) -> module::Result<()> {
        let now = clock::now();
        if now < self.schedule.measure_due() {
            return Ok(());
        }
        let begun = clock::thread_cpu();
        for worker in &mut self.workers {
            let Some(domain) = &mut worker.domain else {
                continue;
            };
            let spaces: Vec<SpaceId> = worker.handover.here().collect();
            for spaces in spaces.chunks(raw::UKSM_MAX_SIZES) {
                match domain.sizes(spaces) {
                    Ok(sizes) => worker.handover.measured(&sizes),
                    // Measured the next time. A worker can detach a wrong space only to its own
                    // harm.
                    Err(error) if error.is_short() || error.errno() == Some(Errno::NOENT) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let cost = clock::thread_cpu().saturating_sub(begun);
        self.schedule.measured(clock::now(), cost);
        Ok(())
    }

    fn hand_over(&mut self, news: News) -> module::Result<()> {
        let is_of = |id: GroupId| move |worker: &&mut WorkerProcess| worker.id == id;
        for arrived in news.arrived {
            let worker = self.workers.iter_mut().find(is_of(arrived.group));
            if let Some(worker) = worker {
                if worker.has_hints() {
                    let place = (arrived.group, arrived.arrival.space);
                    self.hint_dispatch.follow(arrived.pid, place);
                }
                let age = Duration::from_nanos(arrived.arrival.age);
                let is_mixed = is_mixed(self.started.elapsed(), self.has_taken_over, age);
                worker.handover.arrive(arrived, is_mixed);
            }
        }
        for left in news.left {
            self.hint_dispatch.forget((left.group, left.space));
            let Some(worker) = self.workers.iter_mut().find(is_of(left.group)) else {
                continue;
            };
            if worker.handover.leave(left)
                && let Some(domain) = &mut worker.domain
            {
                detach(left.space, domain)?;
            }
        }
        Ok(())
    }

    /// Sends the workers news of their spaces.
    pub(in crate::groups::supervisor) fn send_spaces(&mut self) {
        self.workers.iter_mut().for_each(WorkerProcess::send_spaces);
    }

    /// Sleeps until a request, a signal, a message or the end of a worker, a process event, or the
    /// time of the next work.
    pub(in crate::groups::supervisor) fn sleep(&mut self, notice: Nanos) {
        let now = clock::now();
        let told_from = self.schedule.told_from();
        let ready = self
            .processes
            .ready_at()
            .unwrap_or(Nanos::MAX)
            .max(told_from);
        let is_behind = self.workers.iter().any(WorkerProcess::is_behind);
        let behind = if is_behind { now + BEHIND } else { Nanos::MAX };
        let events = [self.processes.events(), self.processes.move_events()];
        let deaf = if events.iter().any(Option::is_some) && told_from > now {
            told_from
        } else {
            Nanos::MAX
        };
        let (hints_due, hints) = self.hint_dispatch.next(now);
        let times = [
            hints_due.unwrap_or(Nanos::MAX),
            notice,
            self.schedule.due(),
            self.schedule.measure_due(),
            ready,
            behind,
            deaf,
        ];
        let until = times.into_iter().chain(self.next_turn(now)).min();
        let events = events.into_iter().flatten().filter(|_| told_from <= now);
        let others = std::iter::once(self.worker_events.as_fd()).chain(hints);
        let others: Vec<BorrowedFd<'_>> = others.collect();
        let watched: Vec<BorrowedFd<'_>> = others.iter().copied().chain(events).collect();
        let woken = self.sleeper.sleep(until.unwrap_or(notice), &watched);
        // If others are readable as well, the next sleep reports the event.
        self.is_told = matches!(woken, Woken::Readable(which) if which >= others.len());
    }

    /// The time of the next work other than discovery: a start of a worker, a turn, or a record.
    fn next_turn(&self, now: Nanos) -> Option<Nanos> {
        let workers = self.workers.iter().chain(&self.leaving);
        let starts = workers.filter_map(WorkerProcess::due);
        let task = self.task.as_ref().map(Task::due);
        // Work that waits for the end of the task is not due before.
        let is_free = |_: &std::time::Instant| task.is_none();
        let turns = starts.chain(self.redistribution.next()).chain(task);
        let turns = turns.chain(self.first_start.as_ref().map(|starting| starting.until));
        let turns = turns.chain(self.formed.next().filter(is_free));
        let turns = turns.chain(self.ledger_writer.next().filter(is_free));
        let until = turns.chain(self.rates.next()).min()?;
        let left = until.saturating_duration_since(std::time::Instant::now());
        Some(now.saturating_add(Nanos::try_from(left.as_nanos()).unwrap_or(Nanos::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_started_before_any_group_cannot_have_frames_of_one() {
        let [before, since] = [20, 5].map(Duration::from_secs);
        let uptime = Duration::from_secs(10);
        assert!(!is_mixed(uptime, false, before));
        assert!(
            is_mixed(uptime, false, since),
            "it can have been forked in a group"
        );
        assert!(
            is_mixed(uptime, true, before),
            "it can have moved meanwhile"
        );
    }
}
