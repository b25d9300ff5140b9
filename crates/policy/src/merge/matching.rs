//! Candidates meet frames and each other.
//!
//! # Problem
//! A candidate may equal the zero page, a frame, or a page seen before that may be gone by now, may
//! not be split, or may not be merged for other reasons; and what it meets is evidence, too.
//!
//! # Approach
//! The zero page first, then frames with room, then unmerged pages, so that a page joins what
//! exists. A page that turns out to have other contents goes on in that order at once: pages whose
//! hash is that of a frame by chance must meet each other all the same. How often it may do so is
//! bounded, because a hash that is too weak has many contents.
//! Finds in huge pages wait until their block can be judged. A partner of no use gives its place
//! in the index to the page that met it.
//!
//! # Units
//! Pages.
//!
//! # Source
//! UKSM §5.3 (`Tr_s`, then `Tr_us`).

use super::Engine;
use super::sampled::{Candidate, PIECE_ROOM};
use crate::command::{FoldKind, FrameId, PAGE_SIZE};
use crate::convert;
use crate::lookup::{Match, Place, Query};
use crate::merge::queue::{Counted, QueuedPage, Waiting};
use crate::params::Thp;
use crate::region::cow::Permission;
use crate::region::duplication::Scale;
use crate::region::{BLOCK_PAGES, State};

/// What a candidate met.
#[derive(Debug, Clone, Copy)]
enum Partner {
    Zero,
    Frame(FrameId),
    Page(Place),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    place: Place,
    hash: u64,
    partner: Partner,
}

impl Engine {
    /// Lets the candidates of a piece meet what is indexed.
    pub(super) fn look_up_candidates(&mut self, scale: &Scale) {
        let candidates = std::mem::take(&mut self.work.candidates);
        let mut work = std::mem::take(&mut self.work.hashes);
        work.clear();
        work.extend(candidates.iter().map(|candidate| candidate.hash));
        self.work.frames.clear();
        self.work.frames.resize(candidates.len(), None);
        let frames = &mut self.work.frames;
        if !self.merged.is_empty() {
            self.merged
                .newest_batch(&work, |at, frame| frames[at] = Some(frame));
        }
        self.work.hashes = work;
        let zero = self.hash.zero(self.strength);
        self.work.queries.clear();
        for (candidate, frame) in candidates.iter().zip(&self.work.frames) {
            if frame.is_none() && !self.may_be_zero(candidate, zero) {
                self.work.queries.push(Query {
                    hash: candidate.hash,
                    place: candidate.place,
                });
            }
        }
        let mut matches = std::mem::take(&mut self.work.matches);
        matches.clear();
        let round = self.round_number();
        self.unmerged
            .look_up_batch(&self.work.queries, round, &mut matches);
        let mut look_up = matches.iter();
        for (at, candidate) in candidates.iter().enumerate() {
            let partner = if self.may_be_zero(candidate, zero) {
                Some(Partner::Zero)
            } else if let Some(frame) = self.work.frames[at] {
                Some(Partner::Frame(frame))
            } else {
                match look_up.next().expect("one answer a query") {
                    Match::Partner { place, .. } => self
                        .valid_partner(candidate.hash, candidate.place, *place)
                        .map(Partner::Page),
                    Match::Refreshed | Match::Inserted | Match::InsertedOver(_) => None,
                }
            };
            if let Some(partner) = partner {
                self.found_partner(*candidate, partner, scale);
            }
        }
        self.work.matches = matches;
        self.work.candidates = candidates;
    }

    /// Whether a page of this hash is to be tried with the zero page.
    fn may_be_zero(&self, candidate: &Candidate, zero: u64) -> bool {
        candidate.hash == zero && !self.regions[candidate.place.region].no_zero
    }

    /// The indexed page if it can still be there; else the page of `new` takes its place.
    fn valid_partner(&mut self, hash: u64, new: Place, indexed: Place) -> Option<Place> {
        let is_true = self
            .regions
            .find(indexed.region, indexed.page)
            .is_some_and(|region| region.state == State::Ranked && !region.is_merged(indexed.page));
        if is_true {
            return Some(indexed);
        }
        let round = self.round_number();
        self.unmerged.replace(hash, indexed, new, round);
        None
    }

