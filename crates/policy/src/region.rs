//! A region: pages of one mapping that are treated alike (UKSM §3, §5.1).
//!
//! # Problem
//! Neighbouring pages share a fate, so samples of some are evidence about all. All decisions about
//! them are kept here; there may be tens of thousands of regions, most of them tiny.
//!
//! # Approach
//! A region consists of parts, one for each question: the share with partners (`duplication`),
//! how fast its merged pages are broken (`cow`), when it may be promoted again (`backoff`), the
//! share in memory (`residency`), its merged pages (`merged_pages`), its huge pages that are
//! worth a split (`huge_blocks`) and those that the kernel has made again (`collapse`), and the
//! order of reading (`walk`). The ladder moves regions. State that a small region seldom needs is
//! allocated when it is first needed: for blocks (`blocks`), and for merged pages
//! (`merge_record`).
//!
//! # Units
//! Pages are numbered from the region's start. *Blocks* are the 2 MiB that a page table maps, by
//! absolute address, numbered from the region's first.

pub(crate) mod backoff;
mod blocks;
mod collapse;
pub(crate) mod cow;
pub(crate) mod duplication;
pub(crate) mod huge_blocks;
mod huge_pages;
mod merge_record;
pub(crate) mod merged_pages;
mod merging;
pub mod permutation;
mod reading_progress;
pub(crate) mod residency;
mod rewrite_detector;
mod settled_pages;
mod sweep;
mod table;
mod walk;
mod write_watch;

use crate::command::{Nanos, PAGE_SIZE};
use crate::convert;
use crate::ids::SpaceSlot;
use crate::report::Standing;
use blocks::Blocks;
use duplication::{DuplicationEstimate, Scale};
use merge_record::MergeRecord;
pub(crate) use merging::Look;
use residency::Residency;
use rewrite_detector::RewriteDetector;
pub(crate) use sweep::SweepEnd;
pub(crate) use table::Regions;
pub(crate) use walk::Permutations;
use walk::Walk;
pub(crate) use write_watch::WATCHED_PAGES;

/// Pages a page table maps: 2 MiB.
pub(crate) const BLOCK_PAGES: u32 = 512;
const BLOCK_SHIFT: u32 = 21;
/// Samples of a region from which its duplicates can be estimated.
const MIN_SAMPLES: u32 = 8;
/// Limit of repeated readings of the anchors of a region with holes.
const MAX_FILLINGS: u8 = 6;

/// The state of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not in use.
    Vacant,
    /// Too young to be sampled.
    Young,
    /// On the ladder.
    Ranked,
    /// Its mapping seems to be gone; the next mapping list decides.
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
    /// The class of regions by whose lifetimes its own is guessed.
    lifetime_class: u32,
    born: Nanos,
    /// Whether its survival has been counted for its lifetime class.
    grown: bool,
    state: State,
    standing: Standing,
    /// Its level, 0 at the bottom, and its slot among the level's members.
    level: u8,
    level_slot: u32,
    walk: Walk,
    /// When its anchors are read again if there are holes, 0 for never; and how often they were
    /// read again.
    filling: Nanos,
    fillings: u8,
    duplication: DuplicationEstimate,
    residency: Residency,
    rewrites: RewriteDetector,
    /// When its last sweep ended, at any level.
    swept_at: Nanos,
    /// Whether it was swept in this era, and the number of pages that the sweep met.
    was_swept: bool,
    met: u32,
    /// Whether its space has grown since that sweep began.
    grew: bool,
    blocks: Option<Box<Blocks>>,
    merging: Option<Box<MergeRecord>>,
    /// The zero page may not be mapped here: pages of zeros are treated like others.
    no_zero: bool,
}

/// The properties of a newly found region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewRegion {
    /// Byte address of the first page.
    pub(crate) start: u64,
    /// Its length.
    pub(crate) pages: u32,
    /// Its space.
    pub(crate) space: SpaceSlot,
    /// The kind of its mapping, as the machine names it.
    pub(crate) mapping_kind: u64,
    /// The class of regions by whose lifetimes its own is guessed.
    pub(crate) lifetime_class: u32,
    /// Its birth, at the latest.
    pub(crate) born: Nanos,
}

