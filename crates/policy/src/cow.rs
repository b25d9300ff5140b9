//! Whether merged pages of a region are written again too soon (UKSM §5.2, V_cow).
//!
//! # Problem
//! Merging a page that is about to be written costs the merge and the process a copy. No hook tells
//! of the writes, and the number of a frame's mappings cannot tell a write from an unmap.
//!
//! # Approach
//! Pages believed to be merged are looked at again as sampling comes by: one that has its own
//! copy was broken. The share broken is brought to one global round, because a check after an hour
//! says less than one after a second. A region above V_cow is left alone, each time for twice as
//! long (*strikes*). When its time is over a few of its pages are merged on trial and looked at a
//! round later; only if those hold is it open again, so that a lapsed ban costs a few pages and not
//! a sweep.
//!
//! # Units
//! Nanoseconds; shares 0 to 1, a round.
//!
//! # Source
//! UKSM §5.2 and §8.1.2, with sampling in place of a hook in the fault handler.

use crate::command::Nanos;
use crate::number;

/// Checks needed for a verdict.
const ENOUGH: u32 = 8;
/// Pages merged on trial.
pub(crate) const TRIAL_PAGES: usize = 16;
/// The longest ban is 2^(2 + this) rounds.
const MOST_STRIKES: u32 = 10;
/// A share seen after less than a quarter of a round is not extrapolated further than this.
const MOST_ROUNDS: f64 = 4.0;

/// How the region may be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Merge.
    Open,
    /// Merge a few pages and see.
    Trial,
    /// Leave alone.
    Closed,
}

/// What is known of one region.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cow {
    checked: u32,
    broken: u32,
    /// About when its pages were merged.
    merged_at: Nanos,
    closed_until: Nanos,
    strikes: u32,
    trial: Option<Box<Trial>>,
}

#[derive(Debug, Clone)]
struct Trial {
    pages: Vec<u32>,
    /// From when on they are worth looking at.
    due: Nanos,
}

impl Cow {
    /// What may be done at `now`.
    pub(crate) fn admission(&self, now: Nanos) -> Admission {
        match self.strikes {
            0 => Admission::Open,
            _ if now < self.closed_until => Admission::Closed,
            _ => Admission::Trial,
        }
    }

    /// Whether one more page can be merged on trial.
    pub(crate) fn trial_has_room(&self) -> bool {
        self.trial
            .as_ref()
            .is_none_or(|trial| trial.pages.len() < TRIAL_PAGES)
    }

    /// `page` was merged.
    pub(crate) fn merged(&mut self, page: u32, now: Nanos, round: Nanos) {
        self.merged_at = match self.merged_at {
            0 => now,
            at => at + now.saturating_sub(at) / 8,
        };
        if self.admission(now) == Admission::Trial {
            let trial = self.trial.get_or_insert_with(|| {
                Box::new(Trial {
                    pages: Vec::with_capacity(TRIAL_PAGES),
                    due: 0,
                })
            });
            if trial.pages.len() < TRIAL_PAGES {
                trial.pages.push(page);
                trial.due = now + round;
            }
            self.merged_at = now;
        }
    }

    /// Pages merged on trial that should be looked at now.
    pub(crate) fn trial_due(&mut self, now: Nanos) -> Vec<u32> {
        match &mut self.trial {
            Some(trial) if trial.pages.len() * 2 >= TRIAL_PAGES && now >= trial.due => {
                std::mem::take(&mut trial.pages)
            }
            _ => vec![],
        }
    }

    /// A page believed to be merged was looked at.
    pub(crate) fn check(&mut self, broken: bool) {
        self.checked += 1;
        self.broken += u32::from(broken);
        if self.checked > 1024 {
            self.checked /= 2;
            self.broken /= 2;
        }
    }

