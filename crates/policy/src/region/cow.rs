//! Whether merged pages of a region are written again too soon (UKSM §5.2, V_cow).
//!
//! # Problem
//! Merging a page that is about to be written costs the merge and the process a copy. No hook
//! reports the writes, and the number of a frame's mappings does not distinguish a write from an
//! unmap.
//!
//! # Approach
//! Sampling checks pages that are believed to be merged: a page that has its own copy was broken.
//! Each look is evidence for the time since the page was last known to be merged
//! (`merged_pages.rs`): a page that lasted was exposed to writes for all of it, a broken one for
//! half on average. Breaks ÷ exposure is the rate, and the rate gives the share that is broken in
//! one global round, which is compared with V_cow: a sixth broken in an hour is no reason to leave
//! a region alone. No look counts for more rounds than the slowest rate of interest takes, so that
//! a calm past does not hide present writes.
//!
//! A region above V_cow is left alone, each time for twice as long (*strikes*), also if it was open
//! in between for no longer than the last ban. Meanwhile it is watched (`write_watch.rs`): the ban
//! ends when no page seems to be written. When the ban is over, a few of its pages are merged on
//! trial and looked at later; only if those hold is it open again, so that a lapsed ban costs a few
//! pages and not a sweep. Fewer pages are judged as well: at the usual time if the region was read
//! in full for its trial, so that no more will come, else later and more than once.
//!
//! # Units
//! Nanoseconds; shares 0 to 1, a round; ages and exposure in rounds.
//!
//! # Source
//! UKSM §5.2 and §8.1.2, with sampling in place of a hook in the fault handler.

use super::write_watch::telling;
use crate::command::Nanos;
use crate::convert;

/// Checks needed for a verdict.
const MIN_CHECKS: u32 = 8;
/// Pages merged on trial.
pub(crate) const TRIAL_PAGES: usize = 16;
/// The longest ban is 2^(1 + this) rounds.
const MAX_STRIKES: u8 = 10;
/// A look after less than a quarter of a round counts as one after a quarter: a break within
/// moments is weak evidence about a round.
const MIN_AGE: f64 = 0.25;
/// A page broken after this many rounds ÷ V_cow still means a share far below V_cow.
const AGE_OF_INTEREST: f64 = 8.0;
/// Looks after which the older ones count half.
const MAX_FULL_WEIGHT_LOOKS: u32 = 1024;
/// A trial that is checked before a round is over may have at most one broken page in this many.
const EARLY_BROKEN_DIVISOR: u32 = 16;
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

/// The result of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// No change.
    Nothing,
    /// It is left alone, and tried again then.
    Closed {
        /// Until this time.
        until: Nanos,
    },
    /// Pages merged on trial have held.
    Opened,
}

impl Ruling {
    #[cfg(test)]
    pub(crate) fn is_closed(self) -> bool {
        matches!(self, Ruling::Closed { .. })
    }
}

/// The evidence about one region.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cow {
    checked: u32,
    broken: u32,
    /// Sum of the rounds for which the checked pages were exposed to writes.
    exposure: f64,
    /// The end of its current or last ban; or since when it is open again.
    closed_until: Nanos,
    /// Number of closings in a row, 0 if it is open; and that number before it was opened.
    strikes: u8,
    past: u8,
    /// Whether its ban ended early because no page seemed to be written; and whether such looks
    /// have misled before.
    ended_early: bool,
    was_misled: bool,
    trial: Option<Box<Trial>>,
}

/// A region without merged pages, of which nothing is known: it is open.
pub(super) static UNTRIED: Cow = Cow {
    checked: 0,
    broken: 0,
    exposure: 0.0,
    closed_until: 0,
    strikes: 0,
    past: 0,
    ended_early: false,
    was_misled: false,
    trial: None,
};

#[derive(Debug, Clone)]
struct Trial {
    pages: Vec<u32>,
    /// When the last of them was known to be merged.
    known_at: Nanos,
    /// Number of pages of the last look, if no more will come.
    looked_at: u32,
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

    /// Whether this page of `pages` can be merged on trial. Pages on trial are spread over the
    /// region, so that a writer that goes from page to page is noticed.
    pub(crate) fn trial_has_room(&self, page: u32, pages: u32) -> bool {
        let part = |page: u32| u64::from(page) * TRIAL_PAGES as u64 / u64::from(pages);
        let is_taken = |trial: &Trial| trial.pages.iter().any(|&other| part(other) == part(page));
        self.trial.as_ref().is_none_or(|trial| !is_taken(trial))
    }

    /// `page` of `pages` was merged, or found still merged; returns whether it is the first page on
    /// trial.
    #[inline]
    pub(crate) fn merged(&mut self, page: u32, pages: u32, now: Nanos) -> bool {
        self.permission(now) == Permission::Trial && self.merged_on_trial(page, pages, now)
    }

