//! Finds partners for sampled pages: frames, and each other. Matches are queued.
//!
//! # Problem
//! A candidate may equal the zero page, a frame, or a page sampled before. The latter may be gone
//! by now, may not be split, or may not be merged for other reasons. And every hit counts for the
//! duplication estimate of the regions.
//!
//! # Approach
//! The zero page is tried first, then frames with room, then unmerged pages, so that a page joins
//! existing frames. A page that turns out to have other contents goes on in that order at once:
//! pages whose hash is that of a frame by chance must meet each other all the same. The number of
//! such tries is bounded, because a hash that is too weak has many contents.
//!
//! Finds in huge pages wait until their block can be decided about. A partner that cannot be merged
//! is replaced in the index by the page that met it. Merges without a matching hash are in
//! [`super::proposals`].
//!
//! # Source
//! UKSM §5.3 (`Tr_s`, then `Tr_us`).

use super::Merge;
use super::candidates::{Candidate, Find, Finds, Partner};
use super::collisions::{CollidingPage, Collisions, Finder};
use super::queue::{HitKind, QueuedPage, WaitingPage};
use crate::accounts::payer::Payer;
use crate::clock::Moment;
use crate::command::{FoldKind, FrameId};
use crate::ids::Ticket;
use crate::lookup::{Lookup, Match, Query, RegionPage};
use crate::params::Contents;
use crate::region::cow::Permission;
use crate::region::duplication::Scale;
use crate::region::{Region, Regions};
use crate::spaces::Spaces;

/// Pages looked up together.
pub(crate) const PIECE: usize = 64;
/// Room the merge queue must have for a piece: two for each page.
pub(crate) const PIECE_ROOM: usize = 2 * PIECE;
/// Limit of frames of one hash that are tried for one page, and of frames that are asked for room
/// each time.
pub(super) const MAX_FRAMES: u8 = 4;
/// Limit of sets of one hash that are tried for one page.
const MAX_SETS: u8 = 2;

/// The parts that matching works on, for one step.
pub(crate) struct Matching<'a> {
    /// The regions of the pages.
    pub(crate) regions: &'a mut Regions,
    /// The spaces of the regions.
    pub(crate) spaces: &'a Spaces,
    /// The frames and unmerged pages that pages meet.
    pub(crate) lookup: &'a mut Lookup,
    /// Where matches are queued.
    pub(crate) merge: &'a mut Merge,
    /// Hashes whose pages are read in full.
    pub(crate) collisions: &'a mut Collisions,
    /// Earlier finds in this answer.
    pub(crate) finds: &'a mut Finds,
    /// The moment of the step.
    pub(crate) at: Moment<'a>,
    /// The payer of the finds.
    pub(crate) payer: Payer,
    /// The hash of a page of zeros.
    pub(crate) zero: u64,
}

