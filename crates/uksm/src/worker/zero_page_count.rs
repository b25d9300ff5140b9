//! The number of merged pages that map the zero page now, for the status.
//!
//! # Problem
//! The kernel does not count mappings of the zero page. A process frees or writes such pages at any
//! time, and the policy notices that when it reads them again, minutes later. The status must not
//! count pages that are no more, and must not hold up merging.
//!
//! # Approach
//! A status reads the states of pages that the policy believes to be merged: all of up to
//! [`MAX_PAGES`], which gives the exact number, else an even sample of as many. A sample gives the
//! lower end of Wilson's interval, so that about one sample in 200 has more than there is. It costs
//! 1 to 10 ms (costs of the simulator), and anybody may ask for the status, so a count is used for
//! [`MAX_AGE`]. A count of all page tables in the background would take longer the more memory
//! there is, and be as late.
//!
//! Where a state cannot be read, what the policy believes counts: merged pages that no frame
//! explains.
//!
//! # Units
//! Pages.
//!
//! # Source
//! Wilson, "Probable inference, the law of succession, and statistical inference" (1927).

use uksm_linux::clock;
use uksm_linux::discovery::Discovery;
use uksm_linux::domain::Domain;
use uksm_linux::module;
use uksm_policy::command::Nanos;

use super::Worker;

/// Maximum number of pages that are read for one status: those of a SAMPLE.
const MAX_PAGES: u64 = 16_384;

/// Time for which a count is used.
const MAX_AGE: Nanos = 1_000_000_000;

/// The quantile of the normal distribution for 199 of 200.
const QUANTILE: f64 = 2.576;

impl<D: Domain, P: Discovery> Worker<D, P> {
    /// Merged pages that map the zero page, at most [`MAX_AGE`] ago: the exact number if at most
    /// [`MAX_PAGES`] pages are merged, else a lower bound. `sharers` is the number of mappings of
    /// frames.
    pub(super) fn zero_pages(&mut self, sharers: u64) -> module::Result<u64> {
        let now = clock::now();
        if let Some((time, zeros)) = self.zero_pages
            && now.saturating_sub(time) < MAX_AGE
        {
            return Ok(zeros);
        }
        let runs = self.engine.merged_sample(MAX_PAGES, self.started);
        let asked = runs.iter().map(|run| u64::from(run.count)).sum();
        let count = self.host.count_zero_pages(&runs)?;
        let believed = self.engine.merged().now;
        let zeros = at_least(count.zeros, asked, believed);
        let with_unread = at_least(count.zeros + count.unread, asked, believed);
        let zeros = with_unread.min(zeros.max(believed.saturating_sub(sharers)));
        self.zero_pages = Some((now, zeros));
        Ok(zeros)
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
