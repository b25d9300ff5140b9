//! Why each region of a space is, or is not, being merged.
//!
//! # Problem
//! A process of which little is merged looks like any other in sums. An operator wants to know
//! which of the engine's reasons is the true one, and until when it holds.
//!
//! # Approach
//! Nothing is kept for that: a report is made from the state that decides anyway, when somebody
//! asks. What a page equals is asked of the indexes, which that does not change.
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
    /// Old enough; nothing of it was read yet.
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
    /// It was left alone for that; a few of its pages are merged to see whether they hold.
    OnTrial,
    /// Of a mapping that is never merged, or locked.
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
    /// Why it is there.
    pub standing: Standing,
    /// How long that lasts, if time ends it.
    pub left: Option<Nanos>,
    /// Since when it is known, or longer.
    pub age: Nanos,
    /// Pages believed to be there.
    pub resident: u64,
    /// Pages believed to be merged.
    pub merged: u64,
    /// All of it that was there was read, and is indexed.
    pub read_in_full: bool,
    /// Pages looked at since it came to its level.
    pub sampled: u64,
    /// Of these, those that had a partner.
    pub hits: u64,
    /// Estimated share of pages with partners that are not merged yet.
    pub duplicates: f64,
    /// Share of merged pages that is broken in a round, as far as they were looked at again.
    pub broken: f64,
    /// How often in a row it was left alone because of that.
    pub strikes: u64,
    /// Pages that were busy when tried.
    pub busy: u64,
    /// Much of it was busy: nothing of it is queued for so long.
    pub busy_left: Option<Nanos>,
    /// The kernel has made huge pages again of zeros that were merged: they are left alone for so
    /// long.
    pub huge_again_left: Option<Nanos>,
}

/// Most sparse mappings that one report has.
pub const MAX_SPARSE: usize = 256;

/// One space, or a part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SpaceReport {
    /// The space.
    pub space: SpaceId,
    /// Its regions, ascending.
    pub regions: Vec<RegionReport>,
    /// Where the next region begins that is not among them, if one is left.
    pub next: Option<u64>,
    /// Whether its mappings were listed.
    pub is_listed: bool,
    /// Sparse mappings among them, `(start, end)`, ascending: at most [`MAX_SPARSE`].
    pub sparse: Vec<(u64, u64)>,
    /// Pages that nobody follows, because of `max_regions` or `max_process_regions`.
    pub left_out_pages: u64,
    /// Something is left out, within sparse mappings too.
    pub is_crowded: bool,
}

/// What an unmerged page could be merged with, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownPartner {
    /// Nothing of its hash is known.
    Nothing,
    /// The zero page.
    Zero,
    /// The zero page; but the kernel has made a huge page of what was merged with it there, and
    /// would again.
    HugeAgain,
    /// A frame that takes sharers.
    Frame,
    /// A page that was read, and as many as are needed.
    Page,
    /// Pages or frames of its own space only, where that may not be merged (`merge = "between"`).
    OwnSpace,
    /// Fewer spaces hold it than must (`merge_spaces`).
    TooFew,
}

/// What holds for all regions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Circumstances {
    /// The part of the pages that may be partners that is indexed.
    pub coverage: f64,
    /// Cache lines of a page that are hashed.
    pub lines: u16,
    /// No new frame is asked for, for so long, because none could be had.
    pub no_frames_left: Option<Nanos>,
    /// Length of a global round.
    pub round: Nanos,
}
