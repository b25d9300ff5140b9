//! The supervisor: one worker for each group, and one search for the processes of all groups.
//!
//! # Approach
//! This file has the loop, a list of turns. Each turn has a file in `turns/`, and most have a state
//! of their own there. A turn takes the workers, and the parts whose state it changes, as
//! arguments; no two files need each other. No turn waits for a worker.

mod account;
mod audit;
mod discovery_schedule;
mod domain_savings;
mod fd_store;
mod first_start;
mod group_change;
mod group_commands;
mod handover;
pub(crate) mod original_limits;
mod placement;
mod rights;
mod task;
mod turns;
mod unmerge_threads;
mod worker_events;
mod worker_factory;
mod worker_process;
mod workers;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use fd_store::FullStoreWarning;
use first_start::FirstStart;
use task::{ANSWER_TIMEOUT, END_TIMEOUT, Job, Task};
use turns::formed_groups::{DissolveResult, FormedGroups};
use turns::hint_dispatch::HintDispatch;
use turns::hourly_audit::HourlyAudit;
use turns::ledger_writer::LedgerWriter;
use turns::process_discovery::ProcessDiscovery;
use turns::rates::GroupRates;
use turns::redistribution::GroupRedistribution;
use turns::systemd_notices::SystemdNotices;
use uksm_linux::clock;
use uksm_linux::proc::{OwnMemory, Proc};
use uksm_linux::processes::Processes;
use uksm_linux::selection::Grouping;
use uksm_linux::sleeper::{Sleeper, WakeCause};
use uksm_policy::command::Nanos;
use worker_events::WorkerEvents;
use worker_factory::WorkerFactory;
use worker_process::WorkerProcess;
use workers::Workers;

use crate::account::ledger::Ledger;
use crate::config::cgroups::check_cgroups;
use crate::config::current::Configuration;
use crate::config::plan::Plan;
use crate::config::plans::Plans;
use crate::control::Control;
use crate::paths::Roots;
use crate::status::written_pages::WrittenPages;
use crate::{niceness, startup, systemd};

/// Interval of notices to systemd's watchdog while workers start or end.
const WATCHDOG_INTERVAL: Duration = Duration::from_secs(1);
/// Pause before a worker that does not read is tried again.
const RETRY_INTERVAL_NS: Nanos = 100_000_000;
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
    niceness::lower_session_priority(daemon.nice);
    let proc = Proc::at(&roots.proc_root);
    let own_memory = proc.own_memory()?;
    let processes = watched_processes(proc)?;
    let worker_events = WorkerEvents::new().context("cannot watch workers")?;
    let sleeper = Sleeper::new().context("cannot make a socket pair")?;
    sleeper.stop_on_signals().context("cannot handle SIGTERM")?;
    let waker = sleeper.waker().context("cannot make a socket pair")?;
    let group = daemon.socket_group.as_deref();
    let control = Control::listen(&daemon.socket, group, waker).map_err(|line| anyhow!(line))?;
    let is_reload_due = sleeper
        .note_signal(libc::SIGHUP)
        .context("cannot handle SIGHUP")?;
    let ledger = Ledger::new(daemon.account_dir.clone(), daemon.account_days);
    let ledger = Arc::new(ledger);
    let written = WrittenPages::from_now_on(roots.proc_root.clone(), roots.ksm_root.clone());
    let written = Rc::new(written);
    let mut supervisor = Supervisor {
        factory: WorkerFactory {
            roots: roots.clone(),
            ledger: Arc::clone(&ledger),
            written: Rc::clone(&written),
            fresh,
        },
        workers: Workers::new(worker_events),
        task: None,
        configuration,
        settings: resolved.texts(),
        is_reload_due,
        own_memory,
        sleeper,
        control,
        started: Instant::now(),
        first_start: FirstStart::default(),
        discovery: ProcessDiscovery::new(processes),
        formed: FormedGroups::new(rules),
        hint_dispatch: HintDispatch::default(),
        redistribution: GroupRedistribution::new(&roots.proc_root, &daemon),
        rates: GroupRates::new(&roots.proc_root),
        ledger_writer: LedgerWriter::new(
            ledger,
            written,
            Duration::from_nanos(daemon.account_interval),
        ),
        full_store_warning: FullStoreWarning::default(),
    };
    supervisor.add_groups(groups)?;
    let done = supervisor.work();
    supervisor.stop();
    if done.is_ok() {
        tracing::info!("stopped; merged pages stay merged");
    }
    done
}

