//! The workers of all groups.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use uksm_linux::selection::GroupId;
use uksm_policy::report::counted;

use crate::config::plan::Plan;
use crate::groups::supervisor::worker_events::WorkerEvents;
use crate::groups::supervisor::worker_process::WorkerProcess;

/// The workers, a slice in the order of the groups: configured groups by name, then a group of all
/// others, then groups that rules have formed.
#[derive(Debug)]
pub(super) struct Workers {
    list: Vec<WorkerProcess>,
    /// Workers of removed groups that have not ended.
    leaving: Vec<WorkerProcess>,
    events: WorkerEvents,
}

impl Deref for Workers {
    type Target = [WorkerProcess];

    fn deref(&self) -> &[WorkerProcess] {
        &self.list
    }
}

impl DerefMut for Workers {
    fn deref_mut(&mut self) -> &mut [WorkerProcess] {
        &mut self.list
    }
}

impl Workers {
    /// No workers yet.
    pub(super) fn new(events: WorkerEvents) -> Workers {
        Workers {
            list: Vec::new(),
            leaving: Vec::new(),
            events,
        }
    }

    /// The worker of this group.
    pub(super) fn of_group(&self, id: GroupId) -> Option<&WorkerProcess> {
        self.list.iter().find(|worker| worker.id == id)
    }

    /// The worker of this group.
    pub(super) fn of_group_mut(&mut self, id: GroupId) -> Option<&mut WorkerProcess> {
        self.list.iter_mut().find(|worker| worker.id == id)
    }

    /// The plans of the groups.
    pub(super) fn plans(&self) -> Vec<&Plan> {
        self.list.iter().map(|worker| &worker.plan).collect()
    }

    /// Adds the worker of a group, as the last one.
    pub(super) fn push(&mut self, worker: WorkerProcess) {
        self.list.push(worker);
    }

    /// Removes the worker of this group.
    pub(super) fn remove(&mut self, id: GroupId) -> Option<WorkerProcess> {
        let at = self.list.iter().position(|worker| worker.id == id)?;
        Some(self.list.remove(at))
    }

    /// Removes all workers.
    pub(super) fn take_all(&mut self) -> Vec<WorkerProcess> {
        std::mem::take(&mut self.list)
    }

    /// Keeps the worker of a removed group until it has ended.
    pub(super) fn keep_until_end(&mut self, worker: WorkerProcess) {
        if !worker.has_ended() {
            self.leaving.push(worker);
        }
    }

    /// Puts the workers in the order of their groups.
    pub(super) fn sort(&mut self) {
        self.list.sort_by(|a, b| {
            let key = |w: &WorkerProcess| (w.plan.formed.is_some(), w.plan.selection.all);
            key(a).cmp(&key(b)).then(a.plan.name.cmp(&b.plan.name))
        });
    }

    /// Reads the messages of workers that are ready, and notes the end of leaving ones.
    pub(super) fn receive(&mut self) {
        let ready = self.events.ready();
        for worker in &mut self.list {
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
    }

    /// Starts the workers that are due; a worker sends a message when it works.
    pub(super) fn start_due(&mut self) {
        for worker in &mut self.list {
            worker.reap();
            worker.start(&self.events);
        }
    }

    /// Sends the workers news of their spaces.
    pub(super) fn send_spaces(&mut self) {
        self.list.iter_mut().for_each(WorkerProcess::send_spaces);
    }

    /// Events of workers.
    pub(super) fn events(&self) -> &WorkerEvents {
        &self.events
    }

    /// Time of the next start or kill of a worker.
    pub(super) fn next(&self) -> Option<Instant> {
        let workers = self.list.iter().chain(&self.leaving);
        workers.filter_map(WorkerProcess::due).min()
    }

    /// "3 groups".
    pub(super) fn counted_groups(&self) -> String {
        counted(self.list.len() as u64, "group", "groups")
    }
}

/// Readable while a worker is ready.
impl AsFd for Workers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
