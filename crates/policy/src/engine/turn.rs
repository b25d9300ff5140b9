//! The part that requested the command under way, and a command to repeat.

use crate::accounts::payer::Payer;
use crate::command::{Command, FrameId, Nanos};
use crate::ids::RegionId;
use crate::merge::collisions::Finder;
use crate::params::SECOND;
use crate::report::RetryReport;
use crate::spaces::discovery::Discover;

/// Limit of the wait before a command is repeated for lack of memory.
const MAX_WAIT: Nanos = 2 * SECOND;

/// The part that requested the command under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The run has not started.
    Nothing,
    /// Discovery: a process list, sizes, or a mapping list.
    Discover(Discover),
    /// A level of the ladder, or a first sweep.
    Sample,
    /// Pages that may equal a region whose samples did.
    Extend,
    /// Pages whose hash collides are to be read in full.
    ReadInFull(Finder),
    /// Frames of such hashes are to be hashed in full: this number of ids from this one on.
    HashInFull(Finder, FrameId, u32),
    /// Hints are to be taken in.
    Hints,
    /// The merge queue.
    Fold,
    /// Frames without mappings are to be freed, paid by this payer.
    Reap(Payer),
    /// Pages of this region whose frames nothing else maps are to be given back.
    GiveBack(RegionId),
    /// A page that a false match has made a frame of is to be given back.
    Undo,
    /// The frames' hashes are to be learned or shifted.
    Rehash,
    /// None: the engine sleeps.
    Sleep,
}

/// A command, and the part that requested it.
#[derive(Debug)]
pub(super) struct Action {
    pub(super) turn: Turn,
    pub(super) command: Command,
}

impl Turn {
    /// The part's command.
    pub(super) fn requests(self, command: Command) -> Action {
        Action {
            turn: self,
            command,
        }
    }
}

/// A command that failed for lack of memory. It is repeated before any other, each time after twice
/// the wait: nothing is lost, and the machine is not pressed.
#[derive(Debug, Default)]
pub(super) struct Retry {
    action: Option<Action>,
    at: Nanos,
    wait: Nanos,
    counts: RetryReport,
}

impl Retry {
    /// The command found no memory. The first wait is `shortest`.
    pub(super) fn later(&mut self, action: Action, now: Nanos, shortest: Nanos) {
        self.counts.retried += 1;
        self.wait = (self.wait * 2).clamp(shortest, MAX_WAIT);
        self.at = now + self.wait;
        self.action = Some(action);
    }

    /// A command was performed: there is memory.
    pub(super) fn succeeded(&mut self) {
        self.wait = 0;
    }

    /// The next command, if one has to be repeated.
    pub(super) fn next(&mut self, now: Nanos) -> Option<Action> {
        if self.action.is_some() && now < self.at {
            let (until, never) = (self.at, Nanos::MAX);
            let command = Command::Sleep {
                until,
                events_wake_from: never,
                hints_wake_from: never,
            };
            return Some(Turn::Sleep.requests(command));
        }
        self.action.take()
    }

    /// The counts.
    pub(super) fn report(&self) -> RetryReport {
        self.counts
    }
}
