//! What became of pages that were to be merged.
//!
//! # Problem
//! Each outcome is news about a page, its region, its frame, the hash, or a limit, and none may be
//! lost: `tried` is the sum of the others.
//!
//! # Approach
//! Each entry by its status. A set whose frame is full goes on with another, so the frame is that of
//! the entry and not of the set; a number that was known for another frame names a new one. A page
//! merged leaves the index of unmerged pages; one found different goes on to the next of its hash
//! at once (`meeting`); a busy one stays, so that the next sweep finds it; a limit on frames stops
//! new ones for a while that doubles.
//!
//! # Units
//! Pages, nanoseconds.
//!
//! # Source
//! `UKSM_IOC_FOLD` of the contract.

use super::{Engine, Turn};
use crate::accounts::payer::BatchPayers;
use crate::command::{Command, FoldKind, FoldOutcome, FrameId, Nanos, Reason, Status};
use crate::merge::queue::{Counted, ROOM, Waiting};
use crate::params::{SECOND, Thp};
use crate::region::State;
use crate::region::duplication::Scale;

/// Fewer pages of the lower levels are not worth emptying the LRU batches of all processors.
const WORTH_DRAINING: usize = 32;
/// A merge takes about as long as this many pages that are left alone.
const MERGE_WEIGHT: u64 = 4;
/// The longest wait for frames to be had again is 2^this seconds.
const MOST_WAITS: u32 = 6;

impl Engine {
    pub(super) fn fold(&mut self) -> (Turn, Command) {
        let (mut batch, waiting) = self.queue.take();
        let since = self.drained.map(|at| self.now - at);
        let drain = batch.entries.len() >= WORTH_DRAINING && since.is_none_or(|t| t >= self.round);
        if drain {
            self.drained = Some(self.now);
        }
        batch.lines = self.strength;
        batch.split =
            self.params.thp == Thp::Profit && waiting.iter().any(|page| self.is_in_huge(page));
        batch.locked = self.params.locked;
        batch.drain = drain;
        self.batch = BatchPayers::default();
        waiting.iter().for_each(|page| self.batch.add(page.payer));
        self.in_flight = waiting;
        self.flush = false;
        (Turn::Fold, Command::Fold(batch))
    }

    fn is_in_huge(&self, page: &Waiting) -> bool {
        self.regions
            .find(page.place.region, page.place.page)
            .is_some_and(|region| {
                let block = region.block_of(page.place.page);
                region
                    .huge_blocks
                    .as_ref()
                    .is_some_and(|huge_blocks| huge_blocks.is_huge(block))
            })
    }

    pub(super) fn on_folded(&mut self, outcomes: &[FoldOutcome], cost: Nanos) {
        let waiting = std::mem::take(&mut self.in_flight);
        let scale = self.scale();
        let mut made = Made::default();
        let mut weight = 0;
        let mut failed_promotions = 0;
        for (page, outcome) in waiting.iter().zip(outcomes) {
            self.outcomes.count(outcome.status);
            let is_merge = matches!(outcome.status, Status::Merged | Status::Zeroed);
            weight += if is_merge { MERGE_WEIGHT } else { 1 };
            failed_promotions += u64::from(outcome.reason == Reason::Content);
            let is_here = self
                .regions
                .find(page.place.region, page.place.page)
                .is_some_and(|region| region.state == State::Ranked);
            match outcome.status {
                Status::Merged => {
                    let frame = FrameId(outcome.frame);
                    let is_first = match page.entry.kind {
                        FoldKind::Set(set) => made.is_first(set, frame),
                        FoldKind::Frame(_) | FoldKind::Zero => false,
                    };
                    self.merged_into(page, frame, is_first);
                }
                Status::Zeroed => self.merged_pages.zero += 1,
                _ => {}
            }
            self.release(page);
            if is_here {
                self.settle(page, *outcome, &scale);
            }
        }
        // Interrupted: what was not reached has its chance again when it is next sampled.
        for page in waiting.iter().skip(outcomes.len()) {
            self.release(page);
        }
        self.batch_worked(cost);
        self.tally.false_matches += failed_promotions;
        self.tally.false_cost += (cost * failed_promotions).checked_div(weight).unwrap_or(0);
    }

    /// The room that a frame promised to a page is no longer kept for it. The frame was closed if it
    /// was the last.
    fn release(&mut self, page: &Waiting) {
        let FoldKind::Frame(frame) = page.entry.kind else {
            return;
        };
        if self.frames.release(frame, self.params.max_sharers) > 0
            && !self.full.contains_key(&frame)
        {
            self.merged.mark_open(frame);
        }
    }

