//! How long pages keep their contents, estimated from pages that were read twice.
//!
//! # Problem
//! Merging pays by the time for which pages stay unchanged. Watching a page until it changes may
//! take days; a second reading shows only whether it has changed by then, and the time between the
//! two readings differs from page to page.
//!
//! # Approach
//! Pages that are read twice are drawn uniformly from those read once. So the share of them that
//! was lost, changed or gone, is a binomial share of all, even if the pages of a process are alike,
//! and has the interval of Clopper and Pearson, which is exact: it holds the true share in at least
//! 95 of 100 draws. (Drawing without putting back only makes it narrower.) This part assumes
//! nothing.
//!
//! Applying a share to another time than the one that passed takes an assumption: that all pages
//! are lost at one constant rate. A page with a time `t` between its readings is then lost with the
//! probability `1 - exp(-rate t)`, and the rate is the one by which the mean of these is the share.
//! That mean rises with the rate, so that the bounds of the share are those of the rate as well. If
//! none was lost there is no upper bound of the time that pages live, and if all were, none of the
//! rate.
//!
//! Rejected: pages lost in all page-seconds, a Poisson rate. It counts the time after a page was
//! lost as if the page had lived on, and so is too low where many were lost; and its interval takes
//! pages for independent, which those of one process are not.
//!
//! # Units
//! Seconds; shares are parts of one.
//!
//! # Source
//! C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the
//! case of the binomial", Biometrika 26, 1934.

use statrs::distribution::{Beta, ContinuousCDF as _};

/// The probability with which each side of an interval fails.
const DOUBT: f64 = 0.025;

/// Halvings of an interval that contains the solution: to a part in 10^9, or a rate to one in 10^7.
const HALVINGS: u32 = 32;

/// The largest rate that is tried: a page is lost within a microsecond.
const MAX_RATE: f64 = 1e6;

/// An estimate, and its interval of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntervalEstimate {
    /// The most likely value.
    pub value: f64,
    /// No less.
    pub low: f64,
    /// No more; may be infinite.
    pub high: f64,
}

impl IntervalEstimate {
    fn map(self, of: impl Fn(f64) -> f64) -> IntervalEstimate {
        IntervalEstimate {
            value: of(self.value),
            low: of(self.low),
            high: of(self.high),
        }
    }
}

/// The share of all pages with a property, of which `are_so` were met among `of`; none if `of` is
/// 0.
#[must_use]
pub fn share(are_so: u64, of: u64) -> Option<IntervalEstimate> {
    if of == 0 {
        return None;
    }
    let (so, not) = (are_so as f64, (of - are_so) as f64);
    // The bound is where the tail has the doubt.
    let bound = |so: f64, not: f64, part: f64| {
        let beta = Beta::new(so, not).ok()?;
        Some(rising(1.0, |share| beta.cdf(share) < part))
    };
    Some(IntervalEstimate {
        value: so / of as f64,
        low: bound(so, not + 1.0, DOUBT).unwrap_or(0.0),
        high: bound(so + 1.0, not, 1.0 - DOUBT).unwrap_or(1.0),
    })
}

/// The losses per second that lead to this share of lost pages after these times; infinite if all
/// are lost. None if there are no times, or none passed.
#[must_use]
pub fn rate(share: IntervalEstimate, seconds: &[f64]) -> Option<IntervalEstimate> {
    if !seconds.iter().any(|&passed| passed > 0.0) {
        return None;
    }
    let lost = |rate: f64| {
        let each = seconds.iter().map(|passed| -(-rate * passed).exp_m1());
        each.sum::<f64>() / seconds.len() as f64
    };
    Some(share.map(|share| match share {
        ..=0.0 => 0.0,
        // More than is lost at any rate: some were read twice at once.
        share if share >= lost(MAX_RATE) => f64::INFINITY,
        share => {
            // By its logarithm, so that rates of a day and of a millisecond are equally exact.
            let ends = [1e-12f64.ln(), MAX_RATE.ln()];
            let width = ends[1] - ends[0];
            let at = |part: f64| (ends[0] + part * width).exp();
            at(rising(1.0, |part| lost(at(part)) < share))
        }
    }))
}