impl Region {
    /// A region that was just found.
    ///
    /// # Panics
    /// If it has no page, or does not start with one.
    pub(crate) fn new(found: NewRegion) -> Region {
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
            standing: Standing::Young,
            level: 0,
            level_slot: 0,
            walk: Walk::default(),
            filling: 0,
            fillings: 0,
            duplication: DuplicationEstimate::default(),
            residency: Residency::default(),
            rewrites: RewriteDetector::default(),
            swept_at: 0,
            was_swept: false,
            met: 0,
            grew: false,
            blocks: None,
            merging: None,
            no_zero: false,
        }
    }

    /// A slot of the table that holds no region.
    fn vacant() -> Region {
        let mut region = Region::new(NewRegion {
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

    /// The class of regions by whose lifetimes its own is guessed.
    pub(crate) fn lifetime_class(&self) -> u32 {
        self.lifetime_class
    }

    /// Its age at `now`, at least.
    pub(crate) fn age(&self, now: Nanos) -> Nanos {
        now - self.born
    }

    /// The time at which it reaches this age.
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

    /// Its state.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Why it is, or is not, being merged.
    pub(crate) fn standing(&self) -> Standing {
        self.standing
    }

    /// Sets why it is, or is not, being merged.
    pub(crate) fn set_standing(&mut self, standing: Standing) {
        self.standing = standing;
    }

    /// Whether its mapping was found gone, at `then` or earlier.
    pub(crate) fn is_lost_before(&self, then: Nanos) -> bool {
        self.state == State::Lost && self.since() <= then
    }

    /// Since when its mapping is lost, or until when its refusal holds.
    fn since(&self) -> Nanos {
        self.merging.as_ref().map_or(0, |merging| merging.since)
    }

    /// Its mapping seems to be gone.
    pub(crate) fn lose(&mut self, now: Nanos) {
        self.state = State::Lost;
        self.merging_mut().since = now;
    }

    /// Its pages are refused, and not tried again before `until`.
    pub(crate) fn refuse(&mut self, until: Nanos) {
        self.state = State::Refused;
        self.standing = Standing::Refused;
        self.merging_mut().since = until;
    }

    /// Until when its refusal holds.
    pub(crate) fn refused_until(&self) -> Nanos {
        self.since()
    }

    /// Whether its refusal no longer holds.
    pub(crate) fn is_refusal_over(&self, now: Nanos) -> bool {
        self.since() <= now
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
        self.waits_no_more();
    }

    /// Its level, 0 at the bottom.
    pub(crate) fn level(&self) -> usize {
        usize::from(self.level)
    }

    /// Its slot among the level's members.
    pub(crate) fn level_slot(&self) -> u32 {
        self.level_slot
    }

    /// Sets its slot among the members of its level.
    pub(crate) fn set_level_slot(&mut self, level_slot: u32) {
        self.level_slot = level_slot;
    }

    /// Sets its level, and its slot there.
    pub(crate) fn set_level(&mut self, level: usize, level_slot: u32) {
        self.level = u8::try_from(level).expect("at most 8 levels");
        self.level_slot = level_slot;
    }

    /// Forgets its samples and its sweep, which were those of another level.
    pub(crate) fn forget_samples(&mut self) {
        self.duplication.reset();
        self.forget_sweep();
    }

    /// Its estimate of duplicates.
    pub(crate) fn duplication(&self) -> &DuplicationEstimate {
        &self.duplication
    }

    /// Its estimate of duplicates, mutable.
    pub(crate) fn duplication_mut(&mut self) -> &mut DuplicationEstimate {
        &mut self.duplication
    }

    /// Estimated duplicates left in it, in pages; 0 until enough pages of it were sampled.
    pub(crate) fn duplicates_left(&self, scale: &Scale) -> f64 {
        if self.state != State::Ranked || self.duplication.samples() < MIN_SAMPLES {
            return 0.0;
        }
        let unmerged = self.resident().saturating_sub(self.merged_now());
        self.duplication.estimate(scale) * f64::from(unmerged)
    }

    /// Whether pages of zeros may be tried with the zero page.
    pub(crate) fn takes_zero_page(&self) -> bool {
        !self.no_zero
    }

    /// The zero page may not be mapped here.
    pub(crate) fn refuse_zero_page(&mut self) {
        self.no_zero = true;
    }

    /// Sets its length.
    ///
    /// # Panics
    /// If the length is 0.
    fn resize(&mut self, pages: u32) {
        assert!(pages > 0);
        self.walk.resize(self.pages, pages);
        if let Some(merging) = &mut self.merging {
            merging.resize(pages);
        }
        self.pages = pages;
        self.resize_blocks();
        self.residency = Residency::default();
    }

    /// Bytes it takes.
    fn bytes(&self) -> usize {
        size_of::<Region>()
            + self.blocks.as_ref().map_or(0, |blocks| blocks.bytes())
            + self.merging.as_ref().map_or(0, |merging| merging.bytes())
    }
}

#[cfg(test)]
mod tests;
