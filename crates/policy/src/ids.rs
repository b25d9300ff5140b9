//! How the parts of the engine name what they share: a region, and a space by its slot.
//!
//! A region's id is given again as late as possible and a slot at once, so whoever keeps one asks
//! [`crate::region::Regions::find`] or [`crate::spaces::Spaces::is_used`] before it uses it.

/// Names a region of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RegionId(pub u32);

/// Names the place at which a followed space is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct SpaceSlot(pub(crate) u32);

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
