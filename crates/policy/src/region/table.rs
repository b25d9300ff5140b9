//! All regions, by id.

use std::collections::VecDeque;

use super::duplication::Scale;
use super::{Region, State};
use crate::command::Nanos;
use crate::convert;
use crate::frugal_vec;
use crate::ids::{KEPT_BACK, RegionId};
use crate::report::{DuplicatesReport, RegionMemory, RegionsReport};

/// All regions, and sums over them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Regions {
    slots: Vec<Region>,
    free: VecDeque<RegionId>,
    /// Pages of all of them that are believed to be merged.
    merged: u64,
}

impl Regions {
    /// Adds a region; returns its id.
    ///
    /// # Panics
    /// If there are 2^32 regions: spaces limit their number.
    pub(crate) fn insert(&mut self, region: Region) -> RegionId {
        if self.free.len() > KEPT_BACK
            && let Some(id) = self.free.pop_front()
        {
            self.slots[id.index()] = region;
            return id;
        }
        let id = RegionId(convert::narrow(self.slots.len() as u64));
        assert!(
            id.0 < u32::MAX,
            "regions are bounded by the spaces' mappings"
        );
        frugal_vec::push(&mut self.slots, region);
        id
    }

    /// Removes a region.
    ///
    /// # Panics
    /// If it is not there.
    pub(crate) fn remove(&mut self, id: RegionId) {
        let region = &mut self.slots[id.index()];
        assert!(
            region.state() != State::Vacant,
            "region {} removed twice",
            id.0
        );
        self.merged -= u64::from(region.merged_now());
        *region = Region::vacant();
        self.free.push_back(id);
    }

    /// Gives a region a new length.
    pub(crate) fn resize(&mut self, id: RegionId, pages: u32) {
        let region = &mut self.slots[id.index()];
        self.merged -= u64::from(region.merged_now());
        region.resize(pages);
        self.merged += u64::from(region.merged_now());
    }

    /// Records whether a page is merged, as seen `now`; returns whether that changed.
    pub(crate) fn set_merged(&mut self, id: RegionId, page: u32, merged: bool, now: Nanos) -> bool {
        let has_changed = self.slots[id.index()].set_merged(page, merged, now);
        if has_changed && merged {
            self.merged += 1;
        } else if has_changed {
            self.merged -= 1;
        }
        has_changed
    }

    /// A page was merged with the zero page, and the kernel has made its block huge again.
    pub(crate) fn collapse(&mut self, id: RegionId, page: u32, now: Nanos, round: Nanos) {
        let undone = self.slots[id.index()].collapse(page, now, round);
        self.merged -= u64::from(undone);
    }

    /// Blocks in which zeros are left alone, because the kernel made them huge again. Costs a pass
    /// over all regions.
    pub(crate) fn blocks_left_alone(&self, now: Nanos) -> u64 {
        self.iter()
            .map(|region| region.blocks_left_alone(now).0)
            .sum()
    }

    /// Pages of all regions that are believed to be merged.
    pub(crate) fn merged(&self) -> u64 {
        self.merged
    }

    /// The region of that id, if it is still in use and has this page.
    pub(crate) fn find(&self, id: RegionId, page: u32) -> Option<&Region> {
        self.slots
            .get(id.index())
            .filter(|region| region.state() != State::Vacant && page < region.pages())
    }

    /// As [`Regions::find`], if the region is on the ladder.
    pub(crate) fn find_ranked(&self, id: RegionId, page: u32) -> Option<&Region> {
        self.find(id, page)
            .filter(|region| region.state() == State::Ranked)
    }

    /// Number of regions in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// All regions in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Region> {
        self.slots
            .iter()
            .filter(|region| region.state() != State::Vacant)
    }

    /// The counts. Costs a pass over all regions.
    pub(crate) fn report(&self) -> RegionsReport {
        let is_young = |region: &&Region| region.state() == State::Young;
        RegionsReport {
            regions: self.len() as u64,
            young: self.iter().filter(is_young).count() as u64,
            resident_pages: self.iter().map(|region| u64::from(region.resident())).sum(),
        }
    }

    /// Duplicates believed to be left. Costs a pass over all regions.
    pub(crate) fn report_duplicates(&self, scale: &Scale) -> DuplicatesReport {
        let left = self.iter().map(|region| region.duplicates_left(scale));
        DuplicatesReport {
            left: convert::count(left.sum()),
        }
    }

    /// The memory of the regions, and of other parts for them. Costs a pass over all regions.
    pub(crate) fn report_memory(&self, others: usize) -> RegionMemory {
        RegionMemory {
            region_bytes: (self.bytes() + others) as u64,
        }
    }

    fn bytes(&self) -> usize {
        let spare = self.slots.capacity() - self.len();
        self.iter().map(Region::bytes).sum::<usize>()
            + spare * size_of::<Region>()
            + self.free.capacity() * size_of::<RegionId>()
    }
}

impl std::ops::Index<RegionId> for Regions {
    type Output = Region;

    fn index(&self, id: RegionId) -> &Region {
        &self.slots[id.index()]
    }
}

impl std::ops::IndexMut<RegionId> for Regions {
    fn index_mut(&mut self, id: RegionId) -> &mut Region {
        &mut self.slots[id.index()]
    }
}
