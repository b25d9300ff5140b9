//! Figures of a quantity that was looked at now and then.
//!
//! Points are a time in seconds and the quantity then, in the order of time. Those before `from` do
//! not count. Nothing can be said where less than two times are left.

/// The mean over time: by trapezoids, so that a look counts for the time around it.
#[must_use]
pub fn mean(points: &[(f64, f64)], from: f64) -> Option<f64> {
    let (points, span) = since(points, from)?;
    let step = |pair: &[(f64, f64)]| f64::midpoint(pair[0].1, pair[1].1) * (pair[1].0 - pair[0].0);
    Some(points.windows(2).map(step).sum::<f64>() / span)
}

/// How much it grew a second.
#[must_use]
pub fn rate(points: &[(f64, f64)], from: f64) -> Option<f64> {
    let (points, span) = since(points, from)?;
    Some((points[points.len() - 1].1 - points[0].1) / span)
}

/// The points from a time on, and the time between the first and the last of them.
fn since(points: &[(f64, f64)], from: f64) -> Option<(&[(f64, f64)], f64)> {
    let points = &points[points.partition_point(|point| point.0 < from)..];
    let span = points.last()?.0 - points.first()?.0;
    (span > 0.0).then_some((points, span))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [(f64, f64); 4] = [(0.0, 9.0), (1.0, 0.0), (2.0, 0.0), (5.0, 60.0)];

    #[test]
    fn the_mean_weighs_looks_by_the_time_between_them() {
        assert!((mean(&POINTS, 1.0).unwrap() - 22.5).abs() < 1e-9);
    }

    #[test]
    fn the_rate_is_that_of_the_whole_time() {
        assert!((rate(&POINTS, 1.0).unwrap() - 15.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_said_of_one_moment() {
        assert_eq!((mean(&POINTS, 5.0), rate(&POINTS, 5.0)), (None, None));
        assert_eq!((mean(&POINTS, 6.0), rate(&[], 0.0)), (None, None));
    }
}
