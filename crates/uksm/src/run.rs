//! `uksm run`: from the command line to a worker, or to a supervisor of several.
//!
//! Every mistake is found before anything is changed, and reported in one line. So settings are
//! read first, then the named processes, then kernel and module are checked, then the socket is
//! opened. Only then are processes attached, which does not change them either. Merged pages stay
//! merged after a stop: they need no daemon, and a new one takes them over.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use uksm_linux::module::Device;
use uksm_linux::proc::Proc;
use uksm_linux::processes::Processes;
use uksm_linux::selection::Selection;
use uksm_linux::sleeper::Sleeper;

use crate::account::single_daemon::SingleDaemonAccount;
use crate::cli::RunArgs;
use crate::config::Config;
use crate::config::current::Configuration;
use crate::control::Control;
use crate::failure::Failure;
use crate::groups::supervisor;
use crate::groups::supervisor::original_limits;
use crate::setting::{SOCKET, Settings};
use crate::status::written_pages::WrittenPages;
use crate::worker::HintsFrom;
use crate::worker::start::{self, Start};
use crate::{config, hash_seed, ksm, log, niceness, signals, startup};

/// Runs until stopped. On an error, limits that an earlier daemon raised are put back, since no
/// daemon watches them.
///
/// # Errors
/// The fault, in one line.
pub(crate) fn run(args: &RunArgs, options: Settings) -> Result<(), Failure> {
    let socket = socket(args, &options);
    if args.put_back {
        start_log();
        return match original_limits::put_back_alone(&args.roots.proc_root, &socket) {
            true => Ok(()),
            false => Err(anyhow!("limits of an earlier daemon are not restored: see above").into()),
        };
    }
    let done = start(args, options);
    if done.is_err() {
        start_log();
        original_limits::put_back_alone(&args.roots.proc_root, &socket);
    }
    done
}

/// Starts the log, unless it runs.
fn start_log() {
    if !tracing::dispatcher::has_been_set() {
        log::start(tracing::Level::INFO);
    }
}

/// The daemon's socket, as far as the configuration can be read.
fn socket(args: &RunArgs, options: &Settings) -> PathBuf {
    let mut config = Config::default();
    // Its errors are reported elsewhere.
    let _reported = read_files(args, &mut config);
    let mut settings = config.settings;
    settings.yield_to(options.clone());
    PathBuf::from(settings.text("socket").unwrap_or(SOCKET))
}

fn start(args: &RunArgs, options: Settings) -> Result<(), Failure> {
    let mut options = options;
    options.targets = args.targets().map_err(Failure::usage)?;
    let config = read(args, &options).map_err(Failure::usage)?;
    let settings = &config.settings;
    if ksm::is_asked_for(&config).map_err(Failure::usage)? {
        let resolved = settings.resolve().map_err(Failure::usage)?;
        return ksm::run(
            (args, has_configuration(args)),
            (settings, &options.targets),
            &resolved,
        );
    }
    let proc = Proc::at(&args.roots.proc_root);
    if config.has_groups() {
        log::start(settings.resolve().map_err(Failure::usage)?.daemon.log);
        let read = || read(args, &options);
        let configuration = Configuration::new(config, proc, Box::new(read));
        let plans = configuration.plan().map_err(Failure::usage)?;
        return Ok(supervisor::run(plans, &args.roots, configuration)?);
    }
    start_single(args, settings, &options.targets, proc)
}

/// Runs a daemon without groups.
fn start_single(
    args: &RunArgs,
    settings: &Settings,
    targets: &Selection,
    proc: Proc,
) -> Result<(), Failure> {
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
    let named = startup::pinned(&settings.targets, targets, &proc)?;
    warn_of_missing(&named);
    let mut device = startup::open_device(&daemon.device, &args.roots.ksm_root)?;
    let sleeper = Sleeper::new().context("cannot make a socket pair")?;
    sleeper.stop_on_signals().context("cannot handle SIGTERM")?;
    let hangups = signals::hangups_of(has_configuration(args), &sleeper)?;
    let waker = sleeper.waker().context("cannot make a socket pair")?;
    let group = daemon.socket_group.as_deref();
    let control = Control::listen(&daemon.socket, group, waker).map_err(|line| anyhow!(line))?;
    // Only now is it sure that no other daemon uses this socket.
    let seed = hash_seed::given_or_inherited(daemon.seed, &daemon.socket)?;
    device
        .configure(resolved.configuration(seed))
        .map_err(anyhow::Error::from)?;
    startup::raise_descriptor_limit();
    niceness::lower_priority(daemon.nice);
    original_limits::put_back(&args.roots.proc_root, &daemon.socket);
    let own_memory = proc.own_memory().map_err(anyhow::Error::from)?;
    let processes = follow(named, proc, &mut device)?;
    let account = SingleDaemonAccount::new(daemon);
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
    Ok(start::work(&mut worker)?)
}

/// The selected processes; those that are named by id are followed from the start.
///
/// # Errors
/// Processes cannot be watched, or one that is named cannot be followed.
fn follow(named: Selection, proc: Proc, device: &mut Device) -> anyhow::Result<Processes> {
    let mut processes = Processes::new(proc, named).context("cannot watch processes")?;
    if let Some(connector) = startup::process_events() {
        processes = processes.with_connector(connector);
    }
    let left_out = processes
        .follow_named(device)
        .map_err(|(pid, error)| anyhow!("--pid {pid}: {error}"))?;
    for (pid, error) in left_out {
        tracing::warn!("process {pid} is left alone: {error}");
    }
    Ok(processes)
}

/// The configuration, with the command line's settings over it.
fn read(args: &RunArgs, options: &Settings) -> Result<Config, String> {
    let mut config = Config::default();
    read_files(args, &mut config)?;
    config.settings.yield_to(options.clone());
    Ok(config)
}

fn read_files(args: &RunArgs, config: &mut Config) -> Result<(), String> {
    if args.no_config {
        return Ok(());
    }
    config::read(configuration(args), args.config.is_some(), config)
}

/// The path of the configuration.
fn configuration(args: &RunArgs) -> &Path {
    let default = Path::new(config::DEFAULT);
    args.config.as_deref().unwrap_or(default)
}

/// Warns of control groups that do not exist yet.
fn warn_of_missing(named: &Selection) {
    for group in named.chosen.cgroups.iter().filter(|group| group.is_one()) {
        if !Path::new(&group.folder()).is_dir() {
            tracing::warn!("{}: no such control group yet", group.folder());
        }
    }
}

/// Whether a configuration is read.
fn has_configuration(args: &RunArgs) -> bool {
    let path = configuration(args);
    !args.no_config && (path.exists() || path.with_file_name("conf.d").exists())
}
