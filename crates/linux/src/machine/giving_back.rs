//! Gives pages back whose frame nothing else maps.
//!
//! The call waits for the locks of the process, so it is not made while they are known to be held,
//! and not over a space that the domain does not know.

use uksm_policy::command::{Observation, SpaceId};

use super::LinuxMachine;
use crate::clock;
use crate::discovery::Discovery;
use crate::domain::{BreakChoice, Domain};
use crate::module;

impl<D: Domain, P: Discovery> LinuxMachine<D, P> {
    /// Breaks the pages of a range whose frame nothing else maps.
    pub(super) fn give_back(
        &mut self,
        space: SpaceId,
        (start, end): (u64, u64),
    ) -> module::Result<Observation> {
        let given_back = |next, pages, stopped| Observation::GivenBack {
            next,
            pages,
            stopped,
        };
        if self.dry || !self.processes.has(space) {
            return Ok(given_back(end, 0, false));
        }
        if !self.locked.is_due(space, clock::now()) {
            return Ok(given_back(start, 0, false));
        }
        let single = BreakChoice::Single;
        match self.try_call(|domain| domain.break_range(space, start, end, single)) {
            Err(error) if error.is_locked() => {
                self.locked.gave_up(space, clock::now());
                Ok(given_back(start, 0, false))
            }
            Err(error) => Err(error),
            Ok(Some(broken)) => {
                self.locked.clear(space);
                Ok(given_back(broken.next, broken.pages, broken.stopped))
            }
            Ok(None) => Ok(given_back(start, 0, true)),
        }
    }
}
