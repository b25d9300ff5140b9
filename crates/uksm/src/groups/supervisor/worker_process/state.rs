//! How a worker stands: it runs, ends, or waits for its next start.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::Instant;

use uksm_linux::hints::HintSender;

use crate::control::Answer;
use crate::groups::wire::channel::Channel;

#[derive(Debug)]
pub(super) struct Running {
    pub(super) child: Child,
    /// Readable when it has exited.
    pub(super) pidfd: OwnedFd,
    pub(super) channel: Channel,
    /// Where its hints go, if it has any.
    pub(super) hints: Option<HintSender>,
    pub(super) since: Instant,
    /// It has sent [`WorkerMessage::Ready`](crate::groups::wire::messages::WorkerMessage::Ready).
    pub(super) is_ready: bool,
}

#[derive(Debug)]
pub(super) enum State {
    Running(Running),
    Ending(Ending),
    Waiting { until: Instant, why: String },
}

/// A worker that is about to exit.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) child: Child,
    /// Readable when it has exited.
    pub(super) _pidfd: OwnedFd,
    /// It is killed then; none if it was.
    pub(super) kill_at: Option<Instant>,
    /// The next one may be started then.
    pub(super) until: Instant,
    /// Why it ends.
    pub(super) why: String,
    /// It has died, or closed its channel, and nobody told it to.
    pub(super) is_lost: bool,
}

/// A question that was passed on.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) number: u64,
    pub(super) answer: Option<Result<Answer, String>>,
}
