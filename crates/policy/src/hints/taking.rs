//! When hints are taken from the machine.
//!
//! # Problem
//! Hints that come one by one must not wake the daemon for each; what waits in the machine is dropped when
//! there is no room; and where the share is small, taking them alone could use it up.
//!
//! # Approach
//! They are taken once an interval at most, and as seldom as makes it one part in [`ONE_OF`] of their
//! time, with the wake-ups that it takes. Between two times, some are followed. A machine that was asleep and
//! could have said that some came, and did not, has none.

use crate::command::Nanos;
use crate::convert;

/// One part of their time, of so many, is for taking them.
const ONE_OF: f64 = 4.0;

/// When they are taken.
#[derive(Debug)]
pub(super) struct Taking {
    /// The shortest time between two.
    interval: Nanos,
    due: Nanos,
    is_under_way: bool,
    /// What it cost last.
    cost: Nanos,
    /// Whether any were followed since.
    has_followed: bool,
    /// Whether hints would have ended the last sleep.
    is_watched: bool,
}

impl Taking {
    /// None was taken.
    pub(super) fn new(interval: Nanos) -> Taking {
        Taking {
            interval,
            due: 0,
            is_under_way: false,
            cost: 0,
            has_followed: true,
            is_watched: false,
        }
    }

    /// Whether hints are to be taken; `is_idle` if none wait to be followed.
    pub(super) fn is_due(&self, is_idle: bool, now: Nanos) -> bool {
        now >= self.due && (self.has_followed || is_idle)
    }

    /// From when on.
    pub(super) fn due_at(&self) -> Nanos {
        self.due
    }

    /// They are taken now.
    pub(super) fn begin(&mut self) {
        self.is_under_way = true;
    }

    /// A call for hints has cost this much.
    pub(super) fn charge(&mut self, cost: Nanos) {
        if std::mem::take(&mut self.is_under_way) {
            self.cost = cost;
        }
    }

    /// They were taken, and more wait, or not. Hints may use this share of a core.
    pub(super) fn end(&mut self, more: bool, share: f64, now: Nanos) {
        self.has_followed = false;
        let seldom = convert::nanos(convert::float(self.cost) / share * ONE_OF);
        self.due = if more {
            now
        } else {
            now + seldom.max(self.interval)
        };
    }

    /// Some were followed.
    pub(super) fn followed(&mut self) {
        self.has_followed = true;
    }

    /// A sleep begins that lasts until then, and that hints end from `hinted_from` on.
    pub(super) fn sleeps(&mut self, until: Nanos, hinted_from: Nanos) {
        self.is_watched = hinted_from < until;
    }

    /// A sleep has ended. If `hinted`, some wait; else none, if they would have ended it. If they would
    /// not, nothing is known, and they are taken when that was due.
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
        let mut taking = Taking::new(20 * MILLISECOND);
        taking.end(false, 0.5, SECOND);
        assert!(!taking.is_due(true, SECOND + MILLISECOND));
        // They were due in it, and it was over before they would have ended it.
        taking.sleeps(2 * SECOND, 2 * SECOND);
        taking.woken(false, 2 * SECOND + 1);
        assert!(taking.is_due(true, 2 * SECOND + 1));
        // They were watched, and nothing came.
        taking.sleeps(4 * SECOND, 3 * SECOND);
        taking.woken(false, 4 * SECOND);
        assert!(!taking.is_due(true, 4 * SECOND));
        taking.sleeps(6 * SECOND, 5 * SECOND);
        taking.woken(true, 5 * SECOND);
        assert!(taking.is_due(true, 5 * SECOND));
    }

    #[test]
    fn some_are_followed_before_more_are_taken() {
        let mut taking = Taking::new(20 * MILLISECOND);
        taking.end(true, 0.5, SECOND);
        assert!(!taking.is_due(false, SECOND));
        taking.followed();
        assert!(taking.is_due(false, SECOND));
    }

    #[test]
    fn where_taking_is_dear_it_is_done_seldom() {
        let mut taking = Taking::new(20 * MILLISECOND);
        taking.begin();
        taking.charge(60_000);
        taking.charge(9 * SECOND); // that was for following
        taking.end(false, 0.001, SECOND);
        assert_eq!(taking.due_at(), SECOND + 240 * MILLISECOND);
    }
}
