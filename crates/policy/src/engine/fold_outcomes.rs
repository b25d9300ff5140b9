//! The outcomes of merging, page by page.
//!
//! # Problem
//! Each outcome is news about a page, its region, its frame, the hash, or a limit, and none may be
//! lost: `tried` is the sum of the others.
//!
//! # Approach
//! Each entry is handled by its status. A set whose frame is full goes on with another, so the
//! frame is that of the entry and not of the set; an id that was known for another frame names a
//! new one. A merged page leaves the index of unmerged pages. A page that was found different goes
//! on to the next of its hash at once; a busy one stays indexed, so that the next sweep finds it. A
//! limit on frames stops new ones for a time that doubles. A page that became a frame which no
//! other page of its set joined is given back (`give_back_turn`).
//!
//! # Source
//! `UKSM_IOC_FOLD` of the contract.

use super::Engine;
use super::turn::{Action, Turn};
use crate::accounts::payer::Payer;
use crate::command::{Command, FoldKind, FoldOutcome, FrameId, Nanos, Reason, Status};
use crate::hints::ComparisonResult;
use crate::merge::queue::{HitKind, ROOM, WaitingPage};
use crate::merge::{BatchTerms, MergedWith};
use crate::params::Thp;
use crate::region::duplication::Scale;

/// A merge takes about as long as this number of pages that are left alone.
const MERGE_WEIGHT: u64 = 4;

impl Engine {
    pub(super) fn fold(&mut self) -> Action {
        let at = self.clock.moment(&self.params);
        let terms = BatchTerms {
            strength: self.hash.strength(),
            round: at.round,
            locked: self.params.locked,
            frames_first: self.lookup.are_sharers_known(),
        };
        let batch = self.merge.begin(at.now, terms, |page| {
            at.params.thp == Thp::Profit
                && self
                    .regions
                    .find(page.place.region, page.place.page)
                    .is_some_and(|region| region.is_in_huge_page(page.place.page))
        });
        let payers = self.merge.in_flight().iter().map(|page| page.payer);
        self.accounts.begin_batch(payers);
        Turn::Fold.requests(Command::Fold(batch))
    }

    pub(super) fn on_folded(&mut self, mut outcomes: Vec<FoldOutcome>, cost: Nanos) {
        let waiting = self.merge.end();
        for outcome in &outcomes {
            self.merge.count(outcome.status);
        }
        self.find_false_matches(&waiting, &mut outcomes);
        let outcomes = &outcomes;
        let scale = self.scale();
        self.forget_gone(&waiting, outcomes);
        if self.lookup.are_sharers_known() {
            self.note_sharers(&waiting, outcomes);
        }
        let mut set_frames = SetFrames::default();
        let mut weight = 0;
        let mut false_matches = 0;
        let page_cost = cost.checked_div(outcomes.len() as u64).unwrap_or(0);
        for (page, outcome) in waiting.iter().zip(outcomes) {
            self.tried_for(page.place, page_cost);
            let is_merge = matches!(outcome.status, Status::Merged | Status::Zeroed);
            weight += if is_merge { MERGE_WEIGHT } else { 1 };
            let is_false = is_partner_wrong(outcome.reason) && !page.counted.is_proposed();
            false_matches += u64::from(is_false);
            let place = page.place;
            let is_here = self.regions.find_ranked(place.region, place.page).is_some();
            match outcome.status {
                Status::Merged => {
                    let frame = FrameId(outcome.frame);
                    let is_first = set_frames.is_first(page.entry.kind, frame);
                    self.merged_into(page, frame, is_first);
                    if !is_first {
                        self.extension_learns(page);
                    }
                }
                Status::Zeroed => self.merge.count_merged(MergedWith::Zero),
                _ => {}
            }
            if is_merge {
                let at = (page.entry.space, page.entry.address);
                let now = self.clock.now();
                self.hints.merged((page.ticket, page.payer), at, now);
            }
            self.release_room(page, Some(*outcome));
            self.compared(page, outcome.status);
            if is_here {
                self.apply_outcome(page, *outcome, &scale);
            }
        }
        // Interrupted: the remaining pages have their chance again when they are next sampled.
        for page in waiting.iter().skip(outcomes.len()) {
            self.release_room(page, None);
        }
        self.batch_worked(cost);
        let false_cost = (cost * false_matches).checked_div(weight).unwrap_or(0);
        self.hash.matched_falsely(false_matches, false_cost);
    }

    /// Forgets the frames that do not exist, or may not be used. This comes before the notes of the
    /// new frames: the call may have given the id of a forgotten frame to a new one.
    fn forget_gone(&mut self, waiting: &[WaitingPage], outcomes: &[FoldOutcome]) {
        for (page, outcome) in waiting.iter().zip(outcomes) {
            if is_frame_gone(*outcome)
                && let FoldKind::Frame(frame) = page.entry.kind
            {
                self.lookup.forget_frame(frame);
            }
        }
    }

