//! The hourly line of the audit about each domain.

use std::time::{Duration, Instant};

use crate::groups::supervisor::worker_process::WorkerProcess;

/// Interval of lines about each domain.
const INTERVAL: Duration = Duration::from_secs(3600);

/// The time of the last lines.
#[derive(Debug)]
pub(in crate::groups::supervisor) struct HourlyAudit {
    last: Instant,
}

impl HourlyAudit {
    /// The first lines come an interval after `now`.
    pub(in crate::groups::supervisor) fn new(now: Instant) -> HourlyAudit {
        HourlyAudit { last: now }
    }

    /// Logs the figures of each domain, if it is time.
    pub(in crate::groups::supervisor) fn turn(&mut self, workers: &[WorkerProcess], now: Instant) {
        if now.saturating_duration_since(self.last) >= INTERVAL {
            self.last = now;
            for worker in workers {
                worker.audit("goes on");
            }
        }
    }
}
