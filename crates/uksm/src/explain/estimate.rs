//! Estimate of the number of pages with partners, from those that were read.
//!
//! # Units
//! Pages; shares 0 to 1.
//!
//! # Source
//! Wilson's interval for a share.

use serde::Serialize;

/// Standard deviations within which 95 % of a normal distribution lie.
const Z: f64 = 1.96;

/// An estimate with its interval at 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(crate) struct Estimate {
    /// Pages.
    pub(crate) pages: f64,
    /// Lower end.
    pub(crate) low: f64,
    /// Upper end.
    pub(crate) high: f64,
}

/// Upper bound of the share of pages that have partners: `hits` of `samples` had one, and
/// `coverage` of all pages are indexed.
pub(crate) fn at_most(hits: u64, samples: u64, coverage: f64) -> f64 {
    if samples == 0 {
        return 1.0;
    }
    let (_, high) = wilson(hits as f64 / samples as f64, samples as f64, Z * Z);
    (high / coverage.max(1e-6)).min(1.0)
}

/// The number of `all` pages that have partners, if `hits` have by an extrapolation from `read`
/// pages.
pub(super) fn estimate(hits: f64, all: f64, read: f64, coverage: f64) -> Estimate {
    if all <= 0.0 || read <= 0.0 {
        return Estimate::default();
    }
    let share = (hits / all).min(1.0);
    // If all pages were read, there is no uncertainty.
    let unread = ((all - read) / (all - 1.0).max(1.0)).clamp(0.0, 1.0);
    let (low, high) = wilson(share, read, Z * Z * unread);
    Estimate {
        pages: hits,
        low: low * all,
        high: (high / coverage.max(1e-6)).min(1.0) * all,
    }
}

/// Wilson's interval for a share of `samples` samples.
fn wilson(share: f64, samples: f64, z2: f64) -> (f64, f64) {
    let middle = share + z2 / (2.0 * samples);
    let half = (z2 * (share * (1.0 - share) / samples + z2 / (4.0 * samples * samples))).sqrt();
    let scale = 1.0 + z2 / samples;
    (
        ((middle - half) / scale).max(0.0),
        ((middle + half) / scale).min(1.0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_as_wide_as_what_was_not_read_and_not_indexed() {
        let all = estimate(40.0, 100.0, 100.0, 1.0);
        assert_eq!(
            (all.pages, all.low.round(), all.high.round()),
            (40.0, 40.0, 40.0)
        );
        let half_indexed = estimate(40.0, 100.0, 100.0, 0.5);
        assert_eq!(
            (half_indexed.low.round(), half_indexed.high.round()),
            (40.0, 80.0)
        );
        let few = estimate(4000.0, 10_000.0, 10.0, 1.0);
        assert!(few.low < 2000.0 && few.high > 6000.0, "{few:?}");
        let many = estimate(4000.0, 10_000.0, 1000.0, 1.0);
        assert!(many.low > 3600.0 && many.high < 4400.0, "{many:?}");
        // A hundred pages without a partner still leave room for a few.
        let none = at_most(0, 100, 1.0);
        assert!(none > 0.02 && none < 0.05, "{none}");
        assert_eq!(at_most(0, 0, 1.0), 1.0);
        assert!((at_most(0, 100, 0.5) - 2.0 * none).abs() < 1e-9);
    }
}