    /// Notes which space maps which frame now. Pages that are not merged go on to other frames at
    /// once, so all sharers must be known before.
    fn note_sharers(&mut self, waiting: &[WaitingPage], outcomes: &[FoldOutcome]) {
        let mut set_frames = SetFrames::default();
        for (page, outcome) in waiting.iter().zip(outcomes) {
            if outcome.status == Status::Merged {
                let frame = FrameId(outcome.frame);
                let is_first = set_frames.is_first(page.entry.kind, frame);
                self.lookup.sharer_merged(frame, page.entry.space, is_first);
            }
        }
    }

    /// Passes the cost of merging on to the levels whose pages the last batch held.
    pub(super) fn batch_worked(&mut self, cost: Nanos) {
        for (payer, part) in self.accounts.batch_parts(cost) {
            if let Payer::Level(level) = payer {
                self.ladder.worked(usize::from(level), part);
            }
        }
    }

    /// Releases the room that was reserved for a page in its frame.
    fn release_room(&mut self, page: &WaitingPage, outcome: Option<FoldOutcome>) {
        if let FoldKind::Frame(frame) = page.entry.kind {
            let does_map = outcome.is_some_and(|outcome| outcome.frame == frame.0);
            self.lookup.release_room(frame, page.entry.space, does_map);
        }
    }

    /// A page maps a frame now; `is_first` if the frame was made of it.
    fn merged_into(&mut self, page: &WaitingPage, frame: FrameId, is_first: bool) {
        self.merge.frames_given();
        let space = page.entry.space;
        if is_first {
            self.lookup.frame_made(frame, page.entry.hash, space);
            if self.collisions.has(page.entry.hash) && !page.is_read_in_full() {
                self.collisions.want_frames(std::iter::once(frame));
            }
        } else if self.lookup.frame_shared(frame, space) {
            self.merge.count_merged(MergedWith::SameSpace);
        } else {
            self.merge.count_merged(MergedWith::OtherSpace);
        }
        if page.is_read_in_full() {
            self.lookup.know_in_full(frame, page.hash);
        }
    }

    /// A page may have been compared with its expected contents.
    fn compared(&mut self, page: &WaitingPage, status: Status) {
        let Some(ticket) = page.ticket.filter(|_| page.counted == HitKind::Expected) else {
            return;
        };
        let outcome = match status {
            Status::Merged | Status::Already => ComparisonResult::Equal,
            Status::Differed => ComparisonResult::Different,
            _ => ComparisonResult::Neither,
        };
        let at = (page.entry.space, page.entry.address);
        self.hints.compared(ticket, at, outcome);
    }

    /// Applies the outcome to the page and its region.
    fn apply_outcome(&mut self, page: &WaitingPage, outcome: FoldOutcome, scale: &Scale) {
        let WaitingPage { place, entry, .. } = *page;
        let now = self.clock.now();
        match outcome.status {
            Status::Untried => {}
            Status::Merged | Status::Zeroed | Status::Already => {
                if outcome.status != Status::Already {
                    let is_cow_on = self.params.v_cow.is_some();
                    let region = &mut self.regions[place.region];
                    if !page.is_first && page.ticket.is_none() {
                        region.merged_again(now);
                    }
                    if region.count_merge(place.page, now, is_cow_on) {
                        self.ladder.look_at(place.region, now);
                    }
                }
                let is_news = self.regions.set_merged(place.region, place.page, true, now);
                if is_news && outcome.status == Status::Already && outcome.frame != 0 {
                    self.lookup.writes().found_merged();
                }
                if matches!(entry.kind, FoldKind::Zero) {
                    self.regions[place.region].zero_merged(place.page, now);
                }
                self.answer.note_merged(place);
                // A page that met an indexed one was not entered itself, nor was one that was not
                // looked up. Of more than two pages, all but the last to come were entered.
                let is_entered = page.is_first
                    || self.lookup.rungs() > 1
                    || !matches!(entry.kind, FoldKind::Set(_));
                if is_entered && page.counted != HitKind::Extended {
                    self.lookup.forget_unmerged(page.hash, place);
                }
                if page.is_read_in_full() {
                    self.lookup.forget_unmerged(entry.hash, place);
                }
            }
            Status::Differed => self.differed(page, outcome.reason, scale),
            Status::Busy => {
                self.regions[place.region].count_busy();
                // A process may hold the lock of its mappings for hours: others with this hash must
                // find each other meanwhile.
                if outcome.reason == Reason::Lock {
                    self.lookup.forget_unmerged(page.hash, place);
                }
            }
            Status::Gone => {
                self.lookup.forget_unmerged(page.hash, place);
                match (outcome.reason, entry.kind) {
                    (_, FoldKind::Frame(_)) if is_frame_gone(outcome) => {
                        self.matching().0.try_another(page);
                    }
                    (Reason::Unmapped, _) => {
                        let space = self.regions[place.region].space();
                        self.discovery.list_mappings_soon(space, now);
                    }
                    (Reason::Dead, _) => self.discovery.list_processes_soon(now),
                    _ => {}
                }
            }
            Status::Full => match (outcome.reason, entry.kind) {
                (Reason::Sharers, FoldKind::Frame(frame)) => {
                    self.lookup.close(frame);
                    if !self.matching().0.try_another(page) {
                        self.regions[place.region].count_failed();
                    }
                }
                (Reason::Frames | Reason::Machine | Reason::Memory, _) => {
                    self.merge.frames_refused(now);
                    self.lookup.frames_refused(now);
                }
                (Reason::Guard, _) => self.merge.frames_refused(now),
                _ => {}
            },
            Status::Refused => match outcome.reason {
                Reason::Zero => {
                    self.regions[place.region].refuse_zero_page();
                    self.matching().0.try_another(page);
                }
                reason => {
                    self.lookup.forget_unmerged(page.hash, place);
                    if matches!(reason, Reason::Mapping | Reason::Userfault | Reason::Locked) {
                        self.refuse(place.region);
                    }
                }
            },
        }
    }

