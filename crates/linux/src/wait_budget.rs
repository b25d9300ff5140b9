//! A limit for the time that one thread may wait for others: a tenth of the time.
//!
//! # Problem
//! Some calls wait for a process for as long as it wants, up to a bound of each call. If many
//! processes make one thread wait, one after another, the thread does nothing else.
//!
//! # Approach
//! Waits that end without an answer are charged to a budget, which grows by a tenth of the time
//! that passes, up to [`MAX_BUDGET`]. One wait may exceed the rest: the excess is a debt, which is
//! repaid first.
//!
//! # Units
//! [`Nanos`] of the monotonic clock.

use uksm_policy::command::Nanos;

/// Waits may use 1/`WAIT_SHARE_DIVISOR` of the time.
const WAIT_SHARE_DIVISOR: Nanos = 10;
/// Maximum unused budget that is carried over.
pub(crate) const MAX_BUDGET: Nanos = 1_000_000_000;

/// The time that may be spent on waits.
#[derive(Debug)]
pub(crate) struct WaitBudget {
    /// Time at which the budget is full again.
    full_at: Nanos,
}

impl WaitBudget {
    /// A budget of which nothing is spent.
    pub(crate) fn full(now: Nanos) -> WaitBudget {
        WaitBudget { full_at: now }
    }

    /// The time that may be waited now.
    pub(crate) fn left(&self, now: Nanos) -> Nanos {
        let spent = self.full_at.saturating_sub(now) / WAIT_SHARE_DIVISOR;
        MAX_BUDGET.saturating_sub(spent)
    }

    /// Time at which a debt is repaid, if there is one.
    pub(crate) fn repaid_at(&self, now: Nanos) -> Option<Nanos> {
        let repaid_at = self.full_at.saturating_sub(MAX_BUDGET * WAIT_SHARE_DIVISOR);
        (repaid_at > now).then_some(repaid_at)
    }

    /// A wait took this time.
    pub(crate) fn spend(&mut self, wait: Nanos, now: Nanos) {
        let earned_in = wait.saturating_mul(WAIT_SHARE_DIVISOR);
        self.full_at = self.full_at.max(now).saturating_add(earned_in);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;
    const WAIT: Nanos = 95_000_000;

    #[test]
    fn waits_take_a_tenth_of_the_time() {
        let (mut budget, mut now, mut waited) = (WaitBudget::full(0), 0, 0);
        while now < 1000 * SECOND {
            match budget.repaid_at(now) {
                Some(repaid_at) => now = repaid_at,
                None => {
                    now += WAIT;
                    waited += WAIT;
                    budget.spend(WAIT, now);
                }
            }
        }
        let most = 100 * SECOND + MAX_BUDGET + WAIT;
        assert!((90 * SECOND..most).contains(&waited), "{waited}");
    }

    #[test]
    fn a_budget_that_is_not_used_is_kept_up_to_a_bound() {
        let mut budget = WaitBudget::full(0);
        assert_eq!(budget.left(0), MAX_BUDGET);
        budget.spend(MAX_BUDGET, 0);
        assert_eq!((budget.left(0), budget.repaid_at(0)), (0, None));
        assert_eq!(budget.left(SECOND), SECOND / 10);
        budget.spend(SECOND / 5, SECOND);
        assert_eq!(budget.repaid_at(SECOND), Some(2 * SECOND));
        assert_eq!(budget.left(1000 * SECOND), MAX_BUDGET);
    }
}
