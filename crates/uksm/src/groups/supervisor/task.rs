//! A task of the supervisor: a request, a reload or a record, in several steps over several turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use uksm_linux::breaking::BreakUp;
use uksm_linux::selection::{GroupId, Selectors};
use uksm_policy::command::{Nanos, SpaceId};

use crate::config::plans::Plans;
use crate::control::{Answer, Pending, Request};
use crate::groups::supervisor::breaking::Breaking;
use crate::groups::supervisor::wanted::Wanted;
use crate::groups::supervisor::worker_process::{
    ANOTHER_QUESTION, NO_ANSWER, STOP_TIMEOUT, WorkerProcess,
};

/// All workers together are waited for so long.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// All workers together may take so long to end; one that is killed takes a moment.
pub(super) const END_TIMEOUT: Duration = STOP_TIMEOUT.saturating_add(Duration::from_secs(2));
/// Breaking may take so long, less than a client waits.
pub(super) const BREAK_TIMEOUT: Duration = Duration::from_secs(570);
/// A worker that is to break and has had no processor time for so long is not waited for.
pub(super) const STALLED: Duration = Duration::from_secs(5);
/// Most spaces of one question.
pub(super) const MAX_SPACES: usize = 8192;
/// So often spaces that came meanwhile are broken as well. A group that forks all the time does not
/// keep itself alive by that.
pub(super) const MAX_ROUNDS: u32 = 3;

/// Something that takes more than one turn.
#[derive(Debug)]
pub(super) struct Task {
    /// The client; none if it was a signal, or the clock.
    pub(super) asked: Option<Pending>,
    pub(super) job: Job,
    pub(super) until: Instant,
}

#[derive(Debug)]
pub(super) enum Job {
    /// Workers were asked what the client wants to know.
    Tell,
    /// Workers were asked what they saved; then a change follows, perhaps.
    Account(Option<Box<Wanted>>),
    /// Workers break what chosen processes share.
    Break(Box<Chosen>),
    /// Workers end whose groups change.
    End(Box<Altering>),
    /// What may not be shared any more is broken.
    Part(Box<Altering>),
}

/// Processes that are to have their own pages.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) selectors: Selectors,
    /// What workers are still to break, the spaces of one question after those of another.
    pub(super) left: BTreeMap<GroupId, VecDeque<Vec<u32>>>,
    /// Processor time of those workers when it was looked at last.
    pub(super) taken: (Instant, BTreeMap<GroupId, Nanos>),
    /// For groups without a worker that does it.
    pub(super) breaking: Breaking,
    pub(super) done: BreakUp,
    pub(super) faults: Vec<String>,
}

/// Groups that are to change.
#[derive(Debug)]
pub(super) struct Altering {
    pub(super) wanted: Wanted,
    pub(super) breaking: Breaking,
    /// Spaces that were broken, or are being.
    pub(super) parted: BTreeMap<GroupId, BTreeSet<SpaceId>>,
    /// Groups that stay as they are, and why.
    pub(super) faults: BTreeMap<GroupId, String>,
    pub(super) rounds: u32,
}

/// What a step of a task came to.
pub(super) enum Progress {
    /// There is nothing to do before something comes, or its time.
    Waits(Job),
    /// This is to be done at once.
    Next(Job),
    Done(Answer),
}

impl Task {
    /// When it looks again, if nothing happens before.
    pub(super) fn due(&self) -> Instant {
        match &self.job {
            Job::Break(chosen) if !chosen.left.is_empty() => {
                self.until.min(chosen.taken.0 + STALLED)
            }
            _ => self.until,
        }
    }

    /// Whether groups are about to change.
    pub(super) fn is_change(&self) -> bool {
        matches!(self.job, Job::Account(Some(_)) | Job::End(_) | Job::Part(_))
    }

    /// The plans that all groups are about to follow, if a configuration is read again.
    pub(super) fn plans(&self) -> Option<&Plans> {
        let wanted = match &self.job {
            Job::Account(Some(wanted)) => wanted,
            Job::End(altering) | Job::Part(altering) => &altering.wanted,
            Job::Tell | Job::Account(None) | Job::Break(_) => return None,
        };
        match wanted {
            Wanted::All(plans) => Some(plans),
            Wanted::One(_) | Wanted::Gone(_) => None,
        }
    }

    /// The daemon stops.
    pub(super) fn give_up(self) {
        if let Some(pending) = self.asked {
            pending.answer(Answer::Error("the daemon stops".to_owned()));
        }
    }
}

impl Chosen {
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

    /// Takes in what a worker answered.
    pub(super) fn take_in(&mut self, worker: &mut WorkerProcess, is_late: bool) {
        match worker.take_answer() {
            Some(Ok(Answer::Broken {
                processes,
                pages,
                stopped,
                locked,
            })) => {
                self.done += BreakUp {
                    processes,
                    pages,
                    stopped,
                    locked,
                };
                self.left.entry(worker.id).or_default().pop_front();
                self.ask_next(worker);
            }
            // It does not run, or reads nothing.
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

    /// Breaks what a worker was to break.
    pub(super) fn do_without(&mut self, worker: &WorkerProcess) {
        let left = self.left.remove(&worker.id).unwrap_or_default();
        let spaces = left.into_iter().flatten().map(SpaceId).collect();
        self.breaking.add(worker.id, worker.domain.as_ref(), spaces);
    }
}
