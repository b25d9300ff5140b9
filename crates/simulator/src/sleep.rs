//! Ends of a sleep: its time, process events of the machine, and hints.

use uksm_policy::command::{Command, Nanos};

use crate::Host;

/// Events that end a sleep of a deduplicator early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleepEnds {
    /// The domain that it serves.
    domain: u16,
    /// Times from which process events, and hints, end the sleep.
    events_wake_from: Nanos,
    hints_wake_from: Nanos,
}

impl SleepEnds {
    /// The end of the sleep that a domain began by a command at `now`, and the events that end it
    /// early; none if the command is no sleep.
    pub(crate) fn of(command: &Command, domain: u16, now: Nanos) -> Option<(Nanos, SleepEnds)> {
        let &Command::Sleep {
            until,
            events_wake_from,
            hints_wake_from,
        } = command
        else {
            return None;
        };
        let ends = SleepEnds {
            domain,
            events_wake_from: events_wake_from.max(now),
            hints_wake_from: hints_wake_from.max(now),
        };
        Some((until.max(now), ends))
    }

    /// The time at which a pending event ends the sleep, if it does.
    pub(crate) fn at(&self, host: &Host) -> Option<Nanos> {
        let events = host
            .events_at(self.domain)
            .map(|at| at.max(self.events_wake_from));
        let hints = host.is_hinted(self.domain).then_some(self.hints_wake_from);
        events.into_iter().chain(hints).min()
    }
}
