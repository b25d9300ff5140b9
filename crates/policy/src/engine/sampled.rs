//! What was read: states of pages, and candidates to be looked up.
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
use super::gathering::is_merged;
use super::lookup::Found;
use super::sampling::{Pick, Purpose};
use crate::accounts::payer::Payer;
use crate::command::{FrameId, Nanos, Page, PageFlags, PageState};
use crate::convert;
use crate::hash::strength::Tally;
use crate::lookup::{Match, Place, Query};
use crate::region::State;
use crate::region::cow::Permission;
use crate::region::duplication::{self, Scale};
use crate::region::huge::HugeBlocks;

/// Pages looked up together.
pub(super) const PIECE: usize = 64;
/// Room the fold queue must have for a piece: two for each page.
pub(super) const PIECE_ROOM: usize = 2 * PIECE;

/// An answer that is being worked through.
#[derive(Debug)]
pub(super) struct SampleAnswer {
    pub(super) level: usize,
    /// The level, or discovery for anchors of new regions.
    pub(super) payer: Payer,
    pub(super) picks: Vec<(u64, Pick)>,
    pub(super) pages: Vec<Page>,
    /// The next page, the pick it belongs to, and its place in that.
    pub(super) page: usize,
    pub(super) pick: usize,
    pub(super) offset: u32,
    /// Found in huge pages of the block that is being worked through.
    pub(super) held: Vec<Found>,
    /// Regions of which something was learnt.
    pub(super) touched: Vec<u32>,
    /// Regions of which the last block is in this answer.
    pub(super) swept: Vec<u32>,
    /// The level's round ends with this answer.
    pub(super) round_over: bool,
    under_way: bool,
    /// Reused buffers.
    pub(super) candidates: Vec<Candidate>,
    pub(super) hashes: Vec<u64>,
    pub(super) queries: Vec<Query>,
    pub(super) frames: Vec<Option<FrameId>>,
    pub(super) matches: Vec<Match>,
}

impl Default for SampleAnswer {
    fn default() -> SampleAnswer {
        SampleAnswer {
            level: 0,
            payer: Payer::Nobody,
            picks: vec![],
            pages: vec![],
            page: 0,
            pick: 0,
            offset: 0,
            held: vec![],
            touched: vec![],
            swept: vec![],
            round_over: false,
            under_way: false,
            candidates: vec![],
            hashes: vec![],
            queries: vec![],
            frames: vec![],
            matches: vec![],
        }
    }
}

impl SampleAnswer {
    /// The command for these picks is about to be given.
    pub(super) fn begin(
        &mut self,
        level: usize,
        payer: Payer,
        picks: impl Iterator<Item = (u64, Pick)>,
    ) {
        self.level = level;
        self.payer = payer;
        self.picks.clear();
        self.picks.extend(picks);
    }

