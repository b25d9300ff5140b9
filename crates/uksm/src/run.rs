//! `uksm run`: from the command line to a worker, or to a supervisor of several.
//!
//! Every mistake is found before anything is changed, and told in one line. So settings are read
//! first, then the processes that were named, then the kernel and the module are tried, then the
//! socket is opened. Only then are processes attached, which changes nothing in them, either. Merged
//! pages stay merged after a stop: they need no daemon, and a new one takes them over.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use uksm_linux::connector::Connector;
use uksm_linux::discovery::Discovery;
use uksm_linux::machine::LinuxMachine;
use uksm_linux::module::{self, Device};
use uksm_linux::proc::{OwnMemory, Proc};
use uksm_linux::processes::Processes;
use uksm_linux::selection::{self, Selection};
use uksm_linux::wake::Sleeper;
use uksm_policy::Engine;

use crate::account::own::Own;
use crate::cli::RunArgs;
use crate::control::Control;
use crate::groups::adding::Configuration;
use crate::groups::{giving, supervisor};
use crate::setting::{Resolved, SOCKET, Settings};
use crate::status::Status;
use crate::status::written::WrittenPages;
use crate::worker::explaining::Locate;
use crate::worker::{HintsFrom, Unmerge, Worker};
use crate::{Failure, config, ksm, log, precedence, seed};

/// Runs until stopped. If that cannot be, limits that a daemon before had lent are put back, since nobody watches them.
///
/// # Errors
/// What is wrong, in one line.
pub(crate) fn run(args: &RunArgs, options: Settings) -> Result<(), Failure> {
    let socket = socket(args, &options);
    if args.put_back {
        start_log();
        return match giving::put_back_alone(&args.roots.proc_root, &socket) {
            true => Ok(()),
            false => Err(anyhow!("limits of a daemon before are not put back: see above").into()),
        };
    }
    let done = start(args, options);
    if done.is_err() {
        start_log();
        giving::put_back_alone(&args.roots.proc_root, &socket);
    }
    done
}

/// Messages can be seen, if they cannot yet.
fn start_log() {
    if !tracing::dispatcher::has_been_set() {
        log::start(tracing::Level::INFO);
    }
}

/// Where the daemon is to listen, as far as the configuration can be read.
fn socket(args: &RunArgs, options: &Settings) -> PathBuf {
    let mut settings = Settings::default();
    // Whatever is wrong with it is said elsewhere.
    let _said = read_files(args, &mut settings);
    settings.yield_to(options.clone());
    PathBuf::from(settings.text("socket").unwrap_or(SOCKET))
}

fn start(args: &RunArgs, options: Settings) -> Result<(), Failure> {
    let mut options = options;
    options.targets = args.targets().map_err(Failure::usage)?;
    let settings = read(args, &options).map_err(Failure::usage)?;
    if ksm::is_asked_for(&settings).map_err(Failure::usage)? {
        let resolved = settings.resolve().map_err(Failure::usage)?;
        return ksm::run(args, (&settings, &options.targets), &resolved);
    }
    let proc = Proc::at(&args.roots.proc_root);
    if settings.has_groups() {
        log::start(settings.resolve().map_err(Failure::usage)?.daemon.log);
        let read = || read(args, &options);
        let configuration = Configuration::new(settings, proc, Box::new(read));
        let plans = configuration.plan().map_err(Failure::usage)?;
        return Ok(supervisor::run(plans, &args.roots, configuration)?);
    }
    let resolved = settings.resolve().map_err(Failure::usage)?;
    if let Some(origin) = settings
        .origin("cpu_total")
        .filter(|_| resolved.daemon.cpu_total.is_some())
    {
        let line = format!("{origin}: there are no groups: set cpu instead");
        return Err(Failure::usage(line));
    }
    let daemon = &resolved.daemon;
    log::start(daemon.log);
    let named = pinned(&settings.targets, &options.targets, &proc)?;
    warn_of_missing(&named);
    let mut device = open(&daemon.device, &args.roots.ksm_root)?;
    let sleeper = Sleeper::new().context("cannot make a socket pair")?;
    sleeper.stop_on_signals().context("cannot handle SIGTERM")?;
    let hangups = hangups_of(args, &sleeper)?;
    let waker = sleeper.waker().context("cannot make a socket pair")?;
    let group = daemon.socket_group.as_deref();
    let control = Control::listen(&daemon.socket, group, waker).map_err(|line| anyhow!(line))?;
    // Only now is it sure that no other daemon is at this socket.
    let seed = seed::given_or_inherited(daemon.seed, &daemon.socket)?;
    device
        .configure(resolved.configuration(seed))
        .map_err(anyhow::Error::from)?;
    raise_descriptor_limit();
    precedence::stand_back(daemon.nice);
    giving::put_back(&args.roots.proc_root, &daemon.socket);
    let own_memory = proc.own_memory().map_err(anyhow::Error::from)?;
    let mut processes = Processes::new(proc, named).context("cannot watch processes")?;
    if let Some(connector) = events() {
        processes = processes.told_by(connector);
    }
    let left_out = processes
        .follow_named(&mut device)
        .map_err(|(pid, error)| anyhow!("--pid {pid}: {error}"))?;
    for (pid, error) in left_out {
        tracing::warn!("process {pid} is left alone: {error}");
    }
    let account = Own::new(daemon);
    let written =
        WrittenPages::from_now_on(args.roots.proc_root.clone(), args.roots.ksm_root.clone());
    let hints = match resolved.params.hint_runs {
        0 => HintsFrom::Nobody,
        _ => HintsFrom::Programs,
    };
    let start = Start {
        hints,
        device,
        resolved,
        seed,
        processes,
        sleeper,
        control,
        own_memory,
    };
    let mut worker = start.worker()?;
    worker.keep_account(account);
    if let Some(came) = hangups {
        worker.take_hangups(came);
    }
    worker.count_written(written);
    Ok(work(&mut worker)?)
}

