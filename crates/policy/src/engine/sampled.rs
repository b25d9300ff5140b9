//! What was read: candidates meet frames and each other.
//!
//! # Problem
//! An answer holds thousands of pages; each costs a lookup in two indexes, which is a cache miss
//! or two, and may lead to a merge, of which only so many can wait.
//!
//! # Approach
//! The answer is worked through in pieces of [`PIECE`] pages, stopping whenever the fold queue must
//! be emptied first: so the pages after that meet the frames just made. In a piece the misses of
//! either index are overlapped. What is found in a huge page is held back until its block is
//! through and then judged.
//!
//! # Units
//! Pages.
//!
//! # Source
//! UKSM §5.3 (`Tr_s`, then `Tr_us`).

use super::Engine;
use super::sampling::{Pick, Purpose};
use crate::command::{FrameId, Nanos, PAGE_SIZE, Page, PageFlags, PageState};
use crate::cow::Admission;
use crate::evidence::{self, Scale};
use crate::index::{Place, Query, Visit};
use crate::number;
use crate::params::Thp;
use crate::region::{BLOCK_PAGES, State};
use crate::strength::Tally;
use crate::thp::Tallies;

/// Pages looked up together.
const PIECE: usize = 64;
/// Room the fold queue must have for a piece: two for each page.
const PIECE_ROOM: usize = 2 * PIECE;

/// An answer that is being worked through.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) level: usize,
    picks: Vec<(u64, Pick)>,
    pages: Vec<Page>,
    /// The next page, the pick it belongs to, and its place in that.
    page: usize,
    pick: usize,
    offset: u32,
    /// Found in huge pages of the block that is being worked through.
    held: Vec<Found>,
    /// Regions of which something was learnt.
    touched: Vec<u32>,
    /// Regions of which the last block is in this answer.
    pub(super) swept: Vec<u32>,
    /// The level's round ends with this answer.
    pub(super) round_over: bool,
    under_way: bool,
    /// Reused buffers.
    candidates: Vec<Candidate>,
    hashes: Vec<u64>,
    queries: Vec<Query>,
    frames: Vec<Option<FrameId>>,
    visits: Vec<Visit>,
}

impl Work {
    /// The command for these picks is about to be given.
    pub(super) fn begin(&mut self, level: usize, picks: impl Iterator<Item = (u64, Pick)>) {
        self.level = level;
        self.picks.clear();
        self.picks.extend(picks);
    }
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    place: Place,
    hash: u64,
    huge: bool,
    in_block: bool,
}

/// What a candidate met.
#[derive(Debug, Clone, Copy)]
enum Partner {
    Zero,
    Frame(FrameId),
    Page(Place),
}

#[derive(Debug, Clone, Copy)]
struct Found {
    place: Place,
    hash: u64,
    partner: Partner,
}

impl Engine {
    pub(super) fn on_sampled(&mut self, level: usize, pages: Vec<Page>, cost: Nanos) {
        let count = pages.len() as u64;
        self.sampled += count;
        self.levels[level].sampled += count;
        self.levels[level].measured(count, cost);
        if count > 0 {
            let each = number::float(cost) / number::float(count);
            let weight = number::float(count) / (number::float(count) + 1000.0);
            self.sample_cost =
                (self.sample_cost + (each - self.sample_cost) * weight).clamp(20.0, 1e6);
        }
        if level > 0 || self.now > self.last_rise + 8 * self.round {
            self.tally.samples += count;
            self.tally.sampling += cost;
        } else {
            self.tally = Tally::default();
        }
        let work = &mut self.work;
        (work.page, work.pick, work.offset) = (0, 0, 0);
        work.pages = pages;
        work.under_way = true;
        work.touched.clear();
        work.held.clear();
    }