    fn differed(&mut self, page: &WaitingPage, reason: Reason, scale: &Scale) {
        if reason == Reason::Stale {
            self.lookup.forget_unmerged(page.hash, page.place);
        }
        if page.counted == HitKind::Extended && !page.is_first {
            // The page was not looked up yet.
            let duplication = self.regions[page.place.region].duplication_mut();
            duplication.refute(scale, true);
            if reason != Reason::Stale {
                self.matching().0.try_another(page);
            }
            return;
        }
        if page.counted.is_proposed() {
            return;
        }
        if matches!(reason, Reason::Alone | Reason::Spaces) && !page.is_first {
            self.stays_indexed(page);
        }
        // If only its partner was wrong, the page waits for the next one.
        if !is_partner_wrong(reason) || !self.tries_another(page) {
            let duplication = self.regions[page.place.region].duplication_mut();
            match page.counted {
                HitKind::Not | HitKind::Guess | HitKind::Extended | HitKind::Expected => {}
                HitKind::Met => duplication.refute(scale, false),
                HitKind::Sure => duplication.refute(scale, true),
            }
        }
    }

    /// The page differs from its partner: returns whether it waits for another one now. If not, and
    /// if many look like it, it is read in full.
    fn tries_another(&mut self, page: &WaitingPage) -> bool {
        if self.collisions.has(page.entry.hash) && !page.is_read_in_full() {
            self.reads_in_full(page, page.place);
            return false;
        }
        let waits = self.matching().0.try_another(page);
        if !waits {
            self.gave_up(page);
        }
        waits
    }

    /// The partner of this page has other contents by now, and was left out. The page takes its
    /// place in the index, so that the next of its hash meets the page.
    fn stays_indexed(&mut self, page: &WaitingPage) {
        let (hash, place) = (page.hash, page.place);
        self.matching().0.waits_again(hash, place);
    }
}

/// Whether a page has the hash that was given, and its partner other contents, or lies on a node of
/// memory where it may not be merged: hashes show that only of lines that are not all zeros.
fn is_partner_wrong(reason: Reason) -> bool {
    matches!(reason, Reason::Content | Reason::Node)
}

/// Whether the frame of a page does not exist, or may not be used.
fn is_frame_gone(outcome: FoldOutcome) -> bool {
    outcome.status == Status::Gone && matches!(outcome.reason, Reason::NoFrame | Reason::Poisoned)
}

/// The frames that the sets of one batch have become.
struct SetFrames {
    /// The newest of each set.
    newest: [Option<FrameId>; ROOM],
    /// The earlier ones, of sets that became several.
    older: Vec<FrameId>,
}

impl Default for SetFrames {
    fn default() -> SetFrames {
        SetFrames {
            newest: [None; ROOM],
            older: vec![],
        }
    }
}

impl SetFrames {
    /// A page was merged into `frame`: returns whether the frame was made of it, which is true of
    /// only one page of a set.
    fn is_first(&mut self, kind: FoldKind, frame: FrameId) -> bool {
        let FoldKind::Set(set) = kind else {
            return false;
        };
        let newest = &mut self.newest[usize::from(set)];
        if *newest == Some(frame) || self.older.contains(&frame) {
            return false;
        }
        self.older.extend(newest.replace(frame));
        true
    }
}
