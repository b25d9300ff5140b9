//! Page contents that can be made and checked from a seed.
//!
//! # Problem
//! A test must know what every byte of a page ought to be, in any process and at any time,
//! without keeping a copy of it.
//!
//! # Approach
//! A content is a pair of a seed and a class; its 512 words come from splitmix64. Pages of equal
//! pairs are equal, pages of different pairs differ in nearly every word, and no word is zero for
//! long, so torn, shifted, stale and zeroed pages are all noticed.
//!
//! # Units
//! Pages are 4096 bytes, words 8 bytes, little-endian.

use uksm_policy::hash::{SplitMix64, mix};

/// Bytes in a page.
pub const PAGE: usize = 4096;

/// Words in a page.
pub const WORDS: usize = PAGE / 8;

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// Tells runs and processes apart.
    pub seed: u64,
    /// Tells pages apart.
    pub class: u64,
}

impl Content {
    /// The content of `class` under `seed`.
    #[must_use]
    pub fn new(seed: u64, class: u64) -> Content {
        Content { seed, class }
    }

    /// The words of the page, first to last.
    pub fn words(self) -> impl Iterator<Item = u64> {
        let mut random = SplitMix64::new(mix(mix(self.seed) ^ self.class));
        (0..WORDS).map(move |_| random.next_u64())
    }

    /// The page as bytes.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        self.words().flat_map(u64::to_le_bytes).collect()
    }
}

/// The generator that tests seed, so that a printed seed replays a run.
#[derive(Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// A generator that starts at `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::new(seed))
    }

    /// The next 64 bits.
    #[must_use]
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is not 0.
    #[must_use]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A page number below `bound`, which is not 0.
    #[must_use]
    pub fn page(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below a usize")
    }

    /// Whether an event of chance `numerator` in `denominator` happened.
    #[must_use]
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }
}
