//! Why each region of a space is, or is not, being merged.
//!
//! # Problem
//! A process of which little is merged looks like any other in sums. An operator wants to know
//! which of the engine's reasons applies, and for how long.
//!
//! # Approach
//! No state is kept for that: on request, a report is made from the state that decides anyway.
//! Partners of pages are looked up in the indexes without changing them.
//!
//! # Units
//! Pages; nanoseconds from now; shares 0 to 1.

use crate::command::{Nanos, SpaceId};

/// Why a region is, or is not, being merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Younger than V_life.
    Young,
    /// Older than V_life, but its lifetime class dies young.
    ShortLived,
    /// Old enough; no page of it was read yet.
    Unread,
    /// Sampled; no share of duplicates above V_dup has been seen.
    Sparse,
    /// Sampled more closely because samples had partners.
    Rising,
    /// Being read in full.
    Swept,
    /// Read in full, and little was left to merge.
    Finished,
    /// Left alone for a while: its merged pages are written too fast.
    CowBroken,
    /// It was left alone for that; a few of its pages are merged to check whether they hold.
    OnTrial,
    /// Its mapping is never merged, or locked.
    Refused,
    /// Its mapping seems to be gone.
    Lost,
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
    /// Why it is, or is not, being merged.
    pub standing: Standing,
    /// The time left of that, if it ends by time.
    pub left: Option<Nanos>,
    /// Its age, at least.
    pub age: Nanos,
    /// Pages believed to be in memory.
    pub resident: u64,
    /// Pages believed to be merged.
    pub merged: u64,
    /// Whether all its pages in memory were read, and are indexed.
    pub read_in_full: bool,
    /// Pages sampled since it came to its level.
    pub sampled: u64,
    /// Of these, those that had a partner.
    pub hits: u64,
    /// Estimated share of pages with partners that are not merged yet.
    pub duplicates: f64,
    /// Share of merged pages that is broken in a round, by those that were checked.
    pub broken: f64,
    /// Number of times in a row that it was left alone because of that.
    pub strikes: u64,
    /// Pages that were busy when tried.
    pub busy: u64,
    /// Time left for which no page of it is queued, because much of it was busy.
    pub busy_left: Option<Nanos>,
    /// Time left for which zeros are left alone, because the kernel has made huge pages again of
    /// merged ones.
    pub huge_again_left: Option<Nanos>,
}

/// Limit of sparse mappings in one report.
pub const MAX_SPARSE: usize = 256;

/// One space, or a part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SpaceReport {
    /// The space.
    pub space: SpaceId,
    /// Its regions, ascending.
    pub regions: Vec<RegionReport>,
    /// The start of the next region that is not among them, if any.
    pub next: Option<u64>,
    /// Whether its mappings were listed.
    pub is_listed: bool,
    /// Sparse mappings among them, `(start, end)`, ascending: at most [`MAX_SPARSE`].
    pub sparse: Vec<(u64, u64)>,
    /// Pages that are not followed, because of `max_regions` or `max_process_regions`.
    pub left_out_pages: u64,
    /// Whether any page is left out, also within sparse mappings.
    pub is_crowded: bool,
}

/// The known partner of an unmerged page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownPartner {
    /// Its hash is unknown.
    Nothing,
    /// The zero page.
    Zero,
    /// The zero page; but the kernel has made a huge page of pages that were merged with it there,
    /// and would again.
    HugeAgain,
    /// A frame that takes sharers.
    Frame,
    /// A page that was read, or as many as are needed.
    Page,
    /// Pages or frames of its own space only, which may not be merged (`merge = "between"`).
    OwnSpace,
    /// Fewer spaces hold it than must (`merge_spaces`).
    TooFew,
}

/// Conditions for all regions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Circumstances {
    /// The indexed part of the pages that may be partners.
    pub coverage: f64,
    /// Cache lines of a page that are hashed.
    pub lines: u16,
    /// Time left for which no new frame is asked for, because the machine had none.
    pub no_frames_left: Option<Nanos>,
    /// Length of a global round.
    pub round: Nanos,
}