    /// Something was learnt of a region; often of the same one many times.
    pub(super) fn touch(&mut self, region: u32) {
        if self.touched.last() != Some(&region) {
            self.touched.push(region);
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) place: Place,
    pub(super) hash: u64,
    pub(super) huge: bool,
    pub(super) in_block: bool,
}

impl Engine {
    pub(super) fn on_sampled(&mut self, level: usize, pages: Vec<Page>, cost: Nanos) {
        let count = pages.len() as u64;
        self.sampled += count;
        self.levels[level].sampled += count;
        self.levels[level].measured(count, cost);
        if count > 0 {
            let each = convert::float(cost) / convert::float(count);
            let weight = convert::float(count) / (convert::float(count) + 1000.0);
            self.sample_cost =
                (self.sample_cost + (each - self.sample_cost) * weight).clamp(20.0, 1e6);
        }
        // In calm a search takes minutes, in which little is indexed: not without need.
        let is_misled =
            self.tally.false_matches > 0 && self.now > self.last_promotion + 8 * self.round;
        if level > 0 || is_misled {
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
            if self.has_block_to_decide() {
                self.decide_block();
                continue;
            }
            if !self.gather(&scale) {
                break;
            }
            self.look_up_candidates(&scale);
        }
        // Verify what was found before moving regions by it, unless a sweep will bring more.
        let wants_flush = self.queue.len() > 0
            && (self.work.level < self.top()
                || self.work.round_over
                || self.has_window()
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
        let coverage = duplication::coverage(self.unmerged.len(), self.total_candidates());
        Scale::new(self.params.v_dup, coverage)
    }

    /// Pages of the ladder that are not merged: whoever may be a partner.
    pub(super) fn total_candidates(&self) -> u64 {
        let all: u64 = self
            .levels
            .iter()
            .map(crate::ladder::level::Level::total)
            .sum();
        all.saturating_sub(self.merged_now).max(1)
    }

    /// After an answer: regions rise, fall or are done.
    fn conclude(&mut self, scale: &Scale) {
        let mut touched = std::mem::take(&mut self.work.touched);
        touched.sort_unstable();
        touched.dedup();
        for &number in &touched {
            if self.regions.find(number, 0).is_some() {
                self.set_weight(number);
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

    /// Looks at one page.
    pub(super) fn look(
        &mut self,
        address: u64,
        pick: Pick,
        number: u32,
        page: Page,
        scale: &Scale,
    ) {
        match pick.purpose {
            Purpose::SparseMapping => return self.check_sparse(address, pick.region, page),
            Purpose::Alive => return self.check_alive(pick.region, page),
            Purpose::Page | Purpose::Block | Purpose::Trial => {}
        }
        let Some(found) = self.regions.find(pick.region, number) else {
            return;
        };
        if found.state != State::Ranked {
            return;
        }
        let slot = found.space;
        // What was merged before a ban says nothing about whether pages would hold now.
        let checks = match self.permission(pick.region) {
            Permission::Open => true,
            Permission::Trial => pick.purpose == Purpose::Trial,
            Permission::Closed => false,
        };
        let region = &mut self.regions[pick.region];
        match page.state {
            PageState::Unmapped => return self.lose(pick.region),
            PageState::Dead => {
                self.discovery.list_processes_soon(self.now);
                return self.discovery.list_mappings_soon(slot, self.now);
            }
            PageState::Refused => return self.refuse(pick.region),
            PageState::Retry => return,
            PageState::None | PageState::Swap | PageState::Other | PageState::Poisoned => {
                region.looked(1);
                return self.set_merged(pick.region, number, false);
            }
            PageState::Zero | PageState::Frame | PageState::Foreign | PageState::Ksm => {
                region.found(1);
                region.duplication.sampled(1, scale);
                if checks {
                    self.check_merged(pick.region, number, pick.purpose, false);
                }
                self.set_merged(pick.region, number, is_merged(&page));
                if page.state == PageState::Frame && page.frame != 0 {
                    self.saw_frame(FrameId(page.frame), page.hash);
                }
                return;
            }
            PageState::Anon | PageState::Orphan => {}
        }
        region.found(1);
        if region.is_merged(number) && page.state == PageState::Anon {
            region.sweep.broken += 1;
            if checks {
                self.check_merged(pick.region, number, pick.purpose, true);
            }
            self.set_merged(pick.region, number, false);
            self.frames.expect_freed(self.now);
        }
        if page.flags.any(PageFlags::LOCKED) && !self.params.locked {
            return;
        }
        let region = &mut self.regions[pick.region];
        if page.flags.any(PageFlags::PINNED) {
            region.busy += 1;
            return;
        }
        region.duplication.sampled(1, scale);
        let huge = page.flags.any(PageFlags::HUGE);
        let in_block = pick.purpose == Purpose::Block;
        if huge && in_block {
            let blocks = region.blocks();
            let block = region.block_of(number);
            region
                .huge_blocks
                .get_or_insert_with(|| Box::new(HugeBlocks::new(blocks)))
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

    fn check_sparse(&mut self, address: u64, slot: u32, page: Page) {
        match page.state {
            PageState::Unmapped | PageState::Dead => {
                if self.discovery.is_used(slot) {
                    self.discovery.list_mappings_soon(slot, self.now);
                }
            }
            PageState::None | PageState::Retry | PageState::Refused => {}
            _ => {
                if self.discovery.is_used(slot) {
                    self.populate_sparse(slot, address);
                }
            }
        }
    }

    fn check_alive(&mut self, number: u32, page: Page) {
        if page.state == PageState::Unmapped && self.regions.find(number, 0).is_some() {
            self.lose(number);
        }
    }

    /// Notes whether a page is merged.
    pub(super) fn set_merged(&mut self, number: u32, page: u32, merged: bool) {
        if self.regions[number].set_merged(page, merged, self.now) {
            if merged {
                self.merged_now += 1;
            } else {
                self.merged_now -= 1;
            }
        }
    }

    /// A page was looked at: if it was believed to be merged, that tells how fast such are broken.
    fn check_merged(&mut self, number: u32, page: u32, purpose: Purpose, broken: bool) {
        let Some(v_cow) = self.params.v_cow else {
            return;
        };
        let (now, round) = (self.now, self.round);
        let region = &mut self.regions[number];
        let Some(mut known_at) = region.merged_known_at(page) else {
            return;
        };
        let is_trial = purpose == Purpose::Trial;
        if is_trial {
            known_at = region.cow.trial_known_at().unwrap_or(known_at);
        }
        let age = convert::ratio(now.saturating_sub(known_at), round);
        region.cow.check(broken, age, v_cow);
        // Where few can be tried, the same ones are looked at until there is a verdict.
        if is_trial && !broken && region.cow.held(page, now) {
            self.trials.insert(number);
        }
    }
}
