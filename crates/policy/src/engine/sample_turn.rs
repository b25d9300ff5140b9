//! The pages of an answer: their states, and candidates to be looked up.
//!
//! # Problem
//! An answer holds thousands of pages; each costs a lookup in two indexes, which is a cache miss or
//! two, and may lead to a merge, and the queue of merges is limited. Nearly all pages of a sweep
//! have only contents to look up, or are merged as the engine believed.
//!
//! # Approach
//! The answer is worked through in pieces of [`PIECE`] pages, stopping whenever the merge queue
//! must be emptied first: so the pages after that meet the frames just made. In a piece, such plain
//! pages are taken in runs, the others one by one, and the cache misses of either index are
//! overlapped.
//!
//! # Source
//! UKSM §5.3.

use std::ops::Range;

use super::Engine;
use crate::accounts::payer::Payer;
use crate::command::{FrameId, Nanos, Page, PageFlags, PageState};
use crate::convert;
use crate::ids::{RegionId, SpaceSlot};
use crate::ladder::sampling::{Pick, Purpose, RegionPick};
use crate::lookup::RegionPage;
use crate::merge::candidates::Candidate;
use crate::merge::matching::{Matching, PIECE, PIECE_ROOM};
use crate::params::Contents;
use crate::region::cow::Permission;
use crate::region::duplication::{self, Scale};

/// Whether we merged the page.
fn is_merged(page: &Page) -> bool {
    matches!(page.state, PageState::Zero | PageState::Frame)
}

impl Engine {
    pub(super) fn on_sampled(&mut self, pages: Vec<Page>, cost: Nanos) {
        let count = pages.len() as u64;
        match self.answer.payer() {
            Payer::Hints => self.hints.sampled(count),
            payer => self.ladder.measured(payer, count, cost),
        }
        self.hash.sampled(count, cost);
        self.worked_for_answer(pages.len(), cost);
        self.answer.receive(pages);
    }

    /// Works through the answer as far as the merge queue has room; when through, moves regions.
    pub(super) fn work_through(&mut self) {
        if !self.answer.is_under_way() {
            return;
        }
        let scale = self.scale();
        // Not all pages of this answer are known to be in memory yet.
        let coming = self.answer.rest().len() as u64;
        if self.params.merge != Contents::Zero {
            self.lookup.fit_index(self.may_be_partners() + coming);
        }
        // Proposed neighbours need room beside the matches.
        let is_crowded = self.lookup.is_crowded();
        let room = if is_crowded {
            2 * PIECE_ROOM
        } else {
            PIECE_ROOM
        };
        loop {
            if self.merge.room() < room {
                return self.merge.flush();
            }
            if self.answer.has_block_to_decide() {
                self.matching().0.decide_block();
                continue;
            }
            if !self.gather(&scale) {
                break;
            }
            let (mut matching, candidates) = self.matching();
            matching.look_up(candidates, &scale);
        }
        // Verify the finds before moving regions by them, unless a sweep will bring more.
        let can_decide = self.hash.can_decide(&self.lookup);
        let is_below_top =
            self.answer.level() < self.ladder.top() && self.answer.payer() != Payer::Spare;
        if self.merge.len() > 0 && (is_below_top || self.answer.ends_something() || can_decide) {
            return self.merge.flush();
        }
        self.conclude(&scale);
    }

    /// The parts that matching needs, and the candidates of the piece.
    pub(super) fn matching(&mut self) -> (Matching<'_>, &[Candidate]) {
        let payer = self.answer.payer();
        let (candidates, finds) = self.answer.candidates_and_finds();
        let matching = Matching {
            regions: &mut self.regions,
            spaces: &self.spaces,
            lookup: &mut self.lookup,
            merge: &mut self.merge,
            collisions: &mut self.collisions,
            finds,
            at: self.clock.moment(&self.params),
            payer,
            zero: self.hash.zero(),
        };
        (matching, candidates)
    }

    /// The weight of samples at the present coverage.
    pub(super) fn scale(&self) -> Scale {
        Scale::new(self.params.v_dup, self.coverage())
    }

    /// The indexed part of the possible partners: pages on the ladder that are not merged.
    pub(super) fn coverage(&self) -> f64 {
        duplication::coverage(self.lookup.indexed(), self.may_be_partners())
    }