/// The share that is lost within `seconds` at a rate.
#[must_use]
pub fn lost_within(rate: IntervalEstimate, seconds: f64) -> IntervalEstimate {
    rate.map(|rate| -(-rate * seconds).exp_m1())
}

/// The seconds after which half is lost at a rate.
#[must_use]
pub fn half_life(rate: IntervalEstimate) -> IntervalEstimate {
    let half = |rate: f64| std::f64::consts::LN_2 / rate;
    IntervalEstimate {
        value: half(rate.value),
        low: half(rate.high),
        high: half(rate.low),
    }
}

/// The end, below `most`, of the range for which `is_below` holds.
fn rising(most: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, most);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if is_below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use statrs::distribution::{Binomial, DiscreteCDF as _};

    use super::*;

    fn near(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() <= 1e-6 * expected.abs().max(1e-3),
            "{found}, not {expected}"
        );
    }

    #[test]
    fn bounds_of_a_share_are_those_of_clopper_and_pearson() {
        let none = share(0, 2000).unwrap();
        assert_eq!((none.value, none.low), (0.0, 0.0));
        near(none.high, 1.0 - 0.025f64.powf(1.0 / 2000.0));
        let all = share(50, 50).unwrap();
        assert_eq!((all.value, all.high), (1.0, 1.0));
        near(all.low, 0.025f64.powf(1.0 / 50.0));
        let some = share(7, 40).unwrap();
        // At each bound, the counts that were met or more, or less, have the allowed probability.
        let upto = |share: f64, met| Binomial::new(share, 40).unwrap().cdf(met);
        near(upto(some.high, 7), 0.025);
        near(1.0 - upto(some.low, 6), 0.025);
        assert_eq!(share(0, 0), None);
    }

    /// For each true share, the probability of all counts whose interval contains it.
    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        for truth in [0.001, 0.02, 0.3, 0.5, 0.97] {
            let counts = Binomial::new(truth, 60).unwrap();
            let held = (0..=60u64).filter(|&met| {
                let found = share(met, 60).unwrap();
                found.low <= truth && truth <= found.high
            });
            let below = |met: u64| met.checked_sub(1).map_or(0.0, |less| counts.cdf(less));
            let held: f64 = held.map(|met| counts.cdf(met) - below(met)).sum();
            assert!(held >= 0.95, "{truth}: {held}");
        }
    }

    #[test]
    fn a_rate_is_found_whose_losses_after_unlike_times_are_the_share() {
        let seconds: Vec<f64> = (1..=1000).map(|number| f64::from(number) / 10.0).collect();
        for rate_then in [1e-6, 0.003, 0.2, 5.0] {
            let lost = seconds.iter().map(|passed| -(-rate_then * passed).exp_m1());
            let value = lost.sum::<f64>() / seconds.len() as f64;
            let exact = IntervalEstimate {
                value,
                low: value,
                high: value,
            };
            near(rate(exact, &seconds).unwrap().value, rate_then);
        }
    }

    #[test]
    fn what_was_not_seen_to_end_has_no_upper_bound_of_its_life() {
        let minute = vec![60.0; 300];
        let never = rate(share(0, 300).unwrap(), &minute).unwrap();
        assert_eq!((never.value, never.low), (0.0, 0.0));
        let lost = lost_within(never, 60.0);
        near(lost.high, share(0, 300).unwrap().high);
        let half = half_life(never);
        assert_eq!((half.value, half.high), (f64::INFINITY, f64::INFINITY));
        assert!(half.low > 3000.0 && half.low < 4000.0, "{half:?}");
        let always = rate(share(300, 300).unwrap(), &minute).unwrap();
        assert_eq!((always.value, always.high), (f64::INFINITY, f64::INFINITY));
        assert_eq!(lost_within(always, 60.0).high, 1.0);
        assert_eq!(half_life(always).low, 0.0);
        // No time passed.
        assert_eq!(rate(share(0, 2).unwrap(), &[0.0, 0.0]), None);
        assert_eq!(rate(share(0, 2).unwrap(), &[]), None);
        // One of two at once: more were lost than there was time for.
        let all = rate(share(2, 2).unwrap(), &[0.0, 1.0]).unwrap();
        assert_eq!(all.value, f64::INFINITY);
    }
}
