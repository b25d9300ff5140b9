//! The number of pages that are copies, estimated from a sample of pages.
//!
//! # Problem
//! Reading all memory of a host takes minutes of a processor. A sample of its pages shows few
//! copies: two equal pages are both in a sample of one in twenty once in four hundred times, and a
//! content that was met once may have one page or thirty. No function of the sample estimates the
//! number of contents well for every memory (Charikar and others, theorem 1), so an estimate
//! without a bound is worth nothing.
//!
//! # Approach
//! Each page is in the sample with the same probability, the *rate* `r`, independent of all
//! contents. Then the probability that a content of `m` pages is met `j` times is binomial, `B(j;
//! m, r)`, and the number of contents met `j` times has the mean `Σ g(m) B(j; m, r)`, where `g(m)`
//! is the number of contents with `m` pages. That is linear in the unknown `g`. So:
//!
//! 1. Contents that were met are counted in `BINS` bins of `j`. There is a confidence interval
//!    for the mean of each count, and one for the number of all pages.
//! 2. A linear programme finds the fewest and the most copies, `Σ (m - 1) g(m)`, of all `g` whose
//!    means lie in all the intervals. The true `g` is one of these unless an interval fails, so the
//!    true number lies between the two with at least the probability that all intervals hold
//!    together. The intervals share `DOUBT` (Bonferroni): half for all pages, half for the bins.
//!    They are Poisson's: the counts are sums of independent indicators, whose tails are no heavier
//!    (Hoeffding).
//! 3. The estimate is that of the `g` whose means are nearest to the counts, by the sum of
//!    distances over standard deviations.
//!
//! # Bias
//! Where the sample does not decide (at a low rate a pair looks like a content of three pages) the
//! estimate is that of the simplest `g` that fits, and can be off in either direction; the interval
//! covers all that is unknown, except for numbers that the sample excludes by itself: copies and
//! contents that were met exist. At rate 1 all are counted, and nothing is estimated.
//!
//! # Rejected
//! Counting pairs that were met and dividing by `r²` ([`crate::sharing`] does, for two processes)
//! is without bias for contents of two pages only. Goodman's estimator is without bias for all, and
//! has a standard deviation far above the memory. Keeping contents by their hashes
//! ([`crate::sketch`]) saves room, not reading: to know a page's hash, it must be read.
//!
//! # Units
//! Pages.
//!
//! # Source
//! M. Charikar and others, "Towards estimation error guarantees for distinct values", PODS'00. The
//! linear programme: G. Valiant and P. Valiant, "Estimating the unseen", STOC'11. W. Hoeffding, "On
//! the distribution of the number of successes in independent trials", 1956. F. Garwood, "Fiducial
//! limits for the Poisson distribution", 1936. E. Wilson and M. Hilferty, "The distribution of
//! chi-square", 1931.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use statrs::distribution::{Binomial, ContinuousCDF as _, DiscreteCDF as _, Normal};

/// The probability that an interval fails. A difference of two intervals fails with at most twice
/// that, 5 %.
const DOUBT: f64 = 0.025;

/// Number of bins for the times that a content was met: 1 to 5, then each bin twice as wide, and
/// the last without an end.
const BINS: usize = 17;

/// Number of bins for a single number of times.
const MAX_EXACT_TIMES: u64 = 5;

/// Each number of pages up to this is tried for a content; beyond, steps of a twelfth.
const MAX_EXACT_PAGES: u64 = 24;

/// The numbers of times that contents were met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeetingCounts {
    /// The number of contents, by the times that they were met.
    contents: BTreeMap<u64, u64>,
}

impl MeetingCounts {
    /// Adds a content that was met `times` times.
    pub fn add(&mut self, times: u64) {
        if times > 0 {
            *self.contents.entry(times).or_default() += 1;
        }
    }

    /// Pages that were met.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.contents.iter().map(|(times, of)| times * of).sum()
    }

    /// Contents that were met.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        self.contents.values().sum()
    }

    /// Pages that were met beyond the first of each content.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.pages() - self.distinct()
    }
}

/// A number of pages, and its interval in 95 of 100 runs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Range {
    /// The estimate.
    pub pages: f64,
    /// No fewer.
    pub low: f64,
    /// No more.
    pub high: f64,
}

impl Range {
    /// A count.
    #[must_use]
    pub fn exact(pages: f64) -> Range {
        Range {
            pages,
            low: pages,
            high: pages,
        }
    }

