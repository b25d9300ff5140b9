//! A change of hash strength, as far as it concerns more than the hash.
//!
//! # Problem
//! What was indexed is worthless at another strength, and sweeps under way would miss the partners
//! that they have passed.
//!
//! # Approach
//! The hash decides ([`crate::hash::adaptive`]). The index changes its era, rounds and sweeps start
//! over, and all is new again: what was read at the strength before meets nobody. That holds for the
//! end of a search that returns to the strength before it, too: what was read meanwhile was read at
//! the strengths that it tried.
//!
//! # Source
//! UKSM §6.1, §6.2.

use super::Engine;
use crate::command::Command;
use crate::hash::adaptive::ReadingCost;

impl Engine {
    /// Changes the strength if that is due; gives the next command that needs.
    pub(super) fn tune(&mut self) -> Option<Command> {
        let (now, reading) = (self.clock.now(), self.reading_cost());
        if self.merge.len() == 0 && self.hash.adapt(&self.lookup, now, reading) {
            self.extension.read_again();
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

    /// What was indexed is worthless: all is new again.
    fn read_all_again(&mut self) {
        for id in self.spaces.regions() {
            self.regions[id].new_era();
        }
        self.ladder.read_all_anchors(self.spaces.regions());
    }
}
