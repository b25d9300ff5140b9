//! Merging: the pages that wait for it, the batch under way, and what became of them.
//!
//! [`matching`] finds partners for sampled pages and queues what can be merged, [`proposals`] what
//! may be equal without that, [`in_full`] those of pages whose hash collides ([`collisions`]);
//! [`sharing`] says who may share what; [`queue`] gathers batches; [`outcomes`] counts what became
//! of the pages.

pub(crate) mod collisions;
pub(crate) mod extension;
pub(crate) mod finds;
mod in_full;
pub(crate) mod matching;
pub(crate) mod outcomes;
mod proposals;
pub(crate) mod queue;
mod sharing;
mod trail;

use crate::command::{FoldBatch, Nanos, Status};
use crate::params::SECOND;
use crate::report::{HugeReport, MergedPages};
use outcomes::Outcomes;
use queue::{MergeQueue, Waiting};

/// Fewer pages are not worth emptying the LRU batches of all processors.
const WORTH_DRAINING: usize = 32;
/// The longest wait for frames to be had again is 2^this seconds.
const MAX_WAITS: u32 = 6;

/// The queue, the batch under way, and the counts.
#[derive(Debug)]
pub(crate) struct Merge {
    queue: MergeQueue,
    in_flight: Vec<Waiting>,
    /// The queue is to be emptied before anything else is asked for.
    is_flush_wanted: bool,
    /// When the LRU batches were last emptied.
    drained: Option<Nanos>,
    /// No frames are to be had before this; how often that was so in a row.
    no_frames_until: Nanos,
    no_frames: u32,
    /// When most pages of a batch were merged last.
    fruitful: Nanos,
    outcomes: Outcomes,
    pages: MergedPages,
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
    /// Pages that wait for frames come before those that become some.
    pub(crate) frames_first: bool,
}

/// With what a page was merged.
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
    /// Nothing waits.
    pub(crate) fn new() -> Merge {
        Merge {
            queue: MergeQueue::new(),
            in_flight: vec![],
            is_flush_wanted: false,
            drained: None,
            no_frames_until: 0,
            no_frames: 0,
            fruitful: 0,
            outcomes: Outcomes::default(),
            pages: MergedPages::default(),
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

    /// Pages that still have room.
    pub(crate) fn room(&self) -> usize {
        self.queue.room()
    }

    /// The queue is to be emptied before anything else is asked for.
    pub(crate) fn flush(&mut self) {
        self.is_flush_wanted = true;
    }

    /// Whether that is so, and pages wait.
    pub(crate) fn is_flush_wanted(&self) -> bool {
        self.is_flush_wanted && self.queue.len() > 0
    }

    /// Takes all pages that wait. Huge pages are split if `may_split` says so of a page.
    pub(crate) fn begin(
        &mut self,
        now: Nanos,
        terms: BatchTerms,
        may_split: impl Fn(&Waiting) -> bool,
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
    pub(crate) fn in_flight(&self) -> &[Waiting] {
        &self.in_flight
    }

    /// A batch of `tried` pages came back, of which so many were merged.
    pub(crate) fn gained(&mut self, merged: usize, tried: usize, now: Nanos) {
        if 2 * merged > tried {
            self.fruitful = now;
        }
    }

    /// When most pages of a batch were merged last; 0 if never.
    pub(crate) fn fruitful(&self) -> Nanos {
        self.fruitful
    }

    /// The batch came back.
    pub(crate) fn end(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.in_flight)
    }

    /// Counts what became of a page.
    pub(crate) fn count(&mut self, status: Status) {
        self.outcomes.count(status);
    }

    /// Counts a page that was merged, by what with.
    pub(crate) fn count_merged(&mut self, with: MergedWith) {
        match with {
            MergedWith::Zero => self.pages.zero += 1,
            MergedWith::SameSpace => self.pages.same_process += 1,
            MergedWith::OtherSpace => self.pages.cross_process += 1,
        }
    }

    /// A block of huge pages was worth a split, or was left whole.
    pub(crate) fn count_block(&mut self, is_split: bool) {
        if is_split {
            self.huge.worth += 1;
        } else {
            self.huge.kept += 1;
        }
    }

    /// Zeros of a block were merged, and the kernel has made it huge again.
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

    /// No frame could be had: none is asked for, for a while that doubles.
    pub(crate) fn frames_refused(&mut self, now: Nanos) {
        if self.may_make_frames(now) {
            self.no_frames_until = now + (SECOND << self.no_frames);
            self.no_frames = (self.no_frames + 1).min(MAX_WAITS);
        }
    }

    /// Frames can be had.
    pub(crate) fn frames_given(&mut self) {
        self.no_frames = 0;
    }

    /// What became of the pages tried.
    pub(crate) fn outcomes(&self) -> Outcomes {
        self.outcomes
    }

    /// Pages merged, by what with, of which so many are believed to be merged now.
    pub(crate) fn report_merged(&self, now: u64) -> MergedPages {
        MergedPages { now, ..self.pages }
    }

    /// Blocks of huge pages that were worth a split, and that were left whole.
    pub(crate) fn report_huge(&self) -> HugeReport {
        self.huge
    }
}
