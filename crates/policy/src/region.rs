//! A region: pages of one mapping that are treated alike (UKSM §3, §5.1).
//!
//! # Problem
//! Neighbouring pages share a fate, so samples of some tell about all. Everything decided about
//! them is kept here; there may be tens of thousands of regions, most of them tiny.
//!
//! # Approach
//! A region consists of parts, one for each question: how much of it has partners
//! ([`duplication`]), how fast its merged pages are broken ([`cow`]), when it may be promoted again
//! ([`backoff`]), how much of it is in memory ([`residency`]), which of its pages are merged
//! ([`merged_pages`]), which of its huge pages are worth a split ([`huge`]), and what is read next
//! ([`walk`]). Who moves regions is the ladder. Bitmaps and block counters are allocated when first
//! needed.
//!
//! # Units
//! Pages are numbered from the region's start. *Blocks* are the 2 MiB that a page table maps, by
//! absolute address, numbered from the region's first.

pub(crate) mod backoff;
pub(crate) mod cow;
pub(crate) mod duplication;
pub(crate) mod huge;
pub(crate) mod merged_pages;
pub mod permutation;
pub(crate) mod residency;
mod sweep;
mod table;
mod walk;

use std::ops::Range;

use crate::command::{Nanos, PAGE_SIZE};
use crate::convert;
use crate::ids::SpaceSlot;
use crate::params::Thp;
use crate::report::Standing;
use backoff::Backoff;
use cow::{Cow, Permission};
use duplication::DuplicationEstimate;
use huge::HugeBlocks;
use merged_pages::MergedPages;
use residency::Residency;
use sweep::Sweep;
pub(crate) use sweep::SweepEnd;
pub(crate) use table::Regions;
pub(crate) use walk::Permutations;
use walk::Walk;

/// Pages a page table maps: 2 MiB.
pub(crate) const BLOCK_PAGES: u32 = 512;
const BLOCK_SHIFT: u32 = 21;
/// How often the anchors of a region with holes are read again.
const MOST_FILLINGS: u32 = 6;

/// Where a region is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not in use.
    Vacant,
    /// Too young to be sampled.
    Young,
    /// On the ladder.
    Ranked,
    /// Its mapping seems to be gone; the next mapping list tells.
    Lost,
    /// Its pages are refused; tried again later.
    Refused,
}

/// One region.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    start: u64,
    pages: u32,
    space: SpaceSlot,
    mapping_kind: u64,
    /// By whose lifetimes its own is guessed.
    lifetime_class: u64,
    born: Nanos,
    /// Its survival has been counted for its lifetime class.
    grown: bool,
    state: State,
    /// Since when its mapping is lost, or until when its refusal holds.
    since: Nanos,
    standing: Standing,
    /// Its level, 0 at the bottom, and its slot among the level's members.
    level: u8,
    level_slot: u32,
    walk: Walk,
    /// When its anchors are read again if there are holes, 0 for never; how often they were.
    filling: Nanos,
    fillings: u32,
    duplication: DuplicationEstimate,
    residency: Residency,
    sweep: Sweep,
    merged: Option<MergedPages>,
    /// Pages merged since it is known.
    merges: u64,
    /// Pages that were busy when tried.
    busy: u64,
    cow: Cow,
    huge: Option<Box<HugeBlocks>>,
    backoff: Backoff,
    /// The zero page may not be mapped here: pages of zeros are pages like others.
    no_zero: bool,
}

/// What a region is made of, as it was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// Byte address of the first page.
    pub(crate) start: u64,
    /// Its length.
    pub(crate) pages: u32,
    /// Its space.
    pub(crate) space: SpaceSlot,
    /// The kind of its mapping, as the machine names it.
    pub(crate) mapping_kind: u64,
    /// By whose lifetimes its own is guessed.
    pub(crate) lifetime_class: u64,
    /// Since when it is known, or longer.
    pub(crate) born: Nanos,
}

