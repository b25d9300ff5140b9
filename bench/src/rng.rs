//! Numbers drawn from a seed: the same ones on every run.
//!
//! Workloads are planned twice: by the process that makes them and by the one that measures them,
//! each for itself.

use std::ops::RangeInclusive;

use crate::contents::key;

/// A sequence of numbers.
pub(crate) struct Rng {
    seed: u64,
    name: u64,
    drawn: u64,
}

impl Rng {
    /// The sequence of this name. Names are families of contents that no page has.
    pub(crate) fn new(seed: u64, name: u64) -> Rng {
        Rng {
            seed,
            name,
            drawn: 0,
        }
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.drawn += 1;
        let draw = u128::from(key(self.seed, self.name, self.drawn));
        usize::try_from((draw * bound as u128) >> 64).unwrap_or(0)
    }

    /// A length in this range; lengths of each power of two are equally likely.
    pub(crate) fn in_octaves(&mut self, range: &RangeInclusive<usize>) -> usize {
        let (lowest, highest) = (range.start().ilog2(), range.end().ilog2());
        let octaves = usize::try_from(highest - lowest + 1).unwrap_or(1);
        let base = (1 << lowest) << self.below(octaves);
        (base + self.below(base)).clamp(*range.start(), *range.end())
    }
}

/// Any order, all equally likely (Fisher and Yates).
pub(crate) fn shuffle<T>(items: &mut [T], draws: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, draws.below(last + 1));
    }
}
