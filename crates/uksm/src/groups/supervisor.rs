//! The supervisor: keeps a worker for each group, and looks for processes for all of them.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use uksm_linux::clock;
use uksm_linux::proc::{OwnMemory, Proc};
use uksm_linux::processes::Processes;
use uksm_linux::selection::{Cgroup, GroupId, Grouping};
use uksm_linux::wake::Sleeper;
use uksm_policy::command::Nanos;

use super::accounts::Accounts;
use super::ears::Ears;
use super::giving::Giving;
use super::pace::Pace;
use super::upkeep::{START_TIMEOUT, Upkeep};
use super::{Plan, keeping};
use crate::cli::RootArgs;
use crate::control::Control;
use crate::{run, seed};

/// How often systemd is told how things are.
const NOTIFY_INTERVAL: Duration = Duration::from_secs(10);

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
    run::raise_descriptor_limit();
    let proc = Proc::at(&roots.proc_root);
    let own_memory = proc.own_memory()?;
    let processes =
        Processes::of_groups(proc, Grouping::default()).context("cannot watch processes")?;
    let mut processes = processes.for_others();
    if let Some(connector) = run::events() {
        processes = processes.told_by(connector);
    }
    let ears = Ears::new().context("cannot watch workers")?;
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
        own_memory,
        processes,
        is_told: false,
        attachable: BTreeSet::new(),
        pace: Pace::new(0.0),
        ears,
        groups: 0,
        sleeper,
        control,
        giving: Giving::new(&roots.proc_root, &daemon),
        accounts: Accounts::new(&daemon),
        started: Instant::now(),
    };
    let mut kept = keeping::kept();
    for plan in plans {
        let domain = kept.remove(&plan.name);
        let worker = supervisor.upkeep(plan, domain)?;
        supervisor.workers.push(worker);
    }
    supervisor.regroup();
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
    pub(super) own_memory: OwnMemory,
    pub(super) processes: Processes,
    /// An event of processes has come.
    pub(super) is_told: bool,
    /// Groups whose domain the processes know of.
    pub(super) attachable: BTreeSet<GroupId>,
    pub(super) pace: Pace,
    pub(super) ears: Ears,
    /// Groups there have ever been.
    groups: u32,
    pub(super) sleeper: Sleeper,
    control: Control,
    pub(super) giving: Giving,
    pub(super) accounts: Accounts,
    pub(super) started: Instant,
}

impl Supervisor<'_> {
    /// A group that is not started yet, with the domain of its name that was kept, if it is of its seed.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub(super) fn upkeep(&mut self, plan: Plan, kept: Option<OwnedFd>) -> anyhow::Result<Upkeep> {
        let daemon = &plan.resolved.daemon;
        let place = seed::of_group(&daemon.socket, &plan.name);
        let seed = seed::given_or_inherited(daemon.seed, &place)?;
        let domain = kept.and_then(|file| keeping::of_seed(file, &daemon.device, seed));
        self.groups += 1;
        let id = GroupId(self.groups);
        let account = self.accounts.of_group(&plan, domain.as_ref());
        let roots = self.roots.clone();
        Ok(Upkeep::new(id, (plan, seed), roots, domain, account))
    }

    /// The groups have changed: all processes are looked at again.
    pub(super) fn regroup(&mut self) {
        self.processes.regroup(Supervisor::grouping(&self.workers));
        self.pace.begin_again(Supervisor::share(&self.workers));
    }

    fn work(&mut self) -> anyhow::Result<()> {
        for worker in &mut self.workers {
            worker.start(&self.ears);
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
        let interval = Nanos::try_from(interval.as_nanos()).unwrap_or(Nanos::MAX);
        let mut next_notice = clock::now();
        while !self.sleeper.stopping() {
            self.hear();
            self.keep_up();
            self.look()?;
            self.measure()?;
            self.tell();
            self.give();
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
            if clock::now() >= next_notice {
                next_notice = clock::now().saturating_add(interval);
                self.notify_systemd();
            }
            self.sleep(next_notice);
        }
        run::tell_systemd(&[sd_notify::NotifyState::Stopping]);
        Ok(())
    }

    /// Reads the configuration, and does as it says.
    pub(super) fn reload(&mut self) -> Result<(), String> {
        let plans = (self.load)()?;
        if plans.iter().any(|plan| plan.book.is_some()) {
            check_cgroups().map_err(|error| error.to_string())?;
        }
        let _logged = self.account();
        self.take_over(plans)?;
        tracing::info!("reloaded, {} groups", self.workers.len());
        Ok(())
    }

    /// Starts what is to be started; it says by itself when it works.
    pub(super) fn keep_up(&mut self) {
        for worker in &mut self.workers {
            worker.start(&self.ears);
        }
    }

    fn notify_systemd(&self) {
        let running = self.workers.iter().filter(|w| w.pid().is_some()).count();
        let text = format!("{running} of {} groups run", self.workers.len());
        run::tell_systemd(&[
            sd_notify::NotifyState::Watchdog,
            sd_notify::NotifyState::Status(&text),
        ]);
    }

    /// Stops all workers.
    fn stop(&mut self) {
        self.giving.end();
        let _logged = self.account();
        self.workers.iter_mut().for_each(Upkeep::let_go);
        self.workers.iter_mut().for_each(Upkeep::end);
        for worker in &mut self.workers {
            let _logged = worker.write_account(None);
        }
    }
}
