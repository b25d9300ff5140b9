//! The supervisor: one worker for each group, and one search for the processes of all groups.
//!
//! # Approach
//! This file has the state and the loop. Each step of the loop is a turn in `turns/`; a turn may
//! use the state of other turns, and no two files need each other. No turn waits for a worker.

mod account;
mod audit;
mod breaking;
mod discovery_schedule;
mod domain_savings;
mod fd_store;
mod first_start;
mod formed_groups;
mod handover;
mod hint_dispatch;
pub(crate) mod original_limits;
mod placement;
mod rights;
mod task;
mod turns;
mod wanted;
mod worker_events;
mod worker_process;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use discovery_schedule::DiscoverySchedule;
use first_start::FirstStart;
use formed_groups::FormedGroups;
use hint_dispatch::HintDispatch;
use task::{ANSWER_TIMEOUT, END_TIMEOUT, Job, Task};
use turns::hourly_audit::HourlyAudit;
use turns::ledger_writer::LedgerWriter;
use turns::rates::GroupRates;
use turns::redistribution::GroupRedistribution;
use turns::systemd_notices::SystemdNotices;
use uksm_linux::clock;
use uksm_linux::module::Info;
use uksm_linux::proc::{OwnMemory, Proc};
use uksm_linux::processes::Processes;
use uksm_linux::selection::{GroupId, Grouping};
use uksm_linux::wake::Sleeper;
use uksm_policy::report::counted;
use worker_events::WorkerEvents;
use worker_process::WorkerProcess;

use crate::config::cgroups::check_cgroups;
use crate::config::current::Configuration;
use crate::config::plan::Plan;
use crate::config::plans::Plans;
use crate::control::Control;
use crate::paths::Roots;
use crate::status::written::WrittenPages;
use crate::{precedence, seed, startup, systemd};

/// Interval of notices to systemd's watchdog while workers start or end.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// Minimum time until workers are polled again.
const MIN_WAIT: Duration = Duration::from_millis(5);

/// Runs these groups until a stop is asked for.
///
/// # Errors
/// A worker cannot be started: one line, before anything is merged.
pub(crate) fn run(
    plans: Plans,
    roots: &Roots,
    configuration: Configuration<'_>,
) -> anyhow::Result<()> {
    check_cgroups(&plans.groups, &plans.rules, &Proc::at(&roots.proc_root))?;
    let Plans {
        daemon: resolved,
        groups,
        rules,
    } = plans;
    rights::warn_of_missing(&rules);
    let daemon = resolved.daemon.clone();
    // An error that keeps all workers from starting is reported before anything is changed.
    let fresh = startup::open_device(&daemon.device, &roots.ksm_root)?
        .info()
        .ok();
    startup::raise_descriptor_limit();
    // The supervisor's own niceness stays: all workers wait for it.
    precedence::stand_back_as_session(daemon.nice);
    let proc = Proc::at(&roots.proc_root);
    let own_memory = proc.own_memory()?;
    // A rule can read the environment of each process, which can hold that up.
    let proc = proc.with_deadlines();
    let processes =
        Processes::of_groups(proc, Grouping::default()).context("cannot watch processes")?;
    let mut processes = processes.for_others();
    if let Some(connector) = startup::process_events() {
        processes = processes.told_by(connector);
    }
    let worker_events = WorkerEvents::new().context("cannot watch workers")?;
    let sleeper = Sleeper::new().context("cannot make a socket pair")?;
    sleeper.stop_on_signals().context("cannot handle SIGTERM")?;
    let waker = sleeper.waker().context("cannot make a socket pair")?;
    let group = daemon.socket_group.as_deref();
    let control = Control::listen(&daemon.socket, group, waker).map_err(|line| anyhow!(line))?;
    let is_reload_due = sleeper
        .note_signal(libc::SIGHUP)
        .context("cannot handle SIGHUP")?;
    let mut supervisor = Supervisor {
        workers: Vec::new(),
        leaving: Vec::new(),
        task: None,
        roots: roots.clone(),
        configuration,
        told: resolved.texts(),
        formed: FormedGroups::new(rules),
        is_reload_due,
        own_memory,
        processes,
        is_told: false,
        attachable: BTreeSet::new(),
        schedule: DiscoverySchedule::new(0.0),
        worker_events,
        sleeper,
        control,
        redistribution: GroupRedistribution::new(&roots.proc_root, &daemon),
        hint_dispatch: HintDispatch::default(),
        first_start: None,
        has_begun: false,
        ledger_writer: LedgerWriter::new(
            &daemon,
            WrittenPages::from_now_on(roots.proc_root.clone(), roots.ksm_root.clone()),
        ),
        rates: GroupRates::new(&roots.proc_root),
        started: Instant::now(),
        has_taken_over: false,
        fresh,
        is_store_full: false,
    };
    let mut kept = fd_store::stored();
    for plan in groups {
        let domain = kept.remove(&plan.name);
        let worker = supervisor.new_worker(plan, domain)?;
        supervisor.workers.push(worker);
    }
    supervisor.regroup();
    for (group, file) in supervisor.formed.keep(kept) {
        fd_store::give_up(&group, file);
    }
    // Groups that rules form take over their frames later.
    supervisor.has_taken_over |= supervisor.formed.has_kept();
    let done = supervisor.work();
    supervisor.stop();
    if done.is_ok() {
        tracing::info!("stopped; merged pages stay merged");
    }
    done
}

