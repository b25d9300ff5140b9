//! Notices to systemd, if systemd started this program.

use std::time::Duration;

/// Sends this state.
pub(crate) fn notify(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!("cannot notify systemd: {error}");
    }
}

/// Interval of notices: half of the watchdog's time, and at most `otherwise`.
pub(crate) fn notify_interval(otherwise: Duration) -> Duration {
    // Half of it, as systemd advises.
    sd_notify::watchdog_enabled().map_or(otherwise, |limit| otherwise.min(limit / 2))
}
