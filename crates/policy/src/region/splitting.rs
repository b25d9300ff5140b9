//! The huge pages of a region, and whether they may be split.

use super::huge::HugeBlocks;
use super::{BLOCK_PAGES, Region};
use crate::command::PAGE_SIZE;
use crate::convert;
use crate::params::Thp;

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
}