/// All groups.
struct Supervisor<'a> {
    /// Configured groups by name, then a group of all others, then groups that rules have formed.
    workers: Vec<WorkerProcess>,
    /// Workers of removed groups that have not ended.
    leaving: Vec<WorkerProcess>,
    /// The task in progress.
    task: Option<Task>,
    roots: Roots,
    configuration: Configuration<'a>,
    /// The settings of the daemon as a whole.
    told: BTreeMap<String, String>,
    formed: FormedGroups,
    /// SIGHUP was received.
    is_reload_due: Arc<AtomicBool>,
    own_memory: OwnMemory,
    processes: Processes,
    /// A process event has come.
    is_told: bool,
    /// Groups whose domain is known to `processes`.
    attachable: BTreeSet<GroupId>,
    schedule: DiscoverySchedule,
    worker_events: WorkerEvents,
    sleeper: Sleeper,
    control: Control,
    redistribution: GroupRedistribution,
    hint_dispatch: HintDispatch,
    /// Workers that start for the first time, until they work; none before and after that.
    first_start: Option<FirstStart>,
    /// Workers were started.
    has_begun: bool,
    ledger_writer: LedgerWriter,
    rates: GroupRates,
    started: Instant,
    /// Some group continues with a domain of an earlier supervisor.
    has_taken_over: bool,
    /// A domain as the module makes it.
    fresh: Option<Info>,
    /// There are more groups than systemd stores frames of, and a warning was logged.
    is_store_full: bool,
}

