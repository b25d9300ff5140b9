//! The end of a worker, without waiting for it.
//!
//! # Problem
//! A worker that has to end can be frozen, have no processor time, or hang in the kernel; a
//! compromised worker can close its channel and live on, which would wake the supervisor all the
//! time.
//!
//! # Approach
//! The channel is closed at once, and the worker ends by itself. After [`STOP_TIMEOUT`] it is
//! killed; after [`CLOSED_TIMEOUT`] if the worker closed the channel. The pidfd stays watched, so
//! that its exit is noted when it comes.

use std::time::{Duration, Instant};

use super::WorkerProcess;
use super::state::{EndingWorker, RunningWorker, WorkerState};

/// Time from a stop to the kill of a worker.
pub(in crate::groups::supervisor) const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time from the closing of its channel to the kill of a worker.
const CLOSED_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after an end on purpose, until [`WorkerProcess::allow_start`]: practically for ever.
const STOPPED_PAUSE: Duration = Duration::from_secs(1 << 30);

impl WorkerProcess {
    /// Stops it. It is not started again before [`WorkerProcess::allow_start`].
    pub(in crate::groups::supervisor) fn end(&mut self) {
        self.end_as("stopped", STOPPED_PAUSE, (STOP_TIMEOUT, false));
    }

    /// Ends a worker that cannot work; another one is started after a pause.
    pub(super) fn replace(&mut self, why: &str) {
        self.restarts += 1;
        let pause = self.restart_pause.take();
        self.end_as(why, pause, (STOP_TIMEOUT, false));
        self.reap();
    }

    /// Ends a worker that has closed its channel, as a dead process does.
    pub(super) fn lose(&mut self) {
        if let WorkerState::Running(running) = &self.state {
            self.restart_pause.note_run(running.since.elapsed());
        }
        self.restarts += 1;
        let pause = self.restart_pause.take();
        self.end_as(
            "the worker closed its channel",
            pause,
            (CLOSED_TIMEOUT, true),
        );
        self.reap();
    }

    fn end_as(&mut self, why: &str, pause: Duration, (timeout, is_lost): (Duration, bool)) {
        let now = Instant::now();
        let (until, why) = (now + pause, why.to_owned());
        let nothing = WorkerState::Waiting {
            until,
            why: String::new(),
        };
        self.state = match std::mem::replace(&mut self.state, nothing) {
            // The channel and the file of hints are closed.
            WorkerState::Running(RunningWorker { child, pidfd, .. }) => {
                WorkerState::Ending(EndingWorker {
                    child,
                    _pidfd: pidfd,
                    kill_at: Some(now + timeout),
                    until,
                    why,
                    is_lost,
                })
            }
            WorkerState::Ending(ending) => WorkerState::Ending(EndingWorker {
                until,
                why,
                is_lost: false,
                ..ending
            }),
            WorkerState::Waiting { .. } => WorkerState::Waiting { until, why },
        };
    }

    /// Whether it has no process.
    pub(in crate::groups::supervisor) fn has_ended(&self) -> bool {
        matches!(self.state, WorkerState::Waiting { .. })
    }

    /// Whether it was ended on purpose, and may not be started yet.
    pub(in crate::groups::supervisor) fn is_held(&self) -> bool {
        let far = Instant::now() + STOPPED_PAUSE / 2;
        matches!(&self.state, WorkerState::Waiting { until, .. } if *until > far)
    }

    /// Lets a worker that was ended on purpose start again.
    pub(in crate::groups::supervisor) fn allow_start(&mut self) {
        match &mut self.state {
            WorkerState::Running(_) => {}
            WorkerState::Ending(EndingWorker { until, .. })
            | WorkerState::Waiting { until, .. } => {
                *until = (*until).min(Instant::now());
            }
        }
    }

    /// Notes the exit of an ending worker, and kills it if that takes too long.
    pub(in crate::groups::supervisor) fn reap(&mut self) {
        self.pass_on_log();
        let WorkerState::Ending(ending) = &mut self.state else {
            return;
        };
        let name = &self.plan.name;
        match self.account.reap(|| ending.child.try_wait()) {
            Ok(None) => {}
            ended => {
                let mut why = std::mem::take(&mut ending.why);
                if ending.is_lost
                    && let Ok(Some(status)) = ended
                {
                    why = format!("the worker ended: {status}");
                    tracing::warn!("group {name}: {why}; a new one takes over its frames");
                }
                let until = ending.until;
                self.state = WorkerState::Waiting { until, why };
                return;
            }
        }
        if ending.kill_at.is_some_and(|at| at <= Instant::now()) {
            ending.kill_at = None;
            let what = match ending.is_lost {
                true => "has closed its channel and lives on",
                false => "does not stop",
            };
            tracing::warn!("group {name}: the worker {what}: it is killed");
            if let Err(error) = ending.child.kill() {
                tracing::warn!("group {name}: {error}");
            }
        }
    }
}