    /// This number less another, which is a part of it.
    #[must_use]
    pub fn beyond(self, part: Range) -> Range {
        Range {
            pages: (self.pages - part.pages).max(0.0),
            low: (self.low - part.high).max(0.0),
            high: (self.high - part.low).max(0.0),
        }
    }

    /// The sum of this and another.
    #[must_use]
    pub fn and(self, other: Range) -> Range {
        Range {
            pages: self.pages + other.pages,
            low: self.low + other.low,
            high: self.high + other.high,
        }
    }

    /// Narrows numbers from one sample of which each is a part of the next: an upper bound holds
    /// for all parts as well, and a lower bound for all wholes. Estimates in the wrong order are
    /// replaced by their mean.
    #[must_use]
    pub fn nested<const LEVELS: usize>(mut levels: [Range; LEVELS]) -> [Range; LEVELS] {
        for outer in (1..LEVELS).rev() {
            levels[outer - 1].high = levels[outer - 1].high.min(levels[outer].high);
        }
        for outer in 1..LEVELS {
            levels[outer].low = levels[outer].low.max(levels[outer - 1].low);
        }
        // Pools of levels with one estimate: their sum, and their number.
        let mut pools: Vec<(f64, usize)> = Vec::new();
        for level in levels {
            let mut pool = (level.pages, 1);
            while let Some(&(sum, number)) = pools.last() {
                if sum / number as f64 <= pool.0 / pool.1 as f64 {
                    break;
                }
                pools.pop();
                pool = (pool.0 + sum, pool.1 + number);
            }
            pools.push(pool);
        }
        let means = pools
            .iter()
            .flat_map(|&(sum, number)| std::iter::repeat_n(sum / number as f64, number));
        for (level, mean) in levels.iter_mut().zip(means) {
            let low = level.low.min(level.high);
            level.low = low;
            level.pages = mean.clamp(low, level.high);
        }
        levels
    }

    /// The larger distance of a bound from the estimate.
    #[must_use]
    pub fn reach(self) -> f64 {
        (self.high - self.pages).max(self.pages - self.low)
    }
}

/// The relation of contents to meetings, at one rate of sampling.
#[derive(Debug, Clone)]
pub struct Occupancy {
    rate: f64,
    /// Numbers of pages of a content that are tried, ascending, and the probability of each bin for
    /// such a content.
    tried: Vec<(u64, [f64; BINS])>,
}

/// The solution wanted among all that fit.
#[derive(Clone, Copy, PartialEq)]
enum Goal {
    Fewest,
    Most,
    Nearest,
}

impl Occupancy {
    /// For pages that were in the sample with this probability.
    ///
    /// # Panics
    /// The rate is not above 0, or above 1.
    #[must_use]
    pub fn new(rate: f64) -> Occupancy {
        assert!(rate > 0.0 && rate <= 1.0, "a probability: {rate}");
        let mut tried = Vec::new();
        if rate < 1.0 {
            let last = 4.0 * first(BINS - 1) as f64 / rate;
            let mut pages = 1;
            while (pages as f64) < last {
                tried.push((pages, bins(pages, rate)));
                pages += if pages < MAX_EXACT_PAGES {
                    1
                } else {
                    pages / 12
                };
            }
        }
        Occupancy { rate, tried }
    }

    /// The rate.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The number of pages of a kind of which `met` were met.
    #[must_use]
    pub fn pages(&self, met: u64) -> Range {
        self.pages_but_for(met, DOUBT)
    }

    /// As [`Occupancy::pages`], where the interval may fail with this probability.
    fn pages_but_for(&self, met: u64, doubt: f64) -> Range {
        let rate = self.rate;
        if rate >= 1.0 {
            return Range::exact(met as f64);
        }
        let (low, high) = poisson(met, doubt / 2.0);
        let met = met as f64;
        // A binomial count varies less than Poisson's by this.
        let narrower = if met < 30.0 { 1.0 } else { (1.0 - rate).sqrt() };
        Range {
            pages: met / rate,
            low: ((met - (met - low) * narrower) / rate).max(met),
            high: (met + (high - met) * narrower) / rate,
        }
    }

    /// The number of copies: pages beyond the first of each content.
    #[must_use]
    pub fn copies(&self, met: &MeetingCounts) -> Range {
        let sure = met.copies() as f64;
        if self.rate >= 1.0 || met.pages() == 0 {
            return Range::exact(sure);
        }
        let all = self.pages_but_for(met.pages(), DOUBT / 2.0);
        // Without any model: pages that were met exist.
        let most = (all.high - met.distinct() as f64).max(sure);
        let held =
            |found: Option<f64>, otherwise: f64| found.unwrap_or(otherwise).clamp(sure, most);
        let low = held(self.found(met, Goal::Fewest), sure);
        let high = held(self.found(met, Goal::Most), most).max(low);
        let nearest = self.found(met, Goal::Nearest);
        Range {
            pages: nearest.unwrap_or(f64::midpoint(low, high)).clamp(low, high),
            low,
            high,
        }
    }

