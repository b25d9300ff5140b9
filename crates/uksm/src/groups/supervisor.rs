//! The supervisor: keeps a worker for each group, and answers for all of them.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use uksm_linux::clock;
use uksm_linux::proc::Proc;
use uksm_linux::selection::Cgroup;
use uksm_linux::wake::{Sleeper, Woken};

use super::accounts::Accounts;
use super::upkeep::{ANOTHER_QUESTION, START_TIMEOUT, Upkeep};
use super::{Plan, keeping};
use crate::cli::RootArgs;
use crate::control::{Answer, Control, Pending, Request};
use crate::status::groups::{GroupStatus, GroupsStatus};
use crate::{run, seed};

/// How often systemd is told how things are.
const NOTIFY_INTERVAL: Duration = Duration::from_secs(10);

/// Others wait for a worker that is started again for so long at most.
const RESTART_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs these groups until a stop is asked for.
///
/// # Errors
/// A worker cannot be started: one line, before anything is merged.
pub(crate) fn run(plans: Vec<Plan>, roots: &RootArgs, load: Load<'_>) -> anyhow::Result<()> {
    let Some(first) = plans.first() else {
        return Ok(());
    };
    let daemon = first.resolved.daemon.clone();
    if plans.iter().any(|plan| plan.book.is_some()) {
        check_cgroups()?;
    }
    // What keeps all workers from starting is told before anything is changed.
    drop(run::open(&daemon.device, &roots.ksm_root)?);
    let proc = Proc::at(&roots.proc_root);
    let sleeper = Sleeper::new().context("cannot make a socket pair")?;
    sleeper.stop_on_signals().context("cannot handle SIGTERM")?;
    let waker = sleeper.waker().context("cannot make a socket pair")?;
    let control = Control::listen(&daemon.socket, waker).map_err(|line| anyhow!(line))?;
    let is_reload_due = sleeper
        .note_signal(libc::SIGHUP)
        .context("cannot handle SIGHUP")?;
    let mut supervisor = Supervisor {
        workers: Vec::new(),
        roots: roots.clone(),
        load,
        is_reload_due,
        proc,
        sleeper,
        control,
        accounts: Accounts::new(&daemon),
        started: Instant::now(),
    };
    let mut kept = keeping::kept();
    for plan in plans {
        let domain = kept.remove(&plan.name);
        let worker = supervisor.upkeep(plan, domain)?;
        supervisor.workers.push(worker);
    }
    for group in kept.keys() {
        keeping::let_go(group);
    }
    drop(kept);
    let done = supervisor.work();
    supervisor.stop();
    if done.is_ok() {
        tracing::info!("stopped; merged pages stay merged");
    }
    done
}

/// # Errors
/// There is no tree of control groups v2.
fn check_cgroups() -> anyhow::Result<()> {
    let mount = Cgroup::MOUNT;
    if std::path::Path::new(mount).join("cgroup.procs").exists() {
        return Ok(());
    }
    Err(anyhow!(
        "{mount}: no tree of control groups v2: leave book out, or boot with \
         systemd.unified_cgroup_hierarchy=1"
    ))
}

/// Reads the configuration again.
pub(crate) type Load<'a> = Box<dyn Fn() -> Result<Vec<Plan>, String> + 'a>;

/// All groups.
pub(super) struct Supervisor<'a> {
    /// By name; a group of all others is the last.
    pub(super) workers: Vec<Upkeep>,
    roots: RootArgs,
    load: Load<'a>,
    /// SIGHUP came.
    is_reload_due: Arc<AtomicBool>,
    proc: Proc,
    sleeper: Sleeper,
    control: Control,
    pub(super) accounts: Accounts,
    started: Instant,
}