    /// The number of pages on the ladder that are not merged, at least one.
    fn may_be_partners(&self) -> u64 {
        let unmerged = self.ladder.total().saturating_sub(self.regions.merged());
        unmerged.max(1)
    }

    /// After an answer, regions rise, fall or are done.
    fn conclude(&mut self, scale: &Scale) {
        let at = self.clock.moment(&self.params);
        let shortest = self.discovery.shortest();
        let is_first_sweep = self.answer.payer() == Payer::Spare;
        let (mut swept, is_round_over) = self.answer.end();
        if is_first_sweep {
            // The end of a first sweep is not the end of the sweep for which a region is promoted
            // now.
            for id in swept.drain(..) {
                self.ladder.end_sweep(id, &mut self.regions, shortest, at);
            }
        }
        for id in self.answer.finds().take_touched() {
            if self.regions.find(id, 0).is_some() {
                self.ladder.reweigh(id, &self.regions);
                self.ladder.consider(id, &mut self.regions, scale, at);
                if self.regions[id].is_rewritten() {
                    self.ladder.sweep_again(id);
                } else if self.regions[id].is_doubted() {
                    self.ladder.check_soon(id, &mut self.regions, at.now);
                } else if self.regions[id].begins_to_await_calm() {
                    self.ladder.look_at(id, at.now);
                }
            }
        }
        for id in swept {
            self.ladder.end_sweep(id, &mut self.regions, shortest, at);
        }
        if is_round_over {
            let level = self.answer.level();
            self.ladder
                .end_round(level, &mut self.regions, scale, self.params.v_dup);
        }
    }

    /// Takes the next piece of the answer; false at its end.
    fn gather(&mut self, scale: &Scale) -> bool {
        self.answer.clear_candidates();
        let mut taken = 0;
        while taken < PIECE
            && let Some((pick, address, offset)) = self.answer.current()
        {
            let count = match pick {
                Pick::Sparse(space) => {
                    self.check_sparse(address, space);
                    1
                }
                Pick::Region(pick) => {
                    if offset == 0 && pick.purpose == Purpose::Block {
                        self.begin_block(pick, scale);
                    }
                    let run = self.gather_run(pick, offset, PIECE - taken, scale);
                    if run == 0 {
                        self.check_page(pick, pick.page + offset, scale);
                    }
                    run.max(1)
                }
            };
            taken += count;
            if !self.answer.advance(count) {
                continue;
            }
            if let Pick::Region(pick) = pick {
                self.answer.finds().touch(pick.region);
                // The finds of a block are decided together, so a piece ends with it.
                if pick.purpose == Purpose::Block {
                    break;
                }
            }
        }
        taken > 0
    }

    /// The answer for pages of a block is worked through. Pages that its sweep has left out count
    /// as sampled, or the new pages would represent all.
    fn begin_block(&mut self, pick: RegionPick, scale: &Scale) {
        let (v_cow, now) = (self.params.v_cow, self.clock.now());
        if let Some(region) = self.regions.find_ranked(pick.region, pick.page) {
            let is_open = region.permission(v_cow, now) == Permission::Open;
            let may_settle = is_open && !region.is_waiting(now);
            let region = &mut self.regions[pick.region];
            region.begin_answer(may_settle, now);
            let passed = region.take_passed();
            region.duplication_mut().sampled(passed, scale);
        }
    }

