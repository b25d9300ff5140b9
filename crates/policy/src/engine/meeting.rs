//! Candidates meet frames and each other.
//!
//! # Problem
//! A candidate may equal the zero page, a frame, or a page seen before that may be gone by now, may
//! not be split, or may not be merged for other reasons; and what it meets is evidence, too.
//!
//! # Approach
//! The zero page first, then frames, then unmerged pages, so that a page joins what exists.
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
use crate::command::{FrameId, PAGE_SIZE, SpaceId};
use crate::cow::Admission;
use crate::evidence::Scale;
use crate::index::{Place, Query, Visit};
use crate::number;
use crate::params::Thp;
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
    pub(super) fn meet(&mut self, scale: &Scale) {
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
            if frame.is_none() && candidate.hash != zero {
                self.work.queries.push(Query {
                    hash: candidate.hash,
                    place: candidate.place,
                });
            }
        }
        let mut visits = std::mem::take(&mut self.work.visits);
        visits.clear();
        let round = self.round_number();
        self.unmerged
            .visit_batch(&self.work.queries, round, &mut visits);
        let mut visit = visits.iter();
        for (at, candidate) in candidates.iter().enumerate() {
            let partner = if candidate.hash == zero {
                Some(Partner::Zero)
            } else if let Some(frame) = self.work.frames[at] {
                Some(Partner::Frame(frame))
            } else {
                match visit.next().expect("one answer a query") {
                    Visit::Partner { place, .. } => {
                        self.true_partner(candidate, *place).map(Partner::Page)
                    }
                    Visit::Refreshed | Visit::Inserted | Visit::InsertedOver(_) => None,
                }
            };
            if let Some(partner) = partner {
                self.found_partner(*candidate, partner, scale);
            }
        }
        self.work.visits = visits;
        self.work.candidates = candidates;
    }

    /// The indexed page if it can still be there; else the candidate takes its place.
    fn true_partner(&mut self, candidate: &Candidate, place: Place) -> Option<Place> {
        let is_true = self
            .regions
            .find(place.region, place.page)
            .is_some_and(|region| region.state == State::Ranked && !region.is_merged(place.page));
        if is_true {
            return Some(place);
        }
        let round = self.round_number();
        self.unmerged
            .replace(candidate.hash, place, candidate.place, round);
        None
    }

    fn found_partner(&mut self, candidate: Candidate, partner: Partner, scale: &Scale) {
        let number = candidate.place.region;
        let admission = self.admission(number);
        if admission == Admission::Closed {
            return;
        }
        let set = match partner {
            Partner::Page(_) => self.queue.set_of(candidate.hash),
            Partner::Zero | Partner::Frame(_) => None,
        };
        let evidence = &mut self.regions[number].evidence;
        match partner {
            Partner::Page(place) if set.is_none() => {
                evidence.met(scale);
                if place.region != number {
                    self.regions[place.region].evidence.met(scale);
                    self.work.touch(place.region);
                }
                self.credit_block(place);
            }
            _ => evidence.sure(scale),
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
    pub(super) fn admission(&self, number: u32) -> Admission {
        if self.params.v_cow.is_none() {
            return Admission::Open;
        }
        self.regions[number].cow.admission(self.now)
    }

    fn credit_block(&mut self, place: Place) {
        let region = &mut self.regions[place.region];
        if region.tallies.is_none() {
            return;
        }
        let block = region.block_of(place.page);
        let page = region.address(place.page) / PAGE_SIZE % u64::from(BLOCK_PAGES);
        if let Some(tallies) = &mut region.tallies
            && tallies.is_huge(block)
        {
            tallies.partner(block, number::narrow(page));
        }
    }

    /// Whether the page's block may be split, if it needs to be.
    fn may_split(&self, place: Place) -> bool {
        let region = &self.regions[place.region];
        let Some(tallies) = &region.tallies else {
            return true;
        };
        let block = region.block_of(place.page);
        !tallies.is_huge(block)
            || (self.params.thp == Thp::Profit
                && tallies.is_worth_splitting(block, self.params.thp_share))
    }

    /// Whether finds in huge pages wait and their block is through.
    pub(super) fn has_held_block(&self) -> bool {
        !self.work.held.is_empty() && self.work.offset == 0
    }

    /// Judges a block of a huge page, and queues what is worth it as far as there is room.
    pub(super) fn settle_block(&mut self) {
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

    /// Queues a merge. `set` is the one that waits for pages of this hash.
    fn enqueue(&mut self, found: Found, set: Option<u16>) {
        let Found {
            place,
            hash,
            partner,
        } = found;
        let waits = |place: Place| {
            let region = &self.regions[place.region];
            region.shy && self.now < region.patience_until
        };
        if waits(place) || matches!(partner, Partner::Page(older) if waits(older)) {
            return;
        }
        let is_trial = self.admission(place.region) == Admission::Trial;
        if is_trial && !self.regions[place.region].cow.trial_has_room() {
            return;
        }
        if self.queue.room() < 2 {
            return;
        }
        let (space, address) = self.locate(place);
        match (partner, set) {
            (Partner::Zero, _) => self.queue.push_zero(place, space, address, hash),
            (Partner::Frame(frame), _) => self.queue.push_frame(place, space, address, hash, frame),
            (Partner::Page(_), _) if self.now < self.frames_wait => {}
            (Partner::Page(_), Some(set)) => {
                self.queue
                    .push_junior(place, space, address, hash, set, true);
            }
            (Partner::Page(older), None) => {
                if self.admission(older.region) == Admission::Closed {
                    return;
                }
                let (older_space, older_address) = self.locate(older);
                let set = self
                    .queue
                    .push_senior(older, older_space, older_address, hash);
                self.queue
                    .push_junior(place, space, address, hash, set, false);
            }
        }
    }

    fn locate(&self, place: Place) -> (SpaceId, u64) {
        let region = &self.regions[place.region];
        (
            self.discovery.space(region.space).id,
            region.address(place.page),
        )
    }

    /// Tries the next frame of this hash after `tried`, or lets the page meet unmerged ones later.
    pub(super) fn try_next_frame(&mut self, place: Place, hash: u64, tried: FrameId) -> bool {
        /// Frames of one hash that are tried for one page.
        const MOST_FRAMES: usize = 4;
        let next = self
            .merged
            .candidates(hash)
            .take(MOST_FRAMES)
            .skip_while(|&frame| frame != tried)
            .nth(1);
        match next {
            Some(frame) if self.queue.room() > PIECE_ROOM => {
                let (space, address) = self.locate(place);
                self.queue.push_frame(place, space, address, hash, frame);
                true
            }
            _ => false,
        }
    }
}
