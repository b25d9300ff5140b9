//! Notices to systemd: the watchdog, and a status of one line.

use std::time::Duration;

use uksm_linux::clock;
use uksm_policy::command::Nanos;
use uksm_policy::report::counted;

use crate::groups::supervisor::worker_process::WorkerProcess;
use crate::systemd;

/// Maximum interval of notices.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// The times of notices.
#[derive(Debug)]
pub(in crate::groups::supervisor) struct SystemdNotices {
    interval: Nanos,
    next: Nanos,
}

impl SystemdNotices {
    /// Notices from now on.
    pub(in crate::groups::supervisor) fn new() -> SystemdNotices {
        let interval = systemd::notify_interval(MAX_INTERVAL);
        SystemdNotices {
            interval: Nanos::try_from(interval.as_nanos()).unwrap_or(Nanos::MAX),
            next: clock::now(),
        }
    }

    /// Time of the next notice.
    pub(in crate::groups::supervisor) fn next(&self) -> Nanos {
        self.next
    }

    /// Sends a notice, if it is time.
    pub(in crate::groups::supervisor) fn turn(&mut self, workers: &[WorkerProcess], now: Nanos) {
        if now < self.next {
            return;
        }
        self.next = now.saturating_add(self.interval);
        let running = workers.iter().filter(|w| w.pid().is_some()).count();
        let groups = counted(workers.len() as u64, "group", "groups");
        let text = format!("{running} of {groups} running");
        systemd::notify(&[
            sd_notify::NotifyState::Watchdog,
            sd_notify::NotifyState::Status(&text),
        ]);
    }
}
