//! An estimate and its standard error.
//!
//! # Approach
//! Each content that was kept stands for `1 / q` contents if it was kept with probability `q`
//! (Horvitz and Thompson); its contribution to the variance is `(1 - q) / q²`. The error counts one
//! content more than was kept: an empty sample does not prove that there are no contents. Estimates
//! that come from the same contents are not independent. So errors of a sum are added, not squared:
//! the sum's error is never too small.

use std::ops::Add;

/// A number of pages, and its standard error.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Estimate {
    /// Pages.
    pub pages: f64,
    /// Standard error in pages; 0 if the pages were counted.
    pub error: f64,
}

impl Estimate {
    /// A count.
    #[must_use]
    pub fn exact(pages: f64) -> Estimate {
        Estimate { pages, error: 0.0 }
    }

    /// This, limited to `pages`.
    #[must_use]
    pub fn at_most(self, pages: f64) -> Estimate {
        Estimate {
            pages: self.pages.min(pages),
            error: self.error,
        }
    }

    /// Whether it is more than chance: two standard errors above 0.
    #[must_use]
    pub fn is_sure(self) -> bool {
        self.pages > 2.0 * self.error
    }
}

impl Add for Estimate {
    type Output = Estimate;

    fn add(self, other: Estimate) -> Estimate {
        Estimate {
            pages: self.pages + other.pages,
            error: self.error + other.error,
        }
    }
}

impl std::iter::Sum for Estimate {
    fn sum<I: Iterator<Item = Estimate>>(estimates: I) -> Estimate {
        estimates.fold(Estimate::default(), Add::add)
    }
}

/// Adds up contents that were kept by chance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampledSum {
    pages: f64,
    variance: f64,
}

impl SampledSum {
    /// An empty sum of contents that are each seen with at least this probability.
    pub(crate) fn new(probability: f64) -> SampledSum {
        SampledSum {
            pages: 0.0,
            variance: (1.0 - probability) / (probability * probability),
        }
    }

    /// Adds `pages` pages, which were seen with this probability.
    pub(crate) fn add(&mut self, pages: f64, probability: f64) {
        let estimated = pages / probability;
        self.pages += estimated;
        self.variance += estimated * estimated * (1.0 - probability);
    }

    /// The sum.
    pub(crate) fn estimate(self) -> Estimate {
        Estimate {
            pages: self.pages,
            error: self.variance.max(0.0).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_for_sure_has_no_error() {
        let mut sampled = SampledSum::new(1.0);
        sampled.add(3.0, 1.0);
        sampled.add(4.0, 1.0);
        assert_eq!(sampled.estimate(), Estimate::exact(7.0));
    }

    #[test]
    fn what_was_seen_by_chance_stands_for_more() {
        let mut sampled = SampledSum::new(0.25);
        assert_eq!(sampled.estimate().error, 12f64.sqrt());
        sampled.add(1.0, 0.25);
        let estimate = sampled.estimate();
        assert_eq!((estimate.pages, estimate.error), (4.0, 24f64.sqrt()));
        assert!(!estimate.is_sure());
    }
}
