//! `uksm run --backend ksm`: drives in-kernel KSM where the module cannot be loaded.
//!
//! # Problem
//! In-kernel KSM has one tree for the whole host, and takes advice from a process about its own
//! memory only. It cannot replace the module's features for uksm (groups, hashes, exact outcomes).
//!
//! # Approach
//! Processes cooperate ([`exec`]), or have offered their memory themselves. The daemon samples them
//! from outside, advises them to offer those blocks that pay, and runs ksmd in bursts ([`work`]);
//! earlier settings come back, however the daemon ends ([`knobs`]). A setting without a meaning
//! here is an error, and so are groups: a user who relies on them must not get less. Limits are
//! reported at the start and in each status ([`status`](crate::status::ksm)).
//!
//! # Source
//! `docs/ksm-backend.md`, `docs/decisions/0044-ksm-backend.md`.

use anyhow::{Context as _, anyhow};
use uksm_linux::ksm::agents::Agents;
use uksm_linux::ksm::memory::Frames;
use uksm_linux::ksm::sysfs::{self, Sysfs};
use uksm_linux::proc::Proc;
use uksm_linux::selection::Selection;
use uksm_linux::sleeper::Sleeper;

use crate::cli::RunArgs;
use crate::config::Config;
use crate::control::Control;
use crate::failure::Failure;
use crate::groups::supervisor::original_limits;
use crate::setting::{self, Backend, ResolvedSettings, Settings};
use crate::{hash_seed, log, niceness, signals, startup};

mod daemon;
pub(crate) mod exec;
pub(crate) mod settings_guard;
mod targets;

use daemon::KsmDaemon;
use settings_guard::SettingsGuard;
use targets::Targets;

/// Whether the settings select this backend.
///
/// # Errors
/// Groups are configured, or a setting has no meaning here: one line.
pub(crate) fn is_asked_for(config: &Config) -> Result<bool, String> {
    let settings = &config.settings;
    let Some(asked) = settings.text("backend") else {
        return Ok(false);
    };
    if asked != Backend::Ksm.name() {
        return Ok(false);
    }
    let by_backend = settings
        .origin("backend")
        .map_or(String::new(), ToString::to_string);
    if config.has_groups() {
        return Err(format!(
            "{by_backend} = ksm: in-kernel KSM has one tree for the whole host and keeps no groups apart: remove the groups, or load the module"
        ));
    }
    let foreign = setting::names()
        .find(|name| !setting::OF_KSM.contains(name) && settings.origin(name).is_some());
    match foreign.and_then(|name| settings.origin(name)) {
        Some(origin) => Err(format!(
            "{origin}: has no meaning with {by_backend} = ksm: leave it out, or load the module"
        )),
        None => Ok(true),
    }
}

/// Runs until stopped.
///
/// # Errors
/// The fault, in one line.
pub(crate) fn run(
    (args, has_configuration): (&RunArgs, bool),
    (settings, by_command): (&Settings, &Selection),
    resolved: &ResolvedSettings,
) -> Result<(), Failure> {
    let daemon = &resolved.daemon;
    log::start(daemon.log);
    let proc = Proc::at(&args.roots.proc_root);
    let named = startup::pinned(&settings.targets, by_command, &proc)?;
    let sysfs = match Sysfs::at(&args.roots.ksm_root, proc.clone()) {
        Err(sysfs::Error::Missing { path }) => {
            return Err(anyhow!(
                "unsupported kernel: {} is missing: --backend ksm needs a kernel built with CONFIG_KSM",
                path.display()
            )
            .into());
        }
        found => found.map_err(anyhow::Error::from)?,
    };
    let ksmd = sysfs
        .thread()
        .context("cannot find ksmd in /proc, by which its processor time is known")?;
    let sleeper = Sleeper::new().context("cannot make a socket pair")?;
    sleeper.stop_on_signals().context("cannot handle SIGTERM")?;
    let hangups = signals::hangups_of(has_configuration, &sleeper)?;
    let waker = sleeper.waker().context("cannot make a socket pair")?;
    let group = daemon.socket_group.as_deref();
    let control = Control::listen(&daemon.socket, group, waker).map_err(|line| anyhow!(line))?;
    original_limits::put_back(&args.roots.proc_root, &daemon.socket);
    // The lock comes first: the socket of a running daemon must stay.
    let knobs = SettingsGuard::take(sysfs, &args.roots, &args.ksm_before)?;
    let agents = Agents::listen(&daemon.agent_socket).with_context(|| {
        format!(
            "{}: cannot listen for agents: name another place with --agent-socket",
            daemon.agent_socket.display()
        )
    })?;
    let seed = match daemon.seed {
        Some(seed) => seed,
        None => hash_seed::random()?,
    };
    startup::raise_descriptor_limit();
    niceness::lower_priority(daemon.nice);
    let frames = Frames::of(&args.roots.proc_root);
    let targets = Targets::new(
        proc.with_deadlines(),
        named,
        agents,
        frames,
        seed,
        resolved.params.v_dup,
    );
    let mut work = KsmDaemon::new(knobs, ksmd, targets, (control, sleeper, hangups), resolved);
    work.run()?;
    Ok(())
}