    fn merged_on_trial(&mut self, page: u32, pages: u32, now: Nanos) -> bool {
        if !self.trial_has_room(page, pages) {
            return false;
        }
        let trial = self.trial.get_or_insert_with(|| {
            Box::new(Trial {
                pages: Vec::with_capacity(TRIAL_PAGES),
                known_at: 0,
                looked_at: 0,
            })
        });
        trial.pages.push(page);
        trial.known_at = now;
        trial.pages.len() == 1
    }

    /// Whether enough pages were merged on trial for a verdict.
    pub(crate) fn has_enough_on_trial(&self) -> bool {
        let on_trial = self.trial.as_ref().map_or(0, |trial| trial.pages.len());
        on_trial * 2 >= TRIAL_PAGES
    }

    /// When the pages merged on trial should be looked at, if any. `is_all_read` says that the
    /// region was read in full since it may be tried, so that no more will come.
    pub(crate) fn trial_due_at(
        &self,
        v_cow: f64,
        round: Nanos,
        is_all_read: bool,
    ) -> Option<Nanos> {
        let trial = self.trial.as_ref()?;
        let most = FEW_PAGES_WAIT * round;
        let wait = if is_all_read || self.has_enough_on_trial() {
            let pages = convert::narrow(trial.pages.len() as u64);
            telling(pages, v_cow, round).clamp(round / 4, most)
        } else {
            most
        };
        (!trial.pages.is_empty()).then_some(trial.known_at + wait)
    }