/// The processes of the host, in no groups yet.
///
/// # Errors
/// They cannot be watched.
fn watched_processes(proc: Proc) -> anyhow::Result<Processes> {
    // A rule can read the environment of each process, which can hold that up.
    let proc = proc.with_deadlines();
    let processes =
        Processes::of_groups(proc, Grouping::default()).context("cannot watch processes")?;
    let mut processes = processes.for_supervisor();
    if let Some(connector) = startup::process_events() {
        processes = processes.with_connector(connector);
    }
    Ok(processes)
}

/// All groups.
struct Supervisor<'a> {
    factory: WorkerFactory,
    workers: Workers,
    /// The task in progress.
    task: Option<Task>,
    configuration: Configuration<'a>,
    /// The settings of the daemon as a whole.
    settings: BTreeMap<String, String>,
    /// SIGHUP was received.
    is_reload_due: Arc<AtomicBool>,
    own_memory: OwnMemory,
    sleeper: Sleeper,
    control: Control,
    started: Instant,
    first_start: FirstStart,
    discovery: ProcessDiscovery,
    formed: FormedGroups,
    hint_dispatch: HintDispatch,
    redistribution: GroupRedistribution,
    rates: GroupRates,
    ledger_writer: LedgerWriter,
    full_store_warning: FullStoreWarning,
}

