//! The choice of hints while there are too many to follow: the same parts of files in all spaces.
//!
//! # Problem
//! A page is merged when two spaces have read it and both hints were followed. If hints are dropped
//! by chance, or because they are old, and one in four is followed in either space, one in sixteen
//! is followed in both: half the time for hints yields a quarter (XLH §5.2 measured this where
//! hints were dropped). So hints that pay seem not to pay, and are given less.
//!
//! # Approach
//! A part of a file is followed in all spaces or in none. Files that are copies of each other, such
//! as the disks of two machines, have the same size and the same contents at the same offsets; so
//! size and offset choose. While hints pile up the chosen part is halved, and doubled again when
//! few wait.
//!
//! One process with very much I/O must not take the time of all other hints. So spaces with more
//! than their part of the waiting hints are halved alone, while more than [`MIN_CHOSEN`] is chosen
//! in any of them. A smaller part is in each larger one, so that spaces with different parts still
//! have the same pages in common.
//!
//! And I/O of files whose hints do not pay ([`super::file_yield`]) must not take the time of other
//! hints either: while more such hints come than others, only their part is halved, and it is
//! doubled last.
//!
//! Without the choice by space: of pages that two guests read beside a backup under quiet 67 % are
//! shared instead of 85; beside a storm, on a machine 16 times slower, 24.5 s pass instead of 1.
//!
//! # Units
//! Parts are [`PART_PAGES`] long, since requests of two machines are not cut at the same places.

use std::collections::BTreeMap;

use crate::command::{Nanos, SpaceId};
use crate::mix::mix;
use crate::params::SECOND;

/// Pages of a part of a file, which is chosen as a whole: 64 KiB.
pub(super) const PART_PAGES: u64 = 16;
/// The smallest part of all files that is chosen.
const MIN_CHOSEN: u64 = u64::MAX >> 8;
/// The chosen part is halved when the stacks are fuller than the first, a quarter of the pages that
/// can be worked off in time, and doubled when they are emptier than the second.
const HALVED_FROM: f64 = 0.25;
const DOUBLED_BELOW: f64 = 0.0625;
/// Least time between two changes.
const HALVED_AFTER: Nanos = SECOND / 2;
const DOUBLED_AFTER: Nanos = 4 * SECOND;

/// The present choice.
#[derive(Debug)]
pub(super) struct FileSampling {
    /// The largest number of a part that is chosen, in all spaces.
    most: u64,
    /// The same for spaces with a smaller choice.
    fewer: BTreeMap<SpaceId, u64>,
    /// The same for files that do not pay, in all spaces.
    unpaying: u64,
    /// Pages chosen since the last change: of files that pay, and of those that do not.
    chosen: (u64, u64),
    changed: Nanos,
}

impl FileSampling {
    /// A choice of all parts.
    pub(super) fn new() -> FileSampling {
        FileSampling {
            most: u64::MAX,
            fewer: BTreeMap::new(),
            unpaying: u64::MAX,
            chosen: (0, 0),
            changed: 0,
        }
    }

    /// The largest number of a part that is followed in a space, by whether its file pays:
    /// `u64::MAX` chooses all.
    pub(super) fn of(&self, space: SpaceId, pays: bool) -> u64 {
        let own = self.fewer.get(&space).map_or(u64::MAX, |&own| own);
        let unpaying = if pays { u64::MAX } else { self.unpaying };
        self.most.min(own).min(unpaying)
    }

    /// `pages` were chosen of a file that pays, or of one that does not.
    pub(super) fn chose(&mut self, pages: u64, pays: bool) {
        let chosen = if pays {
            &mut self.chosen.0
        } else {
            &mut self.chosen.1
        };
        *chosen += pages;
    }

    /// Whether the part with `page`, as [`super::file_page`] numbers pages, is chosen up to `most`.
    pub(super) fn is_chosen(page: u64, most: u64) -> bool {
        mix(page / PART_PAGES) <= most
    }

    /// Takes in the load of the stacks; `heavy` returns the spaces with more than their part at a
    /// given load.
    pub(super) fn adapt(&mut self, load: f64, heavy: impl FnOnce(f64) -> Vec<SpaceId>, now: Nanos) {
        let since = now.saturating_sub(self.changed);
        if load > HALVED_FROM && since >= HALVED_AFTER {
            if self.chosen.1 > self.chosen.0 && self.unpaying > MIN_CHOSEN {
                self.unpaying >>= 1;
            } else {
                self.halve(&heavy(HALVED_FROM));
            }
        } else if load < DOUBLED_BELOW && since >= DOUBLED_AFTER {
            self.double();
        } else {
            return;
        }
        self.changed = now;
        self.chosen = (0, 0);
    }

