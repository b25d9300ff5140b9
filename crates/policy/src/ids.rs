//! How the parts of the engine name what they share: a region, a space by its slot, and a hint by
//! its ticket.
//!
//! A region's id is given again as late as possible and a slot at once, so whoever keeps one asks
//! [`crate::region::Regions::find`] or [`crate::spaces::Spaces::is_used`] before it uses it.

/// Ids of regions that are kept back before one is given again. A free slot costs less than a wrong
/// suggestion of the index, which may still remember the last owner.
pub(crate) const KEPT_BACK: usize = 1024;

/// Most bits that may name a page of a region and its region together: what an entry of the index
/// of unmerged pages has room for.
pub(crate) const MAX_PLACE_BITS: u32 = 39;

/// Names a region of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RegionId(pub u32);

/// Names the place at which a followed space is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct SpaceSlot(pub(crate) u32);

/// Says for which hint a page was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(pub(crate) std::num::NonZeroU16);

impl RegionId {
    /// As an index into a slice.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl SpaceSlot {
    /// As an index into a slice.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}