impl Region {
    /// A region that was just found.
    ///
    /// # Panics
    /// If it has no page, or does not start with one.
    pub(crate) fn new(found: Found) -> Region {
        assert!(found.pages > 0 && found.start.is_multiple_of(PAGE_SIZE));
        Region {
            start: found.start,
            pages: found.pages,
            space: found.space,
            mapping_kind: found.mapping_kind,
            lifetime_class: found.lifetime_class,
            born: found.born,
            grown: false,
            state: State::Young,
            since: 0,
            standing: Standing::Young,
            level: 0,
            level_slot: 0,
            walk: Walk::default(),
            filling: 0,
            fillings: 0,
            duplication: DuplicationEstimate::default(),
            residency: Residency::default(),
            sweep: Sweep::default(),
            merged: None,
            merges: 0,
            busy: 0,
            cow: Cow::default(),
            huge: None,
            backoff: Backoff::default(),
            no_zero: false,
        }
    }

    /// A slot of the table that holds no region.
    fn vacant() -> Region {
        let mut region = Region::new(Found {
            start: 0,
            pages: 1,
            space: SpaceSlot(0),
            mapping_kind: 0,
            lifetime_class: 0,
            born: 0,
        });
        region.state = State::Vacant;
        region
    }

    /// Byte address of its first page.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// One past its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.pages) * PAGE_SIZE
    }

    /// Its length.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Its space.
    pub(crate) fn space(&self) -> SpaceSlot {
        self.space
    }

    /// The kind of its mapping, as the machine names it.
    pub(crate) fn mapping_kind(&self) -> u64 {
        self.mapping_kind
    }

    /// By whose lifetimes its own is guessed.
    pub(crate) fn lifetime_class(&self) -> u64 {
        self.lifetime_class
    }

    /// How long it is known at `now`, or longer.
    pub(crate) fn age(&self, now: Nanos) -> Nanos {
        now - self.born
    }

    /// When it will have reached this age.
    pub(crate) fn reaches(&self, age: Nanos) -> Nanos {
        self.born + age
    }

    /// Byte address of a page.
    pub(crate) fn address(&self, page: u32) -> u64 {
        self.start + u64::from(page) * PAGE_SIZE
    }

    /// The block a page is in.
    pub(crate) fn block_of(&self, page: u32) -> u32 {
        convert::narrow((self.address(page) >> BLOCK_SHIFT) - (self.start >> BLOCK_SHIFT))
    }

    /// Blocks it reaches into.
    pub(crate) fn blocks(&self) -> u32 {
        self.block_of(self.pages - 1) + 1
    }

    /// The pages of a block: the first and how many.
    pub(crate) fn block_pages(&self, block: u32) -> (u32, u32) {
        let base = (self.start >> BLOCK_SHIFT) + u64::from(block);
        let from = (base << BLOCK_SHIFT).max(self.start);
        let to = ((base + 1) << BLOCK_SHIFT).min(self.end());
        let page = |address: u64| convert::narrow((address - self.start) / PAGE_SIZE);
        (page(from), page(to) - page(from))
    }

    /// Where it is in its life.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Why it is where it is.
    pub(crate) fn standing(&self) -> Standing {
        self.standing
    }

    /// Why it is where it is, from now on.
    pub(crate) fn set_standing(&mut self, standing: Standing) {
        self.standing = standing;
    }

    /// Whether its mapping was found gone, and no later than then.
    pub(crate) fn is_lost_before(&self, then: Nanos) -> bool {
        self.state == State::Lost && self.since <= then
    }

    /// Its mapping seems to be gone.
    pub(crate) fn lose(&mut self, now: Nanos) {
        self.state = State::Lost;
        self.since = now;
    }

    /// Its pages are refused, and not tried again before `until`.
    pub(crate) fn refuse(&mut self, until: Nanos) {
        self.state = State::Refused;
        self.standing = Standing::Refused;
        self.since = until;
    }

    /// Whether its refusal no longer holds.
    pub(crate) fn is_refusal_over(&self, now: Nanos) -> bool {
        self.since <= now
    }

    /// Whether its survival has been counted.
    pub(crate) fn is_grown(&self) -> bool {
        self.grown
    }

    /// Its survival has been counted.
    pub(crate) fn set_grown(&mut self) {
        self.grown = true;
    }

    /// It enters the bottom level, in this slot.
    ///
    /// # Panics
    /// If it is on the ladder, or not in use.
    pub(crate) fn enter_ladder(&mut self, level_slot: u32) {
        assert!(self.state != State::Ranked && self.state != State::Vacant);
        self.state = State::Ranked;
        self.standing = Standing::Sparse;
        self.level = 0;
        self.level_slot = level_slot;
        self.duplication.reset();
    }

    /// Its level, 0 at the bottom.
    pub(crate) fn level(&self) -> usize {
        usize::from(self.level)
    }

    /// Its slot among the level's members.
    pub(crate) fn level_slot(&self) -> u32 {
        self.level_slot
    }

    /// It has this slot among the members of its level now.
    pub(crate) fn set_level_slot(&mut self, level_slot: u32) {
        self.level_slot = level_slot;
    }

    /// It has this slot on another level now.
    pub(crate) fn set_level(&mut self, level: usize, level_slot: u32) {
        self.level = u8::try_from(level).expect("at most 8 levels");
        self.level_slot = level_slot;
    }

    /// What its samples and its sweep have shown is of another level.
    pub(crate) fn forget_samples(&mut self) {
        self.duplication.reset();
        self.sweep.reset();
    }

    /// Its estimate of duplicates.
    pub(crate) fn duplication(&self) -> &DuplicationEstimate {
        &self.duplication
    }

    /// Its estimate of duplicates, to take in samples.
    pub(crate) fn duplication_mut(&mut self) -> &mut DuplicationEstimate {
        &mut self.duplication
    }

    /// The next page in scattered order.
    pub(crate) fn next_page(&mut self, permutations: &Permutations) -> u32 {
        self.walk.next_page(self.pages, permutations)
    }

    /// The next of its anchors, if some are left.
    pub(crate) fn next_anchor(&mut self, permutations: &Permutations) -> Option<u32> {
        self.walk.next_anchor(self.pages, permutations)
    }

    /// The next block to sweep, and whether it is the last of the sweep.
    pub(crate) fn next_block(&mut self, permutations: &Permutations) -> (u32, bool) {
        let blocks = self.blocks();
        let block = self.walk.next_block(blocks, permutations);
        if let Some(huge) = &mut self.huge {
            huge.begin(block);
        }
        (block, self.sweep.next(blocks))
    }

    /// Blocks that its sweep has left.
    pub(crate) fn blocks_left(&self) -> u32 {
        self.blocks() - self.sweep.blocks()
    }

    /// Its sweep starts over.
    pub(crate) fn restart_sweep(&mut self) {
        self.sweep.restart();
    }

    /// A new era: what was indexed of the region no longer counts.
    pub(crate) fn new_era(&mut self) {
        self.walk.restart_anchors();
        self.sweep.restart();
        self.backoff.forget_failed_promotions();
    }

    /// Reads the anchors again, and counts only what is there now.
    fn anchor_again(&mut self) {
        self.fillings += 1;
        self.walk.restart_anchors();
        self.residency = Residency::default();
    }

    /// Its space has grown: if it has holes, and no anchors are waiting, they are read again.
    /// Whether they are.
    pub(crate) fn expect_growth(&mut self) -> bool {
        let waits = self.walk.has_anchors_left(self.pages);
        let may_fill = self.state == State::Ranked && self.residency.has_any_hole() && !waits;
        if may_fill {
            self.fillings = 0;
            self.anchor_again();
            self.backoff.forget_failed_promotions();
        }
        may_fill
    }

    /// Its anchors have been read. If they may be read again: when, after `shortest` at first and
    /// twice as long each time.
    pub(crate) fn await_filling(&mut self, now: Nanos, shortest: Nanos) -> Option<Nanos> {
        if self.fillings >= MOST_FILLINGS {
            return None;
        }
        self.filling = now + (shortest << self.fillings);
        Some(self.filling)
    }

    /// The time `due` has come. Whether it was waiting for it to be filled; if there are holes, its
    /// anchors are read again, and `Some(true)` says so.
    pub(crate) fn is_filling_due(&mut self, due: Nanos) -> Option<bool> {
        if self.filling != due {
            return None;
        }
        self.filling = 0;
        let has_holes = self.residency.has_holes();
        if has_holes {
            self.anchor_again();
        }
        Some(has_holes)
    }

    /// So many samples found a page here.
    pub(crate) fn found(&mut self, samples: u32) {
        self.sweep.found(samples);
        self.residency.found(samples);
    }

    /// So many samples found nothing here that could be merged.
    pub(crate) fn missed(&mut self, samples: u32) {
        self.residency.missed(samples);
    }

    /// Pages believed to be in memory.
    pub(crate) fn resident(&self) -> u32 {
        self.residency.of(self.pages)
    }

    /// How much of its level's samples it gets: what is resident, and never nothing, so that
    /// pages that come later are found.
    pub(crate) fn weight(&self) -> u32 {
        self.resident().max(self.pages.isqrt())
    }

    /// A page was pinned when it was sampled.
    pub(crate) fn count_pinned(&mut self) {
        self.busy += 1;
    }

    /// A page was busy when it was to be merged.
    pub(crate) fn count_busy(&mut self) {
        self.busy += 1;
        self.sweep.failed();
    }

    /// A page could not be merged just now.
    pub(crate) fn count_failed(&mut self) {
        self.sweep.failed();
    }

    /// A page had been merged, and was found with its own copy.
    pub(crate) fn count_broken(&mut self) {
        self.sweep.broken();
    }

    /// Pages that were busy when tried.
    pub(crate) fn busy(&self) -> u64 {
        self.busy
    }

    /// The last block of its sweep has been worked through.
    pub(crate) fn end_sweep(
        &mut self,
        now: Nanos,
        round: Nanos,
        v_dup: f64,
        is_cow_off: bool,
    ) -> SweepEnd {
        let (end, was_busy) = self.sweep.end(now, round, v_dup, is_cow_off);
        self.backoff.set_busy(was_busy);
        if let SweepEnd::Again { .. } = end {
            self.standing = Standing::Swept;
            return end;
        }
        self.standing = if self.merges > 0 {
            Standing::Finished
        } else {
            Standing::Sparse
        };
        if self.sweep.has_holes(self.pages) {
            self.fillings = 0;
            if !self.grown {
                self.backoff.excuse_promotion();
            }
            return SweepEnd::Unfilled;
        }
        end
    }

    /// Whether its last promotion was worth it, or long enough ago; starts to count for the next.
    pub(crate) fn may_promote(&mut self, v_dup: f64, now: Nanos, round: Nanos) -> bool {
        let worth = v_dup / 4.0 * f64::from(self.resident().max(1));
        let may = self.backoff.may_promote(self.merges, worth, now, round);
        if !may {
            self.duplication.reset();
        }
        may
    }

    /// Whether it was busy and is to be left alone for now.
    pub(crate) fn is_waiting(&self, now: Nanos) -> bool {
        self.backoff.is_waiting(now)
    }

    /// Whether pages of zeros may be tried with the zero page.
    pub(crate) fn takes_zero_page(&self) -> bool {
        !self.no_zero
    }

    /// The zero page may not be mapped here.
    pub(crate) fn refuse_zero_page(&mut self) {
        self.no_zero = true;
    }

    /// Takes a new length.
    ///
    /// # Panics
    /// If that is nothing.
    fn resize(&mut self, pages: u32) {
        assert!(pages > 0);
        self.walk.resize(self.pages, pages);
        if let Some(merged) = &mut self.merged {
            merged.resize(pages);
        }
        self.pages = pages;
        self.sweep.restart();
        self.huge = None;
        self.residency = Residency::default();
    }

    /// Bytes it takes.
    fn bytes(&self) -> usize {
        size_of::<Region>()
            + self.merged.as_ref().map_or(0, MergedPages::bytes)
            + self.huge.as_ref().map_or(0, |huge| huge.bytes())
    }
}

