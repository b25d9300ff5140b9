//! What the supervisor answers: it asks its workers, and adds what only it knows.

use std::collections::BTreeMap;

use uksm_linux::hints::Hints;
use uksm_linux::processes::Whereabouts;
use uksm_linux::selection::{GroupId, Selectors};

use super::supervisor::Supervisor;
use super::upkeep::{ANOTHER_QUESTION, Upkeep};
use super::watching::Domains;
use crate::control::{Answer, Pending, Request};
use crate::explain::evidence::{Evidence, Place};
use crate::selectors::SelectorTexts;
use crate::status::groups::{GroupStatus, GroupsStatus};
use crate::status::{Failed, Status};
use crate::worker::BY_SUPERVISOR;
use crate::worker::explaining::unfollowed;

/// Most spaces of one question.
const MOST_SPACES: usize = 8192;

/// Pages broken: processes, pages, processes in which memory did not suffice.
pub(super) type Broken = (u64, u64, u64);

impl Supervisor<'_> {
    /// Answers a question.
    pub(super) fn attend(&mut self, pending: &Pending) {
        let answer = match &pending.request {
            Request::Status => Answer::Groups(Box::new(self.status())),
            Request::Group(name) => self.group(name),
            Request::Break(texts) => self.break_chosen(texts),
            Request::Account => self.accounted(),
            Request::Reload => match self.reload() {
                Ok(()) => Answer::Changed {
                    groups: self.workers.len() as u64,
                },
                Err(line) => Answer::Error(line),
            },
            Request::Change(change) => self.change(change),
            Request::Explain { pid, from } => self.explain(*pid, *from),
            Request::Processes(group) => self.processes_of(group.as_deref()),
            Request::BreakSpaces(_) | Request::ExplainSpace { .. } | Request::Spaces => {
                Answer::Error("only workers are asked that".to_owned())
            }
        };
        pending.answer(answer);
    }

    /// Asks all workers at once; what each answers, in their order.
    fn ask_all(&mut self, request: &Request) -> Vec<Result<Answer, String>> {
        let asked = self.workers.iter_mut().map(|worker| worker.ask(request));
        let asked: Vec<Result<(), String>> = asked.collect();
        let answers = asked.into_iter().zip(&mut self.workers);
        answers
            .map(|(asked, worker)| asked.and_then(|()| worker.answer(request)))
            .collect()
    }

    fn status(&mut self) -> GroupsStatus {
        let answers = self.ask_all(&Request::Status);
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
                rate: self.rating.status(&worker.plan.name),
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
            moves_told: self.processes.are_moves_told(),
            moves_lost: self.processes.moves_lost(),
            groups,
            redistribution: self.giving.status(),
        };
        status.sum_up()
    }

    /// What the worker of one group says.
    fn group(&mut self, name: &str) -> Answer {
        let Some(at) = self.workers.iter().position(|w| w.plan.name == name) else {
            return Answer::Error(format!("{name}: no such group: {}", self.names()));
        };
        let worker = &mut self.workers[at];
        match worker.put(&Request::Status) {
            Ok(Answer::Status(status)) => {
                let id = worker.id;
                let targets = self.followed().remove(&id).unwrap_or_default();
                Answer::Status(self.completed(name, status, targets))
            }
            Ok(_) => Answer::Error(format!("group {name}: {ANOTHER_QUESTION}")),
            Err(line) => Answer::Error(format!("group {name}: {line}")),
        }
    }

    /// Which groups there are, for who named none of them.
    fn names(&self) -> String {
        let names: Vec<&str> = self.workers.iter().map(|w| w.plan.name.as_str()).collect();
        format!("there are {}", names.join(", "))
    }

    /// What of each process of a group is merged: its worker tells of spaces.
    fn processes_of(&mut self, group: Option<&str>) -> Answer {
        let Some(name) = group else {
            return Answer::Error(format!("which group? {}", self.names()));
        };
        let Some(worker) = self.workers.iter_mut().find(|w| w.plan.name == name) else {
            return Answer::Error(format!("{name}: no such group: {}", self.names()));
        };
        match worker.put(&Request::Spaces) {
            Ok(Answer::Spaces(spaces)) => {
                let id = worker.id;
                let mut followed = self.processes.targets();
                followed.retain(|target| target.group == id);
                Answer::Processes(Box::new(spaces.of_processes(followed)))
            }
            Ok(_) => Answer::Error(format!("group {name}: {ANOTHER_QUESTION}")),
            Err(line) => Answer::Error(format!("group {name}: {line}")),
        }
    }

    /// Processes followed and not attached, by group.
    fn followed(&self) -> BTreeMap<GroupId, (u64, Vec<Failed>)> {
        let mut of: BTreeMap<GroupId, (u64, Vec<Failed>)> = BTreeMap::new();
        for target in self.processes.targets() {
            of.entry(target.group).or_default().0 += 1;
        }
        for (pid, group, errno) in self.processes.failures() {
            let failed = Failed::of(pid, errno);
            of.entry(group).or_default().1.push(failed);
        }
        of
    }

    /// A worker's status with what only the supervisor knows.
    fn completed(
        &self,
        name: &str,
        mut status: Box<Status>,
        (followed, failed): (u64, Vec<Failed>),
    ) -> Box<Status> {
        let targets = &mut status.targets;
        targets.processes = followed;
        targets.failed = failed;
        targets.unread += self.processes.unread();
        targets.told = self.processes.is_told();
        targets.events_lost = self.processes.events_lost();
        status.ledger = self.accounts.totals(name);
        if status.hints.source == BY_SUPERVISOR {
            status.hints.source = self.hinting.source();
            let missing = self.hinting.programs().map(Hints::missing);
            status.hints.unwatched = missing.unwrap_or_default().to_vec();
        }
        status
    }

    /// What is known of a process: the worker of its group is asked.
    fn explain(&mut self, pid: u32, from: u64) -> Answer {
        let whereabouts = self.processes.whereabouts(pid);
        let group = match whereabouts {
            Whereabouts::Followed(group, _)
            | Whereabouts::Failed(group, _)
            | Whereabouts::Leaving(group) => Some(group),
            _ => None,
        };
        let worker = self.workers.iter_mut().find(|w| Some(w.id) == group);
        let name = worker.as_ref().map(|worker| worker.plan.name.clone());
        let mut evidence = match (whereabouts, worker) {
            (Whereabouts::Followed(_, space), Some(worker)) => {
                // It may not have heard of it.
                worker.tell();
                let request = Request::ExplainSpace {
                    space: space.0,
                    from,
                };
                match worker.put(&request) {
                    Ok(Answer::Explained(evidence)) => evidence,
                    Ok(_) => return Answer::Error(ANOTHER_QUESTION.to_owned()),
                    Err(line) => Box::new(Evidence::of(Place::Followed, Some(line))),
                }
            }
            (other, _) => match unfollowed(other) {
                Some(evidence) => Box::new(evidence),
                // Its group is about to go.
                None => Box::new(Evidence::of(Place::Leaving, None)),
            },
        };
        evidence.group = name;
        Answer::Explained(evidence)
    }

    /// Has workers break what the chosen processes share, and leaves those alone from now on.
    fn break_chosen(&mut self, texts: &SelectorTexts) -> Answer {
        let selectors: Selectors = match texts.try_into() {
            Ok(selectors) => selectors,
            Err(line) => return Answer::Error(line),
        };
        let mut spaces: BTreeMap<GroupId, Vec<u32>> = BTreeMap::new();
        for target in self.processes.chosen(&selectors) {
            let of = spaces.entry(target.group).or_default();
            of.push(target.space.0);
        }
        let mut sum = (0, 0, 0);
        for worker in &mut self.workers {
            let Some(spaces) = spaces.get(&worker.id) else {
                continue;
            };
            match break_spaces(worker, spaces) {
                Ok(broken) => sum = add(sum, broken),
                Err(line) => return Answer::Error(format!("group {}: {line}", worker.plan.name)),
            }
        }
        let mut domains = Domains(&mut self.workers);
        if let Err(error) = self.processes.exclude(selectors, &mut domains) {
            return Answer::Error(error.to_string());
        }
        self.pace.hurry();
        let (processes, pages, stopped) = sum;
        Answer::Broken {
            processes,
            pages,
            stopped,
        }
    }
}

fn add(a: Broken, b: Broken) -> Broken {
    (a.0 + b.0, a.1 + b.1, a.2 + b.2)
}

/// Has a worker break all that these spaces of its share.
///
/// # Errors
/// It does not run, does not answer, or the module fails.
pub(super) fn break_spaces(worker: &mut Upkeep, spaces: &[u32]) -> Result<Broken, String> {
    // It may not have heard of all of them.
    worker.tell();
    let mut sum = (0, 0, 0);
    for spaces in spaces.chunks(MOST_SPACES) {
        match worker.put(&Request::BreakSpaces(spaces.to_vec()))? {
            Answer::Broken {
                processes,
                pages,
                stopped,
            } => sum = add(sum, (processes, pages, stopped)),
            _ => return Err(ANOTHER_QUESTION.to_owned()),
        }
    }
    Ok(sum)
}