    fn double(&mut self) {
        let twice = |part: u64| (part << 1) | 1;
        if self.most == u64::MAX && self.fewer.is_empty() {
            self.unpaying = twice(self.unpaying);
        }
        self.most = twice(self.most);
        for own in self.fewer.values_mut() {
            *own = twice(*own);
        }
        self.fewer.retain(|_, own| *own < u64::MAX);
    }

    fn halve(&mut self, heavy: &[SpaceId]) {
        let mut is_any = false;
        for &space in heavy {
            let before = self.of(space, true);
            if before > MIN_CHOSEN {
                self.fewer.insert(space, before >> 1);
                is_any = true;
            }
        }
        if !is_any {
            self.most = (self.most >> 1).max(MIN_CHOSEN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(sampling: &FileSampling) -> usize {
        (0..16_000)
            .filter(|part| FileSampling::is_chosen(part * PART_PAGES, sampling.most))
            .count()
    }

    fn is_all(sampling: &FileSampling) -> bool {
        sampling.of(SpaceId(1), true) == u64::MAX
    }

    #[test]
    fn those_of_which_most_waits_are_halved_alone_until_little_of_them_is_left() {
        let (heavy, other) = (SpaceId(7), SpaceId(8));
        let mut sampling = FileSampling::new();
        for n in 1..=8 {
            sampling.adapt(0.3, |_| vec![heavy], n * SECOND);
            assert_eq!(sampling.of(heavy, true), u64::MAX >> n);
            assert_eq!(sampling.of(other, true), u64::MAX);
        }
        sampling.adapt(0.3, |_| vec![heavy], 9 * SECOND);
        assert_eq!(sampling.of(other, true), u64::MAX >> 1);
        for n in 1..=8 {
            sampling.adapt(0.0, |_| vec![], (9 + 4 * n) * SECOND);
        }
        assert_eq!(sampling.of(heavy, true), u64::MAX);
        assert!(sampling.fewer.is_empty());
    }

    #[test]
    fn what_does_not_pay_is_halved_first_and_doubled_last() {
        let any = SpaceId(1);
        let parts = |sampling: &FileSampling| (sampling.of(any, true), sampling.of(any, false));
        let (all, half) = (u64::MAX, u64::MAX >> 1);
        let mut sampling = FileSampling::new();
        sampling.chose(10, true);
        sampling.chose(11, false);
        sampling.adapt(0.3, |_| vec![], SECOND);
        assert_eq!(parts(&sampling), (all, half));
        sampling.chose(12, true);
        sampling.chose(11, false);
        sampling.adapt(0.3, |_| vec![], 2 * SECOND);
        assert_eq!(parts(&sampling), (half, half), "most of it pays");
        sampling.adapt(0.0, |_| vec![], 6 * SECOND);
        assert_eq!(parts(&sampling), (all, half));
        sampling.adapt(0.0, |_| vec![], 10 * SECOND);
        assert_eq!(parts(&sampling), (all, all));
        for n in 11..30 {
            sampling.chose(1, false);
            sampling.adapt(0.3, |_| vec![], n * SECOND);
        }
        assert_eq!(sampling.of(any, false), MIN_CHOSEN);
        assert!(sampling.of(any, true) < half, "there is no other way");
    }

    #[test]
    fn half_is_chosen_when_hints_pile_up_and_all_again_when_few_wait() {
        let mut sampling = FileSampling::new();
        sampling.adapt(0.25, |_| vec![], SECOND);
        assert!(is_all(&sampling), "a quarter of the room is no pile");
        sampling.adapt(0.26, |_| vec![], SECOND);
        sampling.adapt(0.26, |_| vec![], SECOND + 1);
        let half = chosen(&sampling);
        assert!((7_500..8_500).contains(&half), "{half}");
        sampling.adapt(0.0, |_| vec![], 3 * SECOND);
        assert!(!is_all(&sampling), "not so soon");
        sampling.adapt(0.0, |_| vec![], 5 * SECOND);
        assert!(is_all(&sampling));
    }

    #[test]
    fn what_a_small_part_holds_a_larger_one_holds_too() {
        let (mut small, mut large) = (FileSampling::new(), FileSampling::new());
        large.adapt(1.0, |_| vec![], SECOND);
        for n in 1..100 {
            small.adapt(1.0, |_| vec![], n * SECOND);
        }
        let small_part = chosen(&small);
        assert!((30..100).contains(&small_part), "{small_part}");
        for page in (0..200_000).filter(|&page| FileSampling::is_chosen(page, small.most)) {
            assert!(FileSampling::is_chosen(page, large.most));
            assert!(
                FileSampling::is_chosen(page / PART_PAGES * PART_PAGES, small.most),
                "all of the part"
            );
        }
    }
}