/// Which of its pages are merged, and what becomes of them.
impl Region {
    /// Pages believed to be merged.
    pub(crate) fn merged_now(&self) -> u32 {
        self.merged.as_ref().map_or(0, MergedPages::len)
    }

    /// Whether the page is believed to be merged.
    pub(crate) fn is_merged(&self, page: u32) -> bool {
        self.merged.as_ref().is_some_and(|merged| merged.has(page))
    }

    /// Notes that the page is merged, as seen `now`, or no longer is; whether that is news.
    fn set_merged(&mut self, page: u32, is_merged: bool, now: Nanos) -> bool {
        match (&mut self.merged, is_merged) {
            (Some(merged), true) => merged.add(page, now),
            (Some(merged), false) => merged.remove(page),
            (None, true) => {
                let pages = MergedPages::new(self.pages);
                self.merged.insert(pages).add(page, now)
            }
            (None, false) => false,
        }
    }

    /// A page of it was merged; whether that was on trial.
    pub(crate) fn count_merge(&mut self, page: u32, now: Nanos, is_cow_on: bool) -> bool {
        self.merges += 1;
        is_cow_on && self.cow.merged(page, now)
    }

    /// All of these pages, which are believed to be merged, were found so `now`. With `v_cow` that
    /// tells how fast merged pages are broken, in rounds of `round`.
    pub(crate) fn lasted(
        &mut self,
        mut pages: Range<u32>,
        now: Nanos,
        round: Nanos,
        v_cow: Option<f64>,
    ) {
        let Some(merged) = &mut self.merged else {
            return;
        };
        while !pages.is_empty() {
            let (count, known_at) = merged.seen_again(pages.clone(), now);
            if let Some(v_cow) = v_cow {
                let age = convert::ratio(now.saturating_sub(known_at), round);
                self.cow.lasted(count, age, v_cow);
            }
            pages.start += count;
        }
    }