    fn found_partner(&mut self, candidate: Candidate, partner: Partner, scale: &Scale) {
        let number = candidate.place.region;
        let permission = self.permission(number);
        if permission == Permission::Closed {
            return;
        }
        let set = match partner {
            Partner::Page(_) => self.queue.set_of(candidate.hash),
            Partner::Zero | Partner::Frame(_) => None,
        };
        let duplication = &mut self.regions[number].duplication;
        match partner {
            Partner::Page(place) if set.is_none() => {
                duplication.met(scale);
                if place.region != number {
                    self.regions[place.region].duplication.met(scale);
                    self.work.touch(place.region);
                }
                self.credit_block(place);
            }
            _ => duplication.sure(scale),
        }
        let found = Found {
            place: candidate.place,
            hash: candidate.hash,
            partner,
        };
        if candidate.huge {
            if candidate.in_block {
                self.credit_block(candidate.place);
                self.work.held.push(found);
            }
            return;
        }
        if let Partner::Page(other) = partner
            && !self.may_split(other)
        {
            self.displace(&found, other);
            return;
        }
        self.enqueue(found, set);
    }

    /// How merges in the region are to be treated.
    pub(super) fn permission(&self, number: u32) -> Permission {
        if self.params.v_cow.is_none() {
            return Permission::Open;
        }
        self.regions[number].cow.permission(self.now)
    }

    fn credit_block(&mut self, place: Place) {
        let region = &mut self.regions[place.region];
        if region.huge_blocks.is_none() {
            return;
        }
        let block = region.block_of(place.page);
        let page = region.address(place.page) / PAGE_SIZE % u64::from(BLOCK_PAGES);
        if let Some(huge_blocks) = &mut region.huge_blocks
            && huge_blocks.is_huge(block)
        {
            huge_blocks.partner(block, convert::narrow(page));
        }
    }

    /// Whether the page's block may be split, if it needs to be.
    fn may_split(&self, place: Place) -> bool {
        let region = &self.regions[place.region];
        let Some(huge_blocks) = &region.huge_blocks else {
            return true;
        };
        let block = region.block_of(place.page);
        !huge_blocks.is_huge(block)
            || (self.params.thp == Thp::Profit
                && huge_blocks.is_worth_splitting(block, self.params.thp_share))
    }

    /// Whether finds in huge pages wait and their block is through.
    pub(super) fn has_block_to_decide(&self) -> bool {
        !self.work.held.is_empty() && self.work.offset == 0
    }

    /// Judges a block of a huge page, and queues what is worth it as far as there is room.
    pub(super) fn decide_block(&mut self) {
        let place = self.work.held[0].place;
        let is_here = self.regions.find(place.region, place.page).is_some();
        if !is_here || !self.may_split(place) {
            self.work.held.clear();
            self.thp_kept += u64::from(is_here);
            return;
        }
        while self.queue.room() >= PIECE_ROOM
            && let Some(found) = self.work.held.pop()
        {
            if let Partner::Page(other) = found.partner {
                if self.regions.find(other.region, other.page).is_none() {
                    continue;
                }
                if !self.may_split(other) {
                    self.displace(&found, other);
                    continue;
                }
            }
            self.enqueue(found, self.queue.set_of(found.hash));
        }
        if self.work.held.is_empty() {
            self.thp_split += 1;
        }
    }

    /// Takes the place of a partner that is not to be split: it would hide this page from others
    /// that could be merged with it.
    fn displace(&mut self, found: &Found, other: Place) {
        let round = self.round_number();
        self.unmerged.replace(found.hash, other, found.place, round);
    }

    /// Whether the region was busy and is to be left alone for now.
    fn waits(&self, place: Place) -> bool {
        let region = &self.regions[place.region];
        region.was_busy && self.now < region.backoff_until
    }

    /// Queues a merge. `set` is the one that waits for pages of this hash.
    fn enqueue(&mut self, found: Found, set: Option<u16>) {
        let Found {
            place,
            hash,
            partner,
        } = found;
        if self.waits(place) || matches!(partner, Partner::Page(older) if self.waits(older)) {
            return;
        }
        let is_trial = self.permission(place.region) == Permission::Trial;
        if is_trial && !self.regions[place.region].cow.trial_has_room() {
            return;
        }
        if self.queue.room() < 2 {
            return;
        }
        let counted = match partner {
            Partner::Page(_) if set.is_none() => Counted::Met,
            _ => Counted::Sure,
        };
        let page = self.queued_page(place, hash, counted);
        match partner {
            Partner::Zero => self.queue.push_zero(&page),
            Partner::Frame(frame) => {
                if !self.join_frame(&page, Some(frame)) {
                    self.join_unmerged(&page, None);
                }
            }
            Partner::Page(older) => match set {
                Some(set) => self.join_set(&page, set),
                None => self.join_page(&page, older, Counted::Met),
            },
        }
    }