    /// A page maps a frame now; `is_first` if the frame was made of it.
    fn merged_into(&mut self, page: &Waiting, frame: FrameId, is_first: bool) {
        self.frames_waits = 0;
        if is_first {
            self.full.remove(&frame);
            self.frames.made(frame, page.entry.space);
            self.merged.insert(page.entry.hash, frame);
            return;
        }
        let (is_own, sharers) = self.frames.shared(frame, page.entry.space);
        if is_own {
            self.merged_pages.same_space += 1;
        } else {
            self.merged_pages.cross_space += 1;
        }
        if sharers >= self.params.max_sharers {
            self.close(frame, sharers);
        }
    }

    /// What the outcome says about the page and its region.
    fn settle(&mut self, page: &Waiting, outcome: FoldOutcome, scale: &Scale) {
        let Waiting { place, entry, .. } = *page;
        let number = place.region;
        match outcome.status {
            Status::Untried => {}
            Status::Merged | Status::Zeroed | Status::Already => {
                if outcome.status != Status::Already {
                    let now = self.now;
                    let region = &mut self.regions[number];
                    region.merges += 1;
                    if self.params.v_cow.is_some() && region.cow.held(place.page, now) {
                        self.trials.insert(number);
                    }
                }
                self.set_merged(number, place.page, true);
                // Who met an indexed page was not entered itself.
                if page.senior || !matches!(entry.kind, FoldKind::Set(_)) {
                    self.unmerged.remove(entry.hash, place);
                }
            }
            Status::Differed => self.differed(page, outcome.reason, scale),
            Status::Busy => {
                let region = &mut self.regions[number];
                region.busy += 1;
                region.sweep.failed += 1;
            }
            Status::Gone => {
                self.unmerged.remove(entry.hash, place);
                match (outcome.reason, entry.kind) {
                    (Reason::NoFrame | Reason::Poisoned, FoldKind::Frame(frame)) => {
                        self.forget_frame(frame);
                        self.try_another(page);
                    }
                    (Reason::Unmapped, _) => {
                        self.discovery
                            .list_mappings_soon(self.regions[number].space, self.now);
                    }
                    (Reason::Dead, _) => self.discovery.list_processes_soon(self.now),
                    _ => {}
                }
            }
            Status::Full => match (outcome.reason, entry.kind) {
                (Reason::Sharers, FoldKind::Frame(frame)) => {
                    self.close(frame, self.frames.sharers_of(frame));
                    if !self.try_another(page) {
                        self.regions[number].sweep.failed += 1;
                    }
                }
                (Reason::Frames | Reason::Memory, _) if self.now >= self.frames_wait => {
                    self.frames_wait = self.now + (SECOND << self.frames_waits);
                    self.frames_waits = (self.frames_waits + 1).min(MOST_WAITS);
                }
                _ => {}
            },
            Status::Refused => match outcome.reason {
                Reason::Zero => {
                    self.regions[number].no_zero = true;
                    self.try_another(page);
                }
                reason => {
                    self.unmerged.remove(entry.hash, place);
                    if matches!(reason, Reason::Mapping | Reason::Userfault | Reason::Locked) {
                        self.refuse(number);
                    }
                }
            },
        }
    }

    fn differed(&mut self, page: &Waiting, reason: Reason, scale: &Scale) {
        let Waiting {
            place,
            entry,
            counted,
            ..
        } = *page;
        if reason == Reason::Stale {
            self.unmerged.remove(entry.hash, place);
        }
        // If its partner is what was wrong (alone), it stays indexed for the next.
        if reason != Reason::Content || !self.try_another(page) {
            let duplication = &mut self.regions[place.region].duplication;
            match counted {
                Counted::Not => {}
                Counted::Met => duplication.refute(scale, false),
                Counted::Sure => duplication.refute(scale, true),
            }
        }
    }
}

/// The frames that the sets of one batch have become.
struct Made {
    /// The newest of each set.
    newest: [Option<FrameId>; ROOM],
    /// Those before it, of sets that became several.
    older: Vec<FrameId>,
}

impl Default for Made {
    fn default() -> Made {
        Made {
            newest: [None; ROOM],
            older: vec![],
        }
    }
}

impl Made {
    /// A page of a set was merged into `frame`: whether the frame was made of it.
    fn is_first(&mut self, set: u16, frame: FrameId) -> bool {
        let newest = &mut self.newest[usize::from(set)];
        if *newest == Some(frame) || self.older.contains(&frame) {
            return false;
        }
        self.older.extend(newest.replace(frame));
        true
    }
}
