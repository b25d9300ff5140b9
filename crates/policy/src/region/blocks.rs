//! What is known of a region's blocks: how far it is swept, which of its pages settled, which are
//! huge.
//!
//! # Problem
//! A host has tens of thousands of regions of a few pages each, of which hardly any is being swept.
//!
//! # Approach
//! All this is allocated when first needed, and let go when nothing of it is known: a region of one
//! block has it only from when its sweep begins until something was decided by that.

use super::collapse::Collapses;
use super::huge::HugeBlocks;
use super::settled::Settled;
use super::sweep::Sweep;
use super::walk::BlockWalk;

/// The blocks of one region.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocks {
    /// Which is read next.
    pub(super) walk: BlockWalk,
    pub(super) sweep: Sweep,
    /// Pages that were merged before the sweep, if it is one because the region was rewritten.
    pub(super) merges_before: Option<u64>,
    pub(super) settled: Settled,
    pub(super) huge: Option<HugeBlocks>,
    /// Blocks that the kernel made huge again.
    pub(super) collapses: Option<Box<Collapses>>,
}

impl Blocks {
    /// Whether nothing is known.
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
