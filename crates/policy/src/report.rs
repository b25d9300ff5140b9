//! The report of the engine.
//!
//! An operator must see the savings, their cost, and the reasons for which a process does not
//! merge. Each part of the policy has a report of its own here, made by
//! [`counters!`](crate::counters): one row a counter. `uksm status` prints and serialises the rows
//! as they are, so a new counter needs its row here and the part that counts it.
//!
//! Pages are 4 KiB. Counts are since the start unless stated otherwise.

pub mod counters;
mod explanation;
mod outcomes;

pub use counters::{Cell, Counters, Field, counted};
pub use explanation::{
    Circumstances, KnownPartner, MAX_SPARSE, RegionReport, SpaceReport, Standing,
};
pub use outcomes::Outcomes;

use crate::command::{Nanos, SpaceId};

crate::counters! {
    /// Address spaces and their mappings.
    #[derive(Copy, Eq)]
    pub struct SpacesReport {
        /// Address spaces followed; fewer than processes where those share one.
        spaces: u64 = "address spaces" or "address space",
        /// Those of them whose mappings were not listed yet.
        unlisted: u64 = "not listed yet" unless "0",
        /// Mappings too large to be cut into regions before something is found in them.
        sparse_mappings: u64 = "sparse mappings" or "sparse mapping",
        /// Pages of mappings that are left out because of `max_regions` or `max_process_regions`.
        left_out_pages: u64 = "pages left out" or "page left out" unless "0",
        /// Address spaces of which something is left out, within sparse mappings too.
        crowded: u64 = "spaces left out in part" or "space left out in part" unless "0",
        /// Mapping lists that could not be read; what was known of these spaces is kept.
        unread_mappings: u64,
    }

    /// Regions.
    #[derive(Copy, Eq)]
    pub struct RegionsReport {
        /// Regions followed.
        regions: u64 = "regions" or "region",
        /// Regions still too young to be looked at.
        young: u64 = "too young",
        /// Pages of all regions that are believed to be in memory.
        resident_pages: u64,
    }

    /// Duplicates that were found and not merged yet.
    #[derive(Copy, Eq)]
    pub struct DuplicatesReport {
        /// Duplicates believed to be left, in pages.
        left: u64 = "left",
    }

    /// Memory of regions.
    #[derive(Copy, Eq)]
    pub struct RegionMemory {
        /// The tables of regions and address spaces.
        region_bytes: u64 = "for regions",
    }

    /// The ladder from the bottom.
    pub struct LevelReport {
        /// From 1, the bottom.
        level: u64,
        /// Share of one core the level may use.
        share: f64,
        /// Length of its round.
        round_seconds: f64,
        /// Regions in it.
        regions: u64,
        /// Their pages, mapped or not.
        pages: u64,
        /// Rounds completed.
        rounds: u64,
        /// Pages sampled for it.
        sampled: u64,
        /// CPU time used.
        used_seconds: f64,
    }

    /// Promotion and demotion of regions, and what held regions back.
    #[derive(Copy, Eq)]
    pub struct PromotionReport {
        /// Steps upwards.
        promoted: u64 = "up",
        /// Moves upwards over several levels at once.
        leapt: u64 = "leaps" or "leap",
        /// Steps downwards.
        demoted: u64 = "down",
        /// Returns to the bottom of regions with nothing left to merge.
        finished: u64 = "finished",
        /// Returns to the bottom of regions whose merged pages are written too fast.
        cow_broken: u64 = "broken by writes",
        /// Regions that were not read because most regions of their lifetime class die young.
        held_young: u64 = "held young",
        /// Regions that died before they were read.
        died_young: u64,
    }

    /// Sampling of all levels together.
    #[derive(Copy, Eq)]
    pub struct SamplingReport {
        /// Pages sampled: the sum over the levels, and first sweeps.
        pages: u64,
        /// Pages read by first sweeps.
        swept_first: u64 = "by first sweeps" unless "0",
    }

    /// Hints: memory that I/O has just touched, which is looked at first.
    #[derive(Copy)]
    pub struct HintsReport {
        /// Hints of I/O that were received.
        taken: u64 = "came",
        /// Hints that memory has appeared in a process.
        grown: u64 = "processes grew" or "process grew" unless "0",
        /// Hints that were lost before they were taken.
        lost: u64 = "lost" unless "0",
        /// Hints that cannot be valid: no pages, or beyond all addresses.
        refused: u64,
        /// Pages of hints that wait.
        waiting_pages: u64 = "pages wait" or "page waits",
        /// Pages that were hinted again while they waited.
        again_pages: u64,
        /// Pages of the oldest hints, overwritten by newer ones.
        aged_pages: u64 = "aged" unless "0",
        /// Pages that were left out: because there are more hints than can be followed, the same
        /// parts of files in all spaces, and pages of a hint beyond a GiB.
        left_out_pages: u64 = "left out" unless "0",
        /// Pages that were passed over because hints for their memory did not pay.
        useless_pages: u64 = "useless" unless "0",
        /// Pages of processes that are not followed any more.
        gone_pages: u64,
        /// Pages at addresses without mergeable memory.
        nowhere_pages: u64,
        /// Pages read for hints.
        sampled_pages: u64 = "followed",
        /// Pages not read for a hint, but compared with the earlier contents of their place in a
        /// file.
        expected_pages: u64 = "as expected" unless "0",
        /// Pages merged because of a hint.
        merged_pages: u64 = "merged",
        /// Of these, within 0.1 s of the hint.
        merged_within_100_ms: u64,
        /// Of these, within a second, but not within 0.1 s.
        merged_within_1_s: u64,
        /// Of these, within 10 s, but not within a second.
        merged_within_10_s: u64,
        /// Of these, later.
        merged_after_10_s: u64,
        /// Share of one core that hints may use now.
        part_share: f64,
        /// CPU time used for hints.
        used_seconds: f64,
        /// The tables of hints.
        hint_bytes: u64,
    }

    /// Memory of the lookup.
    #[derive(Copy, Eq)]
    pub struct IndexMemory {
        /// Both indexes, and the table of frames.
        index_bytes: u64 = "for indexes",
        /// Pages in the index of unmerged pages.
        index_entries: u64 = "index entries" or "index entry",
    }

    /// Frames as the policy knows them: from the last list, with changes counted since.
    #[derive(Copy, Eq)]
    pub struct FrameReport {
        /// Frames held.
        frames: u64,
        /// Mappings of them.
        sharers: u64,
        /// Frames with one mapping: they save nothing.
        unshared: u64,
        /// Frames freed because nothing mapped them.
        freed: u64,
        /// Mappings less frames, over frames that are mapped.
        saved: u64,
        /// Checks of the contents of frames, whether unchanged or changed.
        checked: u64,
        /// Pages that got their own copy again, because nothing else mapped their frame. A frame
        /// that false matches have made is given back at once.
        given_back: u64,
    }

    /// Pages merged since the start, by partner; broken ones included.
    /// `zero + same_process + cross_process` is the number of pages given up.
    #[derive(Copy, Eq)]
    pub struct MergedReport {
        /// With the zero page.
        zero: u64 = "zero",
        /// With a frame that a page of the same process became.
        same_process: u64 = "same process",
        /// With a frame that a page of another process became.
        cross_process: u64 = "cross process",
        /// Mappings of frames and of the zero page at this time. The worker limits the policy's
        /// belief by the counts of the kernel.
        now: u64 = "now",
        /// Pages that were merged, and that their processes wrote or unmapped since: a lower bound,
        /// and late by up to two listings of frames. The end of a process is none of it; a write
        /// and an unmapping cannot be distinguished.
        written: u64 = "written again",
    }

    /// Huge pages.
    #[derive(Copy, Eq)]
    pub struct HugeReport {
        /// Huge pages in which merging was worth a split.
        worth: u64 = "worth a split",
        /// Blocks of huge pages left whole because too few of their pages had partners.
        kept: u64 = "kept",
        /// How often the kernel has made a huge page again of zeros that were merged.
        again: u64 = "made huge again" unless "0",
        /// Blocks that are left alone now because of that.
        left_alone: u64 = "left alone for that" unless "0",
    }

    /// Hash strength.
    #[derive(Copy, Eq)]
    pub struct StrengthReport {
        /// Cache lines of a page that are hashed now, of 64.
        lines: u16 = "of 64 lines",
        /// How often that changed.
        changes: u64 = "changes" or "change",
        /// Pages that were read in full, because other pages have the same hash at that strength,
        /// but other contents.
        read_in_full: u64 = "read in full",
    }

    /// CPU time.
    #[derive(Copy)]
    pub struct CpuReport {
        /// Share of one core used in the last second or more.
        recent_share: f64 = "lately",
        /// Share of one core that may be used.
        budget_share: f64 = "allowed",
        /// Used by the policy and by the calls it made.
        used_seconds: f64 = "used",
        /// Of that, for finding processes and mappings.
        discovery_seconds: f64 = "for discovery",
    }

    /// Commands tried again.
    #[derive(Copy, Eq)]
    pub struct RetryReport {
        /// Commands for which there was no memory, and that were tried again.
        retried: u64,
    }
}

/// The report of one engine, with a report for each part.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Address spaces and their mappings.
    pub spaces: SpacesReport,
    /// Regions.
    pub regions: RegionsReport,
    /// Duplicates left in them.
    pub duplicates: DuplicatesReport,
    /// Memory of regions.
    pub region_memory: RegionMemory,
    /// Levels of the ladder, bottom first.
    pub levels: Vec<LevelReport>,
    /// Promotion and demotion.
    pub promotions: PromotionReport,
    /// Sampling.
    pub sampling: SamplingReport,
    /// Hints.
    pub hints: HintsReport,
    /// Memory of the lookup.
    pub index: IndexMemory,
    /// Frames.
    pub frames: FrameReport,
    /// Frames on each node of memory, from node 0, by the last complete listing.
    pub frames_by_node: Vec<u64>,
    /// Pages merged.
    pub merged: MergedReport,
    /// The outcomes of the pages tried.
    pub outcomes: Outcomes,
    /// Huge pages.
    pub huge: HugeReport,
    /// Hash strength.
    pub strength: StrengthReport,
    /// CPU time.
    pub cpu: CpuReport,
    /// Commands tried again.
    pub retry: RetryReport,
}

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
    /// [`DuplicatesReport`], except for rounding.
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
