//! Tasks for a client, a signal or the clock, while the supervisor's loop goes on.
//!
//! # Problem
//! Most requests need answers of workers, the end of some workers, or minutes of breaking. The
//! supervisor's one thread also takes memory back when the host gets short of it, and every group
//! waits for it: it must not wait for any worker, whose control group can stop it at any time.
//!
//! # Approach
//! One [`Task`] at a time, as clients are served one after the other. It asks workers, and checks
//! once a turn whether they have answered; after its deadline it continues without the missing
//! answers, and names those workers. A change of groups takes four stages: accounts are written,
//! workers of changed groups end, pages that may no longer be shared are broken
//! ([`UnmergeThreads`]), and the new groups are applied
//! ([`crate::groups::supervisor::turns::reload`]). The change is reported as done only after the
//! last stage.
//!
//! These are methods of the supervisor, because a task uses and changes all its parts.

use std::collections::BTreeMap;
use std::time::Instant;

use uksm_linux::selection::{GroupId, Selectors};
use uksm_linux::unmerge::UnmergeSummary;
use uksm_policy::command::SpaceId;
use uksm_policy::report::counted;

use crate::control::{Answer, PendingRequest, Request};
use crate::groups::supervisor::Supervisor;
use crate::groups::supervisor::group_change::GroupChange;
use crate::groups::supervisor::group_commands::wanted_by;
use crate::groups::supervisor::task::{
    ANSWER_TIMEOUT, BREAK_TIMEOUT, END_TIMEOUT, Job, MAX_REQUEST_SPACES, MAX_ROUNDS, Regrouping,
    STALL_TIMEOUT, Task, TaskProgress, UnmergeTask,
};
use crate::groups::supervisor::turns::process_discovery::Domains;
use crate::groups::supervisor::unmerge_threads::UnmergeThreads;
use crate::groups::supervisor::worker_process::WorkerProcess;
use crate::selectors::SelectorTexts;

