//! How sure a ratio of two variants is.
//!
//! # Problem
//! Runs differ: contents, addresses, and by the clock what the host does. A ratio of two medians
//! says nothing of that.
//!
//! # Approach
//! Runs are pairs: in each round both variants meet the same contents, in an order that is drawn.
//! Each pair has a ratio; their logarithms are averaged, so that a ratio and its inverse weigh the
//! same. The interval is Student's, of 95 %: it takes the logarithms for normal, and is wide where
//! pairs are few. It says how well the mean of such pairs is known, and nothing of another machine.

use std::fmt;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// A ratio with its interval of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The geometric mean of the pairs' ratios.
    pub ratio: f64,
    /// Its lower bound.
    pub low: f64,
    /// Its upper bound.
    pub high: f64,
    /// Number of pairs.
    pub pairs: usize,
}

impl Interval {
    /// Of the ratios of pairs. None of fewer than two, or if one is not positive.
    #[must_use]
    pub fn of(ratios: &[f64]) -> Option<Interval> {
        let pairs = ratios.len();
        if pairs < 2
            || ratios
                .iter()
                .any(|&ratio| !ratio.is_finite() || ratio <= 0.0)
        {
            return None;
        }
        let count = pairs as f64;
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let mean = logarithms.iter().sum::<f64>() / count;
        let squares: f64 = logarithms.iter().map(|log| (log - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let student = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
        let reach = student.inverse_cdf(0.975) * error;
        Some(Interval {
            ratio: mean.exp(),
            low: (mean - reach).exp(),
            high: (mean + reach).exp(),
            pairs,
        })
    }

    /// How far the bounds are from the ratio, at most, as a part of it.
    #[must_use]
    pub fn spread(&self) -> f64 {
        (self.high / self.ratio - 1.0).max(1.0 - self.low / self.ratio)
    }
}

/// The mean of these values and, of several positive ones, the bounds of its interval. Each comes
/// with the end of its figure's name.
#[must_use]
pub fn bounds(values: &[f64]) -> Vec<(&'static str, f64)> {
    match Interval::of(values) {
        Some(interval) => vec![
            ("", interval.ratio),
            ("_low", interval.low),
            ("_high", interval.high),
        ],
        None if values.is_empty() => vec![],
        None => vec![("", values.iter().sum::<f64>() / values.len() as f64)],
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interval {
            ratio,
            low,
            high,
            pairs,
        } = self;
        let spread = 100.0 * self.spread();
        write!(
            f,
            "{ratio:.2} in {low:.2} to {high:.2} (± {spread:.0} %, {pairs} pairs)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_pairs_leave_no_doubt() {
        let sure = Interval::of(&[4.0, 4.0, 4.0]).unwrap();
        assert!((sure.ratio - 4.0).abs() < 1e-9 && sure.spread() < 1e-9);
    }

    #[test]
    fn two_pairs_say_little_and_more_say_more() {
        // Of ln 2 and ln 8 the mean is ln 4, the error ln 2, and Student's quantile 12.706.
        let two = Interval::of(&[2.0, 8.0]).unwrap();
        assert!((two.ratio - 4.0).abs() < 1e-9);
        assert!((two.high.ln() - (4f64.ln() + 12.706 * 2f64.ln())).abs() < 0.01);
        assert!(
            (two.low * two.high - 16.0).abs() < 1e-6,
            "as far down as up"
        );
        let ten = Interval::of(&[2.0, 8.0].repeat(5)).unwrap();
        assert!(ten.spread() < two.spread() / 10.0);
        assert_eq!(ten.pairs, 10);
    }

    #[test]
    fn nothing_is_said_of_one_pair_or_of_what_is_no_ratio() {
        assert_eq!(Interval::of(&[3.0]), None);
        assert_eq!(Interval::of(&[]), None);
        assert_eq!(Interval::of(&[3.0, 0.0]), None);
        assert_eq!(Interval::of(&[3.0, f64::NAN]), None);
    }

    #[test]
    fn true_ratios_lie_in_their_intervals_nineteen_times_of_twenty() {
        // Pairs whose logarithms are sums of twelve even numbers: nearly normal, around ln 3.
        let mut state = 7u64;
        let mut even = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let mut pair = || {
            let normal: f64 = (0..12).map(|_| even()).sum::<f64>() - 6.0;
            3.0 * (0.1 * normal).exp()
        };
        let mut holds = || {
            let pairs: Vec<f64> = (0..5).map(|_| pair()).collect();
            let found = Interval::of(&pairs).unwrap();
            found.low <= 3.0 && 3.0 <= found.high
        };
        let held = (0..4000).filter(|_| holds()).count();
        assert!((3740..=3860).contains(&held), "{held} of 4000");
    }
}
