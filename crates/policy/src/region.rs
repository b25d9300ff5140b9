//! A region: pages of one mapping that are judged together (UKSM §3, §5.1).
//!
//! # Problem
//! Neighbouring pages share a fate, so samples of some tell about all. Everything decided about
//! them is kept here; there may be tens of thousands, most of them tiny.
//!
//! # Approach
//! Plain data and what can be told from it alone; who moves regions is elsewhere. Bitmaps and
//! block counters are allocated when first needed. Pages are numbered from the region's start;
//! *blocks* are the 2 MiB a page table covers, by absolute address.
//!
//! Two cursors walk the region. The *scatter* cursor walks a permutation of the next power of two
//! of its size, leaving out what is beyond its end, so that regions of similar and not only equal
//! size look at the same pages in the same order and thin samples of clones meet. The *block*
//! cursor walks a permutation of blocks, which are swept inside: neighbours share a page-table
//! lock.
//!
//! # Units
//! Pages of 4 KiB, numbered by `u32`.

pub(crate) mod cow;
pub(crate) mod duplication;
pub(crate) mod huge;
mod merged;
pub(crate) mod merged_pages;
pub mod permutation;

use std::collections::VecDeque;

use crate::command::{Nanos, PAGE_SIZE};
use crate::convert;
use crate::hash::mix;
use crate::region::cow::Cow;
use crate::region::duplication::DuplicationEstimate;
use crate::region::huge::HugeBlocks;
use crate::region::merged_pages::MergedPages;
use crate::region::permutation::Permutation;
use crate::report::Standing;

/// Pages a page table maps: 2 MiB.
pub(crate) const BLOCK_PAGES: u32 = 512;
const BLOCK_SHIFT: u32 = 21;
/// Samples after which a region's residency is more than a guess.
const RESIDENCY_SAMPLES: u32 = 8;

/// Where a region stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not in use.
    Vacant,
    /// Too young to be looked at.
    Young,
    /// On the ladder.
    Ranked,
    /// Its mapping seems to be gone; the next survey tells.
    Lost,
    /// Its pages are refused; tried again later.
    Refused,
}

/// What the sweep of blocks at the top has seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sweep {
    /// Blocks swept since the sweep began.
    pub(crate) blocks: u32,
    /// Candidates and merged pages seen.
    pub(crate) pages: u32,
    /// Pages that were to be merged and could not be just now.
    pub(crate) failed: u32,
    /// Pages that had been merged and no longer were.
    pub(crate) broken: u32,
    /// Sweeps completed at this level.
    pub(crate) completed: u32,
}

/// One region.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    /// Byte address of its first page.
    pub(crate) start: u64,
    /// Its length.
    pub(crate) pages: u32,
    /// The slot of its space.
    pub(crate) space: u32,
    /// The kind of its mapping, as the machine tells it.
    pub(crate) mapping_kind: u64,
    /// By whose lifetimes its own is guessed.
    pub(crate) lifetime_class: u64,
    /// Since when it is known, or longer.
    pub(crate) born: Nanos,
    pub(crate) state: State,
    /// Since when its mapping is lost, or until when its refusal holds.
    pub(crate) since: Nanos,
    pub(crate) standing: Standing,
    /// Its level, 0 at the bottom, and its seat among the level's members.
    pub(crate) level: u8,
    pub(crate) level_slot: u32,
    scatter: u32,
    block: u32,
    /// Anchors looked at in this era, see [`Region::next_anchor`].
    anchored: u32,
    /// When they are looked at again if there are holes, 0 for never; how often they were.
    pub(crate) filling: Nanos,
    pub(crate) fillings: u32,
    pub(crate) duplication: DuplicationEstimate,
    seen: u32,
    present: u32,
    pub(crate) sweep: Sweep,
    /// When its last sweep ended.
    pub(crate) swept_at: Nanos,
    held: Option<MergedPages>,
    /// Pages merged since it is known.
    pub(crate) merges: u64,
    /// Pages that were busy when tried.
    pub(crate) busy: u64,
    pub(crate) cow: Cow,
    pub(crate) huge_blocks: Option<Box<HugeBlocks>>,
    /// Merges when it was last promoted to the top, and how often that was in vain.
    pub(crate) merges_at_promotion: Option<u64>,
    pub(crate) failed_promotions: u32,
    pub(crate) backoff_until: Nanos,
    /// Much of it was busy when it was last swept: it is not tried before its time.
    pub(crate) was_busy: bool,
    /// Its survival has been told to its kin.
    pub(crate) grown: bool,
    /// The zero page may not be mapped here: pages of zeros are pages like others.
    pub(crate) no_zero: bool,
}

