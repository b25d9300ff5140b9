//! A change of hash strength, as far as it concerns parts other than the hash.
//!
//! # Problem
//! At another strength the index is worthless, and sweeps under way would miss the partners that
//! they have passed.
//!
//! # Approach
//! The hash decides ([`crate::hash::adaptive`]). The index changes its era, rounds and sweeps start
//! over, and all regions are new again: pages read at the former strength meet none. That also
//! holds for the end of a search that returns to the former strength: the pages read meanwhile were
//! read at the strengths that it tried.
//!
//! # Source
//! UKSM §6.1, §6.2.

use super::Engine;
use crate::command::Command;
use crate::hash::adaptive::ReadingCost;

/// Approximate number of regions whose anchors are read for each strength that a search tries.
const ANCHORED_IN_SEARCH: usize = 512;

impl Engine {
    /// Changes the strength if that is due; returns the command that the change needs next.
    pub(super) fn tune(&mut self) -> Option<Command> {
        debug_assert!(
            !self.answer.is_under_way(),
            "its hashes are of the strength before"
        );
        let (now, reading) = (self.clock.now(), self.reading_cost());
        if self.merge.len() == 0 && self.hash.adapt(&self.lookup, now, reading) {
            self.extension.read_again();
            self.collisions.forget();
            self.lookup.set_strength(self.hash.strength());
            self.ladder.restart_rounds(&mut self.regions);
            self.read_all_again();
        }
        self.hash.rehash_command()
    }

    /// The cost of reading all memory again.
    pub(super) fn reading_cost(&self) -> ReadingCost {
        self.ladder.reading_cost(self.lookup.indexed())
    }

    /// The index is worthless: all regions are new again. While strengths are tried, the anchors of
    /// some regions stand for those of all: where regions are small, anchors are most of their
    /// pages, and would be read for each strength.
    fn read_all_again(&mut self) {
        for id in self.spaces.regions() {
            self.regions[id].new_era();
        }
        let apart = if self.hash.is_searching() {
            usize::max(1, self.regions.len() / ANCHORED_IN_SEARCH)
        } else {
            1
        };
        self.ladder
            .read_all_again(self.spaces.regions(), apart, &self.regions);
    }
}
