//! Steps of a start that several commands have in common: targets, device, process events, limits.

use std::path::Path;

use anyhow::anyhow;
use uksm_linux::connector::Connector;
use uksm_linux::module::{self, Device};
use uksm_linux::proc::Proc;
use uksm_linux::selection::{self, Selection};

use crate::failure::Failure;

/// The targets, with ids pinned to present processes. A mistake in a command is an error before
/// anything is changed. A process that a file names can have ended, or be ended by its owner at any
/// time: the others are merged without it.
///
/// # Errors
/// No process is named, or this one is; or the command line names a process that does not exist.
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
        // A configuration without targets does not get better by trying again.
        selection::Error::None => Failure::usage(error.to_string()),
        error => anyhow::Error::from(error).into(),
    })?;
    for error in left_out {
        tracing::warn!("{error}: left out");
    }
    Ok(named)
}

/// Process events, if the kernel grants them.
pub(crate) fn process_events() -> Option<Connector> {
    match Connector::open() {
        Ok(connector) => Some(connector),
        Err(error) => {
            tracing::info!("no process events, so processes are found by listing /proc: {error}");
            None
        }
    }
}

/// Opens the device; an error names the missing part: the module, or a kernel option.
///
/// # Errors
/// One line.
pub(crate) fn open_device(path: &Path, ksm_root: &Path) -> anyhow::Result<Device> {
    match Device::open_at(path) {
        Err(module::Error::Missing { .. }) if !ksm_root.join("run").exists() => Err(anyhow!(
            "unsupported kernel: {} is missing: uksm needs a kernel built with CONFIG_KSM, as \
                 distributions' kernels are",
            ksm_root.display()
        )),
        answer => Ok(answer?),
    }
}

/// Raises the limit of descriptors: each followed process takes one.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(errno) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("cannot raise the limit of open files: {errno}");
    }
}
