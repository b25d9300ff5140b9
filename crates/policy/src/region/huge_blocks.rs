//! Whether a huge page is worth splitting.
//!
//! # Problem
//! Pages inside a huge page can be merged only if it is split, which costs the process its
//! translations for good. If all are left whole, no page is merged where the system makes every
//! page huge.
//!
//! # Approach
//! Sampled sub-pages count for the duplication estimate like others, but are merged only from full
//! sweeps of their 2 MiB block, and only if a share of `thp_share` of the block's pages has
//! partners. A partner may be found from the other side: the sweep of a second block credits the
//! first. So counts are kept by block, and a pair is merged only if each split that it needs pays.
//!
//! # Units
//! Pages; 68 bytes a block, in regions with huge pages only.

use crate::convert;

/// One block's counts since it was last swept.
#[derive(Debug, Clone, Copy, Default)]
struct BlockCount {
    swept: u16,
    huge: bool,
    /// One bit a page: a page that is found from both sides counts once.
    partners: [u64; 8],
}

/// The counts of a region's blocks.
#[derive(Debug, Clone)]
pub(crate) struct HugeBlocks(Box<[BlockCount]>);

impl HugeBlocks {
    /// Counts of 0 for `blocks` blocks.
    pub(crate) fn new(blocks: u32) -> HugeBlocks {
        HugeBlocks(vec![BlockCount::default(); convert::index(blocks)].into_boxed_slice())
    }

    /// The sweep of a block begins.
    pub(crate) fn begin(&mut self, block: u32) {
        self.0[convert::index(block)] = BlockCount::default();
    }

    /// A page of a huge page was swept.
    pub(crate) fn swept(&mut self, block: u32) {
        let count = &mut self.0[convert::index(block)];
        count.huge = true;
        count.swept = count.swept.saturating_add(1);
    }

    /// The block is huge. Until it is swept, all its pages count as swept.
    pub(crate) fn note(&mut self, block: u32) {
        let count = &mut self.0[convert::index(block)];
        if !count.huge {
            count.huge = true;
            count.swept = 512;
        }
    }

    /// A page of the block, counted from the block's start, turned out to have a partner.
    pub(crate) fn partner(&mut self, block: u32, page: u32) {
        let count = &mut self.0[convert::index(block)];
        count.partners[convert::index(page / 64 % 8)] |= 1 << (page % 64);
    }

    /// Whether the block was huge when swept.
    pub(crate) fn is_huge(&self, block: u32) -> bool {
        self.0[convert::index(block)].huge
    }

    /// Whether enough of the block's pages have partners; true for a block that was not huge.
    pub(crate) fn is_worth_splitting(&self, block: u32, share: f64) -> bool {
        let count = &self.0[convert::index(block)];
        let partners: u32 = count.partners.iter().map(|word| word.count_ones()).sum();
        !count.huge || f64::from(partners) >= share * f64::from(count.swept.max(1))
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * size_of::<BlockCount>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_is_split_from_the_share_on() {
        let mut huge_blocks = HugeBlocks::new(2);
        huge_blocks.begin(1);
        for page in 0..512 {
            huge_blocks.swept(1);
            if page < 127 {
                huge_blocks.partner(1, page);
                huge_blocks.partner(1, page);
            }
        }
        assert!(!huge_blocks.is_worth_splitting(1, 0.25));
        huge_blocks.partner(1, 127);
        assert!(huge_blocks.is_worth_splitting(1, 0.25));
        assert!(
            huge_blocks.is_worth_splitting(0, 0.25),
            "a block of small pages needs no split"
        );
    }

    #[test]
    fn a_new_sweep_counts_anew() {
        let mut huge_blocks = HugeBlocks::new(1);
        (0..512).for_each(|_| huge_blocks.swept(0));
        (0..512).for_each(|page| huge_blocks.partner(0, page));
        huge_blocks.begin(0);
        (0..512).for_each(|_| huge_blocks.swept(0));
        assert!(!huge_blocks.is_worth_splitting(0, 0.25));
    }
}
