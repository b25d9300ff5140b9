//! Answers to requests: the supervisor asks its workers (`task_turn.rs`), and adds its own figures.
//!
//! Methods of the supervisor, because an answer has figures of all its parts.

use std::collections::BTreeMap;

use uksm_linux::hints::Hints;
use uksm_linux::processes::ProcessState;
use uksm_linux::selection::GroupId;

use crate::control::{Answer, Request};
use crate::groups::supervisor::Supervisor;
use crate::groups::supervisor::worker_process::{ANOTHER_QUESTION, WorkerProcess};
use crate::status::evidence::{Evidence, ProcessStanding, seconds};
use crate::status::groups::{GroupStatus, GroupsStatus};
use crate::status::{FailedProcess, Status};
use crate::worker::BY_SUPERVISOR;
use crate::worker::evidence::unfollowed;

impl Supervisor<'_> {
    /// Asks workers for the figures of a client's request.
    ///
    /// # Errors
    /// No worker has to be asked: the answer.
    pub(in crate::groups::supervisor) fn ask_workers(
        &mut self,
        request: &Request,
    ) -> Result<(), Answer> {
        match request {
            Request::Status => {
                for worker in self.workers.iter_mut() {
                    worker.ask(request);
                }
                Ok(())
            }
            Request::Group(name) => {
                let at = self.position(name).map_err(Answer::Error)?;
                self.workers[at].ask(&Request::Status);
                Ok(())
            }
            Request::Processes(None) => {
                Err(Answer::Error(format!("which group? {}", self.names())))
            }
            Request::Processes(Some(name)) => {
                let at = self.position(name).map_err(Answer::Error)?;
                self.workers[at].ask(&Request::Spaces);
                Ok(())
            }
            Request::Explain { pid, from } => {
                let ProcessState::Followed(group, space) =
                    self.discovery.processes().state_of(*pid)
                else {
                    return Err(self.explain(*pid));
                };
                let Some(worker) = self.workers.of_group_mut(group) else {
                    return Err(self.explain(*pid));
                };
                // It may not have received this space yet.
                worker.send_spaces();
                worker.ask(&Request::ExplainSpace {
                    space: space.0,
                    from: *from,
                });
                Ok(())
            }
            _ => Err(Answer::Error("this call is for workers".to_owned())),
        }
    }

    /// The answer from the workers' answers and the supervisor's own figures.
    pub(in crate::groups::supervisor) fn answer(&mut self, request: &Request) -> Answer {
        match request {
            Request::Group(name) => self.group(name),
            Request::Processes(Some(name)) => self.processes_of(name),
            Request::Explain { pid, .. } => self.explain(*pid),
            _ => Answer::Groups(Box::new(self.status())),
        }
    }

    /// The position of the group of this name.
    ///
    /// # Errors
    /// There is no such group: one line.
    fn position(&self, name: &str) -> Result<usize, String> {
        let at = self.workers.iter().position(|w| w.plan.name == name);
        at.ok_or_else(|| format!("{}: no such group: {}", name.escape_debug(), self.names()))
    }

    fn status(&mut self) -> GroupsStatus {
        let written_on_host = self.ledger_writer.written_on_host(&self.workers);
        let answers = self.workers.iter_mut().map(WorkerProcess::answer);
        let answers: Vec<Result<Answer, String>> = answers.collect();
        let mut followed = self.followed();
        let groups = self.workers.iter().zip(answers).map(|(worker, answer)| {
            let (status, fault) = match answer {
                Ok(Answer::Status(status)) => (Some(status), None),
                Ok(Answer::Error(line)) | Err(line) => (None, Some(line)),
                Ok(_) => (None, Some(ANOTHER_QUESTION.to_owned())),
            };
            let targets = followed.remove(&worker.id).unwrap_or_default();
            GroupStatus {
                name: worker.plan.name.clone(),
                origin: worker.plan.origin.clone(),
                fault,
                pid: worker.pid(),
                restarts: worker.restarts,
                book: worker.plan.book.as_ref().map(ToString::to_string),
                rate: self.rates.status(&worker.plan.name),
                status: status.map(|status| self.completed(&worker.plan.name, status, targets)),
            }
        });
        let groups = groups.collect();
        let status = GroupsStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            supervisor_bytes: self.own_memory.resident_bytes().unwrap_or(0),
            net_mib: 0.0,
            written_on_host,
            moves_told: self.discovery.processes().has_move_events(),
            moves_lost: self.discovery.processes().moves_lost(),
            groups,
            redistribution: self.redistribution.status(),
        };
        status.sum_up()
    }

    /// The status of one group.
    fn group(&mut self, name: &str) -> Answer {
        let at = match self.position(name) {
            Ok(at) => at,
            Err(line) => return Answer::Error(line),
        };
        let worker = &mut self.workers[at];
        match worker.answer() {
            Ok(Answer::Status(status)) => {
                let id = worker.id;
                let targets = self.followed().remove(&id).unwrap_or_default();
                Answer::Status(self.completed(name, status, targets))
            }
            Ok(Answer::Error(line)) | Err(line) => Answer::Error(format!("group {name}: {line}")),
            Ok(_) => Answer::Error(format!("group {name}: {ANOTHER_QUESTION}")),
        }
    }

    /// The names of the groups, for an error.
    fn names(&self) -> String {
        let names: Vec<&str> = self.workers.iter().map(|w| w.plan.name.as_str()).collect();
        format!("there are {}", names.join(", "))
    }

    /// Figures of each process of a group: its worker reports spaces.
    fn processes_of(&mut self, name: &str) -> Answer {
        let at = match self.position(name) {
            Ok(at) => at,
            Err(line) => return Answer::Error(line),
        };
        let worker = &mut self.workers[at];
        match worker.answer() {
            Ok(Answer::Spaces(spaces)) => {
                let id = worker.id;
                let mut followed = self.discovery.processes().targets();
                followed.retain(|target| target.group == id);
                Answer::Processes(Box::new(spaces.of_processes(followed)))
            }
            Ok(Answer::Error(line)) | Err(line) => Answer::Error(format!("group {name}: {line}")),
            Ok(_) => Answer::Error(format!("group {name}: {ANOTHER_QUESTION}")),
        }
    }

    /// Processes followed and not attached, by group.
    fn followed(&self) -> BTreeMap<GroupId, (u64, Vec<FailedProcess>)> {
        let mut of: BTreeMap<GroupId, (u64, Vec<FailedProcess>)> = BTreeMap::new();
        for target in self.discovery.processes().targets() {
            of.entry(target.group).or_default().0 += 1;
        }
        for (pid, group, errno) in self.discovery.processes().failures() {
            let failed = FailedProcess::of(pid, errno);
            of.entry(group).or_default().1.push(failed);
        }
        of
    }

    /// A worker's status with the supervisor's figures.
    fn completed(
        &self,
        name: &str,
        mut status: Box<Status>,
        (followed, failed): (u64, Vec<FailedProcess>),
    ) -> Box<Status> {
        let targets = &mut status.targets;
        targets.processes = followed;
        targets.failed = failed;
        targets.unread += self.discovery.processes().unread();
        targets.told = self.discovery.processes().has_events();
        targets.events_lost = self.discovery.processes().events_lost();
        if let Some(worker) = self.workers.iter().find(|worker| worker.plan.name == name) {
            let locked = self.discovery.processes().locked_of(worker.id);
            targets.add_locked(locked.map(|(pid, time)| (pid, seconds(time))));
        }
        status.ledger = self.ledger_writer.totals(name);
        if status.hints.source == BY_SUPERVISOR {
            status.hints.source = self.hint_dispatch.source();
            let missing = self.hint_dispatch.programs().map(Hints::missing);
            status.hints.unwatched = missing.unwrap_or_default().to_vec();
        }
        status
    }

    /// The evidence on a process; its group's worker was asked.
    fn explain(&mut self, pid: u32) -> Answer {
        let state = self.discovery.processes().state_of(pid);
        let group = match state {
            ProcessState::Followed(group, _)
            | ProcessState::Failed(group, _)
            | ProcessState::Leaving(group) => Some(group),
            _ => None,
        };
        let mut workers = self.workers.iter_mut();
        let answered = workers.find_map(|worker| Some((worker.id, worker.take_answer()?)));
        let mut evidence = match (state, answered) {
            (ProcessState::Followed(of, _), Some((asked, answer))) if of == asked => match answer {
                Ok(Answer::Explained(evidence)) => evidence,
                Ok(Answer::Error(line)) | Err(line) => {
                    Box::new(Evidence::of(ProcessStanding::Followed, Some(line)))
                }
                Ok(_) => return Answer::Error(ANOTHER_QUESTION.to_owned()),
            },
            (other, _) => match unfollowed(other) {
                Some(evidence) => Box::new(evidence),
                // The process, or its group, is about to come or to go.
                None => Box::new(Evidence::of(ProcessStanding::Leaving, None)),
            },
        };
        let worker = group.and_then(|id| self.workers.of_group(id));
        evidence.group = worker.map(|worker| worker.plan.name.clone());
        Answer::Explained(evidence)
    }
}
