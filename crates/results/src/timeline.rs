//! The saving and the cost of a variant over time.
//!
//! # Problem
//! Systems are compared at the moment when 95 % of the mergeable memory is merged, which lies
//! between two looks at the page tables.
//!
//! # Approach
//! Keep all looks; interpolate linearly between the two that enclose the moment.

use serde::{Deserialize, Serialize};

use crate::over_time;

/// One look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Seconds since the start of the variant.
    pub seconds: f64,
    /// CPU the system under test has used since then.
    pub cpu_seconds: f64,
    /// Memory saved, more than at the start.
    pub saved_mib: f64,
    /// Memory mapped by the workload; 0 where it is not counted.
    #[serde(default, skip_serializing_if = "is_none")]
    pub mapped_mib: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_none(mib: &f64) -> bool {
    *mib == 0.0
}

/// The looks of one variant, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline(pub Vec<Look>);

impl Timeline {
    /// The first moment at which this much was saved.
    #[must_use]
    pub fn reaches(&self, saved_mib: f64) -> Option<Look> {
        let index = self.0.iter().position(|look| look.saved_mib >= saved_mib)?;
        let after = self.0[index];
        let Some(before) = index.checked_sub(1).map(|previous| self.0[previous]) else {
            return Some(after);
        };
        let part = (saved_mib - before.saved_mib) / (after.saved_mib - before.saved_mib);
        let between = |low: f64, high: f64| low + (high - low) * part;
        Some(Look {
            seconds: between(before.seconds, after.seconds),
            cpu_seconds: between(before.cpu_seconds, after.cpu_seconds),
            saved_mib,
            mapped_mib: after.mapped_mib,
        })
    }

    /// The latest look.
    #[must_use]
    pub fn last(&self) -> Option<Look> {
        self.0.last().copied()
    }

    /// Mean over time of saved and mapped MiB, from `from` seconds on.
    #[must_use]
    pub fn means_from(&self, from: f64) -> Option<(f64, f64)> {
        let mean = |value| over_time::mean(&self.points(value), from);
        Some((mean(|look| look.saved_mib)?, mean(|look| look.mapped_mib)?))
    }

    /// Share of a core used between `from` seconds and the latest look.
    #[must_use]
    pub fn cpu_share_from(&self, from: f64) -> Option<f64> {
        over_time::rate(&self.points(|look| look.cpu_seconds), from)
    }

    fn points(&self, value: fn(&Look) -> f64) -> Vec<(f64, f64)> {
        let looks = self.0.iter();
        looks.map(|look| (look.seconds, value(look))).collect()
    }
}

/// The middle value; for an even number, the mean of the two.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| !value.is_nan())
        .collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The index of the value nearest to the median: the first of several.
#[must_use]
pub fn nearest_median(values: &[f64]) -> Option<usize> {
    let middle = median(values)?;
    let distance = |at: &usize| (values[*at] - middle).abs();
    (0..values.len()).min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(seconds: f64, cpu_seconds: f64, saved_mib: f64) -> Look {
        Look {
            seconds,
            cpu_seconds,
            saved_mib,
            mapped_mib: 100.0,
        }
    }

    #[test]
    fn the_moment_between_two_looks_is_interpolated() {
        let line = Timeline(vec![
            look(0.0, 0.0, 0.0),
            look(1.0, 0.5, 80.0),
            look(2.0, 1.5, 100.0),
        ]);
        let moment = line.reaches(95.0).unwrap();
        assert!((moment.seconds - 1.75).abs() < 1e-9);
        assert!((moment.cpu_seconds - 1.25).abs() < 1e-9);
        assert_eq!(line.reaches(101.0), None);
    }

    #[test]
    fn the_mean_weighs_looks_by_the_time_between_them() {
        let line = Timeline(vec![
            look(0.0, 0.0, 0.0),
            look(1.0, 0.0, 0.0),
            look(4.0, 0.0, 60.0),
        ]);
        let (saved, mapped) = line.means_from(0.0).unwrap();
        assert!((saved - 22.5).abs() < 1e-9);
        assert!((mapped - 100.0).abs() < 1e-9);
        assert_eq!(line.means_from(5.0), None);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
