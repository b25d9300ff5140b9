//! The pages of a sample: each by chance, with one probability for all.
//!
//! # Approach
//! The number of pages between two chosen ones is geometric. So the generator draws gaps, and its
//! time is proportional to the chosen pages, not to all. The draws are hashes of a counter with the
//! run's salt: one seed chooses the same places, and without it no process can place pages where
//! they are chosen.
//!
//! # Units
//! Pages, numbered from 0.
//!
//! # Source
//! J. Vitter, "Faster methods for random sampling", 1984.

use crate::content::Salt;

/// The numbers of the chosen pages, ascending, without an end.
#[derive(Debug, Clone)]
pub struct BernoulliSample {
    salt: Salt,
    /// The owner of the pages.
    of: u64,
    draws: u64,
    rate: f64,
    next: u64,
}

impl BernoulliSample {
    /// Chooses each page of an owner with this probability.
    ///
    /// # Panics
    /// The rate is not above 0, or above 1.
    #[must_use]
    pub fn new(salt: Salt, of: u64, rate: f64) -> BernoulliSample {
        assert!(rate > 0.0 && rate <= 1.0, "a probability: {rate}");
        BernoulliSample {
            salt,
            of,
            draws: 0,
            rate,
            next: 0,
        }
    }

    /// The number of pages before the next one.
    fn gap(&mut self) -> u64 {
        if self.rate >= 1.0 {
            return 0;
        }
        self.draws += 1;
        let drawn = self.salt.mix([self.of, self.draws]) >> 11;
        // In (0, 1].
        let even = (drawn as f64 + 1.0) / 2f64.powi(53);
        let gap = (even.ln() / (-self.rate).ln_1p()).floor();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "neither logarithm is positive, and `as` saturates"
        )]
        let gap = gap as u64;
        gap
    }
}

impl Iterator for BernoulliSample {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let chosen = self.next.saturating_add(self.gap());
        self.next = chosen.saturating_add(1);
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(end: u64, of: u64, rate: f64) -> Vec<u64> {
        let chosen = BernoulliSample::new(Salt::new(3), of, rate);
        chosen.take_while(|&page| page < end).collect()
    }

    #[test]
    fn at_rate_one_all_are_chosen() {
        assert_eq!(below(5, 9, 1.0), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn each_place_is_chosen_as_often_as_any_other() {
        let mut often = [0u32; 50];
        for of in 0..20_000 {
            for page in below(50, of, 0.1) {
                often[usize::try_from(page).unwrap()] += 1;
            }
        }
        // 2000 on average, with a standard deviation of 42.
        assert!(
            often.iter().all(|times| (1800..2200).contains(times)),
            "{often:?}"
        );
    }

    #[test]
    fn neighbours_are_chosen_independently() {
        let pages = below(1_000_000, 1, 0.2);
        let pairs = pages
            .windows(2)
            .filter(|pair| pair[0] + 1 == pair[1])
            .count();
        assert!((196_000..204_000).contains(&pages.len()), "{}", pages.len());
        assert!((39_000..41_000).contains(&pairs), "{pairs}");
        assert_eq!(pages, below(1_000_000, 1, 0.2));
        assert_ne!(pages, below(1_000_000, 2, 0.2));
        assert!(below(1 << 40, 1, 1e-12).len() < 20);
    }
}