impl Region {
    /// A region that was just found.
    pub(crate) fn new(
        space: u32,
        start: u64,
        pages: u32,
        mapping_kind: u64,
        lifetime_class: u64,
        born: Nanos,
    ) -> Region {
        assert!(pages > 0 && start.is_multiple_of(PAGE_SIZE));
        Region {
            start,
            pages,
            space,
            mapping_kind,
            lifetime_class,
            born,
            state: State::Young,
            since: 0,
            standing: Standing::Young,
            level: 0,
            level_slot: 0,
            scatter: 0,
            block: 0,
            anchored: 0,
            filling: 0,
            fillings: 0,
            duplication: DuplicationEstimate::default(),
            seen: 0,
            present: 0,
            sweep: Sweep::default(),
            swept_at: 0,
            held: None,
            merges: 0,
            busy: 0,
            cow: Cow::default(),
            huge_blocks: None,
            merges_at_promotion: None,
            failed_promotions: 0,
            backoff_until: 0,
            was_busy: false,
            grown: false,
            no_zero: false,
        }
    }

    /// One past its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.pages) * PAGE_SIZE
    }

    /// Byte address of a page.
    pub(crate) fn address(&self, page: u32) -> u64 {
        self.start + u64::from(page) * PAGE_SIZE
    }

    /// Whether its mapping was found gone, and no later than then.
    pub(crate) fn is_lost_before(&self, then: Nanos) -> bool {
        self.state == State::Lost && self.since <= then
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

    /// Goes on to the next page in scattered order; whether that completes a cycle.
    pub(crate) fn next_page(&mut self, permutations: &Permutations) -> (u32, bool) {
        let order = permutations.of(self.pages);
        let mut wrapped = false;
        loop {
            let page = order.at(u64::from(self.scatter));
            self.scatter += 1;
            if u64::from(self.scatter) >= order.len() {
                self.scatter = 0;
                wrapped = true;
            }
            if page < u64::from(self.pages) {
                return (convert::narrow(page), wrapped);
            }
        }
    }

    /// The next of the region's *anchors*, its first pages in scattered order, if some are left.
    ///
    /// They are looked at first and again in every era of the hash, so that they are always
    /// indexed: a clone that arrives looks at the same ones and meets them, however thinly the rest
    /// has been sampled.
    pub(crate) fn next_anchor(&mut self, permutations: &Permutations) -> Option<u32> {
        let order = permutations.of(self.pages);
        while self.has_anchors_left() {
            let page = order.at(u64::from(self.anchored));
            self.anchored += 1;
            if page < u64::from(self.pages) {
                return Some(convert::narrow(page));
            }
        }
        None
    }

    /// Whether anchors are left to be looked at, or at least places of some.
    pub(crate) fn has_anchors_left(&self) -> bool {
        let places = self.pages.next_power_of_two();
        self.anchored < (places.isqrt() / 2).clamp(2, 64).min(places)
    }

    /// Whether anything of what was looked at was not there.
    pub(crate) fn has_any_hole(&self) -> bool {
        self.present < self.seen
    }

    /// Whether an eighth or more of what was looked at was not there.
    pub(crate) fn has_holes(&self) -> bool {
        has_holes(self.present, self.seen)
    }

    /// Looks at the anchors again, and only at what is there now.
    pub(crate) fn anchor_again(&mut self) {
        self.fillings += 1;
        self.anchored = 0;
        (self.seen, self.present) = (0, 0);
    }

    /// A new era: what was indexed of the region no longer counts.
    pub(crate) fn new_era(&mut self) {
        self.anchored = 0;
        self.sweep.blocks = 0;
        self.forget_failed_promotions();
    }

    /// That partners were not found says nothing any more.
    pub(crate) fn forget_failed_promotions(&mut self) {
        self.merges_at_promotion = None;
        if !self.was_busy {
            self.backoff_until = 0;
        }
    }

    /// Goes on to the next block; whether that completes a sweep.
    pub(crate) fn next_block(&mut self, permutations: &Permutations) -> (u32, bool) {
        let blocks = self.blocks();
        let order = permutations.of(blocks);
        loop {
            let block = order.at(u64::from(self.block));
            self.block = if u64::from(self.block) + 1 >= order.len() {
                0
            } else {
                self.block + 1
            };
            if block < u64::from(blocks) {
                self.sweep.blocks += 1;
                let done = self.sweep.blocks >= blocks;
                if done {
                    self.sweep.blocks = 0;
                    self.sweep.completed += 1;
                }
                return (convert::narrow(block), done);
            }
        }
    }

    /// So many samples found a page here.
    pub(crate) fn found(&mut self, samples: u32) {
        self.present += samples;
        self.sweep.pages += samples;
        self.looked(samples);
    }

    /// So many samples were taken here, and what they found is noted.
    pub(crate) fn looked(&mut self, samples: u32) {
        self.seen += samples;
        if self.seen > 8192 {
            self.seen /= 2;
            self.present /= 2;
        }
    }

    /// Pages believed to be there.
    pub(crate) fn resident(&self) -> u32 {
        if self.seen < RESIDENCY_SAMPLES.min(self.pages) {
            return self.pages;
        }
        let share = f64::from(self.present) / f64::from(self.seen);
        convert::narrow(convert::count(f64::from(self.pages) * share + 0.5))
    }

    /// How much of its level's samples it gets: what is resident, and never nothing, so that
    /// pages that come later are found.
    pub(crate) fn weight(&self) -> u32 {
        self.resident().max(self.pages.isqrt())
    }

    /// Takes a new length. Cursors stay if the order does.
    pub(crate) fn resize(&mut self, pages: u32) {
        assert!(pages > 0);
        if pages.next_power_of_two() != self.pages.next_power_of_two() {
            self.scatter = 0;
        }
        if let Some(held) = &mut self.held {
            held.resize(pages);
        }
        self.pages = pages;
        self.block = 0;
        self.sweep.blocks = 0;
        self.huge_blocks = None;
        (self.seen, self.present) = (0, 0);
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Region>()
            + self.held.as_ref().map_or(0, MergedPages::bytes)
            + self
                .huge_blocks
                .as_ref()
                .map_or(0, |huge_blocks| huge_blocks.bytes())
    }
}

