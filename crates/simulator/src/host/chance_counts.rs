//! Changes of the simulated host's pages, as chances to share ([`SharingChances`]).

use uksm_policy::command::PageState;

use super::Host;
use super::sharing_chances::SharingChances;
use crate::memory::{PageAddress, Slot};

impl Host {
    /// Counts chances to share from now on.
    pub fn count_chances(&mut self) {
        self.chances = Some(Box::default());
    }

    /// The results until now, if chances are counted.
    pub fn chances(&mut self) -> Option<&SharingChances> {
        let saved = self.saved();
        let now = self.now;
        let chances = self.chances.as_mut()?;
        chances.pass(now, saved);
        Some(chances)
    }

    /// A page changes from one to the other.
    pub(super) fn chance(&mut self, place: PageAddress, old: &Slot, new: &Slot) {
        let Some(mut chances) = self.chances.take() else {
            return;
        };
        chances.pass(self.now, self.saved());
        // Changes by a workload have its own time, which may be a little earlier.
        let now = chances.changed;
        let is_in_frame = |slot: &Slot| matches!(slot.state, PageState::Frame | PageState::Zero);
        if old.content != new.content || old.is_there() != new.is_there() {
            if old.is_there() {
                chances.goes(place, old.content);
            }
            if new.is_there() {
                let is_shared = |place| self.look(place).is_some_and(|slot| is_in_frame(&slot));
                chances.comes(place, new.content, now, is_shared);
            }
        }
        if is_in_frame(new) && !is_in_frame(old) {
            chances.merged(place, now);
        }
        self.chances = Some(chances);
    }
}