    /// The share of merged pages that is broken in a round.
    pub(crate) fn share(&self, now: Nanos, round: Nanos) -> f64 {
        if self.checked == 0 {
            return 0.0;
        }
        let share = f64::from(self.broken) / f64::from(self.checked);
        let age = number::float(now.saturating_sub(self.merged_at).max(1));
        let rounds = (number::float(round) / age).min(MOST_ROUNDS);
        1.0 - (1.0 - share).powf(rounds)
    }

    /// Judges: closes the region if more than `v_cow` is broken a round, opens it if a trial
    /// held. Returns whether it was closed just now.
    pub(crate) fn judge(&mut self, v_cow: Option<f64>, now: Nanos, round: Nanos) -> bool {
        let Some(v_cow) = v_cow else { return false };
        if self.checked < ENOUGH {
            return false;
        }
        if self.share(now, round) > v_cow {
            self.strikes = (self.strikes + 1).min(MOST_STRIKES);
            self.closed_until = now + (round << (1 + self.strikes));
            self.forget_checks();
            return true;
        }
        if self.strikes > 0 && self.admission(now) == Admission::Trial {
            self.strikes = 0;
            self.forget_checks();
        }
        false
    }

    /// A new sweep merges: what was seen before is no longer about its pages.
    pub(crate) fn forget_checks(&mut self) {
        (self.checked, self.broken, self.merged_at) = (0, 0, 0);
        self.trial = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Nanos = 2_000_000_000;

    fn checked(cow: &mut Cow, broken: u32, of: u32) {
        for i in 0..of {
            cow.check(i < broken);
        }
    }

    #[test]
    fn region_broken_above_v_cow_is_closed_ever_longer() {
        let mut cow = Cow::default();
        let mut now = ROUND;
        let mut bans = vec![];
        for _ in 0..4 {
            cow.merged(0, now, ROUND);
            now += ROUND;
            checked(&mut cow, 7, 10);
            assert!(cow.judge(Some(0.5), now, ROUND));
            assert_eq!(cow.admission(now), Admission::Closed);
            bans.push(cow.closed_until - now);
            now = cow.closed_until;
            assert_eq!(cow.admission(now), Admission::Trial);
        }
        assert_eq!(bans, vec![4 * ROUND, 8 * ROUND, 16 * ROUND, 32 * ROUND]);
    }

    #[test]
    fn slow_writes_do_not_close() {
        let mut cow = Cow::default();
        cow.merged(0, ROUND, ROUND);
        // Seven of ten broken within an hour are few a round.
        checked(&mut cow, 7, 10);
        assert!(!cow.judge(Some(0.5), ROUND + 1800 * ROUND, ROUND));
    }

    #[test]
    fn trial_that_holds_opens_again() {
        let mut cow = Cow::default();
        cow.merged(0, ROUND, ROUND);
        checked(&mut cow, 10, 10);
        assert!(cow.judge(Some(0.5), 2 * ROUND, ROUND));
        let mut now = cow.closed_until;
        for page in 0..40 {
            if cow.trial_has_room() {
                cow.merged(page, now, ROUND);
            }
        }
        assert!(cow.trial_due(now).is_empty(), "too early to tell");
        now += ROUND;
        let pages = cow.trial_due(now);
        assert_eq!(pages.len(), TRIAL_PAGES);
        checked(&mut cow, 1, 16);
        assert!(!cow.judge(Some(0.5), now, ROUND));
        assert_eq!(cow.admission(now), Admission::Open);
    }

    #[test]
    fn without_v_cow_nothing_is_closed() {
        let mut cow = Cow::default();
        cow.merged(0, ROUND, ROUND);
        checked(&mut cow, 100, 100);
        assert!(!cow.judge(None, 2 * ROUND, ROUND));
        assert_eq!(cow.admission(2 * ROUND), Admission::Open);
    }

    #[test]
    fn few_checks_are_no_verdict() {
        let mut cow = Cow::default();
        cow.merged(0, ROUND, ROUND);
        checked(&mut cow, 7, 7);
        assert!(!cow.judge(Some(0.5), 2 * ROUND, ROUND));
    }
}