    /// The copies of the wanted solution; none if nothing fits, or the solver finds none: then only
    /// numbers that the sample excludes by itself are excluded.
    fn found(&self, met: &MeetingCounts, wanted: Goal) -> Option<f64> {
        let doubt = DOUBT / 2.0 / BINS as f64 / 2.0;
        let counts = counts(met);
        let all = met.pages() as f64 / self.rate;
        let direction = match wanted {
            Goal::Most => OptimizationDirection::Maximize,
            Goal::Fewest | Goal::Nearest => OptimizationDirection::Minimize,
        };
        let mut problem = Problem::new(direction);
        // The part of all pages that belongs to contents of this number of pages.
        let mut parts: Vec<(f64, [f64; BINS], Variable)> = Vec::new();
        let last = self.tried.last().map_or(1, |&(pages, _)| pages) as f64;
        let mut beyond = [0.0; BINS];
        beyond[BINS - 1] = 1.0;
        let beyond = std::iter::successors(Some(2.0 * last), |pages| Some(2.0 * pages))
            .take_while(|&pages| pages < 2.0 * all)
            .map(|pages| (pages, beyond));
        let tried = self.tried.iter().map(|&(pages, bins)| (pages as f64, bins));
        for (pages, bins) in tried.chain(beyond) {
            let copies = match wanted {
                Goal::Nearest => 0.0,
                _ => (pages - 1.0) / pages,
            };
            parts.push((pages, bins, problem.add_var(copies, (0.0, f64::INFINITY))));
        }
        for (bin, &count) in counts.iter().enumerate() {
            let (low, high) = poisson(count, doubt);
            // Rows of one size, so that one tolerance fits all.
            let size = match wanted {
                Goal::Nearest => (count as f64 + 1.0).sqrt(),
                _ => high,
            };
            let row = parts.iter().filter(|(_, bins, _)| bins[bin] > 1e-12);
            let mut row: Vec<(Variable, f64)> = row
                .map(|&(pages, bins, part)| (part, all / pages * bins[bin] / size))
                .collect();
            if wanted == Goal::Nearest {
                row.push((problem.add_var(1.0, (0.0, f64::INFINITY)), 1.0));
                row.push((problem.add_var(1.0, (0.0, f64::INFINITY)), -1.0));
                problem.add_constraint(row, ComparisonOp::Eq, count as f64 / size);
            } else {
                problem.add_constraint(row.clone(), ComparisonOp::Ge, low / size);
                problem.add_constraint(row, ComparisonOp::Le, high / size);
            }
        }
        let bounds = match wanted {
            Goal::Nearest => Range::exact(all),
            _ => self.pages_but_for(met.pages(), DOUBT / 2.0),
        };
        let row: Vec<(Variable, f64)> = parts.iter().map(|&(_, _, part)| (part, 1.0)).collect();
        problem.add_constraint(row.clone(), ComparisonOp::Ge, bounds.low / all);
        problem.add_constraint(row, ComparisonOp::Le, bounds.high / all);
        let solution = problem.solve().ok()?.into_solution().ok()?;
        let copies = parts.iter().map(|&(pages, _, part)| {
            let part: f64 = solution.var_value(part);
            all * part * (pages - 1.0) / pages
        });
        Some(copies.sum())
    }
}

/// The fewest times of a bin.
fn first(bin: usize) -> u64 {
    let bin = bin as u64;
    match bin.checked_sub(MAX_EXACT_TIMES) {
        None => bin + 1,
        Some(doublings) => (MAX_EXACT_TIMES + 1) << doublings,
    }
}

fn counts(met: &MeetingCounts) -> [u64; BINS] {
    let mut counts = [0; BINS];
    for (&times, &contents) in &met.contents {
        let bin = (1..BINS).find(|&bin| times < first(bin)).unwrap_or(BINS);
        counts[bin - 1] += contents;
    }
    counts
}

