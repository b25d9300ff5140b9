//! What is merged, could be merged and was done, space by space.
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
    /// Duplicates believed to be left. Over all spaces that is
    /// [`DuplicatesReport`](super::DuplicatesReport), but for rounding.
    pub left: u64,
    /// Pages of it that were read, since it came.
    pub read: u64,
    /// Processor time of the calls that read its pages and tried to merge them, each divided among
    /// the pages of the call, since it came.
    pub work_time: Nanos,
}

/// The sums of all spaces, or of those that matter most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpacesFigures {
    /// Ascending by name.
    pub spaces: Vec<SpaceFigures>,
    /// Spaces that are not among them.
    pub left_out: u64,
}