impl Supervisor<'_> {
    /// A group that is not started yet. It gets the stored domain of its name, if that has the
    /// group's seed.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    fn new_worker(&mut self, plan: Plan, kept: Option<OwnedFd>) -> anyhow::Result<WorkerProcess> {
        let id = self.processes.grouping().new_group();
        self.new_worker_of(id, plan, kept)
    }

    /// The same, for a group that has an id already.
    ///
    /// # Errors
    /// As [`Supervisor::new_worker`].
    fn new_worker_of(
        &mut self,
        id: GroupId,
        plan: Plan,
        kept: Option<OwnedFd>,
    ) -> anyhow::Result<WorkerProcess> {
        let daemon = &plan.resolved.daemon;
        let place = seed::of_group(&daemon.socket, &plan.name);
        let seed = seed::given_or_inherited(daemon.seed, &place)?;
        let domain =
            kept.and_then(|file| fd_store::of_plan(file, (&plan, seed), self.fresh.as_ref()));
        self.has_taken_over |= domain.is_some();
        let counts = self.ledger_writer.account(&plan.name, domain.as_ref());
        let roots = self.roots.clone();
        Ok(WorkerProcess::new(id, (plan, seed), roots, domain, counts))
    }

    /// The groups have changed: all processes are checked again.
    fn regroup(&mut self) {
        let rules = self.formed.grouping(&self.workers);
        self.processes
            .regroup(Supervisor::grouping(&self.workers), rules);
        self.share_anew();
    }

    /// The set of groups has changed: the largest share is a different one, and a search is due.
    fn share_anew(&mut self) {
        self.warn_of_store();
        self.schedule.begin_again(Supervisor::share(&self.workers));
        self.rates.divide(&mut self.workers);
        self.hint_dispatch.regroup(&self.workers);
        if self.has_begun && self.first_start.is_none() {
            self.load_programs();
        }
    }

    /// Warns if systemd does not store the frames of all groups.
    fn warn_of_store(&mut self) {
        let groups = self.workers.len();
        let is_full = fd_store::max_files().filter(|&max| groups > max);
        if let Some(max) = is_full
            && !self.is_store_full
        {
            tracing::warn!(
                "{}, and systemd keeps the frames of {max} over a restart: raise FileDescriptorStoreMax= of the unit, or lower most of a rule",
                self.counted_groups()
            );
        }
        self.is_store_full = is_full.is_some();
    }

    /// Loads programs in the kernel, if a group wants them. Not while all workers start: loading
    /// slows that down.
    fn load_programs(&mut self) {
        self.processes.want_moves();
        self.hint_dispatch.load(&self.workers);
    }

    fn work(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        for worker in &mut self.workers {
            worker.start(&self.worker_events);
        }
        tracing::debug!("workers were started in {:?}", begun.elapsed());
        self.has_begun = true;
        self.first_start = Some(FirstStart::of(&self.workers, Instant::now()));
        let mut notices = SystemdNotices::new();
        let mut audit = HourlyAudit::new(Instant::now());
        while !self.sleeper.stopping() {
            self.receive();
            self.await_ready()?;
            self.start_due_workers();
            self.discover()?;
            self.form_groups();
            if !self.task.as_ref().is_some_and(Task::is_change) {
                self.dissolve_deserted();
            }
            self.measure()?;
            self.send_spaces();
            self.hint_dispatch.pass_on(&mut self.workers);
            self.redistribution.turn(&mut self.workers, Instant::now());
            self.rates.turn(&mut self.workers, Instant::now());
            self.write_due_records();
            if self.task.is_none() && self.is_reload_due.swap(false, Ordering::Relaxed) {
                self.begin_reload();
            }
            if self.task.is_none()
                && let Some(pending) = self.control.next()
            {
                self.handle(pending);
            }
            if self.continue_task() {
                // Another client may wait.
                continue;
            }
            notices.turn(&self.workers, clock::now());
            audit.turn(&self.workers, Instant::now());
            self.sleep(notices.next());
        }
        systemd::notify(&[sd_notify::NotifyState::Stopping]);
        Ok(())
    }

    /// Checks whether the first start of all workers is over. Then the daemon is ready.
    ///
    /// # Errors
    /// No worker starts: the first one's error, in one line.
    fn await_ready(&mut self) -> anyhow::Result<()> {
        let Some(first_start) = &mut self.first_start else {
            return Ok(());
        };
        let Some(done) = first_start.look(&self.workers, Instant::now()) else {
            return Ok(());
        };
        self.first_start = None;
        for group in done.map_err(|line| anyhow!(line))? {
            tracing::warn!("group {group}: its worker is slow to start");
        }
        tracing::debug!("all work after {:?}", self.started.elapsed());
        self.load_programs();
        tracing::info!(
            "uksm {} runs, {}",
            env!("CARGO_PKG_VERSION"),
            self.counted_groups()
        );
        systemd::notify(&[sd_notify::NotifyState::Ready]);
        Ok(())
    }

    /// Reads messages of workers until `is_so` holds for each, or until the timeout. Notifies
    /// systemd's watchdog meanwhile.
    fn await_workers(&mut self, timeout: Duration, is_so: impl Fn(&WorkerProcess) -> bool) {
        let deadline = Instant::now() + timeout;
        let mut last_sign = Instant::now();
        loop {
            self.receive();
            self.workers.iter_mut().for_each(WorkerProcess::reap);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.workers.iter().all(&is_so) {
                return;
            }
            if last_sign.elapsed() >= SIGN_OF_LIFE {
                last_sign = Instant::now();
                systemd::notify(&[sd_notify::NotifyState::Watchdog]);
            }
            let due = self.workers.iter().filter_map(WorkerProcess::due).min();
            let due = due.map_or(left, |at| at.saturating_duration_since(Instant::now()));
            self.worker_events
                .wait(left.min(SIGN_OF_LIFE).min(due.max(MIN_WAIT)));
        }
    }

    /// Starts the workers that are due; a worker sends a message when it works.
    fn start_due_workers(&mut self) {
        for worker in &mut self.workers {
            worker.reap();
            worker.start(&self.worker_events);
        }
    }

    fn counted_groups(&self) -> String {
        counted(self.workers.len() as u64, "group", "groups")
    }

    /// Writes records that are due, or begins a task that does.
    fn write_due_records(&mut self) {
        let is_task_in_progress = self.task.is_some();
        let workers = &mut self.workers;
        let has_asked = self
            .ledger_writer
            .turn(workers, is_task_in_progress, Instant::now());
        if has_asked {
            self.begin(None, Job::Account(None));
        }
    }

    /// Stops all workers.
    fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.give_up();
        }
        self.redistribution.end();
        self.ledger_writer.ask(&mut self.workers, |_| true);
        self.await_workers(ANSWER_TIMEOUT, |worker| !worker.is_asked());
        let _logged = self.ledger_writer.write(&mut self.workers);
        self.workers.iter_mut().for_each(WorkerProcess::end);
        self.await_workers(END_TIMEOUT, WorkerProcess::has_ended);
        for worker in &mut self.workers {
            let _logged = worker.write_account(None);
            worker.audit("is left");
        }
    }
}
