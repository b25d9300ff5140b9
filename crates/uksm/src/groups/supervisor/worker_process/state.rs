//! The state of a worker: it runs, ends, or waits for its next start.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::Instant;

use uksm_linux::hints::HintSender;

use crate::control::Answer;
use crate::groups::wire::channel::Channel;

#[derive(Debug)]
pub(super) struct RunningWorker {
    pub(super) child: Child,
    /// Readable when it has exited.
    pub(super) pidfd: OwnedFd,
    pub(super) channel: Channel,
    /// The sending end of its hints, if it has any.
    pub(super) hints: Option<HintSender>,
    pub(super) since: Instant,
    /// It has sent [`WorkerMessage::Ready`](crate::groups::wire::messages::WorkerMessage::Ready).
    pub(super) is_ready: bool,
    /// Merged pages that processes have written, by its last report.
    pub(super) written_pages: u64,
}

#[derive(Debug)]
pub(super) enum WorkerState {
    Running(RunningWorker),
    Ending(EndingWorker),
    Waiting { until: Instant, why: String },
}

/// An ending worker.
#[derive(Debug)]
pub(super) struct EndingWorker {
    pub(super) child: Child,
    /// Readable when it has exited.
    pub(super) _pidfd: OwnedFd,
    /// Time of its kill; none if it was killed.
    pub(super) kill_at: Option<Instant>,
    /// Time from which the next one may be started.
    pub(super) until: Instant,
    /// Why it ends.
    pub(super) why: String,
    /// It has died, or closed its channel, without a stop.
    pub(super) is_lost: bool,
}

/// A request that was sent.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) number: u64,
    pub(super) answer: Option<Result<Answer, String>>,
}
