//! A change of hash strength, as far as it concerns more than the hash.
//!
//! # Problem
//! What was indexed is worthless at another strength, and sweeps under way would miss the partners
//! that they have passed.
//!
//! # Approach
//! The hash decides ([`crate::hash::adaptive`]). The index changes its era, rounds and sweeps start
//! over, and all is new again: what was read at the strength before meets nobody. That holds for
//! the end of a search that returns to the strength before it, too: what was read meanwhile was
//! read at the strengths that it tried.
//!
//! # Source
//! UKSM §6.1, §6.2.

use super::Engine;
use crate::command::Command;
use crate::hash::adaptive::ReadingCost;

/// About so many regions have their anchors read for each strength that a search tries.
const ANCHORED_IN_SEARCH: usize = 512;

impl Engine {
    /// Changes the strength if that is due; gives the next command that needs.
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

    /// What it would cost to read again what there is.
    pub(super) fn reading_cost(&self) -> ReadingCost {
        self.ladder.reading_cost(self.lookup.indexed())
    }

    /// What was indexed is worthless: all is new again. While strengths are tried, the anchors of
    /// some regions stand for those of all: where regions are small, anchors are most of what there
    /// is, and would be read for each strength.
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
