//! The amount of processor time that an activity may use, and the times at which it may use it.
//!
//! # Problem
//! A share of a core must hold over any stretch of time, kernel time included, whatever the cost of
//! a call, and small shares must not become many tiny wake-ups.
//!
//! # Approach
//! Time is paid back: time used at share `p` is paid for after `used / p`. `paid_at` is that time.
//! An activity runs until it is more than one sleep in debt and then rests until the debt is paid:
//! at share `p` it is active `T_s · p / (1 − p)` and sleeps `T_s` (UKSM §5.3), or longer if one
//! batch costs more than that.
//!
//! A machine that stands still for seconds, or has to find memory for a call, books that time on
//! the running activity. At a small share its repayment would be minutes to hours of silence: 8 s
//! at 4.75 % are three minutes. So a step longer than [`MAX_STEP`] and [`OUTLIER_FACTOR`] times the
//! usual step of this activity is an outlier: only that much of it has to be repaid. The usual
//! length follows, so that an activity with one long step after another pays for all of them.
//!
//! # Units
//! Nanoseconds; shares of one core. Over any time `w` without an outlier, used ≤ `p · (w + T_s +
//! saving)` + one batch.
//!
//! # Source
//! UKSM §5.3; the debt is that of the generic cell rate algorithm (ITU-T I.371).

use crate::command::Nanos;
use crate::convert;

/// A rest ends when all but one part in this number of a sleep is paid. The length of the step
/// before a sleep is known only after it: an activity that slept until all seemed paid would have
/// to sleep again.
const NEARLY_PAID: Nanos = 4;

/// Steps up to this length are never outliers.
const MAX_STEP: Nanos = 100_000_000;
/// A step this many times longer than usual is an outlier: the machine stood still.
const OUTLIER_FACTOR: Nanos = 16;
/// The usual length of a step at the start, and its lower bound later.
const MIN_USUAL_STEP: Nanos = MAX_STEP / OUTLIER_FACTOR;
/// The usual length of a step where no step counts as an outlier.
const UNBOUNDED_STEP: Nanos = Nanos::MAX / (4 * OUTLIER_FACTOR);

/// The clock of one activity.
#[derive(Debug, Clone)]
pub(crate) struct CpuBudget {
    share: f64,
    sleep: Nanos,
    paid_at: Nanos,
    resting: bool,
    used: Nanos,
    /// The usual length of a step, and its lower bound.
    usual: Nanos,
    least: Nanos,
    /// Time whose unused budget may be used later.
    saving: Nanos,
}

impl CpuBudget {
    /// A clock without debt.
    pub(crate) fn new(share: f64, sleep: Nanos) -> CpuBudget {
        assert!(share > 0.0 && share <= 1.0, "share {share}");
        CpuBudget {
            share,
            sleep,
            paid_at: 0,
            resting: false,
            used: 0,
            usual: MIN_USUAL_STEP,
            least: MIN_USUAL_STEP,
            saving: 0,
        }
    }

    /// Unused budget of up to `time` is carried over: for an activity that waits for others with
    /// larger calls.
    pub(crate) fn saving(self, time: Nanos) -> CpuBudget {
        CpuBudget {
            saving: time,
            ..self
        }
    }

    /// Each step is repaid in full: for an activity with few and long steps.
    pub(crate) fn in_full(self) -> CpuBudget {
        CpuBudget {
            usual: UNBOUNDED_STEP,
            least: UNBOUNDED_STEP,
            ..self
        }
    }

    pub(crate) fn share(&self) -> f64 {
        self.share
    }

    /// Sets the share from now on; the debt stays as it was.
    pub(crate) fn set_share(&mut self, share: f64) {
        assert!(share > 0.0 && share <= 1.0, "share {share}");
        self.share = share;
    }

    /// The length of a stretch of activity with the sleep after it.
    pub(crate) fn period(&self) -> Nanos {
        convert::nanos(convert::float(self.sleep) / (1.0 - self.share).max(0.01))
    }

    /// Processor time used in all.
    pub(crate) fn used(&self) -> Nanos {
        self.used
    }

