//! The number of merged pages that map the zero page now, for the status.
//!
//! # Problem
//! The kernel does not count mappings of the zero page. A process frees or writes such pages at any
//! time, and the policy notices that when it reads them again, minutes later. The status must not
//! count pages that are no more, and must not hold up merging.
//!
//! # Approach
//! Each status reads the states of pages that the policy believes to be merged: all of up to
//! [`MAX_PAGES`], which gives the exact number, else an even sample of as many. A sample gives the
//! lower end of Wilson's interval, so that about one status in 200 has more than there is. A sample
//! costs 1 to 10 ms (costs of the simulator), and nothing is done between two statuses. A count of
//! all page tables in the background would take longer the more memory there is, and be as late.
//!
//! # Units
//! Pages.
//!
//! # Source
//! Wilson, "Probable inference, the law of succession, and statistical inference" (1927).

use uksm_linux::discovery::Discovery;
use uksm_linux::domain::Domain;
use uksm_linux::module;
use uksm_policy::command::Run;

use super::Worker;

/// Maximum number of pages that are read for one status: those of a SAMPLE.
const MAX_PAGES: u64 = 16_384;

/// The quantile of the normal distribution for 199 of 200.
const QUANTILE: f64 = 2.576;

impl<D: Domain, P: Discovery> Worker<D, P> {
    /// Merged pages that map the zero page now: the exact number if at most [`MAX_PAGES`] pages are
    /// merged, else a lower bound.
    pub(super) fn zero_pages(&mut self) -> module::Result<u64> {
        let runs: Vec<Run> = self.engine.merged_sample(MAX_PAGES);
        let read = runs.iter().map(|run| u64::from(run.count)).sum();
        let zeros = self.host.zero_pages(&runs)?;
        Ok(at_least(zeros, read, self.engine.merged().now))
    }
}

/// A lower bound of the zero pages among `all`, of which `read` were read and `zeros` of these were
/// zero pages.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "pages of a machine, and a part of them"
)]
fn at_least(zeros: u64, read: u64, all: u64) -> u64 {
    if read >= all {
        return zeros;
    }
    let (count, square) = (read.max(1) as f64, QUANTILE * QUANTILE);
    let share = zeros as f64 / count;
    let spread = share * (1.0 - share) / count + square / (4.0 * count * count);
    let lowest = share + square / (2.0 * count) - QUANTILE * spread.sqrt();
    let lowest = (lowest / (1.0 + square / count)).max(0.0);
    (lowest * all as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_all_pages_the_count_is_exact() {
        for zeros in [0, 1, 999, 1000] {
            assert_eq!(at_least(zeros, 1000, 1000), zeros);
        }
        assert_eq!(at_least(0, 0, 0), 0);
    }

    #[test]
    fn a_sample_gives_less_than_its_share_by_at_most_a_hundredth_and_a_half_of_all() {
        // The smallest sample: one page of each two is read.
        let (read, all) = (MAX_PAGES / 2, 1 << 24);
        for zeros in (0..=read).step_by(64) {
            let (bound, share) = (at_least(zeros, read, all), zeros * (all / read));
            assert!(bound <= share, "{zeros}: {bound}");
            assert!(bound + all * 15 / 1000 >= share, "{zeros}: {bound}");
        }
        assert_eq!(at_least(0, read, all), 0);
    }

    /// 100 of 10,000 pages are no zeros any more. Samples of 100 of them have none with a
    /// probability of 0.37, and must not answer 10,000 for that.
    #[test]
    fn a_sample_of_zeros_only_does_not_count_all_pages() {
        assert_eq!(at_least(100, 100, 10_000), 9377);
    }
}