impl Supervisor<'_> {
    /// Begins a client's request, or answers it at once.
    pub(in crate::groups::supervisor) fn handle(&mut self, pending: PendingRequest) {
        match self.job(&pending.request) {
            Ok(job) => self.begin(Some(pending), job),
            Err(answer) => pending.answer(answer),
        }
    }

    /// Begins to read the configuration again and to apply it.
    pub(in crate::groups::supervisor) fn begin_reload(&mut self) {
        match self.wanted_by_file() {
            Ok(wanted) => {
                self.ledger_writer.ask(&mut self.workers, |_| true);
                self.begin(None, Job::Account(Some(Box::new(wanted))));
            }
            Err(line) => tracing::error!("not reloaded: {line}"),
        }
    }

    /// Begins a task.
    pub(in crate::groups::supervisor) fn begin(&mut self, asked: Option<PendingRequest>, job: Job) {
        let timeout = match &job {
            Job::Break(_) => BREAK_TIMEOUT,
            _ => ANSWER_TIMEOUT,
        };
        let until = Instant::now() + timeout;
        self.task = Some(Task { asked, job, until });
    }

    /// The job of a request.
    ///
    /// # Errors
    /// No job is needed: the answer.
    fn job(&mut self, request: &Request) -> Result<Job, Answer> {
        let change = |wanted: Result<GroupChange, String>| wanted.map_err(Answer::Error);
        let wanted = match request {
            Request::Reload => change(self.wanted_by_file())?,
            Request::Change(wanted) => change(wanted_by(
                wanted,
                &self.configuration,
                &self.workers.plans(),
            ))?,
            Request::Account => {
                self.ledger_writer.ask(&mut self.workers, |_| true);
                return Ok(Job::Account(None));
            }
            Request::Break(texts) => return self.unmerge_task(texts).map_err(Answer::Error),
            _ => return self.ask_workers(request).map(|()| Job::Answer),
        };
        self.ledger_writer.ask(&mut self.workers, |_| true);
        Ok(Job::Account(Some(Box::new(wanted))))
    }

    /// Continues the task. Answers whether it has ended, so that another one may begin.
    pub(in crate::groups::supervisor) fn continue_task(&mut self) -> bool {
        let Some(Task {
            asked,
            mut job,
            mut until,
        }) = self.task.take()
        else {
            return false;
        };
        let request = asked.as_ref().map(|pending| &pending.request);
        let answer = loop {
            job = match self.step(job, request, &mut until) {
                TaskProgress::Done(answer) => break answer,
                TaskProgress::Next(job) => job,
                TaskProgress::Waits(job) => {
                    self.task = Some(Task { asked, job, until });
                    return false;
                }
            }
        };
        match (asked, answer) {
            (Some(pending), answer) => pending.answer(answer),
            (None, Answer::Error(line)) => tracing::error!("not reloaded: {line}"),
            (None, _) => {}
        }
        true
    }

    fn step(&mut self, job: Job, request: Option<&Request>, until: &mut Instant) -> TaskProgress {
        let is_late = Instant::now() >= *until;
        match job {
            Job::Answer | Job::Account(_) if !is_late && self.are_asked() => {
                TaskProgress::Waits(job)
            }
            Job::Answer => TaskProgress::Done(self.answer(request.unwrap_or(&Request::Status))),
            Job::Account(None) => TaskProgress::Done(self.ledger_writer.write(&mut self.workers)),
            Job::Account(Some(wanted)) => {
                // A failed write was logged; its amounts are in the next record.
                let _logged = self.ledger_writer.write(&mut self.workers);
                self.end_affected(
                    Box::new(Regrouping {
                        wanted: *wanted,
                        breaking: UnmergeThreads::new(),
                        unmerged: BTreeMap::new(),
                        faults: BTreeMap::new(),
                        rounds: 0,
                    }),
                    until,
                )
            }
            Job::Break(mut unmerge) => match self.continue_unmerge(&mut unmerge, is_late) {
                Some(answer) => TaskProgress::Done(answer),
                None => TaskProgress::Waits(Job::Break(unmerge)),
            },
            Job::EndWorkers(regrouping)
                if !is_late && self.are_any(&regrouping.wanted, |w| !w.has_ended()) =>
            {
                TaskProgress::Waits(Job::EndWorkers(regrouping))
            }
            Job::EndWorkers(mut regrouping) => {
                *until = Instant::now() + BREAK_TIMEOUT;
                self.unmerge_more(&mut regrouping);
                TaskProgress::Next(Job::Unmerge(regrouping))
            }
            Job::Unmerge(mut regrouping) => {
                if !self.is_unmerged(&mut regrouping, is_late) {
                    TaskProgress::Waits(Job::Unmerge(regrouping))
                } else if self.are_any(&regrouping.wanted, |worker| worker.pid().is_some()) {
                    // A rule has formed the group meanwhile.
                    self.end_affected(regrouping, until)
                } else {
                    TaskProgress::Done(self.apply_regrouping(*regrouping))
                }
            }
        }
    }

    /// Whether `is_so` holds for any of the groups that are to change.
    fn are_any(&self, wanted: &GroupChange, is_so: impl Fn(&WorkerProcess) -> bool) -> bool {
        let affected = self.affected(wanted);
        let mut workers = self.workers.iter();
        workers.any(|worker| affected.iter().any(|(id, _)| *id == worker.id) && is_so(worker))
    }

    /// Whether an answer of a worker is missing.
    fn are_asked(&self) -> bool {
        self.workers.iter().any(WorkerProcess::is_asked)
    }

    /// Ends the workers of groups that are to change.
    fn end_affected(&mut self, regrouping: Box<Regrouping>, until: &mut Instant) -> TaskProgress {
        for (id, _) in self.affected(&regrouping.wanted) {
            if let Some(worker) = self.workers.of_group_mut(id) {
                worker.end();
            }
        }
        *until = Instant::now() + END_TIMEOUT;
        TaskProgress::Next(Job::EndWorkers(regrouping))
    }

    /// Breaks unbroken spaces of groups that may not share them any more. Answers whether there are
    /// any.
    fn unmerge_more(&mut self, regrouping: &mut Regrouping) -> bool {
        let mut are_any = false;
        for (id, _) in self
            .affected(&regrouping.wanted)
            .into_iter()
            .filter(|of| of.1)
        {
            let Some(worker) = self.workers.of_group(id) else {
                continue;
            };
            let unmerged = regrouping.unmerged.entry(id).or_default();
            let spaces = worker.handover.living();
            let spaces: Vec<SpaceId> = spaces.filter(|&space| unmerged.insert(space)).collect();
            if !spaces.is_empty() {
                are_any = true;
                regrouping.breaking.add(id, worker.domain.as_ref(), spaces);
            }
        }
        are_any
    }

    /// Takes the results of breaking. Answers whether all is broken.
    fn is_unmerged(&mut self, regrouping: &mut Regrouping, is_late: bool) -> bool {
        loop {
            let is_done = regrouping.breaking.start_next(|| self.sleeper.waker());
            for (id, done) in regrouping.breaking.take() {
                let line = match done {
                    Ok(done) if done.stopped + done.locked == 0 => continue,
                    Ok(done) if done.stopped == 0 => format!(
                        "{} held the lock of its own mappings",
                        counted(done.locked, "process", "processes")
                    ),
                    Ok(done) => format!(
                        "in {} memory does not suffice for copies",
                        counted(done.stopped, "process", "processes")
                    ),
                    Err(line) => line,
                };
                regrouping.faults.insert(id, line);
            }
            if !is_done && is_late {
                for id in regrouping.breaking.unfinished() {
                    let line = "its pages were not all broken in time".to_owned();
                    regrouping.faults.insert(id, line);
                }
                return true;
            }
            if !is_done {
                return false;
            }
            regrouping.rounds += 1;
            if regrouping.rounds >= MAX_ROUNDS || !self.unmerge_more(regrouping) {
                return true;
            }
        }
    }

    /// No page is shared that may not be: applies the new groups.
    fn apply_regrouping(&mut self, regrouping: Regrouping) -> Answer {
        match self.apply(regrouping.wanted, &regrouping.faults) {
            Ok(()) => Answer::Changed {
                groups: self.workers.len() as u64,
            },
            Err(line) => Answer::Error(line),
        }
    }

    /// Asks workers to break the shared pages of the selected processes.
    ///
    /// # Errors
    /// One line: an invalid selector.
    fn unmerge_task(&mut self, texts: &SelectorTexts) -> Result<Job, String> {
        let selectors: Selectors = texts.try_into()?;
        selectors.check_units(self.discovery.processes().proc())?;
        let grouping = self.discovery.processes_mut().grouping();
        grouping.has_room_for(&selectors)?;
        let mut spaces: BTreeMap<GroupId, Vec<u32>> = BTreeMap::new();
        for target in self.discovery.processes().chosen(&selectors) {
            spaces.entry(target.group).or_default().push(target.space.0);
        }
        let mut unmerge = UnmergeTask {
            selectors,
            left: BTreeMap::new(),
            checked_at: Instant::now(),
            cpu: BTreeMap::new(),
            breaking: UnmergeThreads::new(),
            done: UnmergeSummary::default(),
            faults: Vec::new(),
        };
        for worker in self.workers.iter_mut() {
            let Some(spaces) = spaces.remove(&worker.id) else {
                continue;
            };
            // It may not have received all of them.
            worker.send_spaces();
            let chunks = spaces.chunks(MAX_REQUEST_SPACES).map(<[u32]>::to_vec);
            unmerge.left.insert(worker.id, chunks.collect());
            unmerge.cpu.insert(worker.id, worker.account.cpu());
            unmerge.ask_next(worker);
        }
        Ok(Job::Break(Box::new(unmerge)))
    }

    fn continue_unmerge(&mut self, unmerge: &mut UnmergeTask, is_late: bool) -> Option<Answer> {
        unmerge
            .left
            .retain(|id, _| self.workers.of_group(*id).is_some());
        let is_look = unmerge.checked_at.elapsed() >= STALL_TIMEOUT;
        for worker in self.workers.iter_mut() {
            if !unmerge.left.contains_key(&worker.id) {
                continue;
            }
            if is_look && worker.is_asked() {
                let cpu = worker.account.cpu();
                if unmerge.cpu.insert(worker.id, cpu) == Some(cpu) {
                    // A stopped worker merges nothing, and unmerges these processes when it
                    // continues.
                    worker.take_answer();
                    unmerge.do_without(worker);
                    continue;
                }
            }
            if is_late || !worker.is_asked() {
                unmerge.take_in(worker, is_late);
            }
        }
        if is_look {
            unmerge.checked_at = Instant::now();
        }
        let is_done = unmerge.breaking.start_next(|| self.sleeper.waker());
        for (id, done) in unmerge.breaking.take() {
            match done {
                Ok(done) => unmerge.done += done,
                Err(line) => {
                    let worker = self.workers.of_group(id);
                    let name = worker.map_or("", |worker| worker.plan.name.as_str());
                    unmerge.faults.push(format!("group {name}: {line}"));
                }
            }
        }
        if !is_late && (!is_done || !unmerge.left.is_empty()) {
            return None;
        }
        if !is_done {
            unmerge
                .faults
                .push("not all pages were broken in time".to_owned());
        }
        // Pages that could not be broken now are broken when a worker runs: a process that leaves a
        // group is unmerged.
        let selectors = std::mem::take(&mut unmerge.selectors);
        let mut domains = Domains(&mut self.workers);
        let processes = self.discovery.processes_mut();
        if let Err(error) = processes.exclude(selectors, &mut domains) {
            return Some(Answer::Error(error.to_string()));
        }
        self.discovery.search_soon();
        let done = unmerge.done;
        Some(match unmerge.faults.is_empty() {
            true => Answer::Broken {
                processes: done.processes,
                pages: done.pages,
                stopped: done.stopped,
                locked: done.locked,
            },
            false => Answer::Error(format!(
                "{}; {} were broken",
                unmerge.faults.join("; "),
                counted(done.pages, "page", "pages")
            )),
        })
    }
}
