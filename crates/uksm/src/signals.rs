//! SIGHUP: the end of a run at a terminal, a reload of a daemon with groups, ignored by others.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use uksm_linux::sleeper::Sleeper;

/// Sets the effect of SIGHUP. At a terminal, without a configuration that could be read again, it
/// means that the terminal is gone: the run ends. Otherwise it is noted in the flag that is
/// answered.
///
/// # Errors
/// The handler cannot be set.
pub(crate) fn hangups_of(
    has_configuration: bool,
    sleeper: &Sleeper,
) -> anyhow::Result<Option<Arc<AtomicBool>>> {
    let is_at_terminal = std::io::stdin().is_terminal()
        || std::io::stdout().is_terminal()
        || std::io::stderr().is_terminal();
    if is_at_terminal && !has_configuration {
        let ends = sleeper.stop_on(libc::SIGHUP);
        ends.context("cannot handle SIGHUP")?;
        return Ok(None);
    }
    hangups(sleeper).map(Some)
}

/// SIGHUP no longer ends this process; answers the flag that notes it.
///
/// # Errors
/// The handler cannot be set.
pub(crate) fn hangups(sleeper: &Sleeper) -> anyhow::Result<Arc<AtomicBool>> {
    let came = sleeper.note_signal(libc::SIGHUP);
    came.context("cannot handle SIGHUP")
}

/// Logs that a SIGHUP was ignored, if one came.
pub(crate) fn ignore_hangup(came: &Arc<AtomicBool>) {
    if came.swap(false, Ordering::Relaxed) {
        tracing::warn!("SIGHUP is ignored: only a daemon with groups can reload: restart it");
    }
}
