//! Whether merged pages of a region are written again too soon (UKSM §5.2, V_cow).
//!
//! # Problem
//! Merging a page that is about to be written costs the merge and the process a copy. No hook tells
//! of the writes, and the number of a frame's mappings cannot tell a write from an unmap.
//!
//! # Approach
//! Pages believed to be merged are looked at again as sampling comes by: one that has its own
//! copy was broken. Each look says something about the time since the page was last known to be
//! merged (`held.rs`): a page that lasted was exposed to writes for all of it, a broken one for
//! half, not knowing when. Breaks ÷ exposure is the rate, and the rate gives the share that is
//! broken in one global round, which is what V_cow is about: that a sixth is broken in an hour is
//! no reason to leave a region alone. No look counts for more rounds than the slowest rate of
//! interest takes, so that a calm past does not hide what happens now.
//!
//! A region above V_cow is left alone, each time for twice as
//! long (*strikes*). When its time is over a few of its pages are merged on trial and looked at a
//! round later; only if those hold is it open again, so that a lapsed ban costs a few pages and not
//! a sweep. Where fewer can be merged they are looked at all the same, later and more than once.
//!
//! # Units
//! Nanoseconds; shares 0 to 1, a round; ages and exposure in rounds.
//!
//! # Source
//! UKSM §5.2 and §8.1.2, with sampling in place of a hook in the fault handler.

use crate::command::Nanos;

/// Checks needed for a verdict.
const ENOUGH: u32 = 8;
/// Pages merged on trial.
pub(crate) const TRIAL_PAGES: usize = 16;
/// The longest ban is 2^(2 + this) rounds.
const MOST_STRIKES: u32 = 10;
/// A look after less than a quarter of a round counts for that: what was broken in a blink says
/// little about a round.
const SHORTEST_AGE: f64 = 0.25;
/// If all is broken, this long ago ÷ V_cow, the share is still far below V_cow.
const AGE_OF_INTEREST: f64 = 8.0;
/// Looks after which the older ones count half.
const MEMORY: u32 = 1024;
/// A trial of fewer pages than half of [`TRIAL_PAGES`] waits for this many rounds for more.
const FEW_PAGES_WAIT: u64 = 8;

/// How the region may be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
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
    /// Rounds that the pages looked at were exposed to writes.
    exposure: f64,
    closed_until: Nanos,
    strikes: u32,
    trial: Option<Box<Trial>>,
}

#[derive(Debug, Clone)]
struct Trial {
    pages: Vec<u32>,
    /// When the last of them was known to be merged.
    known_at: Nanos,
}

impl Cow {
    /// What may be done at `now`.
    pub(crate) fn permission(&self, now: Nanos) -> Permission {
        match self.strikes {
            0 => Permission::Open,
            _ if now < self.closed_until => Permission::Closed,
            _ => Permission::Trial,
        }
    }

    /// Whether one more page can be merged on trial.
    pub(crate) fn trial_has_room(&self) -> bool {
        self.trial
            .as_ref()
            .is_none_or(|trial| trial.pages.len() < TRIAL_PAGES)
    }

    /// `page` was merged, or merged before and found so; says whether that was on trial.
    #[inline]
    pub(crate) fn merged(&mut self, page: u32, now: Nanos) -> bool {
        let is_trial = self.permission(now) == Permission::Trial;
        if is_trial {
            self.merged_on_trial(page, now);
        }
        is_trial
    }

    fn merged_on_trial(&mut self, page: u32, now: Nanos) {
        let trial = self.trial.get_or_insert_with(|| {
            Box::new(Trial {
                pages: Vec::with_capacity(TRIAL_PAGES),
                known_at: 0,
            })
        });
        if trial.pages.len() < TRIAL_PAGES {
            trial.pages.push(page);
            trial.known_at = now;
        }
    }

    /// Pages merged on trial that should be looked at now.
    pub(crate) fn trial_due(&mut self, now: Nanos, round: Nanos) -> Vec<u32> {
        let Some(trial) = &mut self.trial else {
            return vec![];
        };
        let rounds = if trial.pages.len() * 2 >= TRIAL_PAGES {
            1
        } else {
            FEW_PAGES_WAIT
        };
        if now < trial.known_at + rounds * round {
            return vec![];
        }
        std::mem::take(&mut trial.pages)
    }

    /// When the pages on trial were known to be merged.
    pub(crate) fn trial_known_at(&self) -> Option<Nanos> {
        self.trial.as_ref().map(|trial| trial.known_at)
    }

    /// A page that was known to be merged `age` rounds ago was looked at.
    pub(crate) fn check(&mut self, broken: bool, age: f64, v_cow: f64) {
        if broken {
            self.exposure += exposed(age, v_cow) / 2.0;
            self.checked += 1;
            self.broken += 1;
            self.fade();
        } else {
            self.lasted(1, age, v_cow);
        }
    }

    /// So many pages that were known to be merged `age` rounds ago are merged still.
    pub(crate) fn lasted(&mut self, pages: u32, age: f64, v_cow: f64) {
        self.exposure += exposed(age, v_cow) * f64::from(pages);
        self.checked += pages;
        self.fade();
    }

    fn fade(&mut self) {
        if self.checked > MEMORY {
            self.checked /= 2;
            self.broken /= 2;
            self.exposure /= 2.0;
        }
    }

    /// The share of merged pages that is broken in a round.
    pub(crate) fn share(&self) -> f64 {
        if self.broken == 0 {
            return 0.0;
        }
        1.0 - (-f64::from(self.broken) / self.exposure).exp()
    }