    /// Takes the next pages of a block, at most `room`, while each is merged as the engine
    /// believed, or while each has only contents to look up. Does for all at once the work of
    /// [`Engine::check_page`] for one; returns their number.
    fn gather_run(&mut self, pick: RegionPick, offset: u32, room: usize, scale: &Scale) -> usize {
        if pick.purpose != Purpose::Block {
            return 0;
        }
        let first = pick.page + offset;
        let Some(region) = self.regions.find_ranked(pick.region, first) else {
            return 0;
        };
        let end = region.pages().min(pick.page + pick.count);
        let (rest, candidates) = self.answer.rest_and_candidates();
        let next = rest.iter().zip(first..end).take(room);
        let known = region.merged_pages();
        let is_known = |number| known.is_some_and(|known| known.has(number));
        let merged = next
            .clone()
            .take_while(|&(page, number)| is_merged(page) && is_known(number))
            .count();
        let count = if merged > 0 {
            let (v_cow, now) = (self.params.v_cow, self.clock.now());
            if region.permission(v_cow, now) != Permission::Open {
                return 0;
            }
            merged
        } else {
            let before = candidates.len();
            candidates.extend(
                next.take_while(|&(page, number)| page.is_ordinary() && !is_known(number))
                    .map(|(page, number)| Candidate {
                        place: RegionPage {
                            region: pick.region,
                            page: number,
                        },
                        hash: page.hash,
                        huge: false,
                        in_block: true,
                        ticket: pick.ticket,
                    }),
            );
            candidates.len() - before
        };
        let pages = convert::narrow(count as u64);
        let region = &mut self.regions[pick.region];
        region.swept(pages);
        region.took(first..first + pages);
        region.duplication_mut().sampled(pages, scale);
        if merged > 0 {
            self.found_merged(pick.region, first..first + pages);
        }
        count
    }

    /// The next pages of the answer are these of a region, and merged as the engine believed.
    fn found_merged(&mut self, id: RegionId, pages: Range<u32>) {
        let at = self.clock.moment(&self.params);
        let count = convert::index(pages.end - pages.start);
        self.regions[id].block_lasted(pages.start, at.now);
        self.regions[id].lasted(pages, at.now, at.round, self.params.v_cow);
        let space = self.spaces.id(self.regions[id].space());
        for page in &self.answer.rest()[..count] {
            if page.frame != 0 {
                self.lookup.saw_frame(FrameId(page.frame), page.hash, space);
            }
        }
    }

    /// Takes in the state of one page of a region.
    fn check_page(&mut self, pick: RegionPick, number: u32, scale: &Scale) {
        let page = self.answer.rest()[0];
        let id = pick.region;
        if pick.purpose == Purpose::Alive {
            if page.state == PageState::Unmapped && self.regions.find(id, 0).is_some() {
                self.lose(id);
            }
            return;
        }
        let now = self.clock.now();
        if self.regions.find_ranked(id, number).is_none() {
            return;
        }
        if pick.purpose == Purpose::Merged {
            return self.check_block(pick, number);
        }
        let region = &mut self.regions[id];
        if pick.purpose == Purpose::Watch {
            region.saw(number, page.hash);
        }
        let slot = region.space();
        // Pages touched by I/O do not represent the rest of a region.
        let is_sample = pick.purpose != Purpose::Hint;
        // Pages merged before a ban do not show whether merged pages would last now.
        let checks = match region.permission(self.params.v_cow, now) {
            Permission::Open => is_sample,
            Permission::Trial => pick.purpose == Purpose::Trial,
            Permission::Closed => false,
        };
        match page.state {
            PageState::Unmapped => return self.lose(id),
            PageState::Dead => {
                self.discovery.list_processes_soon(now);
                return self.discovery.list_mappings_soon(slot, now);
            }
            PageState::Refused => return self.refuse(id),
            PageState::Retry => return self.found_unchanged(pick),
            PageState::None | PageState::Swap | PageState::Other | PageState::Poisoned => {
                if is_sample {
                    self.regions[id].missed(1);
                }
                self.found_unchanged(pick);
                // Pages that were given back can be swapped and unmapped again.
                if self.regions[id].is_merged(number) && !self.regions[id].was_given_back() {
                    self.lookup.writes().found_written(self.regions.merged());
                }
                self.regions.set_merged(id, number, false, now);
                return;
            }
            PageState::Zero | PageState::Frame | PageState::Foreign | PageState::Ksm => {
                if is_sample {
                    self.found_page(pick);
                    let region = &mut self.regions[id];
                    if pick.purpose == Purpose::Block {
                        region.took(number..number + 1);
                    }
                    region.duplication_mut().sampled(1, scale);
                }
                self.found_unchanged(pick);
                if checks {
                    self.check_merged(pick, number, false);
                }
                let is_news = self.regions.set_merged(id, number, is_merged(&page), now);
                if is_news && page.state == PageState::Frame {
                    self.lookup.writes().found_merged();
                }
                self.regions[id].block_lasted(number, now);
                if page.state == PageState::Frame && page.frame != 0 {
                    let space = self.spaces.id(slot);
                    self.lookup.saw_frame(FrameId(page.frame), page.hash, space);
                    self.note_place(pick, number, page.hash);
                }
                return;
            }
            PageState::Anon | PageState::Orphan => {}
        }
        if is_sample {
            self.found_page(pick);
        }
        let place = RegionPage {
            region: id,
            page: number,
        };
        if self.regions[id].is_merged(number) && page.state == PageState::Anon {
            if self.answer.is_outdated(place) {
                return;
            }
            if self.is_undone_zero(&page) {
                self.found_huge_again(id, number);
            } else if self.regions[id].was_given_back() {
                self.regions.set_merged(id, number, false, now);
            } else {
                self.regions[id].count_broken();
                self.lookup.writes().found_written(self.regions.merged());
                if checks {
                    self.check_merged(pick, number, true);
                }
                self.regions.set_merged(id, number, false, now);
                self.lookup.expect_freed(1, now);
                if let Some(ticket) = pick.ticket {
                    let address = self.regions[id].address(number);
                    self.hints.broken(ticket, (self.spaces.id(slot), address));
                }
            }
        }
        if page.flags.any(PageFlags::LOCKED) && !self.params.locked {
            return self.found_unchanged(pick);
        }
        let region = &mut self.regions[id];
        if page.flags.any(PageFlags::PINNED) {
            region.count_pinned();
            return self.found_unchanged(pick);
        }
        if is_sample {
            region.duplication_mut().sampled(1, scale);
        }
        let huge = page.flags.any(PageFlags::HUGE);
        let in_block = pick.purpose == Purpose::Block;
        if huge && in_block {
            region.swept_huge_page(number);
        } else if huge && pick.ticket.is_some() {
            // The next hint for the region has all of it read.
            region.met_huge_page(number);
        }
        if in_block && !huge {
            region.took(number..number + 1);
        }
        if !huge {
            self.note_place(pick, number, page.hash);
        }
        self.answer.add_candidate(Candidate {
            place,
            hash: page.hash,
            huge,
            in_block,
            ticket: pick.ticket,
        });
    }