/// Whether an eighth or more of `seen` is missing.
pub(crate) fn has_holes(present: u32, seen: u32) -> bool {
    u64::from(present) * 8 < u64::from(seen) * 7
}

/// The orders in which regions are looked at, one for each power of two.
#[derive(Debug, Clone)]
pub(crate) struct Permutations(Vec<Permutation>);

impl Permutations {
    /// The orders that belong to a seed.
    pub(crate) fn new(seed: u64) -> Permutations {
        Permutations(
            (0..=32)
                .map(|bits| Permutation::new(1 << bits, mix(seed ^ bits)))
                .collect(),
        )
    }

    fn of(&self, len: u32) -> &Permutation {
        let bits = u64::from(len).next_power_of_two().trailing_zeros();
        &self.0[convert::index(bits)]
    }
}

/// All regions, by number. A number that became free is given again as late as possible, so that
/// what the index remembers of its last owner has time to be forgotten.
#[derive(Debug, Clone, Default)]
pub(crate) struct Regions {
    slots: Vec<Region>,
    free: VecDeque<u32>,
    /// Pages of all of them.
    pages: u64,
}

impl Regions {
    /// Takes a region in; returns its number.
    pub(crate) fn insert(&mut self, region: Region) -> u32 {
        self.pages += u64::from(region.pages);
        // A free slot costs less than a wrong suggestion: keep some.
        if self.free.len() > 1024
            && let Some(number) = self.free.pop_front()
        {
            self.slots[convert::index(number)] = region;
            return number;
        }
        let number = convert::narrow(self.slots.len() as u64);
        assert!(
            number < u32::MAX,
            "regions are bounded by the spaces' mappings"
        );
        self.slots.push(region);
        number
    }

    /// Lets a region go.
    pub(crate) fn remove(&mut self, number: u32) {
        let region = &mut self.slots[convert::index(number)];
        assert!(
            region.state != State::Vacant,
            "region {number} removed twice"
        );
        self.pages -= u64::from(region.pages);
        *region = Region::new(0, 0, 1, 0, 0, 0);
        region.state = State::Vacant;
        self.free.push_back(number);
    }

    /// Gives a region a new length.
    pub(crate) fn resize(&mut self, number: u32, pages: u32) {
        let region = &mut self.slots[convert::index(number)];
        self.pages = self.pages - u64::from(region.pages) + u64::from(pages);
        region.resize(pages);
    }

    /// Pages of all regions.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// The region in use of that number, if the page is inside it: for what was noted earlier.
    pub(crate) fn find(&self, number: u32, page: u32) -> Option<&Region> {
        self.slots
            .get(convert::index(number))
            .filter(|region| region.state != State::Vacant && page < region.pages)
    }

    /// Number of regions in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Those in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Region> {
        self.slots
            .iter()
            .filter(|region| region.state != State::Vacant)
    }

    /// Bytes they take.
    pub(crate) fn bytes(&self) -> usize {
        let spare = self.slots.capacity() - self.len();
        self.iter().map(Region::bytes).sum::<usize>()
            + spare * size_of::<Region>()
            + self.free.capacity() * 4
    }
}

impl std::ops::Index<u32> for Regions {
    type Output = Region;

    fn index(&self, number: u32) -> &Region {
        &self.slots[convert::index(number)]
    }
}

impl std::ops::IndexMut<u32> for Regions {
    fn index_mut(&mut self, number: u32) -> &mut Region {
        &mut self.slots[convert::index(number)]
    }
}

#[cfg(test)]
mod tests;
