//! Giving frames with one mapping back on the simulated host.
//!
//! # Source
//! `interface/uksm_ioctl.h`, BREAK with `UKSM_BREAK_SINGLE`.

use uksm_policy::command::{Nanos, Observation, PAGE_SIZE, PageState, SpaceId};

use super::Host;
use crate::fault::Fault;
use crate::memory::Slot;

fn given_back(next: u64, pages: u64, stopped: bool) -> Observation {
    Observation::GivenBack {
        next,
        pages,
        stopped,
    }
}

impl Host {
    /// Gives pages of a range whose frame nothing else maps their own copy again. The frame stays
    /// until it is freed. A page costs as much to pass as one that is merged already, and as much
    /// to copy as a first write.
    pub(super) fn give_back(
        &mut self,
        domain: u16,
        space: SpaceId,
        (start, end): (u64, u64),
    ) -> (Observation, Nanos) {
        assert!(start < end && start.is_multiple_of(PAGE_SIZE));
        assert!(end - start <= 4096 * PAGE_SIZE, "{start:#x} to {end:#x}");
        let mut cost = self.costs.call;
        if self.faults.strikes(Fault::Locked) {
            return (given_back(start, 0, false), cost);
        }
        let mut pages = 0;
        for address in (start..end).step_by(4096) {
            cost += self.costs.page_merged;
            let process = self.processes.get(space);
            let process = process.filter(|process| process.domain == domain);
            let Some(slot) = process.and_then(|process| process.slot(address)) else {
                continue;
            };
            let is_single = slot.state == PageState::Frame
                && self.frames.get(slot.frame).is_some_and(|frame| {
                    frame.sharers == 1 && frame.domain == domain && !frame.is_poisoned
                });
            if !is_single {
                continue;
            }
            let is_full = self.full_cgroups.contains(&space);
            if self.copies == 0 || is_full || self.faults.strikes(Fault::NoCopies) {
                return (given_back(address, pages, true), cost);
            }
            self.copies -= 1;
            self.given_back += 1;
            let copy = Slot {
                pinned: slot.pinned,
                ..Slot::anon(slot.content)
            };
            self.put(space, address, copy);
            cost += self.costs.unshare;
            pages += 1;
        }
        (given_back(end, pages, false), cost)
    }
}
