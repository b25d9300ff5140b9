//! Hints are followed: the next spurt, and what was found nowhere.

use super::Engine;
use crate::command::Command;
use crate::ladder::sampling::Sources;

impl Engine {
    /// The next call for hints, if one may be made and there is something to read; `is_spare` if it is
    /// paid from what nobody else uses.
    pub(super) fn sample_hints(&mut self, is_spare: bool) -> Option<Command> {
        if !self.hints.is_on() {
            return None;
        }
        let now = self.clock.now();
        let all_merged = self.merge.outcomes().merged;
        self.hints.judge(all_merged, self.accounts.used(), now);
        let mut from = Sources {
            regions: &mut self.regions,
            spaces: &mut self.spaces,
            lifetimes: &self.lifetimes,
            shortest: self.discovery.shortest(),
        };
        let spurt = self.hints.select(&mut from, is_spare, now)?;
        for (slot, address) in spurt.unknown {
            self.discovery.list_mappings_soon(slot, now);
            self.populate_sparse(slot, address);
        }
        if spurt.selection.picks.is_empty() {
            return None;
        }
        Some(self.read(spurt.selection))
    }
}