    /// Books `cost`, used until `now`.
    pub(crate) fn charge(&mut self, now: Nanos, cost: Nanos) {
        self.used += cost;
        self.owe(now, cost);
    }

    /// Time that another activity used and booked is to be paid from this share, too.
    pub(crate) fn owe(&mut self, now: Nanos, cost: Nanos) {
        self.pay_for(now, cost);
        if self.paid_at.saturating_sub(now) >= self.sleep {
            self.resting = true;
        }
    }

    /// Books `cost` of waking up. It is paid for, but the activity may still run: where waking
    /// costs more than the share of a sleep, nothing would ever be done.
    pub(crate) fn charge_waking(&mut self, now: Nanos, cost: Nanos) {
        self.used += cost;
        self.pay_for(now, cost);
    }

    fn pay_for(&mut self, now: Nanos, cost: Nanos) {
        let begun = now.saturating_sub(cost);
        if begun >= self.paid_at {
            self.resting = false;
        }
        let owed = cost.min(self.usual * OUTLIER_FACTOR);
        // One outlier raises the usual length by a quarter at most.
        let usual = (3 * self.usual + cost.min(2 * self.usual)) / 4;
        self.usual = usual.max(self.least);
        let price = convert::nanos((convert::float(owed) / self.share).ceil());
        let earliest = begun.saturating_sub(self.saving);
        self.paid_at = self.paid_at.max(earliest).saturating_add(price);
    }

    /// Whether the activity may run now.
    pub(crate) fn is_ready(&mut self, now: Nanos) -> bool {
        if self.resting && now + self.sleep / NEARLY_PAID >= self.paid_at {
            self.resting = false;
        }
        !self.resting
    }

    /// The rest ends now; the debt stays, and the next cost begins another rest.
    pub(crate) fn end_rest(&mut self) {
        self.resting = false;
    }

    /// Time that may be used at once without a debt: the carried budget.
    pub(crate) fn saved(&self, now: Nanos) -> Nanos {
        let time = now.saturating_sub(self.paid_at).min(self.saving);
        convert::nanos(convert::float(time) * self.share)
    }

    /// The time at which all is paid.
    pub(crate) fn paid_at(&self) -> Nanos {
        self.paid_at
    }

