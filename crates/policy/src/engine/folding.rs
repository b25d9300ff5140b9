//! What became of pages that were to be merged.
//!
//! # Problem
//! Each outcome is news about a page, its region, its frame, the hash, or a limit, and none may be
//! lost: `tried` is the sum of the others.
//!
//! # Approach
//! First the frames that sets became, then each entry by its status. A page merged leaves the index
//! of unmerged pages; one found different lets another take its place; a busy one stays, so that
//! the next sweep finds it; a limit on frames stops new ones for a while that doubles.
//!
//! # Units
//! Pages, nanoseconds.
//!
//! # Source
//! `UKSM_IOC_FOLD` of the contract.

use super::{Engine, Turn};
use crate::command::{Command, FoldKind, FoldOutcome, FrameId, Nanos, Reason, Status};
use crate::cow::Admission;
use crate::evidence::Scale;
use crate::fold_queue::{ROOM, Waiting};
use crate::params::{SECOND, Thp};
use crate::region::State;

/// Fewer pages of the lower levels are not worth emptying the LRU batches of all processors.
const WORTH_DRAINING: usize = 32;
/// A merge takes about as long as this many pages that are left alone.
const MERGE_WEIGHT: u64 = 4;
/// The longest wait for frames to be had again is 2^this seconds.
const MOST_WAITS: u32 = 6;

impl Engine {
    pub(super) fn fold(&mut self) -> (Turn, Command) {
        let level = self.work.level;
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
        self.in_flight = waiting;
        self.flush = false;
        (Turn::Fold(level), Command::Fold(batch))
    }

    fn is_in_huge(&self, page: &Waiting) -> bool {
        self.regions
            .find(page.place.region, page.place.page)
            .is_some_and(|region| {
                let block = region.block_of(page.place.page);
                region
                    .tallies
                    .as_ref()
                    .is_some_and(|tallies| tallies.is_huge(block))
            })
    }

    pub(super) fn on_folded(&mut self, level: usize, outcomes: &[FoldOutcome], cost: Nanos) {
        let waiting = std::mem::take(&mut self.in_flight);
        let scale = self.scale();
        let mut frames = [None; ROOM];
        for (page, outcome) in waiting.iter().zip(outcomes) {
            if let FoldKind::Set(set) = page.entry.kind
                && matches!(outcome.status, Status::Merged | Status::Already)
                && outcome.frame != 0
            {
                frames[usize::from(set)].get_or_insert(FrameId(outcome.frame));
            }
        }
        let mut made = [false; ROOM];
        let mut weight = 0;
        let mut vain = 0;
        for (page, outcome) in waiting.iter().zip(outcomes) {
            self.outcomes.count(outcome.status);
            let is_merge = matches!(outcome.status, Status::Merged | Status::Zeroed);
            weight += if is_merge { MERGE_WEIGHT } else { 1 };
            vain += u64::from(outcome.reason == Reason::Content);
            let is_here = self
                .regions
                .find(page.place.region, page.place.page)
                .is_some_and(|region| region.state == State::Ranked);
            match outcome.status {
                Status::Merged => {
                    let is_first = match page.entry.kind {
                        FoldKind::Set(set) => !std::mem::replace(&mut made[usize::from(set)], true),
                        FoldKind::Frame(_) | FoldKind::Zero => false,
                    };
                    self.merged_into(page, FrameId(outcome.frame), is_first);
                }
                Status::Zeroed => self.merged_pages.zero += 1,
                _ => {}
            }
            if is_here {
                self.settle(page, *outcome, &scale);
            }
        }
        self.levels[level].merged(cost);
        self.tally.false_matches += vain;
        self.tally.false_cost += (cost * vain).checked_div(weight).unwrap_or(0);
    }

    /// A page maps a frame now; `is_first` if the frame was made of it.
    fn merged_into(&mut self, page: &Waiting, frame: FrameId, is_first: bool) {
        if is_first {
            self.frames.made(frame, page.entry.space);
            self.merged.insert(page.entry.hash, frame);
        } else if self.frames.shared(frame, page.entry.space) {
            self.merged_pages.same_space += 1;
        } else {
            self.merged_pages.cross_space += 1;
        }
        self.frames_waits = 0;
    }

    /// What the outcome says about the page and its region.
    fn settle(&mut self, page: &Waiting, outcome: FoldOutcome, scale: &Scale) {
        let Waiting { place, entry, .. } = *page;
        let number = place.region;
        match outcome.status {
            Status::Untried => {}
            Status::Merged | Status::Zeroed | Status::Already => {
                if outcome.status != Status::Already {
                    let is_trial = self.admission(number) == Admission::Trial;
                    let (now, round) = (self.now, self.round);
                    let region = &mut self.regions[number];
                    region.merges += 1;
                    region.cow.merged(place.page, now, round);
                    if is_trial {
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
                    (Reason::NoFrame, FoldKind::Frame(frame)) => {
                        self.merged.remove(frame);
                        self.frames.forget(frame);
                    }
                    (Reason::Unmapped, _) => {
                        self.discovery.doubt(self.regions[number].space, self.now);
                    }
                    (Reason::Dead, _) => self.discovery.doubt_census(self.now),
                    _ => {}
                }
            }
            Status::Full => match (outcome.reason, entry.kind) {
                (Reason::Sharers, FoldKind::Frame(frame)) => {
                    self.merged.mark_full(frame);
                    let sharers = self.frames.sharers_of(frame);
                    self.full.insert(frame, sharers);
                    self.regions[number].sweep.failed += 1;
                }
                (Reason::Frames | Reason::Memory, _) if self.now >= self.frames_wait => {
                    self.frames_wait = self.now + (SECOND << self.frames_waits);
                    self.frames_waits = (self.frames_waits + 1).min(MOST_WAITS);
                }
                _ => {}
            },
            Status::Refused => {
                self.unmerged.remove(entry.hash, place);
                if matches!(
                    outcome.reason,
                    Reason::Mapping | Reason::Userfault | Reason::Locked
                ) {
                    self.refuse(number);
                }
            }
        }
    }

    fn differed(&mut self, page: &Waiting, reason: Reason, scale: &Scale) {
        let Waiting {
            place, entry, sure, ..
        } = *page;
        if reason == Reason::Stale {
            self.unmerged.remove(entry.hash, place);
        }
        if reason == Reason::Alone {
            // Its partner is what was wrong. It stays indexed for the next.
            self.regions[place.region].evidence.refute(scale, sure);
            return;
        }
        self.regions[place.region].evidence.refute(scale, sure);
        if reason != Reason::Content {
            return;
        }
        if let FoldKind::Frame(frame) = entry.kind
            && self.try_next_frame(place, entry.hash, frame)
        {
            return;
        }
        // Another page of this hash gets its chance to meet its like.
        let round = self.round_number();
        match self.unmerged.find(entry.hash, round) {
            Some((other, _)) => {
                self.unmerged.replace(entry.hash, other, place, round);
            }
            None => {
                self.unmerged.visit(entry.hash, place, round);
            }
        }
    }
}
