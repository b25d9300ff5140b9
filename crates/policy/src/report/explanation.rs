//! Why each region of a space is, or is not, being merged.

use crate::command::{Nanos, SpaceId};

/// Why a region is, or is not, being merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Younger than V_life, or than what its lifetime class usually survives.
    Young,
    /// Sampled; no share of duplicates above V_dup has been seen.
    Sparse,
    /// Sampled more closely because samples had partners.
    Rising,
    /// Swept in full.
    Swept,
    /// Swept, and little was left to merge.
    Finished,
    /// Left alone for a while: its merged pages are written too fast.
    CowBroken,
    /// Of a mapping that is never merged, or locked.
    Refused,
}

/// One region of a space.
#[derive(Debug, Clone, PartialEq)]
pub struct RegionReport {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Its level, 1 at the bottom.
    pub level: usize,
    /// Why it is there.
    pub standing: Standing,
    /// Since when it is known, or longer.
    pub age: Nanos,
    /// Pages believed to be there.
    pub resident: u64,
    /// Pages believed to be merged.
    pub merged: u64,
    /// Pages looked at since it came to its level.
    pub sampled: u64,
    /// Estimated share of pages with partners that are not merged yet.
    pub duplicates: f64,
    /// Share of merged pages that is broken in a round, as far as they were looked at again.
    pub broken: f64,
    /// Pages that were busy when tried.
    pub busy: u64,
}

/// One space.
#[derive(Debug, Clone, PartialEq)]
pub struct SpaceReport {
    /// The space.
    pub space: SpaceId,
    /// Its regions, ascending.
    pub regions: Vec<RegionReport>,
    /// Mappings in which nothing was found yet.
    pub sparse_mappings: u64,
}
