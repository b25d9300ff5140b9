//! Which hints are followed while there are more than can be: the same parts of files everywhere.
//!
//! # Problem
//! A page is merged when two spaces have read it and both hints were followed. Of hints that are dropped
//! by chance, or because they are old, one in four may be followed in either space, but one in sixteen in
//! both: half the time for hints yields a quarter (XLH §5.2 saw this where hints were dropped). So what
//! pays is judged not to, and is given less.
//!
//! # Approach
//! A part of a file is followed in all spaces or in none. Files that are copies of each other, such as the
//! disks of two machines, have the same size and hold the same at the same offsets; so size and offset
//! choose. While hints pile up the chosen part is halved, and doubled again when few wait.
//!
//! # Units
//! Parts are [`PART_PAGES`] long, since requests of two machines are not cut at the same places.

use crate::command::Nanos;
use crate::hash::mix;
use crate::params::SECOND;

/// Pages of a part of a file, which is chosen as a whole: 64 KiB.
pub(super) const PART_PAGES: u64 = 16;
/// Least part of all files.
const LEAST: u64 = u64::MAX >> 8;
/// The chosen part is halved when the stack is so full, a quarter of what can be worked off in time, and
/// doubled when it is emptier than that.
const HALVED_FROM: f64 = 0.25;
const DOUBLED_BELOW: f64 = 0.0625;
/// At most so often.
const HALVED_AFTER: Nanos = SECOND / 2;
const DOUBLED_AFTER: Nanos = 4 * SECOND;

/// The choice.
#[derive(Debug)]
pub(super) struct Choice {
    /// Parts whose number is at most this are chosen.
    most: u64,
    changed: Nanos,
}

impl Choice {
    /// All is chosen.
    pub(super) fn new() -> Choice {
        Choice {
            most: u64::MAX,
            changed: 0,
        }
    }

    /// Whether everything is followed.
    pub(super) fn is_all(&self) -> bool {
        self.most == u64::MAX
    }

    /// Whether this part of a file is followed; `page` is one of its pages, as [`super::file_page`]
    /// numbers them.
    pub(super) fn is_chosen(&self, page: u64) -> bool {
        mix(page / PART_PAGES) <= self.most
    }

    /// The stack of hints is this full now.
    pub(super) fn adapt(&mut self, load: f64, now: Nanos) {
        let since = now.saturating_sub(self.changed);
        let most = if load > HALVED_FROM && since >= HALVED_AFTER {
            (self.most >> 1).max(LEAST)
        } else if load < DOUBLED_BELOW && since >= DOUBLED_AFTER {
            (self.most << 1) | 1
        } else {
            return;
        };
        self.most = most;
        self.changed = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(choice: &Choice) -> usize {
        (0..16_000)
            .filter(|part| choice.is_chosen(part * PART_PAGES))
            .count()
    }

    #[test]
    fn half_is_chosen_when_hints_pile_up_and_all_again_when_few_wait() {
        let mut choice = Choice::new();
        choice.adapt(0.25, SECOND);
        assert!(choice.is_all(), "a quarter of the room is no pile");
        choice.adapt(0.26, SECOND);
        choice.adapt(0.26, SECOND + 1);
        let half = chosen(&choice);
        assert!((7_500..8_500).contains(&half), "{half}");
        choice.adapt(0.0, 3 * SECOND);
        assert!(!choice.is_all(), "not so soon");
        choice.adapt(0.0, 5 * SECOND);
        assert!(choice.is_all());
    }

    #[test]
    fn what_a_small_part_holds_a_larger_one_holds_too() {
        let (mut small, mut large) = (Choice::new(), Choice::new());
        large.adapt(1.0, SECOND);
        for n in 1..100 {
            small.adapt(1.0, n * SECOND);
        }
        let small_part = chosen(&small);
        assert!((30..100).contains(&small_part), "{small_part}");
        for page in (0..200_000).filter(|&page| small.is_chosen(page)) {
            assert!(large.is_chosen(page));
            assert!(
                small.is_chosen(page / PART_PAGES * PART_PAGES),
                "all of the part"
            );
        }
    }
}