impl Supervisor<'_> {
    /// A group that is not started yet, with the domain of its name that was kept, if it is of its seed.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub(super) fn upkeep(&self, plan: Plan, kept: Option<OwnedFd>) -> anyhow::Result<Upkeep> {
        let daemon = &plan.resolved.daemon;
        let place = seed::of_group(&daemon.socket, &plan.name);
        let seed = seed::given_or_inherited(daemon.seed, &place)?;
        let domain = kept.and_then(|file| keeping::of_seed(file, &daemon.device, seed));
        let account = self.accounts.of_group(&plan, domain.as_ref());
        Ok(Upkeep::new(plan, seed, self.roots.clone(), domain, account))
    }

    fn work(&mut self) -> anyhow::Result<()> {
        for worker in &mut self.workers {
            worker.start();
        }
        let deadline = Instant::now() + START_TIMEOUT;
        for worker in &mut self.workers {
            let name = worker.plan.name.clone();
            worker
                .welcome(deadline)
                .map_err(|line| anyhow!("group {name}: {line}"))?;
        }
        tracing::info!(
            "uksm {} runs, {} groups",
            env!("CARGO_PKG_VERSION"),
            self.workers.len()
        );
        run::tell_systemd(&[sd_notify::NotifyState::Ready]);
        let interval = run::notify_interval(NOTIFY_INTERVAL);
        let mut next_notice = Instant::now();
        while !self.sleeper.stopping() {
            self.keep_up();
            self.account_if_due();
            if self.is_reload_due.swap(false, Ordering::Relaxed)
                && let Err(line) = self.reload()
            {
                tracing::error!("not reloaded: {line}");
            }
            if let Some(pending) = self.control.next() {
                self.attend(&pending);
                continue;
            }
            if Instant::now() >= next_notice {
                next_notice = Instant::now() + interval;
                self.notify_systemd();
            }
            self.sleep(next_notice);
        }
        run::tell_systemd(&[sd_notify::NotifyState::Stopping]);
        Ok(())
    }

    /// Reads the configuration, and does as it says.
    fn reload(&mut self) -> Result<(), String> {
        let plans = (self.load)()?;
        if plans.iter().any(|plan| plan.book.is_some()) {
            check_cgroups().map_err(|error| error.to_string())?;
        }
        let _logged = self.account();
        self.take_over(plans)?;
        tracing::info!("reloaded, {} groups", self.workers.len());
        Ok(())
    }

    /// Starts what is to be started.
    pub(super) fn keep_up(&mut self) {
        let mut started = Vec::new();
        for (at, worker) in self.workers.iter_mut().enumerate() {
            worker.bury();
            let was_waiting = worker.waiting().is_some();
            worker.start();
            if was_waiting && worker.waiting().is_none() {
                started.push(at);
            }
        }
        let deadline = Instant::now() + RESTART_TIMEOUT;
        for at in started {
            let worker = &mut self.workers[at];
            if let Err(line) = worker.welcome(deadline) {
                tracing::warn!("group {}: {line}", worker.plan.name);
            }
        }
    }

    /// Sleeps until a question, a signal, an exit, or the time of something.
    fn sleep(&mut self, notice: Instant) {
        let waiting = self.workers.iter().filter_map(Upkeep::waiting);
        let until = waiting
            .map(|(until, _)| until)
            .chain([notice, self.accounts.due])
            .min()
            .unwrap_or(notice);
        let left = until.saturating_duration_since(Instant::now());
        let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let exits: Vec<BorrowedFd<'_>> = self.workers.iter().filter_map(Upkeep::exit).collect();
        let until = clock::now().saturating_add(left);
        let _woken: Woken = self.sleeper.sleep(until, &exits);
    }

    fn notify_systemd(&self) {
        let running = self.workers.iter().filter(|w| w.pid().is_some()).count();
        let text = format!("{running} of {} groups run", self.workers.len());
        run::tell_systemd(&[
            sd_notify::NotifyState::Watchdog,
            sd_notify::NotifyState::Status(&text),
        ]);
    }

    fn attend(&mut self, pending: &Pending) {
        let answer = match &pending.request {
            Request::Status => Answer::Groups(Box::new(self.status())),
            Request::Group(name) => self.group(name),
            Request::Break(_) => self.break_pages(&pending.request),
            Request::Account => self.accounted(),
            Request::Reload => match self.reload() {
                Ok(()) => Answer::Reloaded {
                    groups: self.workers.len() as u64,
                },
                Err(line) => Answer::Error(line),
            },
            Request::Select(_) => Answer::Error("only workers are told that".to_owned()),
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
        let groups = self.workers.iter().zip(answers).map(|(worker, answer)| {
            let (status, fault) = match answer {
                Ok(Answer::Status(status)) => (Some(status), None),
                Ok(Answer::Error(line)) | Err(line) => (None, Some(line)),
                Ok(_) => (None, Some(ANOTHER_QUESTION.to_owned())),
            };
            GroupStatus {
                name: worker.plan.name.clone(),
                fault,
                pid: worker.pid(),
                restarts: worker.restarts,
                book: worker.plan.book.as_ref().map(ToString::to_string),
                status,
            }
        });
        let status = GroupsStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            supervisor_bytes: self.proc.own_resident_bytes().unwrap_or(0),
            net_mib: 0.0,
            groups: groups.collect(),
        };
        status.sum_up()
    }

    /// What the worker of one group says.
    fn group(&mut self, name: &str) -> Answer {
        let Some(worker) = self.workers.iter_mut().find(|w| w.plan.name == name) else {
            let names: Vec<&str> = self.workers.iter().map(|w| w.plan.name.as_str()).collect();
            return Answer::Error(format!(
                "{name}: no such group: there are {}",
                names.join(", ")
            ));
        };
        let answer = worker.put(&Request::Status);
        answer.unwrap_or_else(|line| Answer::Error(format!("group {name}: {line}")))
    }

    /// Has all workers break, and adds up what they did.
    fn break_pages(&mut self, request: &Request) -> Answer {
        let mut sum = (0, 0, 0);
        let answers = self.ask_all(request);
        for (worker, answer) in self.workers.iter().zip(answers) {
            match answer {
                Ok(Answer::Broken {
                    processes,
                    pages,
                    stopped,
                }) => sum = (sum.0 + processes, sum.1 + pages, sum.2 + stopped),
                Ok(Answer::Error(line)) | Err(line) => {
                    return Answer::Error(format!("group {}: {line}", worker.plan.name));
                }
                Ok(_) => {}
            }
        }
        Answer::Broken {
            processes: sum.0,
            pages: sum.1,
            stopped: sum.2,
        }
    }

    /// Stops all workers.
    fn stop(&mut self) {
        let _logged = self.account();
        self.workers.iter_mut().for_each(Upkeep::let_go);
        self.workers.iter_mut().for_each(Upkeep::end);
        for worker in &mut self.workers {
            let _logged = worker.write_account(None);
        }
    }
}