    /// A page has this hash: notes it for the page's place in a file, if it was read for a hint.
    fn note_place(&mut self, pick: RegionPick, page: u32, hash: u64) {
        if let Some(ticket) = pick.ticket.filter(|_| pick.purpose == Purpose::Hint) {
            let address = self.regions[pick.region].address(page);
            self.hints.note(ticket, address, hash);
        }
    }

    /// A sample or a sweep has found a page of the region.
    fn found_page(&mut self, pick: RegionPick) {
        let region = &mut self.regions[pick.region];
        match pick.purpose {
            Purpose::Block => region.swept(1),
            _ => region.found(1),
        }
    }

    /// A sampled page shows no sign of a write.
    fn found_unchanged(&mut self, pick: RegionPick) {
        if pick.purpose == Purpose::Page {
            let now = self.clock.now();
            self.regions[pick.region].sampled_again(false, now);
        }
    }

    /// Takes in the state of one page of a sparse mapping.
    fn check_sparse(&mut self, address: u64, space: SpaceSlot) {
        let page = self.answer.rest()[0];
        if !self.spaces.is_used(space) {
            return;
        }
        match page.state {
            PageState::Unmapped | PageState::Dead => {
                self.discovery.list_mappings_soon(space, self.clock.now());
            }
            PageState::None | PageState::Retry | PageState::Refused => {}
            _ => self.populate_sparse(space, address),
        }
    }

    /// A page was read: if the engine believed it merged, it shows how fast such pages are broken.
    fn check_merged(&mut self, pick: RegionPick, page: u32, broken: bool) {
        let Some(v_cow) = self.params.v_cow else {
            return;
        };
        let at = self.clock.moment(&self.params);
        let is_trial = pick.purpose == Purpose::Trial;
        let region = &mut self.regions[pick.region];
        if region.check_merged(page, broken, is_trial, at.now, at.round, v_cow) {
            self.ladder.look_at(pick.region, at.now + at.round / 4);
        }
    }
}
