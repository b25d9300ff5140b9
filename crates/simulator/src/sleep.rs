//! What ends a sleep: its time, what the machine is told of processes, and hints.

use uksm_policy::command::{Command, Nanos};

use crate::Host;

/// What ends a sleep of a deduplicator early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleepEnds {
    /// The domain that it serves.
    domain: u16,
    /// From when on what the machine is told of processes does so, and hints.
    told_from: Nanos,
    hinted_from: Nanos,
}

impl SleepEnds {
    /// Until when a command that a domain was given at `now` sleeps, and what ends that; none if it
    /// is no sleep.
    pub(crate) fn of(command: &Command, domain: u16, now: Nanos) -> Option<(Nanos, SleepEnds)> {
        let &Command::Sleep {
            until,
            told_from,
            hinted_from,
        } = command
        else {
            return None;
        };
        let ends = SleepEnds {
            domain,
            told_from: told_from.max(now),
            hinted_from: hinted_from.max(now),
        };
        Some((until.max(now), ends))
    }

    /// When what waits now ends the sleep, if it does.
    pub(crate) fn at(&self, host: &Host) -> Option<Nanos> {
        let told = host.told_at(self.domain).map(|at| at.max(self.told_from));
        let hinted = host.is_hinted(self.domain).then_some(self.hinted_from);
        told.into_iter().chain(hinted).min()
    }
}