    /// Works through the answer as far as the fold queue has room; when through, moves regions.
    pub(super) fn work_through(&mut self) {
        if !self.work.under_way {
            return;
        }
        let scale = self.scale();
        loop {
            if self.queue.room() < PIECE_ROOM {
                self.flush = true;
                return;
            }
            if self.has_held_block() {
                self.settle_block();
                continue;
            }
            if !self.gather(&scale) {
                break;
            }
            self.meet(&scale);
        }
        // Verify what was found before moving regions by it, unless a sweep will bring more.
        let wants_flush = self.queue.len() > 0
            && (self.work.level < self.top()
                || self.work.round_over
                || !self.work.swept.is_empty());
        if wants_flush {
            self.flush = true;
            return;
        }
        self.work.under_way = false;
        self.conclude(&scale);
    }

    /// What samples weigh at the present coverage.
    pub(super) fn scale(&self) -> Scale {
        let coverage = evidence::coverage(self.unmerged.len(), self.total_candidates());
        Scale::new(self.params.v_dup, coverage)
    }

    /// Pages of the ladder that are not merged: whoever may be a partner.
    pub(super) fn total_candidates(&self) -> u64 {
        let all: u64 = self.levels.iter().map(crate::ladder::Level::total).sum();
        all.saturating_sub(self.merged_now).max(1)
    }

    /// After an answer: regions rise, fall or are done.
    fn conclude(&mut self, scale: &Scale) {
        let mut touched = std::mem::take(&mut self.work.touched);
        touched.sort_unstable();
        touched.dedup();
        for &number in &touched {
            if self.regions.find(number, 0).is_some() {
                self.reweigh(number);
                self.consider(number, scale);
            }
        }
        self.work.touched = touched;
        for number in std::mem::take(&mut self.work.swept) {
            self.swept(number);
        }
        if std::mem::take(&mut self.work.round_over) {
            self.round_over(self.work.level, scale);
        }
    }

    /// Takes the next piece of the answer; false at its end.
    fn gather(&mut self, scale: &Scale) -> bool {
        self.work.candidates.clear();
        let mut taken = 0;
        while taken < PIECE && self.work.page < self.work.pages.len() {
            let Some(&(address, pick)) = self.work.picks.get(self.work.pick) else {
                break;
            };
            let page = self.work.pages[self.work.page];
            let offset = self.work.offset;
            self.work.page += 1;
            self.work.offset += 1;
            taken += 1;
            let ends = self.work.offset >= pick.count;
            if ends {
                self.work.pick += 1;
                self.work.offset = 0;
            }
            self.look(address, pick, pick.page + offset, page, scale);
            if ends {
                if self.work.touched.last() != Some(&pick.region)
                    && pick.purpose != Purpose::Expanse
                {
                    self.work.touched.push(pick.region);
                }
                // A block's finds are judged together, so a piece ends with it.
                if pick.purpose == Purpose::Block {
                    break;
                }
            }
        }
        taken > 0
    }