    /// A page that begins to wait; who samples now pays.
    fn queued_page(&self, place: Place, hash: u64, counted: Counted) -> QueuedPage {
        let region = &self.regions[place.region];
        QueuedPage {
            place,
            space: self.discovery.space(region.space).id,
            address: region.address(place.page),
            hash,
            payer: self.work.payer,
            failed_sets: 0,
            counted,
        }
    }

    /// Queues the page for this frame, or another of its hash that has room; false if none has.
    fn join_frame(&mut self, page: &QueuedPage, frame: Option<FrameId>) -> bool {
        let most = self.params.max_sharers;
        let mut next = frame;
        while let Some(frame) = next {
            let left = self.frames.reserve(frame, most);
            let sharers = self.frames.sharers_of(frame);
            if sharers >= most {
                self.close(frame, sharers);
            } else if left.unwrap_or(0) == 0 {
                // Nobody else needs to ask before outcomes are there.
                self.merged.mark_full(frame);
            }
            if left.is_some() {
                self.queue.push_frame(page, frame);
                return true;
            }
            next = self.merged.candidates(page.hash).next();
        }
        false
    }

    /// Queues the page with the set that waits for pages of its hash.
    fn join_set(&mut self, page: &QueuedPage, set: u16) {
        if self.now >= self.frames_wait {
            self.queue.join_set(page, set);
        }
    }

    /// Queues the page to be merged with an unmerged one, for which the meeting was so counted.
    fn join_page(&mut self, page: &QueuedPage, older: Place, counted: Counted) {
        if self.now < self.frames_wait || self.permission(older.region) == Permission::Closed {
            return;
        }
        let senior = self.queued_page(older, page.hash, counted);
        let set = self.queue.open_set(&senior);
        self.queue.join_set(page, set);
    }

    /// The page has no frame to join: it meets unmerged pages of its hash, and is indexed if there
    /// are none. `other` is known to have other contents. Says whether the page waits now.
    fn join_unmerged(&mut self, page: &QueuedPage, other: Option<Place>) -> bool {
        let before = self.queue.len();
        if let Some(set) = self.queue.set_of(page.hash) {
            self.join_set(page, set);
            return self.queue.len() > before;
        }
        let round = self.round_number();
        let Match::Partner { place, .. } = self.unmerged.look_up(page.hash, page.place, round)
        else {
            return false;
        };
        if other == Some(place) {
            // The next of this hash meets this one.
            self.unmerged.replace(page.hash, place, page.place, round);
        } else if let Some(older) = self.valid_partner(page.hash, page.place, place)
            && !self.waits(older)
        {
            if self.may_split(older) {
                self.join_page(page, older, Counted::Not);
            } else {
                self.unmerged.replace(page.hash, older, page.place, round);
            }
        }
        self.queue.len() > before
    }

    /// The page could not be merged with what it was tried with, and goes on to the next of its
    /// hash: frames, then unmerged pages. Says whether it waits again.
    pub(super) fn try_another(&mut self, page: &Waiting) -> bool {
        /// Frames of one hash that are tried for one page.
        const MOST_FRAMES: usize = 4;
        /// Sets of one hash that are.
        const MOST_SETS: u8 = 2;
        let mut queued_page = page.queued_page();
        let (place, hash) = (queued_page.place, queued_page.hash);
        if self.queue.room() <= PIECE_ROOM {
            self.replace_indexed(place, hash);
            return false;
        }
        let other = match page.entry.kind {
            FoldKind::Zero => {
                let first = self.merged.candidates(hash).next();
                if self.join_frame(&queued_page, first) {
                    return true;
                }
                None
            }
            FoldKind::Frame(tried) => {
                // One that is full or gone is no candidate any more.
                let is_open = self.merged.is_open(tried);
                let next = self
                    .merged
                    .candidates(hash)
                    .take(MOST_FRAMES)
                    .skip_while(|&frame| is_open && frame != tried)
                    .nth(usize::from(is_open));
                if self.join_frame(&queued_page, next) {
                    return true;
                }
                None
            }
            FoldKind::Set(_) => {
                queued_page.failed_sets += 1;
                if queued_page.failed_sets >= MOST_SETS {
                    self.replace_indexed(place, hash);
                    return false;
                }
                Some(page.older)
            }
        };
        self.join_unmerged(&queued_page, other)
    }

    /// The page takes the place of the indexed one of its hash: that one had its chance.
    fn replace_indexed(&mut self, place: Place, hash: u64) {
        let round = self.round_number();
        match self.unmerged.find(hash, round) {
            Some((other, _)) => {
                self.unmerged.replace(hash, other, place, round);
            }
            None => {
                self.unmerged.look_up(hash, place, round);
            }
        }
    }
}
