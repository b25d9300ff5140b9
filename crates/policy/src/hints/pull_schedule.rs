//! Decides when hints are taken from the machine.
//!
//! # Problem
//! Hints that come one by one must not wake the daemon for each; the machine drops hints when its
//! room is full; and at a small share, taking them alone could use it up.
//!
//! # Approach
//! Hints are taken at most once per interval. While some wait to be followed, taking more uses one
//! part in [`TAKING_SHARE_DIVISOR`] of the time for hints: a second of following on a slow machine
//! has earned many calls. If more are left than one call takes, the next call follows at once.
//! Without it: hints of two guests at 0.27 % of a core save 11 % of the equal pages instead of 14.
//!
//! A machine that slept and did not report any hint, although it could, has none. Without it: small
//! groups take 3 % of a core in calm instead of 0.25.

use crate::command::Nanos;
use crate::convert;

/// Part of the time of hints that taking them may use: one in this number.
const TAKING_SHARE_DIVISOR: Nanos = 4;
/// Limit of the time earned by following, in nanoseconds.
const MAX_SAVED: i64 = 500_000_000;

/// The times of taking.
#[derive(Debug)]
pub(super) struct PullSchedule {
    /// The shortest time between two takings.
    interval: Nanos,
    due: Nanos,
    is_under_way: bool,
    /// Time earned by following, less the cost of taking; below 0 if taking has to wait.
    balance: i64,
    /// Whether hints would have ended the last sleep.
    is_watched: bool,
}

impl PullSchedule {
    /// No hint was taken yet.
    pub(super) fn new(interval: Nanos) -> PullSchedule {
        PullSchedule {
            interval,
            due: 0,
            is_under_way: false,
            balance: 0,
            is_watched: false,
        }
    }

    /// Whether hints are to be taken; `is_idle` if none wait to be followed.
    pub(super) fn is_due(&self, is_idle: bool, now: Nanos) -> bool {
        now >= self.due && (self.balance >= 0 || is_idle)
    }

    /// The time from which hints are to be taken.
    pub(super) fn due_at(&self) -> Nanos {
        self.due
    }

    /// Hints are taken now.
    pub(super) fn begin(&mut self) {
        self.is_under_way = true;
    }

    /// A call for hints has cost this much: to take some, or to follow them.
    pub(super) fn charge(&mut self, cost: Nanos) {
        if std::mem::take(&mut self.is_under_way) {
            // If no hint waits, they are taken all the same.
            self.balance = self.balance.max(0) - convert::signed(cost);
        } else {
            let earned = convert::signed(cost / (TAKING_SHARE_DIVISOR - 1));
            self.balance = (self.balance + earned).min(MAX_SAVED);
        }
    }

    /// Hints were taken; `more` if others wait in the machine.
    pub(super) fn end(&mut self, more: bool, now: Nanos) {
        self.due = if more { now } else { now + self.interval };
    }

    /// A sleep until `until` begins, which hints may end from `hints_wake_from` on.
    pub(super) fn sleeps(&mut self, until: Nanos, hints_wake_from: Nanos) {
        self.is_watched = hints_wake_from < until;
    }

    /// A sleep has ended. If `hinted`, some wait; otherwise none do, if hints would have ended it.
    /// If not, nothing is known, and the time of the next taking stays.
    pub(super) fn woken(&mut self, hinted: bool, now: Nanos) {
        if hinted {
            self.due = now;
        } else if self.is_watched {
            self.due = self.due.max(now + self.interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{MILLISECOND, SECOND};

    #[test]
    fn hints_that_could_not_end_a_sleep_are_taken_after_it() {
        let mut schedule = PullSchedule::new(20 * MILLISECOND);
        schedule.end(false, SECOND);
        assert!(!schedule.is_due(true, SECOND + MILLISECOND));
        // A pull was due in the sleep, which ended before hints could have ended it.
        schedule.sleeps(2 * SECOND, 2 * SECOND);
        schedule.woken(false, 2 * SECOND + 1);
        assert!(schedule.is_due(true, 2 * SECOND + 1));
        // Hints could have ended the sleep, and none came.
        schedule.sleeps(4 * SECOND, 3 * SECOND);
        schedule.woken(false, 4 * SECOND);
        assert!(!schedule.is_due(true, 4 * SECOND));
        schedule.sleeps(6 * SECOND, 5 * SECOND);
        schedule.woken(true, 5 * SECOND);
        assert!(schedule.is_due(true, 5 * SECOND));
    }

    #[test]
    fn taking_takes_a_quarter_of_their_time_at_most() {
        let mut schedule = PullSchedule::new(20 * MILLISECOND);
        let take = |schedule: &mut PullSchedule| {
            schedule.begin();
            schedule.charge(MILLISECOND);
            schedule.end(true, SECOND);
        };
        take(&mut schedule);
        assert!(!schedule.is_due(false, SECOND));
        assert!(schedule.is_due(true, SECOND), "nothing is to be followed");
        schedule.charge(3 * MILLISECOND);
        assert!(schedule.is_due(false, SECOND));
        take(&mut schedule);
        schedule.charge(33 * MILLISECOND);
        let mut times = 0;
        while schedule.is_due(false, SECOND) {
            take(&mut schedule);
            times += 1;
        }
        assert_eq!(times, 11);
    }
}