impl Supervisor<'_> {
    /// Adds the configured groups, with the domains of an earlier supervisor. Groups that rules
    /// form take over theirs later.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    fn add_groups(&mut self, groups: Vec<Plan>) -> anyhow::Result<()> {
        let mut kept = fd_store::stored();
        for plan in groups {
            let domain = kept.remove(&plan.name);
            let id = self.discovery.processes_mut().grouping().new_group();
            let worker = self.factory.worker(id, plan, domain)?;
            self.workers.push(worker);
        }
        self.regroup();
        for (group, file) in self.formed.keep(kept) {
            fd_store::give_up(&group, file);
        }
        let has_domain = |worker: &WorkerProcess| worker.domain.is_some();
        if self.formed.has_kept() || self.workers.iter().any(has_domain) {
            self.discovery.note_take_over();
        }
        Ok(())
    }

    /// The groups have changed: all processes are checked again.
    fn regroup(&mut self) {
        let rules = self.formed.grouping(&self.workers);
        self.discovery.regroup(&self.workers, rules);
        self.share_anew();
    }

    /// The set of groups has changed: the largest share is a different one, and a search is due.
    fn share_anew(&mut self) {
        self.full_store_warning.check(self.workers.len());
        self.discovery.begin_again(&self.workers);
        self.rates.divide(&mut self.workers);
        self.hint_dispatch.regroup(&self.workers);
        if self.first_start.is_over() {
            self.load_programs();
        }
    }

    /// Loads programs in the kernel, if a group wants them. Not while all workers start: loading
    /// slows that down.
    fn load_programs(&mut self) {
        self.discovery.processes_mut().want_moves();
        self.hint_dispatch.load(&self.workers);
    }

    fn work(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        self.workers.start_due();
        tracing::debug!("workers were started in {:?}", begun.elapsed());
        self.first_start.begin(&self.workers, Instant::now());
        let mut notices = SystemdNotices::new();
        let mut audit = HourlyAudit::new(Instant::now());
        while !self.sleeper.stopping() {
            self.receive();
            self.await_ready()?;
            self.workers.start_due();
            self.discovery
                .turn(&mut self.workers, &mut self.hint_dispatch)?;
            self.form_groups();
            self.dissolve_groups();
            self.discovery.measure(&mut self.workers)?;
            self.workers.send_spaces();
            self.hint_dispatch.turn(&mut self.workers);
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
        let Some(done) = self.first_start.turn(&self.workers, Instant::now()) else {
            return Ok(());
        };
        for group in done.map_err(|line| anyhow!(line))? {
            tracing::warn!("group {group}: its worker is slow to start");
        }
        tracing::debug!("all workers are ready after {:?}", self.started.elapsed());
        self.load_programs();
        tracing::info!(
            "uksm {} runs, {}",
            env!("CARGO_PKG_VERSION"),
            self.workers.counted_groups()
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
            if last_sign.elapsed() >= WATCHDOG_INTERVAL {
                last_sign = Instant::now();
                systemd::notify(&[sd_notify::NotifyState::Watchdog]);
            }
            let due = self.workers.iter().filter_map(WorkerProcess::due).min();
            let due = due.map_or(left, |at| at.saturating_duration_since(Instant::now()));
            self.workers
                .events()
                .wait(left.min(WATCHDOG_INTERVAL).min(due.max(MIN_WAIT)));
        }
    }

    /// Reads the messages of workers.
    fn receive(&mut self) {
        self.workers.receive();
        self.discovery.note_reports(&mut self.workers);
    }

    /// Starts workers of groups that rules have formed.
    fn form_groups(&mut self) {
        let planned = self.task.as_ref().and_then(Task::plans);
        let (workers, discovery) = (&mut self.workers, &mut self.discovery);
        if self.formed.turn(workers, discovery, &self.factory, planned) {
            self.share_anew();
            self.workers.start_due();
        }
    }

    /// Dissolves empty groups that rules have formed, unless groups are about to change.
    fn dissolve_groups(&mut self) {
        if self.task.as_ref().is_some_and(Task::is_change) {
            return;
        }
        let (workers, discovery) = (&mut self.workers, &mut self.discovery);
        match self.formed.dissolve_deserted(workers, discovery) {
            DissolveResult::Nothing => {}
            DissolveResult::Groups => self.share_anew(),
            // Processes that were left out are checked again.
            DissolveResult::GroupsOfFullRule => self.regroup(),
        }
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

    /// Sleeps until a request, a signal, a message or the end of a worker, a process event, or the
    /// time of the next work.
    fn sleep(&mut self, notice: Nanos) {
        let now = clock::now();
        let is_behind = self.workers.iter().any(WorkerProcess::is_behind);
        let behind = is_behind.then_some(now + RETRY_INTERVAL_NS);
        let (discovery_due, events) = self.discovery.next(now);
        let (hints_due, hints) = self.hint_dispatch.next(now);
        let times = [hints_due, behind, self.next_turn(now)];
        let times = times.into_iter().flatten();
        let until = times.fold(notice.min(discovery_due), Nanos::min);
        let others: Vec<BorrowedFd<'_>> =
            std::iter::once(self.workers.as_fd()).chain(hints).collect();
        let watched: Vec<BorrowedFd<'_>> = others.iter().copied().chain(events).collect();
        let woken = self.sleeper.sleep(until, &watched);
        // If others are readable as well, the next sleep reports the event.
        let has_event = matches!(woken, WakeCause::Readable(which) if which >= others.len());
        self.discovery.note_event(has_event);
    }

    /// The time of the next work other than discovery: a start of a worker, a turn, or a record.
    fn next_turn(&self, now: Nanos) -> Option<Nanos> {
        let task = self.task.as_ref().map(Task::due);
        // Work that waits for the end of the task is not due before.
        let is_free = |_: &Instant| task.is_none();
        let turns = [
            task,
            self.workers.next(),
            self.first_start.next(),
            self.formed.next().filter(is_free),
            self.redistribution.next(),
            self.rates.next(),
            self.ledger_writer.next().filter(is_free),
        ];
        let until = turns.into_iter().flatten().min()?;
        let left = until.saturating_duration_since(Instant::now());
        Some(now.saturating_add(Nanos::try_from(left.as_nanos()).unwrap_or(Nanos::MAX)))
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
        for worker in self.workers.iter_mut() {
            let _logged = worker.write_account(None);
            worker.audit("is left");
        }
    }
}