    /// The pages merged on trial, which are looked at now.
    pub(crate) fn take_trial(&mut self, is_all_read: bool) -> Vec<u32> {
        let Some(trial) = &mut self.trial else {
            return vec![];
        };
        let pages = std::mem::take(&mut trial.pages);
        if is_all_read {
            trial.looked_at = convert::narrow(pages.len() as u64);
        }
        pages
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

    /// `pages` pages that were known to be merged `age` rounds ago are still merged.
    pub(crate) fn lasted(&mut self, pages: u32, age: f64, v_cow: f64) {
        self.exposure += exposed(age, v_cow) * f64::from(pages);
        self.checked += pages;
        self.fade();
    }

    fn fade(&mut self) {
        if self.checked > MAX_FULL_WEIGHT_LOOKS {
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
    /// held.
    pub(crate) fn decide(&mut self, v_cow: Option<f64>, now: Nanos, round: Nanos) -> Ruling {
        let Some(v_cow) = v_cow else {
            return Ruling::Nothing;
        };
        // Where no more can be tried, these few decide.
        let few = self.trial.as_ref().map_or(0, |trial| trial.looked_at);
        let enough = if few > 0 {
            few.min(MIN_CHECKS)
        } else {
            MIN_CHECKS
        };
        if self.checked < enough {
            return Ruling::Nothing;
        }
        if self.share() > v_cow {
            let was_soon = now < self.closed_until + ban(self.past, round);
            let before = if self.strikes == 0 && was_soon {
                self.past
            } else {
                self.strikes
            };
            self.strikes = (before + 1).min(MAX_STRIKES);
            self.closed_until = now + ban(self.strikes, round);
            self.forget_checks();
            return Ruling::Closed {
                until: self.closed_until,
            };
        }
        // A look before a round is over suffices if nearly all have held.
        let is_early = self.exposure < f64::from(self.checked);
        let is_clear = !is_early || self.broken * EARLY_BROKEN_DIVISOR <= self.checked;
        if self.permission(now) == Permission::Trial && is_clear {
            self.past = std::mem::take(&mut self.strikes);
            self.closed_until = now;
            (self.ended_early, self.was_misled) = (false, false);
            self.forget_checks();
            return Ruling::Opened;
        }
        Ruling::Nothing
    }

    /// The end of its current or last ban.
    pub(crate) fn closed_until(&self) -> Nanos {
        self.closed_until
    }

    /// Number of closings in a row.
    pub(crate) fn strikes(&self) -> u8 {
        self.strikes
    }

    /// Time of its last opening, or 0.
    pub(crate) fn opened_at(&self) -> Nanos {
        if self.strikes == 0 {
            self.closed_until
        } else {
            0
        }
    }

    /// Whether its ban may end because no page seems to be written.
    pub(crate) fn may_end_early(&self) -> bool {
        !self.was_misled
    }

    /// A look during the ban: if no page seems to be written, it may be tried from now on, unless
    /// its last ban ended so and the trial was broken. Returns whether it may.
    pub(crate) fn watched(&mut self, is_calm: bool, now: Nanos) -> bool {
        let was_calm = std::mem::take(&mut self.ended_early);
        self.was_misled |= is_calm && was_calm;
        self.ended_early = is_calm && !was_calm;
        if self.ended_early {
            self.closed_until = now;
        }
        self.ended_early
    }

    /// Whether the region was closed until `then`.
    pub(crate) fn was_closed_until(&self, then: Nanos) -> bool {
        self.strikes > 0 && self.closed_until == then
    }

    /// A new sweep merges: earlier checks do not concern its pages.
    pub(crate) fn forget_checks(&mut self) {
        (self.checked, self.broken, self.exposure) = (0, 0, 0.0);
        self.trial = None;
    }
}

/// The ban of a region that was closed `strikes` times in a row.
fn ban(strikes: u8, round: Nanos) -> Nanos {
    round << (1 + strikes)
}

/// The rounds of `age` that count.
fn exposed(age: f64, v_cow: f64) -> f64 {
    age.clamp(MIN_AGE, AGE_OF_INTEREST / v_cow)
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
            assert!(cow.decide(Some(0.5), now, ROUND).is_closed());
            assert_eq!(cow.permission(now), Permission::Closed);
            bans.push(cow.closed_until - now);
            now = cow.closed_until;
            assert_eq!(cow.permission(now), Permission::Trial);
        }
        assert_eq!(bans, vec![4 * ROUND, 8 * ROUND, 16 * ROUND, 32 * ROUND]);
    }

    #[test]
    fn slow_writes_do_not_close() {
        // Any number of breaks within an hour is few a round.
        for broken in [2, 7, 10] {
            let mut cow = Cow::default();
            checked(&mut cow, broken, 10, 1800.0);
            assert!(
                !cow.decide(Some(0.5), 1800 * ROUND, ROUND).is_closed(),
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
            !cow.decide(Some(0.01), 1800 * ROUND, ROUND).is_closed(),
            "{}",
            cow.share()
        );
    }

    #[test]
    fn the_rate_is_that_of_pages_of_any_ages() {
        // A tenth is broken a round, at any time between looks.
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
        while !cow.decide(Some(0.5), ROUND, ROUND).is_closed() {
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
        assert!(cow.decide(Some(0.5), 2 * ROUND, ROUND).is_closed());
        let mut now = cow.closed_until;
        for page in 0..40 {
            let has_room = cow.trial_has_room(page, 40);
            assert_eq!(cow.merged(page, 40, now), page == 0);
            assert!(!cow.trial_has_room(page, 40) || !has_room);
        }
        let due = cow.trial_due_at(0.5, ROUND, false).unwrap();
        assert!(due > now + ROUND / 4 && due < now + ROUND / 2);
        now = due;
        assert_eq!(cow.take_trial(false).len(), TRIAL_PAGES);
        assert_eq!(cow.trial_due_at(0.5, ROUND, false), None, "it is taken");
        checked(&mut cow, 1, 16, 1.0);
        assert_eq!(cow.decide(Some(0.5), now, ROUND), Ruling::Opened);
        assert_eq!(cow.permission(now), Permission::Open);
    }

    #[test]
    fn a_trial_of_three_pages_ends_too() {
        let mut cow = Cow::default();
        checked(&mut cow, 10, 10, 1.0);
        assert!(cow.decide(Some(0.5), 2 * ROUND, ROUND).is_closed());
        let mut now = cow.closed_until;
        (0..3).for_each(|page| assert_eq!(cow.merged(page, 3, now), page == 0));
        let soon = cow.trial_due_at(0.5, ROUND, true).unwrap();
        assert!(soon > now + ROUND && soon < now + 3 * ROUND);
        for _ in 0..3 {
            let due = cow.trial_due_at(0.5, ROUND, false);
            assert_eq!(due, Some(now + FEW_PAGES_WAIT * ROUND), "more may come");
            now += FEW_PAGES_WAIT * ROUND;
            let pages = cow.take_trial(false);
            assert_eq!(pages.len(), 3);
            for page in pages {
                cow.check(false, 8.0, 0.5);
                cow.merged(page, 3, now);
            }
            assert!(!cow.decide(Some(0.5), now, ROUND).is_closed());
        }
        assert_eq!(cow.permission(now), Permission::Open);
    }

    #[test]
    fn without_v_cow_nothing_is_closed() {
        let mut cow = Cow::default();
        checked(&mut cow, 100, 100, 1.0);
        assert!(!cow.decide(None, 2 * ROUND, ROUND).is_closed());
        assert_eq!(cow.permission(2 * ROUND), Permission::Open);
    }

    #[test]
    fn few_checks_are_no_verdict() {
        let mut cow = Cow::default();
        checked(&mut cow, 7, 7, 1.0);
        assert!(!cow.decide(Some(0.5), 2 * ROUND, ROUND).is_closed());
    }
}