/// The probability of each bin for a content of `pages` pages.
fn bins(pages: u64, rate: f64) -> [f64; BINS] {
    let mut bins = [0.0; BINS];
    let Ok(times) = Binomial::new(rate, pages) else {
        return bins;
    };
    let mut below = times.cdf(0);
    for (bin, probability) in bins.iter_mut().enumerate() {
        let upto = match bin + 1 {
            BINS => 1.0,
            next => times.cdf(first(next) - 1),
        };
        *probability = (upto - below).max(0.0);
        below = upto;
    }
    bins
}

/// The mean of a Poisson count, each side failing with this probability: Garwood's interval, by the
/// cube of Wilson and Hilferty, which is wider where counts are below ten and equal to some parts
/// in a thousand above.
fn poisson(count: u64, doubt: f64) -> (f64, f64) {
    let far = Normal::standard().inverse_cdf(1.0 - doubt);
    let cube = |count: f64, far: f64| {
        let root = 1.0 - 1.0 / (9.0 * count) + far / (3.0 * count.sqrt());
        count * root.max(0.0).powi(3)
    };
    let low = match count {
        0 => 0.0,
        _ => cube(count as f64, -far),
    };
    (low, cube(count as f64 + 1.0, far))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(times: impl IntoIterator<Item = u64>) -> MeetingCounts {
        let mut met = MeetingCounts::default();
        times.into_iter().for_each(|times| met.add(times));
        met
    }

    #[test]
    fn at_rate_one_copies_are_counted() {
        let met = met([1, 1, 3, 5, 0]);
        assert_eq!((met.pages(), met.distinct(), met.copies()), (10, 4, 6));
        let all = Occupancy::new(1.0);
        assert_eq!(all.copies(&met), Range::exact(6.0));
        assert_eq!(all.pages(7), Range::exact(7.0));
        assert_eq!(
            Occupancy::new(0.5).copies(&MeetingCounts::default()),
            Range::exact(0.0)
        );
    }

    #[test]
    fn bins_hold_every_number_of_times_once() {
        let firsts: Vec<u64> = (0..BINS).map(first).collect();
        assert_eq!(firsts[..8], [1, 2, 3, 4, 5, 6, 12, 24]);
        assert!(firsts.is_sorted());
        let counted = counts(&met([1, 5, 6, 11, 12, 1 << 40]));
        assert_eq!(
            (counted[0], counted[4], counted[5], counted[6]),
            (1, 1, 2, 1)
        );
        assert_eq!((counted[BINS - 1], counted.iter().sum::<u64>()), (1, 6));
        for pages in [1, 7, 1000, 1 << 30] {
            let missed = 0.99f64.powf(pages as f64);
            let met: f64 = bins(pages, 0.01).iter().sum();
            assert!((met + missed - 1.0).abs() < 1e-6, "{pages}: {met}");
        }
    }

    #[test]
    fn intervals_of_a_count_are_garwoods() {
        for (count, low, high) in [
            (0, 0.0, 3.689),
            (1, 0.025, 5.572),
            (10, 4.795, 18.390),
            (1_000_000, 998_041.0, 1_001_961.0),
        ] {
            let found = poisson(count, 0.025);
            let near = |found: f64, exact: f64| (found - exact).abs() < 0.03 + exact * 3e-3;
            assert!(
                near(found.0, low) && near(found.1, high),
                "{count}: {found:?}"
            );
        }
    }

    #[test]
    fn what_is_a_part_of_another_is_no_larger() {
        let range = |pages, low, high| Range { pages, low, high };
        let levels = [
            range(9.0, 2.0, 30.0),
            range(5.0, 0.0, 12.0),
            range(20.0, 1.0, 25.0),
        ];
        assert_eq!(
            Range::nested(levels),
            [
                range(7.0, 2.0, 12.0),
                range(7.0, 2.0, 12.0),
                range(20.0, 2.0, 25.0)
            ]
        );
        let all = Range::nested([
            range(6.0, 0.0, 9.0),
            range(3.0, 0.0, 9.0),
            range(0.0, 0.0, 9.0),
        ]);
        assert!(all.iter().all(|level| level.pages == 3.0), "{all:?}");
        let ordered = [1.0, 1.0, 2.0].map(Range::exact);
        assert_eq!(Range::nested(ordered), ordered);
    }

    #[test]
    fn differences_reach_as_far_as_both_bounds() {
        let range = |pages, low, high| Range { pages, low, high };
        let difference = range(10.0, 8.0, 13.0).beyond(range(4.0, 3.0, 9.0));
        assert_eq!(difference, range(6.0, 0.0, 10.0));
        assert_eq!(difference.reach(), 6.0);
        assert_eq!(difference.and(Range::exact(1.0)), range(7.0, 1.0, 11.0));
    }
}
