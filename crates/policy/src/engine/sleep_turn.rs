//! How long the engine sleeps when it has no work, and the events that wake it before.
//!
//! # Approach
//! Each part reports the time at which it may go on; the earliest one ends the sleep. It lasts at
//! least T_s, and until used processor time is paid back. Events of processes and hints end it
//! earlier, from the times at which their parts may use them.

use super::Engine;
use super::turn::{Action, Turn};
use crate::command::{Command, Nanos};

impl Engine {
    /// Sleeps until a part may go on, and at least T_s.
    pub(super) fn sleep(&mut self) -> Action {
        let now = self.clock.now();
        let earliest = self.accounts.paid_at().max(now + self.params.sleep);
        let newcomers_at = self.discovery.newcomers_at(now);
        let until = [
            self.lookup.reap_wakes_at(now),
            self.ladder
                .due_at(now, newcomers_at, self.spaces.has_sparse_mappings()),
            self.hints.due_at(now),
            self.reading_in_full_due_at(),
        ]
        .into_iter()
        .flatten()
        .fold(self.discovery.due_at(now), Nanos::min)
        .max(earliest);
        let events_wake_from = self.discovery.events_wake_from(now).max(earliest);
        let hints_wake_from = self.hints.hints_wake_from(now).max(earliest);
        self.hints.sleeps(until, hints_wake_from);
        let command = Command::Sleep {
            until,
            events_wake_from,
            hints_wake_from,
        };
        Turn::Sleep.requests(command)
    }
}
