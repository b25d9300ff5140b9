//! The state of a region's blocks: its sweep, its settled pages, its huge pages.
//!
//! # Problem
//! A host has tens of thousands of regions of a few pages each, hardly any of which is being swept.
//!
//! # Approach
//! The state is allocated when first needed, and freed when it is empty: a region of one block has
//! it only from the beginning of its sweep until the decision about it.

use super::collapse::Collapses;
use super::huge_blocks::HugeBlocks;
use super::settled_pages::SettledPages;
use super::sweep::Sweep;
use super::walk::BlockWalk;

/// The blocks of one region.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocks {
    /// The order of reading.
    pub(super) walk: BlockWalk,
    pub(super) sweep: Sweep,
    /// Merges before the sweep, if its reason is that the region was rewritten.
    pub(super) merges_before: Option<u64>,
    pub(super) settled: SettledPages,
    pub(super) huge: Option<HugeBlocks>,
    /// Blocks that the kernel made huge again.
    pub(super) collapses: Option<Box<Collapses>>,
}

impl Blocks {
    /// Whether the state is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.walk == BlockWalk::default()
            && self.sweep == Sweep::default()
            && self.settled.is_empty()
            && self.huge.is_none()
            && self.collapses.is_none()
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        let huge = self.huge.as_ref().map_or(0, HugeBlocks::bytes);
        let collapses = self.collapses.as_ref();
        let collapses = collapses.map_or(0, |known| size_of::<Collapses>() + known.bytes());
        size_of::<Blocks>() + self.settled.bytes() + huge + collapses
    }
}
