//! `uksm run`: from the command line to a worker.
//!
//! Every mistake is found before anything is changed, and told in one line. So settings are read
//! first, then the processes that were named, then the kernel and the module are tried, then the
//! socket is opened. Only then are processes attached, which changes nothing in them, either. Merged
//! pages stay merged after a stop: they need no daemon, and a new one takes them over.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use uksm_linux::connector::Connector;
use uksm_linux::machine::LinuxMachine;
use uksm_linux::module::{self, Device};
use uksm_linux::proc::Proc;
use uksm_linux::processes::Processes;
use uksm_linux::selection;
use uksm_linux::wake::Sleeper;
use uksm_policy::Engine;
use uksm_policy::params::Governor;

use crate::cli::{RootArgs, RunArgs};
use crate::control::Control;
use crate::setting::Settings;
use crate::status::Status;
use crate::worker::Worker;
use crate::{Failure, config, log, seed};

/// Runs until stopped.
///
/// # Errors
/// What is wrong, in one line.
pub(crate) fn run(args: &RunArgs, options: Settings) -> Result<(), Failure> {
    let mut settings = Settings::default();
    if !args.no_config {
        let default = Path::new(config::DEFAULT);
        let path = args.config.as_deref().unwrap_or(default);
        config::read(path, args.config.is_some(), &mut settings).map_err(Failure::usage)?;
    }
    let mut options = options;
    options.targets = args.targets().map_err(Failure::usage)?;
    settings.yield_to(options);
    let resolved = settings.resolve().map_err(Failure::usage)?;
    let daemon = &resolved.daemon;
    log::start(daemon.log);
    let proc = Proc::at(&args.roots.proc_root);
    let mut named = settings.targets.clone();
    named.pin(&proc).map_err(|error| match error {
        // A configuration that names nobody does not get better by trying again.
        selection::Error::None => Failure::usage(error.to_string()),
        error => anyhow::Error::from(error).into(),
    })?;
    for group in &named.chosen.cgroups {
        if !Path::new(&group.folder()).is_dir() {
            tracing::warn!("{}: no such control group yet", group.folder());
        }
    }
    let device = open(&daemon.device, &args.roots)?;
    let sleeper = Sleeper::new().context("cannot make a socket pair")?;
    sleeper.stop_on_signals().context("cannot handle SIGTERM")?;
    let waker = sleeper.waker().context("cannot make a socket pair")?;
    let control = Control::listen(&daemon.socket, waker).map_err(|line| anyhow!(line))?;
    // Only now is it sure that no other daemon is at this socket.
    let seed = match daemon.seed {
        Some(seed) => seed,
        None => seed::inherited(&daemon.socket)?,
    };
    let engine = Engine::new(resolved.params.clone(), seed).map_err(anyhow::Error::from)?;
    // The policy computes hashes of its own, so the domain's seed is the policy's.
    device
        .configure(resolved.configuration(seed))
        .map_err(anyhow::Error::from)?;
    raise_descriptor_limit();
    let mut processes = Processes::new(proc, named).context("cannot watch processes")?;
    match Connector::open() {
        Ok(connector) => processes = processes.told_by(connector),
        Err(error) => tracing::info!("no events of processes, they are looked for: {error}"),
    }
    let mut host = LinuxMachine::new(device, processes, sleeper);
    if daemon.dry_run {
        host = host.dry();
    }
    host.follow_named()
        .map_err(|(pid, error)| anyhow!("--pid {pid}: {error}"))?;
    let governor = daemon.governor.name();
    let are_hints_on = resolved.params.hint_runs > 0;
    let mut worker = Worker::new(engine, host, control, governor, are_hints_on);
    work(&mut worker, daemon.governor)
}

fn work(worker: &mut Worker<Device>, governor: Governor) -> Result<(), Failure> {
    let governor = governor.name();
    tracing::info!(
        "uksm {} runs, governor {governor}",
        env!("CARGO_PKG_VERSION")
    );
    tell_systemd(&[sd_notify::NotifyState::Ready]);
    let ended = worker.run();
    tell_systemd(&[sd_notify::NotifyState::Stopping]);
    let status: Status = ended.map_err(anyhow::Error::from)?;
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
pub(crate) fn open(path: &Path, roots: &RootArgs) -> anyhow::Result<Device> {
    match Device::open_at(path) {
        Err(module::Error::Missing { .. }) if !roots.ksm_root.join("run").exists() => Err(anyhow!(
            "unsupported kernel: {} is missing: uksm needs a kernel built with CONFIG_KSM, as \
                 distributions' kernels are",
            roots.ksm_root.display()
        )),
        answer => Ok(answer?),
    }
}

fn tell_systemd(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!("systemd was not told: {error}");
    }
}

/// Each process followed takes a descriptor.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(errno) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of open files stays: {errno}");
    }
}
