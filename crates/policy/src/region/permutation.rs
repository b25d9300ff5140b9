//! A keyed order in which to sample the pages of a region (UKSM §5.3).
//!
//! # Problem
//! Sampling a region must not read a page twice before all others, must not follow an order that
//! content follows too, and must not keep a list of pages: a region may have billions. Regions of
//! one shape should be sampled in one order, so that thin samples of two clones meet.
//!
//! # Approach
//! Steps that are each a bijection of the `b`-bit numbers (add a key, multiply by an odd number,
//! fold the high half onto the low one) are chained, `2^b` being the first power of two that is
//! at least the length. An image beyond the length is put through the steps again until it falls
//! inside, which keeps the whole a bijection of `0..len`. All calls of a full cycle together walk
//! each number of `0..2^b` at most once, so a call takes less than two walks on average.
//!
//! # Units
//! Positions and pages count from 0; both are below the length.
//!
//! # Source
//! UKSM §5.3; cycle walking as in Black and Rogaway, "Ciphers with arbitrary finite domains".

use crate::mix::SplitMix64;

const STEPS: usize = 3;

/// A bijection of `0..len`. Small and cheap to make, so it need not be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permutation {
    len: u64,
    /// `2^b - 1`, where `2^b` is the first power of two not below `len`.
    mask: u64,
    /// Half of `b`, rounded up, at least 1: the shift that folds the high half.
    shift: u32,
    /// The summand and the odd factor of each step.
    steps: [(u64, u64); STEPS],
}

impl Permutation {
    /// The order of `len` pages that belongs to `key`: equal arguments, equal order.
    #[must_use]
    pub fn new(len: u64, key: u64) -> Permutation {
        let mut random = SplitMix64::new(key);
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Permutation {
            len,
            mask: u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0),
            shift: bits.div_ceil(2).max(1),
            steps: std::array::from_fn(|_| (random.next_u64(), random.next_u64() | 1)),
        }
    }

    /// The number of pages.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a domain's size, not a container's"
    )]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The page at position `i` of the order. Takes less than two walks on average.
    ///
    /// # Panics
    /// If `i` is not below the length.
    #[must_use]
    pub fn at(&self, i: u64) -> u64 {
        assert!(i < self.len, "position {i} of an order of {}", self.len);
        let mut image = self.walk(i);
        while image >= self.len {
            image = self.walk(image);
        }
        image
    }

    /// A bijection of the `b`-bit numbers.
    fn walk(&self, number: u64) -> u64 {
        self.steps.iter().fold(number, |x, &(add, factor)| {
            let x = x.wrapping_add(add).wrapping_mul(factor) & self.mask;
            x ^ (x >> self.shift)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assert_bijective(len: u64, key: u64) {
        let order = Permutation::new(len, key);
        let mut seen = vec![false; usize::try_from(len).unwrap()];
        for i in 0..len {
            let page = usize::try_from(order.at(i)).unwrap();
            assert!(
                !std::mem::replace(&mut seen[page], true),
                "len {len}, key {key}: {page} twice"
            );
        }
    }

    #[test]
    fn every_short_length_is_a_full_cycle() {
        for len in 0..=300 {
            for key in 0..8 {
                assert_bijective(len, key);
            }
        }
    }

    proptest! {
        #[test]
        fn every_length_is_a_full_cycle(len in 1u64..50_000, key: u64) {
            assert_bijective(len, key);
        }

        #[test]
        fn lengths_up_to_the_largest_are_in_bounds_and_injective(
            len in 1u64.., key: u64, a: u64, b: u64,
        ) {
            let (a, b) = (a % len, b % len);
            let order = Permutation::new(len, key);
            prop_assert!(order.at(a) < len);
            prop_assert_eq!(a == b, order.at(a) == order.at(b));
        }
    }

    #[test]
    fn a_full_cycle_takes_less_than_two_walks_a_page() {
        for len in [5, 1025, 16_385, 100_000] {
            let order = Permutation::new(len, 3);
            let mut walks = 0;
            for i in 0..len {
                let mut image = order.walk(i);
                walks += 1;
                while image >= len {
                    image = order.walk(image);
                    walks += 1;
                }
            }
            assert!(walks < 2 * len, "{walks} walks for {len} pages");
        }
    }

    #[test]
    fn equal_shapes_share_an_order_and_other_keys_do_not() {
        let pages = |key| {
            (0..1000)
                .map(|i| Permutation::new(1000, key).at(i))
                .collect::<Vec<_>>()
        };
        assert_eq!(pages(1), pages(1));
        let same = pages(1)
            .iter()
            .zip(pages(2))
            .filter(|&(&a, b)| a == b)
            .count();
        assert!(same < 10, "{same} of 1000 positions agree between two keys");
    }

    #[test]
    fn any_prefix_is_spread_over_the_region() {
        // 64 stretches of the region get 16 each of the first 1024 samples; the standard
        // deviation is 4, so 40 is six of them.
        for key in 0..32 {
            let order = Permutation::new(16_384, key);
            let mut stretch = [0; 64];
            for i in 0..1024 {
                stretch[usize::try_from(order.at(i) / 256).unwrap()] += 1;
            }
            let (least, most) = (stretch.iter().min().unwrap(), stretch.iter().max().unwrap());
            assert!(
                *most <= 40 && *least >= 1,
                "key {key}: {least} to {most} in a stretch"
            );
        }
    }
}