    /// Looks at one page.
    fn look(&mut self, address: u64, pick: Pick, number: u32, page: Page, scale: &Scale) {
        match pick.purpose {
            Purpose::Expanse => return self.look_into_expanse(address, pick.region, page),
            Purpose::Life => return self.look_for_life(pick.region, page),
            Purpose::Page | Purpose::Block => {}
        }
        let Some(found) = self.regions.find(pick.region, number) else {
            return;
        };
        if found.state != State::Ranked {
            return;
        }
        let slot = found.space;
        let region = &mut self.regions[pick.region];
        match page.state {
            PageState::Unmapped => return self.lose(pick.region),
            PageState::Dead => {
                self.discovery.doubt_census(self.now);
                return self.discovery.doubt(slot, self.now);
            }
            PageState::Refused => return self.refuse(pick.region),
            PageState::Retry => return,
            PageState::None | PageState::Swap | PageState::Other => {
                region.looked(false);
                return self.set_merged(pick.region, number, false);
            }
            PageState::Zero | PageState::Frame | PageState::Foreign | PageState::Ksm => {
                region.looked(true);
                region.evidence.sample(scale);
                region.sweep.pages += 1;
                if region.is_merged(number) {
                    region.cow.check(false);
                }
                let ours = matches!(page.state, PageState::Zero | PageState::Frame);
                self.set_merged(pick.region, number, ours);
                if page.state == PageState::Frame && page.frame != 0 {
                    let frame = FrameId(page.frame);
                    if !self.merged.contains(frame) {
                        self.merged.insert(page.hash, frame);
                    }
                }
                return;
            }
            PageState::Anon | PageState::Orphan => {}
        }
        region.looked(true);
        region.sweep.pages += 1;
        if region.is_merged(number) && page.state == PageState::Anon {
            region.cow.check(true);
            self.set_merged(pick.region, number, false);
            self.frames.stir(self.now);
        }
        if page.flags.any(PageFlags::LOCKED) && !self.params.locked {
            return;
        }
        let region = &mut self.regions[pick.region];
        if page.flags.any(PageFlags::PINNED) {
            region.busy += 1;
            return;
        }
        region.evidence.sample(scale);
        let huge = page.flags.any(PageFlags::HUGE);
        let in_block = pick.purpose == Purpose::Block;
        if huge && in_block {
            let blocks = region.blocks();
            let block = region.block_of(number);
            region
                .tallies
                .get_or_insert_with(|| Box::new(Tallies::new(blocks)))
                .swept(block);
        }
        let place = Place {
            region: pick.region,
            page: number,
        };
        self.work.candidates.push(Candidate {
            place,
            hash: page.hash,
            huge,
            in_block,
        });
    }

    fn look_into_expanse(&mut self, address: u64, slot: u32, page: Page) {
        match page.state {
            PageState::Unmapped | PageState::Dead => {
                if self.discovery.is_used(slot) {
                    self.discovery.doubt(slot, self.now);
                }
            }
            PageState::None | PageState::Retry | PageState::Refused => {}
            _ => {
                if self.discovery.is_used(slot) {
                    self.settle_expanse(slot, address);
                }
            }
        }
    }

    fn look_for_life(&mut self, number: u32, page: Page) {
        if page.state == PageState::Unmapped && self.regions.find(number, 0).is_some() {
            self.lose(number);
        }
    }

    /// Lets the candidates of a piece meet what is indexed.
    fn meet(&mut self, scale: &Scale) {
        let candidates = std::mem::take(&mut self.work.candidates);
        let mut work = std::mem::take(&mut self.work.hashes);
        work.clear();
        work.extend(candidates.iter().map(|candidate| candidate.hash));
        self.work.frames.clear();
        self.work.frames.resize(candidates.len(), None);
        let frames = &mut self.work.frames;
        if !self.merged.is_empty() {
            self.merged.candidates_batch(&work, |at, frame| {
                frames[at].get_or_insert(frame);
            });
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
        let waits = self.queue.set_of(candidate.hash).is_some();
        let evidence = &mut self.regions[number].evidence;
        match partner {
            Partner::Page(place) if !waits => {
                evidence.met(scale);
                if place.region != number {
                    self.regions[place.region].evidence.met(scale);
                    self.work.touched.push(place.region);
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
        self.enqueue(found);
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
    fn has_held_block(&self) -> bool {
        !self.work.held.is_empty() && self.work.offset == 0
    }

    /// Judges a block of a huge page, and queues what is worth it as far as there is room.
    fn settle_block(&mut self) {
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
            self.enqueue(found);
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

    /// Queues a merge.
    fn enqueue(&mut self, found: Found) {
        let Found {
            place,
            hash,
            partner,
        } = found;
        let region = &self.regions[place.region];
        if region.shy && self.now < region.patience_until {
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
        match (partner, self.queue.set_of(hash)) {
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

    fn locate(&self, place: Place) -> (crate::command::SpaceId, u64) {
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

    /// Notes whether a page is merged.
    pub(super) fn set_merged(&mut self, number: u32, page: u32, merged: bool) {
        let region = &mut self.regions[number];
        let before = region.merged_now;
        region.set_merged(page, merged);
        self.merged_now = self.merged_now - u64::from(before) + u64::from(region.merged_now);
    }
}
