//! For which spaces the engine worked.
//!
//! # Problem
//! Who wonders what a process costs must be told, but a call reads pages of many spaces at once, and nobody measures it page by page.
//!
//! # Approach
//! Each space has a sum of the pages of it that were read, and one of the time of the calls that read or tried its pages, divided by
//! the pages of each call. Both are added where the region is at hand anyway. What the engine itself takes, lists of mappings and frames
//! are divided among nobody. No decision depends on any of it.
//!
//! # Units
//! Pages; nanoseconds of processor time.

use super::Engine;
use crate::command::Nanos;
use crate::ids::RegionId;
use crate::lookup::Place;

impl Engine {
    /// Pages of a region were read, each in this time. Those of one that is gone meanwhile are nobody's.
    pub(super) fn worked_for(&mut self, region: RegionId, pages: u32, page_cost: Nanos) {
        if let Some(region) = self.regions.find(region, 0) {
            let time = page_cost * Nanos::from(pages);
            self.spaces.get_mut(region.space()).was_read(pages, time);
        }
    }

    /// The same of runs of pages that one call read, as far as it came.
    pub(super) fn worked_for_runs(&mut self, runs: &[(Place, u32)], read: usize, cost: Nanos) {
        let mut rest = u32::try_from(read).unwrap_or(u32::MAX);
        let page_cost = cost.checked_div(Nanos::from(rest)).unwrap_or(0);
        for &(place, pages) in runs {
            let pages = pages.min(rest);
            rest -= pages;
            self.worked_for(place.region, pages, page_cost);
        }
    }

    /// A page was tried, in this time.
    pub(super) fn tried_for(&mut self, place: Place, page_cost: Nanos) {
        if let Some(region) = self.regions.find(place.region, place.page) {
            self.spaces.get_mut(region.space()).was_tried(page_cost);
        }
    }
}