    /// The time from which the activity may run.
    pub(crate) fn ready_at(&self, now: Nanos) -> Nanos {
        if self.resting { self.paid_at } else { now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn full_share_is_active_nineteen_parts_of_twenty() {
        let mut budget = CpuBudget::new(0.95, 20 * MS);
        let mut now = 0;
        while budget.is_ready(now) {
            now += MS;
            budget.charge(now, MS);
        }
        assert_eq!(now / MS, 380, "active T_s · p / (1 − p)");
        assert_eq!((budget.ready_at(now) - now) / MS, 20, "then asleep T_s");
    }

    #[test]
    fn what_is_owed_for_others_delays_and_is_not_counted_as_used() {
        let mut budget = CpuBudget::new(0.5, MS);
        budget.owe(10 * MS, 10 * MS);
        assert_eq!((budget.ready_at(10 * MS), budget.used()), (20 * MS, 0));
    }

    #[test]
    fn time_not_used_is_not_saved_up() {
        let mut budget = CpuBudget::new(0.5, MS);
        assert!(budget.is_ready(1000 * MS));
        budget.charge(1000 * MS, 10 * MS);
        assert_eq!(budget.ready_at(1000 * MS), 1010 * MS);
    }

    #[test]
    fn what_is_saved_is_used_later_and_no_more_than_that() {
        let mut budget = CpuBudget::new(0.5, MS).saving(100 * MS);
        let mut now = 1000 * MS;
        let begun = now;
        while budget.is_ready(now) {
            now += 10 * MS;
            budget.charge(now, 10 * MS);
        }
        // At half a core it catches up with half of the time it takes, too.
        assert_eq!((now - begun) / MS, 110);
    }

    #[test]
    fn dear_waking_is_paid_for_and_lets_something_be_done() {
        let mut budget = CpuBudget::new(0.002, 20 * MS);
        let (mut now, mut done) = (1000 * MS, 0);
        while now < 61_000 * MS {
            // 50 us at this share are 25 ms.
            now += MS / 20;
            budget.charge_waking(now, MS / 20);
            if budget.is_ready(now) {
                now += MS / 10;
                budget.charge(now, MS / 10);
                done += 1;
            }
            now = budget.paid_at().max(now + 20 * MS);
        }
        assert!((700..=810).contains(&done), "{done}");
        assert!(budget.used() <= 122 * MS, "{}", budget.used());
    }

    #[test]
    fn waking_does_not_send_back_to_sleep() {
        let mut budget = CpuBudget::new(0.2, 20 * MS);
        budget.charge(10 * MS, 10 * MS);
        let due = budget.ready_at(10 * MS);
        assert!(due > 10 * MS);
        budget.charge(due + MS / 10, MS / 10);
        assert!(budget.is_ready(due + MS / 10));
    }

    #[test]
    fn a_step_that_is_known_after_the_sleep_does_not_send_back_to_sleep() {
        let mut budget = CpuBudget::new(0.1, 20 * MS);
        let mut now = 1000 * MS;
        while budget.is_ready(now) {
            now += 2 * MS;
            budget.charge(now, 2 * MS);
        }
        now = budget.paid_at() + MS / 20;
        budget.charge_waking(now, MS / 20);
        budget.charge(now, MS / 10);
        assert!(budget.is_ready(now), "a quarter of a sleep may be owed");
        now += 4 * MS;
        budget.charge(now, 4 * MS);
        assert!(!budget.is_ready(now), "and no more than all of it");
    }

    #[test]
    fn a_machine_that_stands_still_is_not_paid_for_with_minutes_of_silence() {
        for share in [0.0475, 0.001] {
            let mut budget = CpuBudget::new(share, MS);
            let mut now = 1000 * MS;
            for cost in [MS, 2 * MS, 8000 * MS] {
                now = budget.ready_at(now) + cost;
                budget.charge(now, cost);
            }
            let silence = (budget.ready_at(now) - now) as f64;
            assert!(silence * share <= 100.1 * MS as f64, "{silence} at {share}");
            assert_eq!(budget.used(), 8003 * MS, "it is counted all the same");
            // An outlier soon after is excused as well, and the usual length is the same as before.
            for _ in 0..20 {
                now = budget.ready_at(now) + MS;
                budget.charge(now, MS);
            }
            assert_eq!(budget.usual, MIN_USUAL_STEP);
        }
    }

    #[test]
    fn who_takes_long_again_and_again_pays_for_all_of_it() {
        let mut budget = CpuBudget::new(0.1, MS);
        let (mut now, mut excused) = (1000 * MS, 0);
        for _ in 0..100 {
            now = budget.ready_at(now) + 1000 * MS;
            budget.charge(now, 1000 * MS);
            excused += u32::from(budget.ready_at(now) - now < 8999 * MS);
        }
        assert!(excused <= 12, "{excused} of 100");
    }

    proptest! {
        #[test]
        fn no_window_uses_more_than_its_share_and_one_batch(
            share in 0.001f64..0.95,
            costs in prop::collection::vec((1u64..8 * MS, 0u64..30 * MS), 1..200),
        ) {
            let sleep = 20 * MS;
            let mut budget = CpuBudget::new(share, sleep);
            let mut now = 0;
            let mut spent: Vec<(Nanos, Nanos, Nanos)> = vec![];
            for (cost, idle) in costs {
                now += idle;
                if !budget.is_ready(now) {
                    now = budget.ready_at(now);
                    prop_assert!(budget.is_ready(now));
                }
                spent.push((now, now + cost, cost));
                now += cost;
                budget.charge(now, cost);
            }
            for first in 0..spent.len() {
                let mut used = 0;
                for last in first..spent.len() {
                    used += spent[last].2;
                    let window = spent[last].1 - spent[first].0;
                    let bound = share * (window + sleep) as f64 + spent[last].2 as f64 + 10.0;
                    prop_assert!(used as f64 <= bound, "{used} in {window} at {share}");
                }
            }
        }
    }
}