impl Matching<'_> {
    /// Looks up the candidates of a piece in the indexes.
    pub(crate) fn look_up(&mut self, candidates: &[Candidate], scale: &Scale) {
        if !self.may_share() {
            return self.look_for_zeros(candidates, scale);
        }
        let mut hashes = std::mem::take(&mut self.finds.hashes);
        let mut frames = std::mem::take(&mut self.finds.frames);
        let mut queries = std::mem::take(&mut self.finds.queries);
        let mut matches = std::mem::take(&mut self.finds.matches);
        hashes.clear();
        hashes.extend(candidates.iter().map(|candidate| candidate.hash));
        frames.clear();
        frames.resize(candidates.len(), None);
        self.lookup
            .newest_frames(&hashes, |at, frame| frames[at] = Some(frame));
        queries.clear();
        for (candidate, frame) in candidates.iter().zip(&frames) {
            if frame.is_none() && !self.may_be_zero(candidate) {
                queries.push(Query {
                    hash: candidate.hash,
                    place: candidate.place,
                });
            }
        }
        matches.clear();
        let round = self.at.round_number;
        self.lookup
            .unmerged()
            .look_up_batch(&queries, round, &mut matches);
        let mut unmerged = matches.iter();
        let is_crowded = self.lookup.is_crowded();
        let is_limited = self.is_limited();
        for (candidate, frame) in candidates.iter().zip(&frames) {
            // A known page is indexed, or an equal page is. In a crowded index, a page that is not
            // indexed may be unchanged.
            let mut is_changed = false;
            let partner = if self.may_be_zero(candidate) {
                Some(Partner::Zero)
            } else if let Some(frame) = *frame {
                Some(Partner::Frame(frame))
            } else {
                match unmerged.next().expect("one answer a query") {
                    Match::Partner { place, .. } => self
                        .valid_partner(candidate.hash, candidate.place, *place)
                        .map(Partner::Page),
                    Match::Inserted => {
                        is_changed = !is_crowded;
                        None
                    }
                    Match::Refreshed | Match::LeftOut => None,
                }
            };
            if !candidate.in_block && candidate.ticket.is_none() {
                let region = &mut self.regions[candidate.place.region];
                region.sampled_again(is_changed, self.at.now);
            }
            if self.is_to_be_read_in_full(candidate, partner) {
                continue;
            }
            let partner = if is_limited {
                self.permitted(candidate, partner)
            } else {
                partner
            };
            if let Some(partner) = partner {
                self.found_partner(*candidate, partner, scale);
            }
            if is_crowded && !is_limited && (candidate.in_block || candidate.ticket.is_some()) {
                self.extend(*candidate, partner);
            }
        }
        self.finds.hashes = hashes;
        self.finds.frames = frames;
        self.finds.queries = queries;
        self.finds.matches = matches;
    }

    /// Whether the hash of a candidate collides: it waits to be read in full then.
    fn is_to_be_read_in_full(&mut self, candidate: &Candidate, partner: Option<Partner>) -> bool {
        let &Candidate { place, hash, .. } = candidate;
        let is_tried = candidate.huge || matches!(partner, Some(Partner::Zero));
        if is_tried || !self.collisions.has(hash) {
            return false;
        }
        let page = CollidingPage {
            place,
            partial: hash,
        };
        // A check of a swept region takes its time from the bottom level.
        let is_check = self.payer == Payer::Spare
            && !candidate.in_block
            && candidate.ticket.is_none()
            && self.region(place).was_swept();
        let finder = if is_check {
            Finder::Bottom
        } else {
            Finder::of(self.payer)
        };
        self.collisions.wait(page, finder);
        true
    }

    /// Whether pages may share contents other than zeros.
    fn may_share(&self) -> bool {
        self.at.params.merge != Contents::Zero
    }

    /// Tries the candidates that may be zeros with the zero page, and nothing else.
    fn look_for_zeros(&mut self, candidates: &[Candidate], scale: &Scale) {
        for candidate in candidates {
            if self.may_be_zero(candidate) {
                self.found_partner(*candidate, Partner::Zero, scale);
            }
        }
    }

    fn region(&self, place: RegionPage) -> &Region {
        &self.regions[place.region]
    }

    /// Whether a page of this hash is to be tried with the zero page.
    fn may_be_zero(&self, candidate: &Candidate) -> bool {
        candidate.hash == self.zero && self.region(candidate.place).takes_zero_page()
    }

    /// Whether there may be an unmerged page at this place.
    pub(super) fn is_unmerged(&self, place: RegionPage) -> bool {
        let region = self.regions.find_ranked(place.region, place.page);
        region.is_some_and(|region| !region.is_merged(place.page))
    }

    /// Whether the page may be merged without being read first.
    pub(super) fn may_merge(&self, place: RegionPage) -> bool {
        self.permission(place) == Permission::Open && !self.is_waiting(place)
    }

    /// The indexed page if it may still be there; else the page of `new` replaces it.
    pub(super) fn valid_partner(
        &mut self,
        hash: u64,
        new: RegionPage,
        indexed: RegionPage,
    ) -> Option<RegionPage> {
        if self.is_unmerged(indexed) {
            return Some(indexed);
        }
        self.replace(hash, indexed, new);
        None
    }

    /// The page of `new` replaces an indexed one, which would hide it from its partners.
    pub(super) fn replace(&mut self, hash: u64, indexed: RegionPage, new: RegionPage) {
        let round = self.at.round_number;
        self.lookup.unmerged().replace(hash, indexed, new, round);
    }

    /// How merges in the page's region are to be treated.
    pub(super) fn permission(&self, place: RegionPage) -> Permission {
        self.region(place)
            .permission(self.at.params.v_cow, self.at.now)
    }

    fn found_partner(&mut self, candidate: Candidate, partner: Partner, scale: &Scale) {
        let place = candidate.place;
        if self.permission(place) == Permission::Closed {
            return;
        }
        if candidate.huge
            && matches!(partner, Partner::Zero)
            && self.region(place).leaves_zeros(place.page, self.at.now)
        {
            return;
        }
        let set = match partner {
            Partner::Page(_) => self.merge.queue().set_of(candidate.hash),
            Partner::Zero | Partner::Frame(_) => None,
        };
        // Pages touched by I/O are no sample of the rest of a region.
        let is_sample = candidate.ticket.is_none() || candidate.in_block;
        let duplication = self.regions[place.region].duplication_mut();
        match partner {
            Partner::Page(other) if !is_sample => self.credit_block(other),
            _ if !is_sample => {}
            Partner::Page(other) if set.is_none() => {
                duplication.met(scale);
                // All pages of a swept region are indexed, if there is room: others meet them, and
                // they need not be read again for that.
                let is_known = self.region(other).was_swept()
                    && !self.lookup.is_crowded()
                    && !self.is_limited();
                if other.region != place.region && !is_known {
                    self.regions[other.region].duplication_mut().met(scale);
                    self.finds.touch(other.region);
                }
                self.credit_block(other);
            }
            _ => duplication.sure(scale),
        }
        let found = Find {
            place,
            hash: candidate.hash,
            partner,
            ticket: candidate.ticket,
        };
        if candidate.huge {
            if candidate.in_block {
                self.credit_block(place);
                self.finds.in_huge.push(found);
            }
            return;
        }
        if let Partner::Page(other) = partner
            && !self.may_split(other)
        {
            self.replace(found.hash, other, found.place);
            return;
        }
        self.enqueue(found, set, is_sample);
    }

    fn credit_block(&mut self, place: RegionPage) {
        self.regions[place.region].credit_block(place.page);
    }

    /// Whether the page's block may be split, if it needs to be.
    pub(super) fn may_split(&self, place: RegionPage) -> bool {
        let params = self.at.params;
        self.region(place)
            .may_split(place.page, params.thp, params.thp_share)
    }

    /// Decides about a block of a huge page, which was read whole, and queues its finds, as far as
    /// there is room, if the split is worth it.
    pub(crate) fn decide_block(&mut self) {
        let place = self.finds.in_huge[0].place;
        let is_here = self.regions.find(place.region, place.page).is_some();
        if !is_here || !self.may_split(place) {
            self.finds.in_huge.clear();
            if is_here {
                self.merge.count_block(false);
            }
            return;
        }
        while self.merge.room() >= PIECE_ROOM
            && let Some(found) = self.finds.in_huge.pop()
        {
            if let Partner::Page(other) = found.partner {
                if self.regions.find(other.region, other.page).is_none() {
                    continue;
                }
                if !self.may_split(other) {
                    self.replace(found.hash, other, found.place);
                    continue;
                }
            }
            let set = self.merge.queue().set_of(found.hash);
            self.enqueue(found, set, true);
        }
        if self.finds.in_huge.is_empty() {
            self.merge.count_block(true);
        }
    }

    /// Whether the region was busy and is to be left alone for now.
    pub(super) fn is_waiting(&self, place: RegionPage) -> bool {
        self.region(place).is_waiting(self.at.now)
    }

    /// Whether the page may be merged with others that meet it.
    pub(super) fn may_be_first(&self, place: RegionPage) -> bool {
        self.permission(place) != Permission::Closed && !self.is_waiting(place)
    }

    /// Queues a merge. `set` waits for pages of this hash; `is_counted` is whether the hit was
    /// counted for the region.
    fn enqueue(&mut self, found: Find, set: Option<u16>, is_counted: bool) {
        let Find {
            place,
            hash,
            partner,
            ticket,
        } = found;
        if self.is_waiting(place) {
            return;
        }
        if let Partner::Page(other) = partner
            && !self.may_be_first(other)
        {
            self.replace(hash, other, place);
            return;
        }
        let is_trial = self.permission(place) == Permission::Trial;
        if is_trial && !self.region(place).trial_has_room(place.page) {
            return;
        }
        if self.merge.room() < 2 {
            return;
        }
        let counted = match partner {
            _ if !is_counted => HitKind::Not,
            Partner::Page(_) if set.is_none() => HitKind::Met,
            _ => HitKind::Sure,
        };
        let page = self.queued_page(place, hash, counted, ticket);
        match partner {
            Partner::Zero => self.merge.queue().push_zero(&page),
            Partner::Frame(frame) => {
                if !self.join_frame(&page, Some(frame)) {
                    self.join_unmerged(&page, None);
                }
            }
            Partner::Page(first) => match set {
                Some(set) => self.join_set(&page, set),
                None if is_counted => self.join_page(&page, first, HitKind::Met),
                None => self.join_page(&page, first, HitKind::Not),
            },
        }
    }

    /// A page that begins to wait, paid by the payer of the sample.
    pub(super) fn queued_page(
        &self,
        place: RegionPage,
        hash: u64,
        counted: HitKind,
        ticket: Option<Ticket>,
    ) -> QueuedPage {
        let region = self.region(place);
        QueuedPage {
            place,
            space: self.spaces.id(region.space()),
            address: region.address(place.page),
            hash,
            partial: hash,
            payer: self.payer,
            failed_frames: 0,
            failed_sets: 0,
            counted,
            ticket,
        }
    }

    /// Queues the page for this frame, or another of its hash that has room; false if none has.
    pub(super) fn join_frame(&mut self, page: &QueuedPage, frame: Option<FrameId>) -> bool {
        let mut next = frame.filter(|_| self.may_share());
        for _ in 0..MAX_FRAMES {
            let Some(frame) = next else {
                break;
            };
            if self.lookup.reserve_room(frame, page.space) {
                self.merge.queue().push_frame(page, frame);
                return true;
            }
            next = self.frame_after(frame, page.hash);
        }
        false
    }

    /// The frame that is tried after another one for a page of this hash.
    pub(super) fn frame_after(&self, tried: FrameId, hash: u64) -> Option<FrameId> {
        let most = usize::from(MAX_FRAMES);
        self.lookup.frame_after(tried, hash, most)
    }

    /// Queues the page with the set that waits for pages of its hash.
    pub(super) fn join_set(&mut self, page: &QueuedPage, set: u16) {
        if self.may_share()
            && self.merge.may_make_frames(self.at.now)
            && let Some(set) = self.joinable_set(set, page.space)
        {
            self.merge.queue().join_set(page, set);
        }
    }

    /// Queues the page to be merged with an unmerged one, whose hit was counted as `counted`.
    pub(super) fn join_page(&mut self, page: &QueuedPage, first: RegionPage, counted: HitKind) {
        if !self.may_share() || !self.merge.may_make_frames(self.at.now) {
            return;
        }
        if !self.are_two_enough() {
            return self.join_enough(page, counted);
        }
        if self.is_limited() {
            return self.join_two(page, first, counted);
        }
        let first = QueuedPage {
            partial: page.partial,
            ..self.queued_page(first, page.hash, counted, None)
        };
        let queue = self.merge.queue();
        let set = queue.open_set(&first);
        queue.join_set(page, set);
    }

    /// The page has no frame to join: it meets unmerged pages of its hash, and is indexed if there
    /// are none. `other` is known to have other contents. Returns whether the page waits now.
    fn join_unmerged(&mut self, page: &QueuedPage, other: Option<RegionPage>) -> bool {
        let before = self.merge.len();
        if let Some(set) = self.merge.queue().set_of(page.hash) {
            self.join_set(page, set);
            return self.merge.len() > before;
        }
        let round = self.at.round_number;
        let index = self.lookup.unmerged();
        let Match::Partner { place, .. } = index.look_up(page.hash, page.place, round) else {
            return false;
        };
        if other == Some(place) {
            // The next page of this hash meets this one.
            self.replace(page.hash, place, page.place);
        } else if let Some(first) = self.valid_partner(page.hash, page.place, place) {
            if self.may_be_first(first) && self.may_split(first) {
                self.join_page(page, first, HitKind::Not);
            } else {
                self.replace(page.hash, first, page.place);
            }
        }
        self.merge.len() > before
    }

    /// The page could not be merged with its partner, and is tried with the next one of its hash:
    /// frames, then unmerged pages. Returns whether it waits again.
    pub(crate) fn try_another(&mut self, page: &WaitingPage) -> bool {
        if !self.may_share() {
            return false;
        }
        let mut queued = page.queued_page();
        let (place, hash) = (queued.place, queued.hash);
        if self.merge.room() <= PIECE_ROOM {
            self.replace_indexed(place, hash);
            return false;
        }
        let other = match page.entry.kind {
            FoldKind::Zero => {
                let first = self.lookup.newest_frame(hash);
                if self.join_frame(&queued, first) {
                    return true;
                }
                None
            }
            FoldKind::Frame(tried) => {
                queued.failed_frames += 1;
                // The order of frames changes, so that only their number shows that all were tried.
                let is_another = queued.failed_frames < MAX_FRAMES;
                let next = self.frame_after(tried, hash).filter(|_| is_another);
                if self.join_frame(&queued, next) {
                    return true;
                }
                None
            }
            FoldKind::Set(_) => {
                queued.failed_sets += 1;
                if queued.failed_sets >= MAX_SETS {
                    self.replace_indexed(place, hash);
                    return false;
                }
                Some(page.first)
            }
        };
        self.join_unmerged(&queued, other)
    }

    /// The page replaces the indexed one of its hash, which was tried before.
    fn replace_indexed(&mut self, place: RegionPage, hash: u64) {
        let round = self.at.round_number;
        let index = self.lookup.unmerged();
        match index.find(hash, round) {
            Some((other, _)) => {
                index.replace(hash, other, place, round);
            }
            None => {
                index.look_up(hash, place, round);
            }
        }
    }
}
