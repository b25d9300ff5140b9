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
//! workers of changed groups end, pages that may no longer be shared are broken ([`Breaking`]), and
//! the new groups are applied ([`crate::groups::supervisor::turns::reload`]). The change is
//! reported as done only after the last stage.
//!
//! These are methods of the supervisor, because a task uses and changes all its parts.

use std::collections::BTreeMap;
use std::time::Instant;

use uksm_linux::breaking::BreakUp;
use uksm_linux::selection::{GroupId, Selectors};
use uksm_policy::command::SpaceId;
use uksm_policy::report::counted;

use crate::control::{Answer, Pending, Request};
use crate::groups::supervisor::Supervisor;
use crate::groups::supervisor::breaking::Breaking;
use crate::groups::supervisor::group_commands::wanted_by;
use crate::groups::supervisor::task::{
    ANSWER_TIMEOUT, Altering, BREAK_TIMEOUT, Chosen, END_TIMEOUT, Job, MAX_ROUNDS, MAX_SPACES,
    Progress, STALLED, Task,
};
use crate::groups::supervisor::turns::process_discovery::Domains;
use crate::groups::supervisor::wanted::Wanted;
use crate::groups::supervisor::worker_process::WorkerProcess;
use crate::selectors::SelectorTexts;

impl Supervisor<'_> {
    /// Begins a client's request, or answers it at once.
    pub(in crate::groups::supervisor) fn handle(&mut self, pending: Pending) {
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
    pub(in crate::groups::supervisor) fn begin(&mut self, asked: Option<Pending>, job: Job) {
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
        let change = |wanted: Result<Wanted, String>| wanted.map_err(Answer::Error);
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
            Request::Break(texts) => return self.chosen(texts).map_err(Answer::Error),
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
                Progress::Done(answer) => break answer,
                Progress::Next(job) => job,
                Progress::Waits(job) => {
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

    fn step(&mut self, job: Job, request: Option<&Request>, until: &mut Instant) -> Progress {
        let is_late = Instant::now() >= *until;
        match job {
            Job::Answer | Job::Account(_) if !is_late && self.are_asked() => Progress::Waits(job),
            Job::Answer => Progress::Done(self.answer(request.unwrap_or(&Request::Status))),
            Job::Account(None) => Progress::Done(self.ledger_writer.write(&mut self.workers)),
            Job::Account(Some(wanted)) => {
                // A failed write was logged; its amounts are in the next record.
                let _logged = self.ledger_writer.write(&mut self.workers);
                self.end_affected(
                    Box::new(Altering {
                        wanted: *wanted,
                        breaking: Breaking::new(),
                        parted: BTreeMap::new(),
                        faults: BTreeMap::new(),
                        rounds: 0,
                    }),
                    until,
                )
            }
            Job::Break(mut chosen) => match self.go_on_breaking(&mut chosen, is_late) {
                Some(answer) => Progress::Done(answer),
                None => Progress::Waits(Job::Break(chosen)),
            },
            Job::End(altering)
                if !is_late && self.are_any(&altering.wanted, |w| !w.has_ended()) =>
            {
                Progress::Waits(Job::End(altering))
            }
            Job::End(mut altering) => {
                *until = Instant::now() + BREAK_TIMEOUT;
                self.break_more(&mut altering);
                Progress::Next(Job::Part(altering))
            }
            Job::Part(mut altering) => {
                if !self.has_parted(&mut altering, is_late) {
                    Progress::Waits(Job::Part(altering))
                } else if self.are_any(&altering.wanted, |worker| worker.pid().is_some()) {
                    // A rule has formed the group meanwhile.
                    self.end_affected(altering, until)
                } else {
                    Progress::Done(self.altered(*altering))
                }
            }
        }
    }

    /// Whether `is_so` holds for any of the groups that are to change.
    fn are_any(&self, wanted: &Wanted, is_so: impl Fn(&WorkerProcess) -> bool) -> bool {
        let affected = self.affected(wanted);
        let mut workers = self.workers.iter();
        workers.any(|worker| affected.iter().any(|(id, _)| *id == worker.id) && is_so(worker))
    }

    /// Whether an answer of a worker is missing.
    fn are_asked(&self) -> bool {
        self.workers.iter().any(WorkerProcess::is_asked)
    }

    /// Ends the workers of groups that are to change.
    fn end_affected(&mut self, altering: Box<Altering>, until: &mut Instant) -> Progress {
        for (id, _) in self.affected(&altering.wanted) {
            if let Some(worker) = self.workers.of_group_mut(id) {
                worker.end();
            }
        }
        *until = Instant::now() + END_TIMEOUT;
        Progress::Next(Job::End(altering))
    }

    /// Breaks unbroken spaces of groups that may not share them any more. Answers whether there are
    /// any.
    fn break_more(&mut self, altering: &mut Altering) -> bool {
        let mut are_any = false;
        for (id, _) in self
            .affected(&altering.wanted)
            .into_iter()
            .filter(|of| of.1)
        {
            let Some(worker) = self.workers.of_group(id) else {
                continue;
            };
            let parted = altering.parted.entry(id).or_default();
            let spaces = worker.handover.living();
            let spaces: Vec<SpaceId> = spaces.filter(|&space| parted.insert(space)).collect();
            if !spaces.is_empty() {
                are_any = true;
                altering.breaking.add(id, worker.domain.as_ref(), spaces);
            }
        }
        are_any
    }

    /// Takes the results of breaking. Answers whether all is broken.
    fn has_parted(&mut self, altering: &mut Altering, is_late: bool) -> bool {
        loop {
            let is_done = altering.breaking.go_on(|| self.sleeper.waker());
            for (id, done) in altering.breaking.take() {
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
                altering.faults.insert(id, line);
            }
            if !is_done && is_late {
                for id in altering.breaking.unfinished() {
                    let line = "its pages were not all broken in time".to_owned();
                    altering.faults.insert(id, line);
                }
                return true;
            }
            if !is_done {
                return false;
            }
            altering.rounds += 1;
            if altering.rounds >= MAX_ROUNDS || !self.break_more(altering) {
                return true;
            }
        }
    }

    /// No page is shared that may not be: applies the new groups.
    fn altered(&mut self, altering: Altering) -> Answer {
        match self.apply(altering.wanted, &altering.faults) {
            Ok(()) => Answer::Changed {
                groups: self.workers.len() as u64,
            },
            Err(line) => Answer::Error(line),
        }
    }

    /// Asks workers to break the shared pages of the chosen processes.
    ///
    /// # Errors
    /// One line: an invalid selector.
    fn chosen(&mut self, texts: &SelectorTexts) -> Result<Job, String> {
        let selectors: Selectors = texts.try_into()?;
        selectors.check_units(self.discovery.processes().proc())?;
        let grouping = self.discovery.processes_mut().grouping();
        grouping.has_room_for(&selectors)?;
        let mut spaces: BTreeMap<GroupId, Vec<u32>> = BTreeMap::new();
        for target in self.discovery.processes().chosen(&selectors) {
            spaces.entry(target.group).or_default().push(target.space.0);
        }
        let mut chosen = Chosen {
            selectors,
            left: BTreeMap::new(),
            taken: (Instant::now(), BTreeMap::new()),
            breaking: Breaking::new(),
            done: BreakUp::default(),
            faults: Vec::new(),
        };
        for worker in self.workers.iter_mut() {
            let Some(spaces) = spaces.remove(&worker.id) else {
                continue;
            };
            // It may not have received all of them.
            worker.send_spaces();
            let chunks = spaces.chunks(MAX_SPACES).map(<[u32]>::to_vec);
            chosen.left.insert(worker.id, chunks.collect());
            chosen.taken.1.insert(worker.id, worker.account.cpu());
            chosen.ask_next(worker);
        }
        Ok(Job::Break(Box::new(chosen)))
    }

    fn go_on_breaking(&mut self, chosen: &mut Chosen, is_late: bool) -> Option<Answer> {
        chosen
            .left
            .retain(|id, _| self.workers.of_group(*id).is_some());
        let is_look = chosen.taken.0.elapsed() >= STALLED;
        for worker in self.workers.iter_mut() {
            if !chosen.left.contains_key(&worker.id) {
                continue;
            }
            if is_look && worker.is_asked() {
                let cpu = worker.account.cpu();
                if chosen.taken.1.insert(worker.id, cpu) == Some(cpu) {
                    // A stopped worker merges nothing, and unmerges these processes when it
                    // continues.
                    worker.take_answer();
                    chosen.do_without(worker);
                    continue;
                }
            }
            if is_late || !worker.is_asked() {
                chosen.take_in(worker, is_late);
            }
        }
        if is_look {
            chosen.taken.0 = Instant::now();
        }
        let is_done = chosen.breaking.go_on(|| self.sleeper.waker());
        for (id, done) in chosen.breaking.take() {
            match done {
                Ok(done) => chosen.done += done,
                Err(line) => {
                    let worker = self.workers.of_group(id);
                    let name = worker.map_or("", |worker| worker.plan.name.as_str());
                    chosen.faults.push(format!("group {name}: {line}"));
                }
            }
        }
        if !is_late && (!is_done || !chosen.left.is_empty()) {
            return None;
        }
        if !is_done {
            chosen
                .faults
                .push("not all pages were broken in time".to_owned());
        }
        // Pages that could not be broken now are broken when a worker runs: a process that leaves a
        // group is unmerged.
        let selectors = std::mem::take(&mut chosen.selectors);
        let mut domains = Domains(&mut self.workers);
        let processes = self.discovery.processes_mut();
        if let Err(error) = processes.exclude(selectors, &mut domains) {
            return Some(Answer::Error(error.to_string()));
        }
        self.discovery.hurry();
        let done = chosen.done;
        Some(match chosen.faults.is_empty() {
            true => Answer::Broken {
                processes: done.processes,
                pages: done.pages,
                stopped: done.stopped,
                locked: done.locked,
            },
            false => Answer::Error(format!(
                "{}; {} were broken",
                chosen.faults.join("; "),
                counted(done.pages, "page", "pages")
            )),
        })
    }
}
