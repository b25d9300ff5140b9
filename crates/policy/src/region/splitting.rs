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
        self.huge
            .get_or_insert_with(|| Box::new(HugeBlocks::new(blocks)))
            .swept(block);
    }

    /// A page of a huge page was met outside of a sweep.
    pub(crate) fn met_huge_page(&mut self, page: u32) {
        let (block, blocks) = (self.block_of(page), self.blocks());
        self.huge
            .get_or_insert_with(|| Box::new(HugeBlocks::new(blocks)))
            .note(block);
    }

    /// A page turned out to have a partner: if it is in a huge page, that is counted for its block.
    pub(crate) fn credit_block(&mut self, page: u32) {
        if self.huge.is_none() {
            return;
        }
        let block = self.block_of(page);
        let in_block = self.address(page) / PAGE_SIZE % u64::from(BLOCK_PAGES);
        if let Some(huge) = &mut self.huge
            && huge.is_huge(block)
        {
            huge.partner(block, convert::narrow(in_block));
        }
    }

    /// Whether the page was in a huge page when its block was swept.
    pub(crate) fn is_in_huge_page(&self, page: u32) -> bool {
        self.huge
            .as_ref()
            .is_some_and(|huge| huge.is_huge(self.block_of(page)))
    }

    /// Whether the page's block may be split, if it needs to be.
    pub(crate) fn may_split(&self, page: u32, thp: Thp, thp_share: f64) -> bool {
        let Some(huge) = &self.huge else {
            return true;
        };
        let block = self.block_of(page);
        !huge.is_huge(block) || (thp == Thp::Profit && huge.is_worth_splitting(block, thp_share))
    }
}
