//! The huge pages of a region: whether they may be split, and whether the kernel has made them
//! again.

use super::collapse::Collapses;
use super::huge_blocks::HugeBlocks;
use super::{BLOCK_PAGES, Region, WATCHED_PAGES};
use crate::command::{Nanos, PAGE_SIZE};
use crate::convert;
use crate::params::Thp;

/// Blocks that are passed over to find those with merged pages, when they are checked.
const MAX_PASSED: u32 = 4096;

impl Region {
    /// A page of a huge page was swept.
    pub(crate) fn swept_huge_page(&mut self, page: u32) {
        let (block, blocks) = (self.block_of(page), self.blocks());
        self.huge_mut(blocks).swept(block);
    }

    /// A page of a huge page was met outside of a sweep.
    pub(crate) fn met_huge_page(&mut self, page: u32) {
        let (block, blocks) = (self.block_of(page), self.blocks());
        self.huge_mut(blocks).note(block);
    }

    fn huge(&self) -> Option<&HugeBlocks> {
        self.blocks.as_ref()?.huge.as_ref()
    }

    fn huge_mut(&mut self, blocks: u32) -> &mut HugeBlocks {
        let huge = &mut self.blocks_mut().huge;
        huge.get_or_insert_with(|| HugeBlocks::new(blocks))
    }

    /// A page turned out to have a partner: if it is in a huge page, that is counted for its block.
    pub(crate) fn credit_block(&mut self, page: u32) {
        if !self.is_in_huge_page(page) {
            return;
        }
        let (block, blocks) = (self.block_of(page), self.blocks());
        let in_block = self.address(page) / PAGE_SIZE % u64::from(BLOCK_PAGES);
        let huge = self.huge_mut(blocks);
        huge.partner(block, convert::narrow(in_block));
    }

    /// Whether the page was in a huge page when its block was swept.
    pub(crate) fn is_in_huge_page(&self, page: u32) -> bool {
        self.huge()
            .is_some_and(|huge| huge.is_huge(self.block_of(page)))
    }

    /// Whether the page's block may be split, if it needs to be.
    pub(crate) fn may_split(&self, page: u32, thp: Thp, thp_share: f64) -> bool {
        let Some(huge) = self.huge() else {
            return true;
        };
        let block = self.block_of(page);
        !huge.is_huge(block) || (thp == Thp::Profit && huge.is_worth_splitting(block, thp_share))
    }

    fn collapses(&self) -> Option<&Collapses> {
        self.blocks.as_ref()?.collapses.as_deref()
    }

    fn collapses_mut(&mut self) -> Option<&mut Collapses> {
        self.blocks.as_mut()?.collapses.as_deref_mut()
    }

    /// A page was merged with the zero page, and the kernel has made its block huge again: no page
    /// of the block is merged. Returns the number that were believed to be.
    pub(super) fn collapse(&mut self, page: u32, now: Nanos, round: Nanos) -> u32 {
        let block = self.block_of(page);
        let collapses = &mut self.blocks_mut().collapses;
        let collapses = collapses.get_or_insert_default();
        collapses.found(block, now, round);
        let (first, pages) = self.block_pages(block);
        let merged = self.merging.as_mut();
        let merged = merged.and_then(|merging| merging.pages.as_mut());
        merged.map_or(0, |merged| merged.remove_all(first..first + pages))
    }

    /// The other blocks with merged pages are to be checked by a page each; returns from when on.
    pub(crate) fn check_blocks(&mut self, now: Nanos, round: Nanos) -> Option<Nanos> {
        Some(self.collapses_mut()?.next_check(now, round))
    }

    /// The next pages by which its blocks are checked, if they are being checked: at most
    /// [`WATCHED_PAGES`].
    pub(super) fn pages_of_blocks(&mut self, now: Nanos) -> Option<Vec<u32>> {
        let first = self.collapses()?.cursor()?;
        let end = self.blocks().min(first.saturating_add(MAX_PASSED));
        let (mut pages, mut next) = (vec![], first);
        while next < end && convert::narrow(pages.len() as u64) < WATCHED_PAGES {
            let (from, count) = self.block_pages(next);
            let merged = self.merged_pages();
            pages.extend(merged.and_then(|merged| merged.first_of(from..from + count)));
            next += 1;
        }
        let rest = (next < self.blocks()).then_some(next);
        self.collapses_mut()?.set_cursor(rest, now);
        Some(pages)
    }

    /// A page was merged with the zero page.
    pub(crate) fn zero_merged(&mut self, page: u32, now: Nanos) {
        let block = self.block_of(page);
        if let Some(collapses) = self.collapses_mut() {
            collapses.merged(block, now);
        }
    }

    /// The page was found merged.
    pub(crate) fn block_lasted(&mut self, page: u32, now: Nanos) {
        let block = self.block_of(page);
        if let Some(collapses) = self.collapses_mut() {
            collapses.lasted(block, now);
        }
    }

    /// Whether zeros are no reason to split the page's block, because the kernel would make it huge
    /// again.
    pub(crate) fn leaves_zeros(&self, page: u32, now: Nanos) -> bool {
        self.collapses()
            .is_some_and(|known| known.waits_until(self.block_of(page), now).is_some())
    }

    /// The number of blocks that are left alone for that, and the end of the last wait.
    pub(crate) fn blocks_left_alone(&self, now: Nanos) -> (u64, Nanos) {
        self.collapses().map_or((0, 0), |known| known.waiting(now))
    }

    pub(super) fn resize_collapses(&mut self) {
        let blocks = self.blocks();
        if let Some(collapses) = self.collapses_mut() {
            collapses.resize(blocks);
        }
    }
}
