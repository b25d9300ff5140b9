//! Who asked for the command that is under way, and the command that is to be given again.

use crate::accounts::payer::Payer;
use crate::command::{Command, FrameId, Nanos};
use crate::merge::collisions::Finder;
use crate::params::SECOND;
use crate::report::RetryReport;
use crate::spaces::discovery::Discover;

/// The longest wait before a command is given again for which there was no memory.
const MAX_WAIT: Nanos = 2 * SECOND;

/// Who asked for the command that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The run has not started.
    Nothing,
    /// Discovery: a process list, sizes, or a mapping list.
    Discover(Discover),
    /// A level of the ladder, or a first sweep.
    Sample,
    /// What may equal a region of which samples did.
    Extend,
    /// Pages whose hash collides are to be read in full.
    ReadInFull(Finder),
    /// Frames of such hashes are to be hashed in full for them: of so many ids from this one on.
    HashInFull(Finder, FrameId, u32),
    /// Hints are to be taken in.
    Hints,
    /// The merge queue.
    Fold,
    /// Frames without mappings are to be freed, which this one pays.
    Reap(Payer),
    /// The frames' hashes are to be learned or shifted.
    Rehash,
    /// Nobody.
    Sleep,
}

/// A command for which there was no memory. It is given again before anything else is done, each
/// time after twice the wait: nothing is lost, and the machine is not pressed.
#[derive(Debug, Default)]
pub(super) struct Retry {
    command: Option<(Turn, Command)>,
    at: Nanos,
    wait: Nanos,
    counts: RetryReport,
}

impl Retry {
    /// There was no memory for the command. The first wait is `shortest`.
    pub(super) fn later(&mut self, turn: Turn, command: Command, now: Nanos, shortest: Nanos) {
        self.counts.retried += 1;
        self.wait = (self.wait * 2).clamp(shortest, MAX_WAIT);
        self.at = now + self.wait;
        self.command = Some((turn, command));
    }

    /// A command was performed: there is memory.
    pub(super) fn succeeded(&mut self) {
        self.wait = 0;
    }

    /// What to do before anything else, if there is something to be given again.
    pub(super) fn next(&mut self, now: Nanos) -> Option<(Turn, Command)> {
        if self.command.is_some() && now < self.at {
            let (until, never) = (self.at, Nanos::MAX);
            let command = Command::Sleep {
                until,
                told_from: never,
                hinted_from: never,
            };
            return Some((Turn::Sleep, command));
        }
        self.command.take()
    }

    /// The counts.
    pub(super) fn report(&self) -> RetryReport {
        self.counts
    }
}
