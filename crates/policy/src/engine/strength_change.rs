//! A change of hash strength, as far as it concerns parts other than the hash.
//!
//! # Problem
//! At another strength the index is worthless, and sweeps under way would miss the partners that
//! they have passed.
//!
//! # Approach
//! The hash decides ([`crate::hash::adaptive`]). The index changes its era, rounds and sweeps start
//! over, and all regions are new again: pages read at the former strength meet none.
//!
//! # Source
//! UKSM §6.1, §6.2.

use super::Engine;
use crate::command::Command;

impl Engine {
    /// Changes the strength if that is due; returns the command that the change needs next.
    pub(super) fn tune(&mut self) -> Option<Command> {
        debug_assert!(
            !self.answer.is_under_way(),
            "its hashes are of the strength before"
        );
        if self.merge.len() == 0 && self.hash.adapt(&self.lookup) {
            self.extension.read_again();
            self.collisions.forget();
            self.lookup.set_strength(self.hash.strength());
            self.ladder.restart_rounds(&mut self.regions);
            for id in self.spaces.regions() {
                self.regions[id].new_era();
            }
            self.ladder.read_all_again(self.spaces.regions());
        }
        self.hash.rehash_command()
    }
}
