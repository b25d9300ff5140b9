//! A task of the supervisor: a request, a reload or a record, in several steps over several turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use uksm_linux::selection::{GroupId, Selectors};
use uksm_linux::unmerge::UnmergeSummary;
use uksm_policy::command::{Nanos, SpaceId};

use crate::config::plans::Plans;
use crate::control::{Answer, PendingRequest, Request};
use crate::groups::supervisor::group_change::GroupChange;
use crate::groups::supervisor::unmerge_threads::UnmergeThreads;
use crate::groups::supervisor::worker_process::{
    ANOTHER_QUESTION, NO_ANSWER, STOP_TIMEOUT, WorkerProcess,
};

/// Timeout of the answers of all workers together.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of the end of all workers together; a kill takes a moment.
pub(super) const END_TIMEOUT: Duration = STOP_TIMEOUT.saturating_add(Duration::from_secs(2));
/// Timeout of breaking; shorter than a client's.
pub(super) const BREAK_TIMEOUT: Duration = Duration::from_secs(570);
/// A worker that is to break pages and has had no processor time for this long is not waited for.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of spaces in one question.
pub(super) const MAX_REQUEST_SPACES: usize = 8192;
/// Maximum number of rounds in which spaces that came meanwhile are broken as well. Without it, a
/// group that forks all the time would never be done.
pub(super) const MAX_ROUNDS: u32 = 3;

/// A request, reload or record that takes more than one turn.
#[derive(Debug)]
pub(super) struct Task {
    /// The client; none if the cause was a signal or the clock.
    pub(super) asked: Option<PendingRequest>,
    pub(super) job: Job,
    pub(super) until: Instant,
}

#[derive(Debug)]
pub(super) enum Job {
    /// Workers were asked for the client's answer.
    Answer,
    /// Workers were asked for their savings; a change may follow.
    Account(Option<Box<GroupChange>>),
    /// Workers break shared pages of selected processes.
    Break(Box<UnmergeTask>),
    /// Workers of changed groups end.
    EndWorkers(Box<Regrouping>),
    /// Pages that may no longer be shared are broken.
    Unmerge(Box<Regrouping>),
}

/// Processes that are to have their own pages.
#[derive(Debug)]
pub(super) struct UnmergeTask {
    pub(super) selectors: Selectors,
    /// Spaces that workers still have to break, in chunks of one question each.
    pub(super) left: BTreeMap<GroupId, VecDeque<Vec<u32>>>,
    /// Time of the last check of those workers, and their processor time then.
    pub(super) checked_at: Instant,
    pub(super) cpu: BTreeMap<GroupId, Nanos>,
    /// Unmerging for groups without a worker that can do it.
    pub(super) breaking: UnmergeThreads,
    pub(super) done: UnmergeSummary,
    pub(super) faults: Vec<String>,
}

/// Groups that are to change.
#[derive(Debug)]
pub(super) struct Regrouping {
    pub(super) wanted: GroupChange,
    pub(super) breaking: UnmergeThreads,
    /// Spaces that were broken or are being broken.
    pub(super) unmerged: BTreeMap<GroupId, BTreeSet<SpaceId>>,
    /// Groups that stay as they are, and why.
    pub(super) faults: BTreeMap<GroupId, String>,
    pub(super) rounds: u32,
}

/// The result of a step of a task.
pub(super) enum TaskProgress {
    /// Nothing to do before an event or a deadline.
    Waits(Job),
    /// The next job is due at once.
    Next(Job),
    Done(Answer),
}

impl Task {
    /// Time of the next check, if no event comes before.
    pub(super) fn due(&self) -> Instant {
        match &self.job {
            Job::Break(unmerge) if !unmerge.left.is_empty() => {
                self.until.min(unmerge.checked_at + STALL_TIMEOUT)
            }
            _ => self.until,
        }
    }

    /// Whether groups are about to change.
    pub(super) fn is_change(&self) -> bool {
        matches!(
            self.job,
            Job::Account(Some(_)) | Job::EndWorkers(_) | Job::Unmerge(_)
        )
    }

    /// The plans that all groups are about to follow, if a configuration is read again.
    pub(super) fn plans(&self) -> Option<&Plans> {
        let wanted = match &self.job {
            Job::Account(Some(wanted)) => wanted,
            Job::EndWorkers(regrouping) | Job::Unmerge(regrouping) => &regrouping.wanted,
            Job::Answer | Job::Account(None) | Job::Break(_) => return None,
        };
        match wanted {
            GroupChange::All(plans) => Some(plans),
            GroupChange::One(_) | GroupChange::Gone(_) => None,
        }
    }

    /// Answers the client that the daemon stops.
    pub(super) fn give_up(self) {
        if let Some(pending) = self.asked {
            pending.answer(Answer::Error("the daemon stops".to_owned()));
        }
    }
}

impl UnmergeTask {
    /// Asks a worker for the next part, if there is one.
    pub(super) fn ask_next(&mut self, worker: &mut WorkerProcess) {
        let left = self.left.get(&worker.id);
        match left.and_then(VecDeque::front) {
            Some(spaces) => worker.ask(&Request::BreakSpaces(spaces.clone())),
            None => {
                self.left.remove(&worker.id);
            }
        }
    }

    /// Takes a worker's answer.
    pub(super) fn take_in(&mut self, worker: &mut WorkerProcess, is_late: bool) {
        match worker.take_answer() {
            Some(Ok(Answer::Broken {
                processes,
                pages,
                stopped,
                locked,
            })) => {
                self.done += UnmergeSummary {
                    processes,
                    pages,
                    stopped,
                    locked,
                };
                self.left.entry(worker.id).or_default().pop_front();
                self.ask_next(worker);
            }
            // It does not run, or does not read.
            Some(Err(_)) if !is_late => self.do_without(worker),
            answer => {
                let line = match answer {
                    Some(Ok(Answer::Error(line)) | Err(line)) => line,
                    Some(Ok(_)) => ANOTHER_QUESTION.to_owned(),
                    None => NO_ANSWER.to_owned(),
                };
                self.faults
                    .push(format!("group {}: {line}", worker.plan.name));
                self.left.remove(&worker.id);
            }
        }
    }

    /// Breaks a worker's remaining spaces without it.
    pub(super) fn do_without(&mut self, worker: &WorkerProcess) {
        let left = self.left.remove(&worker.id).unwrap_or_default();
        let spaces = left.into_iter().flatten().map(SpaceId).collect();
        self.breaking.add(worker.id, worker.domain.as_ref(), spaces);
    }
}
