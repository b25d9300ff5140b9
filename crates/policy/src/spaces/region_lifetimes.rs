//! Short-lived regions are left alone (UKSM §5.2, V_life).
//!
//! # Problem
//! Sampling a region that will be unmapped in a moment is lost work, and merging its pages makes
//! the process pay for copies. The length of "a moment" differs from program to program: a compiler
//! lives for a tenth of a second, a batch job's buffer for one.
//!
//! # Approach
//! A region must have existed for V_life. Beyond that, deaths are counted: regions of the same
//! program, kind of mapping and size are one *lifetime class*. Where more regions of a class died
//! before [`MIN_LONG_LIFE`] than outlived it, the next one has to outlive twice the usual life
//! first. A region that reaches [`MIN_LONG_LIFE`] is merged regardless of its class.
//!
//! Without classes: 64 MiB that live for 0.3 s take 8.0 s of CPU a minute instead of 0.16.
//!
//! # Units
//! Nanoseconds. [`SLOTS`] kinds of 16 bytes; kinds that share a slot displace each other.
//!
//! # Source
//! UKSM §5.1 Observation 1, §5.2, §8.1.3.

use crate::command::Nanos;
use crate::convert;
use crate::mix::mix;
use crate::params::SECOND;

/// Kinds remembered.
const SLOTS: usize = 4096;
/// A region that has lived for this long is not short-lived.
pub(crate) const MIN_LONG_LIFE: Nanos = 5 * SECOND;
/// The longest wait of a kind: a region that lives for [`MIN_LONG_LIFE`] must be merged by then.
const MAX_WAIT: Nanos = 4 * SECOND;
/// Deaths and survivals are remembered up to this number, so that a kind can change.
const MAX_COUNT: u8 = 8;

#[derive(Debug, Clone, Copy, Default)]
struct ClassRecord {
    key: u32,
    life: Nanos,
    deaths: u8,
    survivals: u8,
}

/// The lifetimes seen.
#[derive(Debug, Clone)]
pub(crate) struct RegionLifetimes {
    v_life: Nanos,
    slots: Box<[ClassRecord]>,
}

/// The class of regions that are expected to have similar lifetimes. Two kinds of one slot have the
/// same class with a chance of one in a million.
pub(crate) fn class(space_kind: u64, mapping_kind: u64, pages: u32) -> u32 {
    let size_class = u64::from(pages.ilog2());
    convert::narrow(mix(mix(mix(space_kind) ^ mapping_kind) ^ size_class) >> 32)
}

impl RegionLifetimes {
    /// No lifetimes; a `v_life` of 0 turns the filter off.
    pub(crate) fn new(v_life: Nanos) -> RegionLifetimes {
        RegionLifetimes {
            v_life,
            slots: vec![ClassRecord::default(); SLOTS].into_boxed_slice(),
        }
    }

    /// The age from which on regions of this class are sampled.
    pub(crate) fn threshold(&self, class: u32) -> Nanos {
        if self.v_life == 0 {
            return 0;
        }
        let record = &self.slots[slot(class)];
        if record.key != class || record.deaths <= record.survivals {
            return self.v_life;
        }
        self.v_life.max((record.life * 2).min(MAX_WAIT))
    }

    /// Whether deaths made this class wait.
    pub(crate) fn is_suspect(&self, class: u32) -> bool {
        self.threshold(class) > self.v_life
    }

    /// A region of this class was unmapped at this age.
    pub(crate) fn died(&mut self, class: u32, age: Nanos) {
        if age >= MIN_LONG_LIFE {
            return;
        }
        let record = self.entry(class);
        record.deaths = (record.deaths + 1).min(MAX_COUNT);
        record.survivals /= 2;
        record.life = if age > record.life {
            age
        } else {
            record.life - (record.life - age) / 4
        };
    }

    /// A region of this class has reached [`MIN_LONG_LIFE`].
    pub(crate) fn survived(&mut self, class: u32) {
        let record = self.entry(class);
        record.survivals = (record.survivals + 1).min(MAX_COUNT);
        record.deaths /= 2;
    }

    fn entry(&mut self, class: u32) -> &mut ClassRecord {
        let record = &mut self.slots[slot(class)];
        if record.key != class {
            *record = ClassRecord {
                key: class,
                ..ClassRecord::default()
            };
        }
        record
    }
}

fn slot(class: u32) -> usize {
    convert::index(class) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn an_unknown_class_waits_for_v_life() {
        let lifetimes = RegionLifetimes::new(100 * MS);
        assert_eq!(lifetimes.threshold(class(1, 2, 3)), 100 * MS);
    }

    #[test]
    fn a_class_that_dies_young_waits_for_twice_its_life() {
        let mut lifetimes = RegionLifetimes::new(100 * MS);
        let class = class(1, 2, 128_000);
        lifetimes.died(class, 300 * MS);
        assert_eq!(lifetimes.threshold(class), 600 * MS);
        assert!(lifetimes.is_suspect(class));
        assert_eq!(
            lifetimes.threshold(class ^ 1 << 31),
            100 * MS,
            "other kinds are not blamed"
        );
    }

    #[test]
    fn no_class_waits_until_it_is_grown() {
        let mut lifetimes = RegionLifetimes::new(100 * MS);
        lifetimes.died(7, MIN_LONG_LIFE - 1);
        assert!(lifetimes.threshold(7) < MIN_LONG_LIFE);
    }

    #[test]
    fn survivors_clear_their_class() {
        let mut lifetimes = RegionLifetimes::new(100 * MS);
        for _ in 0..20 {
            lifetimes.died(7, 300 * MS);
        }
        for _ in 0..4 {
            lifetimes.survived(7);
        }
        assert!(!lifetimes.is_suspect(7));
    }

    #[test]
    fn zero_turns_learning_off() {
        let mut lifetimes = RegionLifetimes::new(0);
        lifetimes.died(7, 300 * MS);
        assert_eq!(lifetimes.threshold(7), 0);
    }
}
