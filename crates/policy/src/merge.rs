//! Merging: the waiting pages, the batch under way, and the outcomes.
//!
//! [`matching`] finds partners for sampled pages and queues the pages that can be merged,
//! [`proposals`] queues pages that are likely equal without a match, and [`full_hash`] finds
//! partners for pages whose hash collides ([`collisions`]); [`sharing`] decides which pages may
//! share a frame; [`queue`] gathers batches.

pub(crate) mod candidates;
pub(crate) mod collisions;
pub(crate) mod extension;
mod full_hash;
pub(crate) mod matching;
mod proposals;
pub(crate) mod queue;
mod sharing;
mod twin_run;

use crate::command::{FoldBatch, Nanos, Status};
use crate::params::SECOND;
use crate::report::{HugeReport, MergedReport, Outcomes};
use queue::{MergeQueue, WaitingPage};

/// Pages for which emptying the LRU batches of all processors is worth its cost.
const WORTH_DRAINING: usize = 32;
/// The longest wait for new frames is 2^this seconds.
const MAX_WAITS: u32 = 6;

/// The queue, the batch under way, and the counts.
#[derive(Debug)]
pub(crate) struct Merge {
    queue: MergeQueue,
    in_flight: Vec<WaitingPage>,
    /// The queue is to be emptied before any other command.
    is_flush_wanted: bool,
    /// When the LRU batches were last emptied.
    drained: Option<Nanos>,
    /// No new frame is asked for before this time; and the number of refusals in a row.
    no_frames_until: Nanos,
    no_frames: u32,
    outcomes: Outcomes,
    pages: MergedReport,
    huge: HugeReport,
}

/// How a batch is to be merged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchTerms {
    /// Strength of the hashes.
    pub(crate) strength: u16,
    /// Length of a global round: the LRU batches are emptied once in it.
    pub(crate) round: Nanos,
    /// Merge in mlocked mappings, too.
    pub(crate) locked: bool,
    /// Pages that join frames come before those that become frames.
    pub(crate) frames_first: bool,
}

/// The partner with which a page was merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MergedWith {
    /// The zero page.
    Zero,
    /// A frame that a page of the same space became.
    SameSpace,
    /// A frame that a page of another space became.
    OtherSpace,
}

impl Merge {
    /// An empty queue, and no batch.
    pub(crate) fn new() -> Merge {
        Merge {
            queue: MergeQueue::new(),
            in_flight: vec![],
            is_flush_wanted: false,
            drained: None,
            no_frames_until: 0,
            no_frames: 0,
            outcomes: Outcomes::default(),
            pages: MergedReport::default(),
            huge: HugeReport::default(),
        }
    }

    /// The pages that wait.
    pub(crate) fn queue(&mut self) -> &mut MergeQueue {
        &mut self.queue
    }

    /// Pages that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Number of pages that can still be queued.
    pub(crate) fn room(&self) -> usize {
        self.queue.room()
    }

    /// The queue is to be emptied before any other command.
    pub(crate) fn flush(&mut self) {
        self.is_flush_wanted = true;
    }

    /// Whether a flush is wanted, and pages wait.
    pub(crate) fn is_flush_wanted(&self) -> bool {
        self.is_flush_wanted && self.queue.len() > 0
    }

    /// Takes all pages that wait. A huge page is split if `may_split` allows it for the page.
    pub(crate) fn begin(
        &mut self,
        now: Nanos,
        terms: BatchTerms,
        may_split: impl Fn(&WaitingPage) -> bool,
    ) -> FoldBatch {
        let (mut batch, waiting) = self.queue.take(terms.frames_first);
        let since = self.drained.map(|at| now - at);
        let is_due = since.is_none_or(|since| since >= terms.round);
        batch.drain = batch.entries.len() >= WORTH_DRAINING && is_due;
        if batch.drain {
            self.drained = Some(now);
        }
        batch.lines = terms.strength;
        batch.split = waiting.iter().any(may_split);
        batch.locked = terms.locked;
        self.in_flight = waiting;
        self.is_flush_wanted = false;
        batch
    }

    /// The pages of the batch under way, in its order.
    pub(crate) fn in_flight(&self) -> &[WaitingPage] {
        &self.in_flight
    }

    /// The batch came back.
    pub(crate) fn end(&mut self) -> Vec<WaitingPage> {
        std::mem::take(&mut self.in_flight)
    }

    /// Counts the outcome of a page.
    pub(crate) fn count(&mut self, status: Status) {
        self.outcomes.count(status);
    }

    /// Counts a merged page, by its partner.
    pub(crate) fn count_merged(&mut self, with: MergedWith) {
        match with {
            MergedWith::Zero => self.pages.zero += 1,
            MergedWith::SameSpace => self.pages.same_process += 1,
            MergedWith::OtherSpace => self.pages.cross_process += 1,
        }
    }

    /// Counts a block of huge pages that was worth a split, or was left whole.
    pub(crate) fn count_block(&mut self, is_split: bool) {
        if is_split {
            self.huge.worth += 1;
        } else {
            self.huge.kept += 1;
        }
    }

    /// Counts a block whose zeros were merged, and that the kernel has made huge again.
    pub(crate) fn count_huge_again(&mut self) {
        self.huge.again += 1;
    }

    /// Whether pages may be queued that need a new frame.
    pub(crate) fn may_make_frames(&self, now: Nanos) -> bool {
        now >= self.no_frames_until
    }

    /// No new frame is asked for before this time.
    pub(crate) fn no_frames_until(&self) -> Nanos {
        self.no_frames_until
    }

    /// The machine had no frame: none is asked for, for a time that doubles.
    pub(crate) fn frames_refused(&mut self, now: Nanos) {
        if self.may_make_frames(now) {
            self.no_frames_until = now + (SECOND << self.no_frames);
            self.no_frames = (self.no_frames + 1).min(MAX_WAITS);
        }
    }

    /// The machine has frames again.
    pub(crate) fn frames_given(&mut self) {
        self.no_frames = 0;
    }

    /// The outcomes of the pages tried.
    pub(crate) fn outcomes(&self) -> Outcomes {
        self.outcomes
    }

    /// Merged pages, by partner; the rest of the report is for others to fill.
    pub(crate) fn report_merged(&self) -> MergedReport {
        self.pages
    }

    /// Blocks of huge pages that were worth a split, and that were left whole.
    pub(crate) fn report_huge(&self) -> HugeReport {
        self.huge
    }
}