/// The targets, each process by id as it is now. A mistake in a command is an error before anything
/// is changed. A process that a file names can have ended, or be ended by its owner at any time:
/// the others are merged without it.
///
/// # Errors
/// Nobody is named, or this process; or the command line names a process that is none.
pub(crate) fn pinned(
    targets: &Selection,
    by_command: &Selection,
    proc: &Proc,
) -> Result<Selection, Failure> {
    let mut named = targets.clone();
    let pinned = match by_command.chosen.pids.is_empty() {
        true => named.pin_running(proc),
        false => named.pin(proc).map(|()| Vec::new()),
    };
    let left_out = pinned.map_err(|error| match error {
        // A configuration that names nobody does not get better by trying again.
        selection::Error::None => Failure::usage(error.to_string()),
        error => anyhow::Error::from(error).into(),
    })?;
    for error in left_out {
        tracing::warn!("{error}: left out");
    }
    Ok(named)
}

/// The configuration, with what the command line says over it.
fn read(args: &RunArgs, options: &Settings) -> Result<Settings, String> {
    let mut settings = Settings::default();
    read_files(args, &mut settings)?;
    settings.yield_to(options.clone());
    Ok(settings)
}

fn read_files(args: &RunArgs, settings: &mut Settings) -> Result<(), String> {
    if args.no_config {
        return Ok(());
    }
    config::read(configuration(args), args.config.is_some(), settings)
}

/// Where the configuration is, if there is one.
fn configuration(args: &RunArgs) -> &Path {
    let default = Path::new(config::DEFAULT);
    args.config.as_deref().unwrap_or(default)
}

/// Says which control groups are not there yet.
fn warn_of_missing(named: &Selection) {
    for group in named.chosen.cgroups.iter().filter(|group| group.is_one()) {
        if !Path::new(&group.folder()).is_dir() {
            tracing::warn!("{}: no such control group yet", group.folder());
        }
    }
}

/// What a worker is made of.
pub(crate) struct Start<P> {
    /// Its domain, configured with the seed.
    pub(crate) device: Device,
    /// What it was told.
    pub(crate) resolved: Resolved,
    /// The policy computes hashes of its own, so the domain's seed is the policy's.
    pub(crate) seed: u64,
    /// Who tells of processes.
    pub(crate) processes: P,
    /// Wakes it.
    pub(crate) sleeper: Sleeper,
    /// Who asks it.
    pub(crate) control: Control,
    /// What it takes itself.
    pub(crate) own_memory: OwnMemory,
    /// Who tells of I/O.
    pub(crate) hints: HintsFrom,
}