    /// Closes the region if more than `v_cow` is broken a round, opens it if a trial
    /// held. Returns whether it was closed just now.
    pub(crate) fn decide(&mut self, v_cow: Option<f64>, now: Nanos, round: Nanos) -> bool {
        let Some(v_cow) = v_cow else { return false };
        if self.checked < ENOUGH {
            return false;
        }
        if self.share() > v_cow {
            self.strikes = (self.strikes + 1).min(MOST_STRIKES);
            self.closed_until = now + (round << (1 + self.strikes));
            self.forget_checks();
            return true;
        }
        if self.strikes > 0 && self.permission(now) == Permission::Trial {
            self.strikes = 0;
            self.forget_checks();
        }
        false
    }

    /// A new sweep merges: what was seen before is no longer about its pages.
    pub(crate) fn forget_checks(&mut self) {
        (self.checked, self.broken, self.exposure) = (0, 0, 0.0);
        self.trial = None;
    }
}

/// The rounds that count of `age`.
fn exposed(age: f64, v_cow: f64) -> f64 {
    age.clamp(SHORTEST_AGE, AGE_OF_INTEREST / v_cow)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Nanos = 2_000_000_000;

    fn checked(cow: &mut Cow, broken: u32, of: u32, age: f64) {
        for i in 0..of {
            cow.check(i < broken, age, 0.5);
        }
    }

    #[test]
    fn region_broken_above_v_cow_is_closed_ever_longer() {
        let mut cow = Cow::default();
        let mut now = ROUND;
        let mut bans = vec![];
        for _ in 0..4 {
            now += ROUND;
            checked(&mut cow, 7, 10, 1.0);
            assert!(cow.decide(Some(0.5), now, ROUND));
            assert_eq!(cow.permission(now), Permission::Closed);
            bans.push(cow.closed_until - now);
            now = cow.closed_until;
            assert_eq!(cow.permission(now), Permission::Trial);
        }
        assert_eq!(bans, vec![4 * ROUND, 8 * ROUND, 16 * ROUND, 32 * ROUND]);
    }

    #[test]
    fn slow_writes_do_not_close() {
        // However many were broken, within an hour they are few a round.
        for broken in [2, 7, 10] {
            let mut cow = Cow::default();
            checked(&mut cow, broken, 10, 1800.0);
            assert!(
                !cow.decide(Some(0.5), 1800 * ROUND, ROUND),
                "{broken} of 10"
            );
        }
    }

    #[test]
    fn slow_writes_do_not_close_at_the_strictest_threshold_either() {
        let mut cow = Cow::default();
        for i in 0..100 {
            cow.check(i % 6 == 0, 1800.0, 0.01);
        }
        assert!(
            !cow.decide(Some(0.01), 1800 * ROUND, ROUND),
            "{}",
            cow.share()
        );
    }

    #[test]
    fn the_rate_is_that_of_pages_of_any_ages() {
        // A tenth is broken a round, whatever the time between looks.
        let mut cow = Cow::default();
        for (age, broken) in [(1.0, 10), (2.0, 19), (4.0, 34)] {
            checked(&mut cow, broken, 100, age);
        }
        assert!((cow.share() - 0.1).abs() < 0.01, "{}", cow.share());
    }

    #[test]
    fn a_calm_past_does_not_hide_writes_for_long() {
        let mut cow = Cow::default();
        checked(&mut cow, 0, 5000, 1800.0);
        let mut looks = 0;
        while !cow.decide(Some(0.5), ROUND, ROUND) {
            cow.check(true, 1.0, 0.5);
            looks += 1;
        }
        assert!(
            looks < 4096,
            "a quarter of a region of 64 MiB, not {looks} pages"
        );
    }

    #[test]
    fn trial_that_holds_opens_again() {
        let mut cow = Cow::default();
        checked(&mut cow, 10, 10, 1.0);
        assert!(cow.decide(Some(0.5), 2 * ROUND, ROUND));
        let mut now = cow.closed_until;
        for page in 0..40 {
            if cow.trial_has_room() {
                assert!(cow.merged(page, now));
            }
        }
        assert!(cow.trial_due(now, ROUND).is_empty(), "too early to tell");
        now += ROUND;
        let pages = cow.trial_due(now, ROUND);
        assert_eq!(pages.len(), TRIAL_PAGES);
        checked(&mut cow, 1, 16, 1.0);
        assert!(!cow.decide(Some(0.5), now, ROUND));
        assert_eq!(cow.permission(now), Permission::Open);
    }

    #[test]
    fn a_trial_of_three_pages_ends_too() {
        let mut cow = Cow::default();
        checked(&mut cow, 10, 10, 1.0);
        assert!(cow.decide(Some(0.5), 2 * ROUND, ROUND));
        let mut now = cow.closed_until;
        (0..3).for_each(|page| assert!(cow.merged(page, now)));
        assert!(
            cow.trial_due(now + ROUND, ROUND).is_empty(),
            "more may come"
        );
        for _ in 0..3 {
            now += FEW_PAGES_WAIT * ROUND;
            let pages = cow.trial_due(now, ROUND);
            assert_eq!(pages.len(), 3);
            for page in pages {
                cow.check(false, 8.0, 0.5);
                cow.merged(page, now);
            }
            assert!(!cow.decide(Some(0.5), now, ROUND));
        }
        assert_eq!(cow.permission(now), Permission::Open);
    }

    #[test]
    fn without_v_cow_nothing_is_closed() {
        let mut cow = Cow::default();
        checked(&mut cow, 100, 100, 1.0);
        assert!(!cow.decide(None, 2 * ROUND, ROUND));
        assert_eq!(cow.permission(2 * ROUND), Permission::Open);
    }

    #[test]
    fn few_checks_are_no_verdict() {
        let mut cow = Cow::default();
        checked(&mut cow, 7, 7, 1.0);
        assert!(!cow.decide(Some(0.5), 2 * ROUND, ROUND));
    }
}