    /// A page was read: if it was believed to be merged, that tells how fast such pages are broken.
    /// Whether the page is now on trial (again).
    pub(crate) fn check_merged(
        &mut self,
        page: u32,
        broken: bool,
        is_trial: bool,
        now: Nanos,
        round: Nanos,
        v_cow: f64,
    ) -> bool {
        let Some(merged) = self.merged.as_ref().filter(|merged| merged.has(page)) else {
            return false;
        };
        let mut known_at = merged.known_at(page);
        if is_trial {
            known_at = self.cow.trial_known_at().unwrap_or(known_at);
        }
        let age = convert::ratio(now.saturating_sub(known_at), round);
        self.cow.check(broken, age, v_cow);
        // Where few can be tried, the same ones are read again until there is a verdict.
        is_trial && !broken && self.cow.merged(page, now)
    }

    /// How fast its merged pages are broken.
    pub(crate) fn cow(&self) -> &Cow {
        &self.cow
    }

    /// How its merged pages fare, to decide or to look at those on trial.
    pub(crate) fn cow_mut(&mut self) -> &mut Cow {
        &mut self.cow
    }

    /// How merges in it are to be treated, if the COW filter is on.
    pub(crate) fn permission(&self, v_cow: Option<f64>, now: Nanos) -> Permission {
        match v_cow {
            None => Permission::Open,
            Some(_) => self.cow.permission(now),
        }
    }
}

