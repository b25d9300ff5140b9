//! A change of hash strength, as far as it concerns more than the hash.
//!
//! # Problem
//! What was indexed is worthless at another strength, and sweeps under way would miss the partners
//! that they have passed.
//!
//! # Approach
//! The hash decides ([`crate::hash::adaptive`]). The index changes its era, rounds and sweeps start
//! over. In calm, and when a search settles on another strength, all anchors are read again.
//!
//! # Source
//! UKSM §6.1, §6.2.

use super::Engine;
use crate::command::Command;

impl Engine {
    /// Changes the strength if that is due; gives the next command that needs.
    pub(super) fn tune(&mut self) -> Option<Command> {
        if self.merge.len() == 0
            && let Some(adapted) = self.hash.adapt(&self.lookup)
        {
            if adapted.is_changed {
                self.lookup.set_strength(self.hash.strength());
                self.ladder.restart_rounds(&mut self.regions);
            }
            // A search needs samples, and what it ends with is another era.
            if (adapted.is_changed && adapted.is_searching) || adapted.is_settled_anew {
                self.read_all_anchors();
            }
        }
        self.hash.rehash_command()
    }

    /// What was indexed is worthless: all anchors are read again.
    pub(super) fn read_all_anchors(&mut self) {
        for id in self.spaces.regions() {
            self.regions[id].new_era();
        }
        self.ladder.read_all_anchors(self.spaces.regions());
    }
}
