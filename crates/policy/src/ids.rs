//! Ids that the parts of the engine share: of a region, of a space by its slot, and of a hint by
//! its ticket.
//!
//! A region's id is reused as late as possible and a slot at once, so a part that keeps one calls
//! [`crate::region::Regions::find`] or [`crate::spaces::Spaces::is_used`] before it uses the id.

/// Ids of regions that are kept back before one is reused. A free slot costs less than a wrong
/// suggestion of the index, which may still remember the last owner.
pub(crate) const KEPT_BACK: usize = 1024;

/// Limit of bits for a region and a page in it together: the room in an entry of the index of
/// unmerged pages.
pub(crate) const MAX_PLACE_BITS: u32 = 39;

/// The id of a region of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RegionId(pub u32);

/// The slot of a followed space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct SpaceSlot(pub(crate) u32);

/// The hint for which a page was read.
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
