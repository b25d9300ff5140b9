//! The payers: each cost is paid from the share of one of them.
//!
//! # Problem
//! Levels, lists and newcomers have shares of their own. Their pages are merged together, and the
//! cost of working through an answer shows only with the next step. A cost must go to the payer
//! that caused it, and not to the one that comes next.
//!
//! # Approach
//! Each cost has its payer from its cause on: a command when it is given, a page when it begins to
//! wait to be merged. The cost of a batch is split by its pages.

use crate::command::Nanos;
use crate::convert;

/// Limit of the number of levels.
pub(crate) const LEVELS: usize = 8;

/// The payer of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payer {
    /// The governor's share alone, from which all others are paid, too.
    Nobody,
    /// The next payer: for waking up.
    Next,
    /// Discovery, by the list that it requests.
    List(List),
    /// First samples of new regions.
    Newcomers,
    /// A level of the ladder.
    Level(u8),
    /// The unused part of the governor's share: for first sweeps.
    Spare,
    /// Following hints.
    Hints,
    /// Listing frames.
    Reap,
    /// The payers of the pages of the last batch.
    Batch,
}

/// The requests of discovery, each paid from a share of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// Process lists of a machine that searches for processes, while none waits.
    Search,
    /// Process lists of a machine with process events, or while processes wait.
    Events,
    /// Sizes of spaces.
    Sizes,
    /// First mapping lists.
    First,
    /// Mapping lists of spaces that changed.
    Changed,
    /// Mapping lists of calm spaces, by a machine that searches for processes.
    Calm,
    /// Lists that a machine with events needs only where it missed one.
    Repair,
    /// Lists that cannot wait for their share, from unused time.
    Spare,
}

impl List {
    /// The number of lists.
    pub(crate) const COUNT: usize = 8;

    /// Whether it is requested on an idle host, without new processes and changes.
    pub(crate) fn is_watching(self) -> bool {
        match self {
            List::Search | List::Events | List::Sizes | List::Calm | List::Repair => true,
            List::First | List::Changed | List::Spare => false,
        }
    }
}

impl Payer {
    /// The level of this number.
    pub(crate) fn level(level: usize) -> Payer {
        Payer::Level(u8::try_from(level).expect("at most 8 levels"))
    }
}

/// Pages of a batch by payer: newcomers, a level, hints, or spare time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BatchPayers {
    newcomers: u32,
    spare: u32,
    hints: u32,
    levels: [u32; LEVELS],
}

impl BatchPayers {
    /// One more page.
    pub(crate) fn add(&mut self, payer: Payer) {
        match payer {
            Payer::Level(level) => self.levels[usize::from(level)] += 1,
            Payer::Spare => self.spare += 1,
            Payer::Hints => self.hints += 1,
            _ => self.newcomers += 1,
        }
    }

    /// The parts of `cost`, by payer; none without pages.
    pub(crate) fn parts(self, cost: Nanos) -> impl Iterator<Item = (Payer, Nanos)> {
        let levels = (0u8..).map(Payer::Level).zip(self.levels);
        let others = [
            (Payer::Newcomers, self.newcomers),
            (Payer::Spare, self.spare),
            (Payer::Hints, self.hints),
        ];
        let all = levels.chain(others);
        let total = all.clone().map(|(_, pages)| u64::from(pages)).sum();
        all.filter(|&(_, pages)| pages > 0)
            .map(move |(payer, pages)| {
                let share = convert::ratio(u64::from(pages), total);
                (payer, convert::nanos(convert::float(cost) * share + 0.5))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_paid_for_by_pages() {
        let mut split = BatchPayers::default();
        (0..3).for_each(|_| split.add(Payer::Level(3)));
        split.add(Payer::Newcomers);
        split.add(Payer::Spare);
        let parts: Vec<_> = split.parts(500).collect();
        let (newcomers, spare) = ((Payer::Newcomers, 100), (Payer::Spare, 100));
        assert_eq!(parts, [(Payer::Level(3), 300), newcomers, spare]);
        assert_eq!(BatchPayers::default().parts(400).count(), 0);
    }
}
