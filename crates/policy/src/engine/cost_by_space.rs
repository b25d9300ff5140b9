//! The work of the engine by space.
//!
//! # Problem
//! A user must see the cost of a process, but a call reads pages of many spaces at once, and the
//! cost of each page is not measured.
//!
//! # Approach
//! Each space has a sum of its pages that were read, and one of the time of the calls that read or
//! tried its pages, divided by the pages of each call. Both are added when the call has returned,
//! run by run. The time of the engine itself, and of lists of mappings and frames, is not divided.
//! No decision depends on these sums.
//!
//! # Units
//! Pages; nanoseconds of processor time.

use super::Engine;
use crate::command::Nanos;
use crate::ids::{RegionId, SpaceSlot};
use crate::ladder::sampling::Pick;
use crate::lookup::RegionPage;
use crate::region::{Region, Regions};
use crate::spaces::Spaces;

/// The owner of the pages of a run.
#[derive(Debug, Clone, Copy)]
enum Owner {
    Region(RegionId),
    Space(SpaceSlot),
}

impl Engine {
    /// The first `read` pages of the sample, or all, came back.
    pub(super) fn worked_for_answer(&mut self, read: usize, cost: Nanos) {
        let runs = self.answer.picks().map(|pick| match pick {
            Pick::Region(pick) => (Owner::Region(pick.region), pick.count),
            Pick::Sparse(space) => (Owner::Space(space), 1),
        });
        divide_among(&self.regions, &mut self.spaces, runs, read, cost);
    }

    /// A page was tried, in this time.
    pub(super) fn tried_for(&mut self, place: RegionPage, page_cost: Nanos) {
        if let Some(region) = self.regions.find(place.region, place.page) {
            self.spaces.get_mut(region.space()).was_tried(page_cost);
        }
    }
}

/// Divides the cost of a call among the spaces of these runs of pages, of which it read the first
/// ones.
pub(super) fn divide(
    regions: &Regions,
    spaces: &mut Spaces,
    runs: impl Iterator<Item = (RegionId, u32)>,
    read: usize,
    cost: Nanos,
) {
    let runs = runs.map(|(region, pages)| (Owner::Region(region), pages));
    divide_among(regions, spaces, runs, read, cost);
}

/// The part of regions and spaces that are gone belongs to no space.
fn divide_among(
    regions: &Regions,
    spaces: &mut Spaces,
    runs: impl Iterator<Item = (Owner, u32)>,
    read: usize,
    cost: Nanos,
) {
    let mut rest = u32::try_from(read).unwrap_or(u32::MAX);
    let Some(page_cost) = cost.checked_div(Nanos::from(rest)) else {
        return;
    };
    for (owner, pages) in runs {
        if rest == 0 {
            break;
        }
        let pages = pages.min(rest);
        rest -= pages;
        let slot = match owner {
            Owner::Region(region) => regions.find(region, 0).map(Region::space),
            Owner::Space(slot) => Some(slot),
        };
        if let Some(space) = slot.and_then(|slot| spaces.find_mut(slot)) {
            space.was_read(pages, page_cost * Nanos::from(pages));
        }
    }
}
