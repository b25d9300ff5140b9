//! The events that end a machine's sleep: time, events of processes, and hints.

use std::os::fd::{AsFd, BorrowedFd};

use uksm_policy::command::{Nanos, Observation, SpaceId};

use super::LinuxMachine;
use crate::clock;
use crate::discovery::Discovery;
use crate::domain::Domain;
use crate::hints::Feed;
use crate::sleeper::WakeCause;

impl<D: Domain, P: Discovery> LinuxMachine<D, P> {
    /// Limits each sleep to this time: the caller of the loop may have other duties, such as a
    /// watchdog.
    pub fn sleep_at_most(&mut self, longest: Nanos) {
        self.longest_sleep = longest;
    }

    /// Starts hints of these spaces.
    pub(super) fn hint(&mut self, spaces: impl Iterator<Item = SpaceId>) {
        let Some(hints) = &mut self.hints else {
            return;
        };
        for space in spaces {
            if let Some(pid) = self.processes.process_of(space) {
                hints.follow(pid, space);
                self.hinted.insert(space, pid);
            }
        }
    }

    /// Reads the hints that wait; none without programs.
    pub(super) fn take_hints(&mut self) -> Observation {
        let taken = self.hints.as_mut().map(Feed::take).unwrap_or_default();
        Observation::Hints {
            hints: taken.hints,
            lost: taken.lost,
            lost_of: taken.lost_of,
            grown: taken.grown,
            more: taken.more,
        }
    }

    /// Sleeps until `until`. From `events_wake_from` on, an event ends the sleep, as does a process
    /// old enough to be checked; from `hints_wake_from` on, a hint.
    pub(super) fn sleep(
        &mut self,
        until: Nanos,
        events_wake_from: Nanos,
        hints_wake_from: Nanos,
    ) -> Observation {
        let now = clock::now();
        if self.short_memory.is_found(now) {
            return Observation::MemoryIsShort;
        }
        let until = until.min(now.saturating_add(self.longest_sleep));
        let ready_at = self.processes.ready_at().unwrap_or(Nanos::MAX);
        let ready_at = ready_at.max(events_wake_from);
        loop {
            let now = clock::now();
            if ready_at <= now {
                return Observation::EventsArrived;
            }
            let events = self.processes.events().filter(|_| events_wake_from <= now);
            let hints = self.hints.as_ref().filter(|_| hints_wake_from <= now);
            let watched: Vec<BorrowedFd<'_>> =
                events.into_iter().chain(hints.map(AsFd::as_fd)).collect();
            // The sleep ends when another source begins to count.
            let next = [events_wake_from, hints_wake_from, ready_at];
            let next = next.into_iter().filter(|&at| at > now).min();
            let end = next.unwrap_or(Nanos::MAX).min(until);
            match self.sleeper.sleep(end, &watched) {
                WakeCause::Called => return Observation::Woke,
                WakeCause::Readable(0) if events.is_some() => return Observation::EventsArrived,
                WakeCause::Readable(_) => return Observation::HintsArrived,
                WakeCause::InTime if end >= until => return Observation::Woke,
                WakeCause::InTime => {}
            }
        }
    }
}
