//! Zeros that were merged, in blocks that the kernel has made huge again.
//!
//! # Problem
//! khugepaged takes the zero page for a hole, so that it undoes merges with the zero page, a block
//! at a time. No event reports it.
//!
//! # Approach
//! A page that the engine believes merged, and that is in a huge page and looks like zeros, is the
//! sign that all of its block is undone. The region's memory of such a block, and the time for
//! which it leaves the block alone, are in `region/collapse.rs`. Other merged blocks of the region
//! are checked then, by one page each. A page of other contents was written, and counts as such.
//!
//! # Source
//! `hpage_collapse_scan_pmd()` of mm/khugepaged.c, Linux 6.1 to 6.12.

use super::Engine;
use crate::command::{Page, PageFlags, PageState};
use crate::ids::RegionId;
use crate::ladder::sampling::RegionPick;
use crate::lookup::RegionPage;

impl Engine {
    /// Whether a page that was merged is a page of zeros in a huge page.
    pub(super) fn is_undone_zero(&self, page: &Page) -> bool {
        page.state == PageState::Anon
            && page.flags.any(PageFlags::HUGE)
            && page.hash == self.hash.zero()
    }

    /// A page that was merged with the zero page is in a huge page: the merges of its block are
    /// undone.
    pub(super) fn found_huge_again(&mut self, id: RegionId, page: u32) {
        let at = self.clock.moment(&self.params);
        self.regions.collapse(id, page, at.now, at.round);
        self.merge.count_huge_again();
        if let Some(from) = self.regions[id].check_blocks(at.now, at.round) {
            self.ladder.look_at(id, from);
        }
    }

    /// One page that is believed to be merged was read to check its block.
    pub(super) fn check_block(&mut self, pick: RegionPick, number: u32) {
        let page = self.answer.rest()[0];
        let (id, now) = (pick.region, self.clock.now());
        let place = RegionPage {
            region: id,
            page: number,
        };
        match page.state {
            PageState::Zero | PageState::Frame => self.regions[id].block_lasted(number, now),
            _ if self.answer.is_outdated(place) || !self.regions[id].is_merged(number) => {}
            _ if self.is_undone_zero(&page) => self.found_huge_again(id, number),
            _ => {}
        }
    }
}