/// Its huge pages.
impl Region {
    /// A page of a huge page was swept.
    pub(crate) fn swept_huge_page(&mut self, page: u32) {
        let (block, blocks) = (self.block_of(page), self.blocks());
        self.huge
            .get_or_insert_with(|| Box::new(HugeBlocks::new(blocks)))
            .swept(block);
    }

    /// A page turned out to have a partner: if it is in a huge page, that is counted for its block.
    pub(crate) fn credit_block(&mut self, page: u32) {
        if self.huge.is_none() {
            return;
        }
        let block = self.block_of(page);
        let in_block = self.address(page) / PAGE_SIZE % u64::from(BLOCK_PAGES);
        if let Some(huge) = &mut self.huge
            && huge.is_huge(block)
        {
            huge.partner(block, convert::narrow(in_block));
        }
    }

    /// Whether the page was in a huge page when its block was swept.
    pub(crate) fn is_in_huge_page(&self, page: u32) -> bool {
        self.huge
            .as_ref()
            .is_some_and(|huge| huge.is_huge(self.block_of(page)))
    }

    /// Whether the page's block may be split, if it needs to be.
    pub(crate) fn may_split(&self, page: u32, thp: Thp, thp_share: f64) -> bool {
        let Some(huge) = &self.huge else {
            return true;
        };
        let block = self.block_of(page);
        !huge.is_huge(block) || (thp == Thp::Profit && huge.is_worth_splitting(block, thp_share))
    }
}

#[cfg(test)]
mod tests;
