//! Merged pages, pages left to merge, and work done, by space.
//!
//! # Units
//! Pages; nanoseconds of processor time.

use crate::command::{Nanos, SpaceId};

/// The sums of one space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceFigures {
    /// The space.
    pub space: SpaceId,
    /// Pages believed to be in memory.
    pub resident: u64,
    /// Pages believed to be merged.
    pub merged: u64,
    /// Duplicates believed to be left. The sum over all spaces is
    /// [`DuplicatesReport`](super::DuplicatesReport), except for rounding.
    pub left: u64,
    /// Pages of it that were read since its arrival.
    pub read: u64,
    /// Processor time of the calls that read its pages and tried to merge them, since its arrival.
    /// The time of a call is divided among its pages.
    pub work_time: Nanos,
}

/// The sums of all spaces, or of those that matter most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpacesFigures {
    /// The spaces, ascending by id.
    pub spaces: Vec<SpaceFigures>,
    /// Number of spaces that are not among them.
    pub left_out: u64,
}
