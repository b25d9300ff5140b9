//! The engine's clock: the time of the last step, and its rounds.
//!
//! The policy reads no clock. Each step passes the time, and every part that decides gets the
//! [`Moment`] of the step.

use crate::command::Nanos;
use crate::convert;
use crate::params::Params;

/// The time of the last step.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    now: Nanos,
    started: Option<Nanos>,
    round: Nanos,
}

/// The common context of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    /// The time.
    pub(crate) now: Nanos,
    /// Length of a global round.
    pub(crate) round: Nanos,
    /// Rounds since the start: the clock of the index.
    pub(crate) round_number: u32,
    /// The parameters.
    pub(crate) params: &'a Params,
}

impl Clock {
    /// A clock without a time yet, for global rounds of this length.
    pub(crate) fn new(round: Nanos) -> Clock {
        Clock {
            now: 0,
            started: None,
            round,
        }
    }

    /// Sets the time to `now`, unless that is earlier than the last one. Returns whether this is
    /// the start.
    pub(crate) fn advance(&mut self, now: Nanos) -> bool {
        self.now = self.now.max(now);
        let is_start = self.started.is_none();
        self.started.get_or_insert(self.now);
        is_start
    }

    /// The time.
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Nanos {
        self.now - self.started.unwrap_or(self.now)
    }

    /// The moment of this step.
    pub(crate) fn moment<'a>(&self, params: &'a Params) -> Moment<'a> {
        Moment {
            now: self.now,
            round: self.round,
            round_number: convert::narrow(self.elapsed() / self.round),
            params,
        }
    }
}
