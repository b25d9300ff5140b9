//! When hints are taken from the machine.
//!
//! # Problem
//! Hints that come one by one must not wake the daemon for each; what waits in the machine is
//! dropped when there is no room; and where the share is small, taking them alone could use it up.
//!
//! # Approach
//! They are taken once an interval at most, and as seldom as makes it one part in
//! [`TAKING_SHARE_DIVISOR`] of their time, with the wake-ups that it takes. Where more come than
//! are taken at a time, they are taken at once, as long as that takes no larger part of the time
//! for hints than this: what a slow machine has merged for a second has earned it many. A machine
//! that was asleep and could have said that some came, and did not, has none.

use crate::command::Nanos;
use crate::convert;

/// Part of the time of hints that taking them may use: one in this many.
const TAKING_SHARE_DIVISOR: Nanos = 4;
/// What following has earned counts up to so much, in nanoseconds.
const MAX_SAVED: i64 = 500_000_000;

/// When they are taken.
#[derive(Debug)]
pub(super) struct Taking {
    /// The shortest time between two.
    interval: Nanos,
    due: Nanos,
    is_under_way: bool,
    /// What it cost last.
    cost: Nanos,
    /// What following has earned it, less what it has cost; below 0 if it is to wait.
    balance: i64,
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
            balance: 0,
            is_watched: false,
        }
    }

    /// Whether hints are to be taken; `is_idle` if none wait to be followed.
    pub(super) fn is_due(&self, is_idle: bool, now: Nanos) -> bool {
        now >= self.due && (self.balance >= 0 || is_idle)
    }

    /// From when on.
    pub(super) fn due_at(&self) -> Nanos {
        self.due
    }

    /// They are taken now.
    pub(super) fn begin(&mut self) {
        self.is_under_way = true;
    }

    /// A call for hints has cost this much: to take some, or to follow them.
    pub(super) fn charge(&mut self, cost: Nanos) {
        if std::mem::take(&mut self.is_under_way) {
            self.cost = cost;
            // Where nothing waits they are taken all the same.
            self.balance = self.balance.max(0) - convert::signed(cost);
        } else {
            let earned = convert::signed(cost / (TAKING_SHARE_DIVISOR - 1));
            self.balance = (self.balance + earned).min(MAX_SAVED);
        }
    }

    /// They were taken, and more wait, or not. Hints may use this share of a core.
    pub(super) fn end(&mut self, more: bool, share: f64, now: Nanos) {
        let seldom = convert::nanos(
            convert::float(self.cost) / share * convert::float(TAKING_SHARE_DIVISOR),
        );
        self.due = if more {
            now
        } else {
            now + seldom.max(self.interval)
        };
    }

    /// A sleep begins that lasts until then, and that hints end from `hinted_from` on.
    pub(super) fn sleeps(&mut self, until: Nanos, hinted_from: Nanos) {
        self.is_watched = hinted_from < until;
    }

    /// A sleep has ended. If `hinted`, some wait; else none, if they would have ended it. If they
    /// would not, nothing is known, and they are taken when that was due.
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
    fn taking_takes_a_quarter_of_their_time_at_most() {
        let mut taking = Taking::new(20 * MILLISECOND);
        let take = |taking: &mut Taking| {
            taking.begin();
            taking.charge(MILLISECOND);
            taking.end(true, 0.5, SECOND);
        };
        take(&mut taking);
        assert!(!taking.is_due(false, SECOND));
        assert!(taking.is_due(true, SECOND), "nothing is to be followed");
        taking.charge(3 * MILLISECOND);
        assert!(taking.is_due(false, SECOND));
        take(&mut taking);
        taking.charge(33 * MILLISECOND);
        let mut times = 0;
        while taking.is_due(false, SECOND) {
            take(&mut taking);
            times += 1;
        }
        assert_eq!(times, 11);
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
