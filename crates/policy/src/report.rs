//! What the engine tells about itself.
//!
//! Problem: an operator must see what is saved, what it costs, and why a process does not merge.
//! Approach: plain structs of counts, taken at any time and kept nowhere; each count has one line
//! and, where it has one, its place in an equation. Units: pages are 4 KiB, times [`Nanos`],
//! shares parts of one core.

use crate::command::{Nanos, SpaceId};
use crate::merge::outcomes::Outcomes;

/// A level of the ladder.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelReport {
    /// Share of one core it may use.
    pub share: f64,
    /// Its round time.
    pub round: Nanos,
    /// Regions in it.
    pub regions: u64,
    /// Pages of those regions, mapped or not.
    pub pages: u64,
    /// Rounds it has completed.
    pub rounds: u64,
    /// Pages sampled for it.
    pub sampled: u64,
    /// Processor time it has used.
    pub used: Nanos,
}

/// Pages merged, by what they were merged with. `zero + same_space + cross_space` is the number of
/// pages given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MergedPages {
    /// With the zero page.
    pub zero: u64,
    /// With a frame that a page of the same process became.
    pub same_space: u64,
    /// With a frame that a page of another process became.
    pub cross_space: u64,
}

/// The frames of the domain, as last listed and since counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameReport {
    /// Frames held.
    pub frames: u64,
    /// Mappings of them.
    pub sharers: u64,
    /// Frames with one mapping: they save nothing.
    pub unshared: u64,
    /// Frames freed because nothing mapped them.
    pub freed: u64,
    /// `sharers − frames`, over frames that are mapped.
    pub saved: u64,
}

/// Moves on the ladder and what held regions back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PromotionReport {
    /// Steps upwards.
    pub promoted: u64,
    /// Moves upwards over several levels at once.
    pub leapt: u64,
    /// Steps downwards.
    pub demoted: u64,
    /// Returns to the bottom of regions with nothing left to merge.
    pub finished: u64,
    /// Returns to the bottom of regions whose merged pages are broken too fast.
    pub cow_broken: u64,
    /// Regions that were not looked at because their kind dies young.
    pub held_young: u64,
    /// Regions that died before they were looked at.
    pub died_young: u64,
}

/// Everything of one engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// When it was taken.
    pub now: Nanos,
    /// Spaces followed.
    pub spaces: u64,
    /// Regions followed.
    pub regions: u64,
    /// Mappings too large to be cut before something is found in them.
    pub sparse_mappings: u64,
    /// Pages of mappings that nobody follows, because there are as many regions as there may be.
    pub left_out: u64,
    /// Spaces of which something is left out, within expanses too.
    pub crowded: u64,
    /// Surveys that could not be made; what was known stayed.
    pub unread: u64,
    /// Commands for which there was no memory, and that were tried again.
    pub shortages: u64,
    /// Regions still too young to be looked at.
    pub young: u64,
    /// Pages of all regions that are believed to be there.
    pub resident: u64,
    /// Levels, bottom first.
    pub levels: Vec<LevelReport>,
    /// Hash strength in lines.
    pub strength: u16,
    /// Changes of strength.
    pub strength_changes: u64,
    /// Duplicates believed to be left, in pages.
    pub duplicates: u64,
    /// Pages merged since the start, broken ones included.
    pub merged: MergedPages,
    /// Pages believed to be merged now, frames and zero pages.
    pub merged_now: u64,
    /// Frames.
    pub frames: FrameReport,
    /// What became of the pages tried.
    pub outcomes: Outcomes,
    /// Huge pages in which merging was worth a split.
    pub thp_split: u64,
    /// Blocks of huge pages left whole because too few pages had partners.
    pub thp_kept: u64,
    /// Pages sampled.
    pub sampled: u64,
    /// Moves of regions.
    pub promotions: PromotionReport,
    /// Processor time used, all told.
    pub used: Nanos,
    /// Time since the start.
    pub elapsed: Nanos,
    /// Share of one core that may be used.
    pub budget: f64,
    /// Share of one core used in the last second or more.
    pub recent_share: f64,
    /// Processor time used for finding processes and mappings.
    pub discovery_used: Nanos,
    /// Pages given their own copies again by request.
    pub broken: u64,
    /// Spaces of which the rest stayed merged because memory was short.
    pub breaks_stopped: u64,
    /// Pages in the index of unmerged pages.
    pub index_entries: u64,
    /// Bytes of both indexes.
    pub index_bytes: u64,
    /// Bytes of everything the engine keeps of regions and spaces.
    pub region_bytes: u64,
}

/// Why a region is, or is not, being merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Younger than V_life, or than what its kind usually survives.
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
    /// Of a kind that is never merged, or locked.
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
    /// Whether it is left alone by request.
    pub stopped: bool,
    /// Its regions, ascending.
    pub regions: Vec<RegionReport>,
    /// Mappings in which nothing was found yet.
    pub sparse_mappings: u64,
}
