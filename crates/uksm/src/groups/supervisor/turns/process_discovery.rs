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
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use uksm_linux::clock;
use uksm_linux::discovery::detach;
use uksm_linux::domain::Domain;
use uksm_linux::module::{self, AttachAnswer, Verb, raw};
use uksm_linux::processes::{Attach, Processes, SpaceChanges};
use uksm_linux::selection::{GroupId, RuleWithGroups, Selection};
use uksm_policy::command::{Nanos, SpaceId};

use crate::groups::supervisor::discovery_schedule::{DiscoverySchedule, Events};
use crate::groups::supervisor::turns::hint_dispatch::HintDispatch;
use crate::groups::supervisor::worker_process::WorkerProcess;
use crate::groups::supervisor::workers::Workers;

/// The domains of the groups.
pub(in crate::groups::supervisor) struct Domains<'a>(
    pub(in crate::groups::supervisor) &'a mut [WorkerProcess],
);

impl Attach for Domains<'_> {
    fn attach(&mut self, group: GroupId, process: BorrowedFd<'_>) -> module::Result<AttachAnswer> {
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

/// The processes of all groups, and the times of the searches.
#[derive(Debug)]
pub(in crate::groups::supervisor) struct ProcessDiscovery {
    processes: Processes,
    schedule: DiscoverySchedule,
    /// A process event has come.
    has_event: bool,
    /// Groups whose domain is known to `processes`.
    attachable: BTreeSet<GroupId>,
    /// Start of this supervisor.
    started: Instant,
    /// Some group continues with a domain of an earlier supervisor.
    has_taken_over: bool,
}

impl ProcessDiscovery {
    /// Of these processes, with no groups yet.
    pub(in crate::groups::supervisor) fn new(processes: Processes) -> ProcessDiscovery {
        ProcessDiscovery {
            processes,
            schedule: DiscoverySchedule::new(0.0),
            has_event: false,
            attachable: BTreeSet::new(),
            started: Instant::now(),
            has_taken_over: false,
        }
    }

    /// Some group continues with a domain of an earlier supervisor.
    pub(in crate::groups::supervisor) fn note_take_over(&mut self) {
        self.has_taken_over = true;
    }

    /// The processes.
    pub(in crate::groups::supervisor) fn processes(&self) -> &Processes {
        &self.processes
    }

    /// The processes, for a change of their groups.
    pub(in crate::groups::supervisor) fn processes_mut(&mut self) -> &mut Processes {
        &mut self.processes
    }

    /// The groups have changed: all processes are checked again.
    pub(in crate::groups::supervisor) fn regroup(
        &mut self,
        workers: &[WorkerProcess],
        rules: Vec<RuleWithGroups>,
    ) {
        let named = workers.iter().filter(|worker| worker.plan.formed.is_none());
        let group = |worker: &WorkerProcess| (worker.id, worker.plan.selection.clone());
        let selections: Vec<(GroupId, Selection)> = named.map(group).collect();
        self.processes.regroup(selections, rules);
    }

    /// The set of groups has changed: the largest share of a core is a different one, and a search
    /// is due.
    pub(in crate::groups::supervisor) fn begin_again(&mut self, workers: &[WorkerProcess]) {
        let shares = workers.iter().map(|worker| worker.plan.resolved.params.cpu);
        self.schedule.begin_again(shares.fold(0.0, f64::max));
    }

    /// Makes a search due.
    pub(in crate::groups::supervisor) fn search_soon(&mut self) {
        self.schedule.search_soon();
    }

    /// A group has dropped its domain.
    pub(in crate::groups::supervisor) fn drop_domain(&mut self, group: GroupId) {
        self.processes.has_no_domain(group);
        self.attachable.remove(&group);
    }

    /// A formed group is dissolved.
    pub(in crate::groups::supervisor) fn dissolve(&mut self, group: GroupId) {
        self.attachable.remove(&group);
        self.processes.dissolve(group);
    }

    /// Takes the workers' reports about spaces, and notes which workers have a domain now.
    pub(in crate::groups::supervisor) fn note_reports(&mut self, workers: &mut [WorkerProcess]) {
        let mut parted = BTreeSet::new();
        let mut are_any_dead = false;
        for worker in workers {
            if worker.domain.is_some() && self.attachable.insert(worker.id) {
                self.processes.has_domain(worker.id);
                self.schedule.search_soon();
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
            self.processes.note_detached(&parted);
        }
        if are_any_dead || !parted.is_empty() {
            self.schedule.search_when_repaid();
        }
    }

    /// Searches for processes, if it is time, and passes on their spaces.
    ///
    /// # Errors
    /// The module fails.
    pub(in crate::groups::supervisor) fn turn(
        &mut self,
        workers: &mut Workers,
        hint_dispatch: &mut HintDispatch,
    ) -> module::Result<()> {
        let now = clock::now();
        let ready = self.processes.ready_at().unwrap_or(Nanos::MAX);
        if now
            < self
                .schedule
                .due()
                .min(ready.max(self.schedule.events_wake_from()))
            && !self.has_event
        {
            return Ok(());
        }
        self.has_event = false;
        let begun = clock::thread_cpu();
        let news = self.processes.discover(&mut Domains(workers))?;
        let more = news.more;
        self.hand_over(news, workers, hint_dispatch)?;
        let cost = clock::thread_cpu().saturating_sub(begun);
        let reported = match (
            self.processes.has_events(),
            self.processes.has_move_events(),
        ) {
            (false, _) => Events::None,
            (true, false) if self.processes.is_moved_between() => Events::Processes,
            (true, _) => Events::All,
        };
        self.schedule
            .note_search(clock::now(), cost, (more, reported));
        Ok(())
    }

    /// Measures all spaces, if it is time.
    ///
    /// # Errors
    /// The module fails.
    pub(in crate::groups::supervisor) fn measure(
        &mut self,
        workers: &mut [WorkerProcess],
    ) -> module::Result<()> {
        let now = clock::now();
        if now < self.schedule.measure_due() {
            return Ok(());
        }
        let begun = clock::thread_cpu();
        for worker in workers {
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
        self.schedule.note_measurement(clock::now(), cost);
        Ok(())
    }

    fn hand_over(
        &self,
        news: SpaceChanges,
        workers: &mut Workers,
        hint_dispatch: &mut HintDispatch,
    ) -> module::Result<()> {
        for arrived in news.arrived {
            if let Some(worker) = workers.of_group_mut(arrived.group) {
                if worker.has_hints() {
                    let place = (arrived.group, arrived.arrival.space);
                    hint_dispatch.follow(arrived.pid, place);
                }
                let age = Duration::from_nanos(arrived.arrival.age);
                let is_mixed = is_mixed(self.started.elapsed(), self.has_taken_over, age);
                worker.handover.arrive(arrived, is_mixed);
            }
        }
        for left in news.left {
            hint_dispatch.forget((left.group, left.space));
            let Some(worker) = workers.of_group_mut(left.group) else {
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

    /// The time of the next search or measurement, and the descriptors that are readable when a
    /// process event has come.
    pub(in crate::groups::supervisor) fn next(&self, now: Nanos) -> (Nanos, Vec<BorrowedFd<'_>>) {
        let events_wake_from = self.schedule.events_wake_from();
        let ready = self.processes.ready_at().unwrap_or(Nanos::MAX);
        let events = [self.processes.events(), self.processes.move_events()];
        let events: Vec<BorrowedFd<'_>> = events.into_iter().flatten().collect();
        let due = self.schedule.due().min(self.schedule.measure_due());
        let due = due.min(ready.max(events_wake_from));
        if events_wake_from <= now || events.is_empty() {
            (due, events)
        } else {
            (due.min(events_wake_from), Vec::new())
        }
    }

    /// Notes whether a process event has come.
    pub(in crate::groups::supervisor) fn note_event(&mut self, has_come: bool) {
        self.has_event = has_come;
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