impl<P: Discovery> Start<P> {
    /// A worker that follows nobody yet.
    ///
    /// # Errors
    /// Parameters that contradict each other.
    pub(crate) fn worker(self) -> anyhow::Result<Worker<Device, P>> {
        let Resolved { daemon, params } = self.resolved;
        let engine = Engine::new(params, self.seed)?;
        if !self.device.is_guarded()? {
            tracing::warn!("the module maps no frames, only zeros are merged: see uksm doctor");
        }
        let mut host = LinuxMachine::new(self.device, self.processes, self.sleeper);
        if daemon.dry_run {
            host = host.dry();
        }
        let governor = daemon.governor.name();
        Ok(Worker::new(
            engine,
            host,
            (self.control, self.own_memory),
            governor,
            self.hints,
        ))
    }
}

/// What SIGHUP does from now on. At a terminal, without a configuration that could be read again,
/// it means that the terminal is gone: the run ends. Else it is noted, and answers what says that
/// it came.
///
/// # Errors
/// The handler cannot be set.
pub(crate) fn hangups_of(
    args: &RunArgs,
    sleeper: &Sleeper,
) -> anyhow::Result<Option<Arc<AtomicBool>>> {
    let is_at_terminal = std::io::stdin().is_terminal()
        || std::io::stdout().is_terminal()
        || std::io::stderr().is_terminal();
    if is_at_terminal && !has_configuration(args) {
        let ends = sleeper.stop_on(libc::SIGHUP);
        ends.context("cannot handle SIGHUP")?;
        return Ok(None);
    }
    hangups(sleeper).map(Some)
}

/// Whether there is a configuration that is read.
fn has_configuration(args: &RunArgs) -> bool {
    let path = configuration(args);
    !args.no_config && (path.exists() || path.with_file_name("conf.d").exists())
}

/// SIGHUP does not end this process from now on; answers what says that it came.
///
/// # Errors
/// The handler cannot be set.
pub(crate) fn hangups(sleeper: &Sleeper) -> anyhow::Result<Arc<AtomicBool>> {
    let came = sleeper.note_signal(libc::SIGHUP);
    came.context("cannot handle SIGHUP")
}

/// Says that a SIGHUP was ignored, if one came.
pub(crate) fn ignore_hangup(came: &Arc<AtomicBool>) {
    if came.swap(false, Ordering::Relaxed) {
        tracing::warn!("SIGHUP is ignored: only a daemon with groups can reload: restart it");
    }
}

/// Events of processes, if they can be had.
pub(crate) fn events() -> Option<Connector> {
    match Connector::open() {
        Ok(connector) => Some(connector),
        Err(error) => {
            tracing::info!("no events of processes, they are looked for: {error}");
            None
        }
    }
}

/// Works until a stop is asked for.
///
/// # Errors
/// The module fails.
pub(crate) fn work<P: Discovery>(worker: &mut Worker<Device, P>) -> anyhow::Result<()>
where
    LinuxMachine<Device, P>: Unmerge + Locate,
{
    tracing::info!(
        "uksm {} runs, governor {}",
        env!("CARGO_PKG_VERSION"),
        worker.governor()
    );
    tell_systemd(&[sd_notify::NotifyState::Ready]);
    let ended = worker.run();
    tell_systemd(&[sd_notify::NotifyState::Stopping]);
    let status: Status = ended?;
    tracing::info!(
        "stopped: {:.1} MiB saved net of the daemon; merged pages stay merged",
        status.saved.net_mib
    );
    Ok(())
}

/// Opens the device, or says what is missing: the module, or what it needs of the kernel.
///
/// # Errors
/// One line.
pub(crate) fn open(path: &Path, ksm_root: &Path) -> anyhow::Result<Device> {
    match Device::open_at(path) {
        Err(module::Error::Missing { .. }) if !ksm_root.join("run").exists() => Err(anyhow!(
            "unsupported kernel: {} is missing: uksm needs a kernel built with CONFIG_KSM, as \
                 distributions' kernels are",
            ksm_root.display()
        )),
        answer => Ok(answer?),
    }
}

/// Tells systemd, if it started this program.
pub(crate) fn tell_systemd(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!("systemd was not told: {error}");
    }
}

/// How often systemd wants a sign of life; else as given.
pub(crate) fn notify_interval(otherwise: Duration) -> Duration {
    // Half of it, as systemd advises.
    sd_notify::watchdog_enabled().map_or(otherwise, |limit| otherwise.min(limit / 2))
}

/// Each process followed takes a descriptor.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(errno) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of open files stays: {errno}");
    }
}
