//! Estimates which blocks of memory have enough duplicates to be offered.
//!
//! # Problem
//! In-kernel KSM spends 5 µs on each page without a partner in every series. Samples of pages, read
//! from outside, must find the ranges with partners at far less cost.
//!
//! # Approach
//! Memory is cut into *blocks* of 2 MiB at multiples of that. A block is sampled in stages of 8, 32
//! and 64 pages, in an order that is the same for all blocks of a pass, so that thin samples of
//! aligned copies meet (as anchors do in the ladder). Each sampled page is looked up among those
//! sampled before in this pass; a match counts for both blocks. A block is offered once at least
//! two of its pages matched, and no fewer than the share `v_dup` of them. After the last stage half
//! of that suffices: partners were sampled only in part. All blocks pass one stage before any
//! begins the next. A new *pass* forgets the samples, and samples other pages.
//!
//! The gain of a burst is estimated from the pages that matched and are not merged
//! ([`Estimates::gain`]). After a series, [`Estimates::check`] has the offered blocks sampled
//! again: a block with almost nothing merged is withdrawn, and left alone for some passes, more
//! each time.
//!
//! Each range that is offered apart splits a mapping, and a process may have 65,530 mappings: so
//! the ranges of one space are limited.
//!
//! # Units
//! Addresses in bytes, counts in pages, ranges half-open.
//!
//! # Source
//! UKSM §5.2 and §5.3 (sampling, `V_dup`).

use std::collections::{BTreeMap, VecDeque};

use crate::command::{Mapping, PAGE_SIZE, SpaceId};
use crate::convert;
use crate::region::permutation::Permutation;

/// Pages of a block.
const BLOCK_PAGES: u64 = 512;
const BLOCK: u64 = BLOCK_PAGES * PAGE_SIZE;

/// Smaller pieces are ignored: a range costs more than a few pages save.
const MIN_PAGES: u64 = 16;

/// Pages that are sampled by the end of each stage.
const STAGE_PAGES: [u32; 3] = [8, 32, 64];

/// Places that are tried for each page wanted: others may be empty.
const TRIES_A_PAGE: u32 = 8;

/// One match may be chance, two are not.
const MIN_MATCHES: u32 = 2;

/// Limit of the ranges offered apart in one space.
pub const MAX_RANGES: usize = 1024;

/// Limit of the pages remembered in a pass: 160 MiB, which stand for 64 GiB at the last stage.
const MAX_REMEMBERED: usize = 1 << 21;

/// Least gain of a series, in pages.
const MIN_GAIN: u64 = 64;

/// Least gain of a series, as one part in this number of the offered pages.
const GAIN_PART: u64 = 50;

/// Pages to read: of one block, ascending in sampling order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The space that is read.
    pub space: SpaceId,
    /// First byte of the block.
    pub block: u64,
    /// The addresses.
    pub pages: Vec<u64>,
}

/// The state of a probed page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbedPage {
    /// The space has no page of its own there.
    Absent,
    /// A page with this hash, not merged.
    Alone(u64),
    /// A page with this hash, merged.
    Merged(u64),
}

/// Advice that is to be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdviceChange {
    /// The space that receives it.
    pub space: SpaceId,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Whether KSM may merge the range; otherwise it may not any more.
    pub offer: bool,
}

/// The amount of memory that is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Blocks under estimation.
    pub blocks: u64,
    /// Pages of blocks that are offered.
    pub offered_pages: u64,
    /// Pages of blocks that are not offered.
    pub other_pages: u64,
    /// Blocks withdrawn because almost nothing of them was merged.
    pub withdrawn: u64,
    /// Blocks that would be offered but for the limit of ranges.
    pub left_out: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeState {
    /// Not offered.
    Watched,
    /// Offered by advice.
    Offered,
    /// Offered by the process itself: nothing can be changed.
    Fixed,
}

#[derive(Debug)]
struct Block {
    end: u64,
    state: ProbeState,
    stage: usize,
    /// The next place in the order, the number of places probed since the block was begun, and the
    /// number of pages found.
    next: u64,
    probed: u32,
    seen: u32,
    matched: u32,
    /// The number of matched pages that are not merged.
    gain: u32,
    merged: u32,
    is_queued: bool,
    /// The block is judged by the number of its merged pages.
    is_checked: bool,
    /// The pass until which the block is left alone; the number of its withdrawals.
    refused_until: u64,
    refusals: u32,
}

#[derive(Debug, Clone, Copy)]
struct Holder {
    space: SpaceId,
    block: u64,
    page: u64,
    is_paired: bool,
}

/// All blocks of all spaces.
#[derive(Debug)]
pub struct Estimates {
    v_dup: f64,
    seed: u64,
    pass: u64,
    order: Permutation,
    blocks: BTreeMap<(SpaceId, u64), Block>,
    ranges: BTreeMap<SpaceId, usize>,
    queue: VecDeque<(SpaceId, u64)>,
    holders: BTreeMap<u64, Holder>,
    sampled: u64,
    withdrawn: u64,
    left_out: u64,
}

impl Block {
    fn new(end: u64, state: ProbeState) -> Block {
        Block {
            end,
            state,
            stage: 0,
            next: 0,
            probed: 0,
            seen: 0,
            matched: 0,
            gain: 0,
            merged: 0,
            is_queued: false,
            is_checked: false,
            refused_until: 0,
            refusals: 0,
        }
    }

    fn is_offered(&self) -> bool {
        self.state != ProbeState::Watched
    }

    fn begin(&mut self) {
        (self.stage, self.probed, self.is_checked) = (0, 0, false);
        (self.seen, self.matched, self.gain, self.merged) = (0, 0, 0, 0);
    }

    /// Whether `count` pages are at least the share `share` of `seen`.
    fn reaches(&self, count: u32, share: f64) -> bool {
        count >= MIN_MATCHES && f64::from(count) >= share * f64::from(self.seen)
    }
}

impl Estimates {
    /// Estimates of no space yet. `v_dup` is the share of a block's pages that must have partners.
    #[must_use]
    pub fn new(v_dup: f64, seed: u64) -> Estimates {
        Estimates {
            v_dup,
            seed,
            pass: 0,
            order: Permutation::new(BLOCK_PAGES, seed),
            blocks: BTreeMap::new(),
            ranges: BTreeMap::new(),
            queue: VecDeque::new(),
            holders: BTreeMap::new(),
            sampled: 0,
            withdrawn: 0,
            left_out: 0,
        }
    }

    /// Sets the present mappings of a space, ascending and disjoint; `is_fixed` if all of it is
    /// offered already and cannot be withdrawn. Returns whether there are new blocks.
    pub fn set_mappings(&mut self, space: SpaceId, mappings: &[Mapping], is_fixed: bool) -> bool {
        let mut old = self.take_blocks(space);
        let mut came = false;
        for mapping in mappings {
            let mut start = mapping.start;
            while start < mapping.end {
                let end = (start - start % BLOCK + BLOCK).min(mapping.end);
                if end - start >= MIN_PAGES * PAGE_SIZE {
                    let state = if is_fixed {
                        ProbeState::Fixed
                    } else {
                        ProbeState::Watched
                    };
                    let block = match old.remove(&start) {
                        // A block that grew has memory that was never sampled.
                        Some(block) if block.end >= end => Block { end, ..block },
                        _ => {
                            came = true;
                            Block::new(end, state)
                        }
                    };
                    self.blocks.insert((space, start), block);
                    self.enqueue_new(space, start);
                }
                start = end;
            }
        }
        came
    }

    fn enqueue_new(&mut self, space: SpaceId, start: u64) {
        let key = (space, start);
        if let Some(block) = self.blocks.get_mut(&key)
            && block.seen == 0
            && block.next == 0
            && !block.is_queued
            && block.refused_until <= self.pass
        {
            block.is_queued = true;
            self.queue.push_back(key);
        }
    }

    fn take_blocks(&mut self, space: SpaceId) -> BTreeMap<u64, Block> {
        let range = (space, 0)..=(space, u64::MAX);
        let keys: Vec<_> = self.blocks.range(range).map(|(&key, _)| key).collect();
        let taken = keys.into_iter().filter_map(|key| {
            let block = self.blocks.remove(&key)?;
            Some((key.1, block))
        });
        taken.collect()
    }

    /// A space is gone.
    pub fn forget(&mut self, space: SpaceId) {
        self.take_blocks(space);
        self.ranges.remove(&space);
    }

    /// A space has more memory than before: its blocks that are not offered are sampled again.
    pub fn has_grown(&mut self, space: SpaceId) {
        let range = (space, 0)..=(space, u64::MAX);
        for (&key, block) in self.blocks.range_mut(range) {
            if !block.is_queued && block.refused_until <= self.pass && !block.is_offered() {
                block.begin();
                block.next = 0;
                block.is_queued = true;
                self.queue.push_back(key);
            }
        }
    }

    /// Begins a pass: forgets the samples and samples all blocks anew.
    pub fn begin_pass(&mut self) {
        self.pass += 1;
        self.order = Permutation::new(BLOCK_PAGES, self.seed.wrapping_add(self.pass));
        self.holders.clear();
        self.queue.clear();
        for (&key, block) in &mut self.blocks {
            block.begin();
            block.next = 0;
            block.is_queued = block.refused_until <= self.pass;
            if block.is_queued {
                self.queue.push_back(key);
            }
        }
    }

    /// A series has ended: the offered blocks are sampled again and judged by their merged pages.
    pub fn check(&mut self) {
        for (&key, block) in &mut self.blocks {
            if block.is_offered() {
                block.begin();
                block.is_checked = true;
                if block.next > BLOCK_PAGES / 2 {
                    block.next = 0;
                }
                if !block.is_queued {
                    block.is_queued = true;
                    self.queue.push_back(key);
                }
            }
        }
    }

    /// Whether no block is left to be sampled in this pass.
    #[must_use]
    pub fn is_through(&self) -> bool {
        self.queue.is_empty()
    }

    /// Pages sampled so far.
    #[must_use]
    pub fn sampled(&self) -> u64 {
        self.sampled
    }

    /// The next pages to read; none if the pass is through.
    pub fn next_probe(&mut self) -> Option<Probe> {
        while let Some(key) = self.queue.pop_front() {
            let (space, start) = key;
            let order = self.order;
            let Some(block) = self.blocks.get_mut(&key) else {
                continue;
            };
            block.is_queued = false;
            // The block was offered while it waited.
            if block.is_offered() && block.seen >= STAGE_PAGES[0] {
                continue;
            }
            let wanted = STAGE_PAGES[block.stage].saturating_sub(block.seen);
            let base = start - start % BLOCK;
            let mut pages = Vec::new();
            while convert::index(wanted) > pages.len() && block.next < BLOCK_PAGES {
                let page = base + order.at(block.next) * PAGE_SIZE;
                block.next += 1;
                if (start..block.end).contains(&page) {
                    pages.push(page);
                }
            }
            block.probed += convert::narrow(pages.len() as u64);
            if !pages.is_empty() {
                return Some(Probe {
                    space,
                    block: start,
                    pages,
                });
            }
        }
        None
    }

    /// Takes in the result of a probe, and returns the advice to pass on now.
    pub fn answer(&mut self, probe: &Probe, seen: &[ProbedPage]) -> Vec<AdviceChange> {
        let key = (probe.space, probe.block);
        if !self.blocks.contains_key(&key) {
            return Vec::new();
        }
        let mut others = Vec::new();
        for (&page, &seen) in probe.pages.iter().zip(seen) {
            self.sampled += 1;
            let (hash, is_merged) = match seen {
                ProbedPage::Absent => continue,
                ProbedPage::Alone(hash) => (hash, false),
                ProbedPage::Merged(hash) => (hash, true),
            };
            let partner = self.pair(hash, key, page);
            if let Some(block) = self.blocks.get_mut(&key) {
                block.seen += 1;
                block.merged += u32::from(is_merged);
                let is_matched = partner.is_some() || is_merged;
                block.matched += u32::from(is_matched);
                block.gain += u32::from(partner.is_some() && !is_merged);
            }
            if let Some(Some(other)) = partner
                && let Some(block) = self.blocks.get_mut(&other)
            {
                block.matched = (block.matched + 1).min(block.seen);
                block.gain = (block.gain + 1).min(block.seen);
                others.push(other);
            }
        }
        others.push(key);
        others.sort_unstable();
        others.dedup();
        let changes: Vec<AdviceChange> =
            others.into_iter().filter_map(|of| self.judge(of)).collect();
        self.go_on(key);
        changes
    }

    /// Looks a page up, and remembers it. Returns whether it has a partner, and the partner's block
    /// if that page was alone until now.
    fn pair(
        &mut self,
        hash: u64,
        key: (SpaceId, u64),
        page: u64,
    ) -> Option<Option<(SpaceId, u64)>> {
        let is_full = self.holders.len() >= MAX_REMEMBERED;
        match self.holders.get_mut(&hash) {
            Some(holder) if (holder.space, holder.page) == (key.0, page) => {
                holder.is_paired.then_some(None)
            }
            Some(holder) => {
                let was_paired = std::mem::replace(&mut holder.is_paired, true);
                Some((!was_paired).then_some((holder.space, holder.block)))
            }
            None => {
                if !is_full {
                    let (space, block) = key;
                    let holder = Holder {
                        space,
                        block,
                        page,
                        is_paired: false,
                    };
                    self.holders.insert(hash, holder);
                }
                None
            }
        }
    }

    /// Decides whether a block is to be offered now, or withdrawn.
    fn judge(&mut self, key: (SpaceId, u64)) -> Option<AdviceChange> {
        let (v_dup, pass) = (self.v_dup, self.pass);
        let block = self.blocks.get_mut(&key)?;
        let (space, start) = key;
        let change = |end, offer| AdviceChange {
            space,
            start,
            end,
            offer,
        };
        let is_sampled = block.seen >= STAGE_PAGES[0];
        match block.state {
            ProbeState::Watched => {
                let is_last = block.seen >= STAGE_PAGES[STAGE_PAGES.len() - 1];
                let share = if is_last { v_dup / 2.0 } else { v_dup };
                if block.refused_until > pass || !block.reaches(block.matched, share) {
                    return None;
                }
                let end = block.end;
                if !self.has_room(space, start, end) {
                    self.left_out += 1;
                    return None;
                }
                self.blocks.get_mut(&key)?.state = ProbeState::Offered;
                Some(change(end, true))
            }
            ProbeState::Offered if block.is_checked && is_sampled => {
                block.is_checked = false;
                if block.reaches(block.merged, v_dup / 2.0) {
                    block.refusals = 0;
                    return None;
                }
                block.state = ProbeState::Watched;
                block.refusals += 1;
                block.refused_until = pass + (1 << block.refusals.min(6));
                block.begin();
                self.withdrawn += 1;
                Some(change(block.end, false))
            }
            ProbeState::Offered | ProbeState::Fixed => None,
        }
    }

    /// Whether the block may be offered: it joins a range, or another range is allowed and counted.
    fn has_room(&mut self, space: SpaceId, start: u64, end: u64) -> bool {
        let before = self.blocks.range(..(space, start)).next_back();
        let touches = |key: &(SpaceId, u64), block: &Block| key.0 == space && block.is_offered();
        let joins_before =
            before.is_some_and(|(key, block)| touches(key, block) && block.end == start);
        let after = self.blocks.get(&(space, end));
        let joins_after = after.is_some_and(Block::is_offered);
        if joins_before || joins_after {
            return true;
        }
        let ranges = self.ranges.entry(space).or_default();
        let has_room = *ranges < MAX_RANGES;
        *ranges += usize::from(has_room);
        has_room
    }

    /// Queues a block for further samples if they can decide about it.
    fn go_on(&mut self, key: (SpaceId, u64)) {
        let Some(block) = self.blocks.get_mut(&key) else {
            return;
        };
        let is_known = block.is_offered() || block.refused_until > self.pass;
        if (is_known && !block.is_checked) || block.is_queued || block.next >= BLOCK_PAGES {
            return;
        }
        let wanted = STAGE_PAGES[block.stage];
        let is_done = block.seen >= wanted;
        // A nearly empty block is not probed any further.
        if (is_done && block.stage + 1 < STAGE_PAGES.len())
            || (!is_done && block.probed < wanted * TRIES_A_PAGE)
        {
            block.stage += usize::from(is_done);
            block.is_queued = true;
            self.queue.push_back(key);
        }
    }

    /// Advice could not be passed on: the block is not offered, and is left alone for some passes.
    pub fn undo(&mut self, change: &AdviceChange) {
        if let Some(block) = self.blocks.get_mut(&(change.space, change.start)) {
            block.state = ProbeState::Watched;
            block.refusals += 1;
            block.refused_until = self.pass + (1 << block.refusals.min(6));
        }
    }

    /// All advice of offered blocks, of one space or of all.
    #[must_use]
    pub fn offered(&self, of: Option<SpaceId>) -> Vec<AdviceChange> {
        let offered = self.blocks.iter().filter(|((space, _), block)| {
            of.is_none_or(|of| of == *space) && block.state == ProbeState::Offered
        });
        let change = |(&(space, start), block): (&(SpaceId, u64), &Block)| AdviceChange {
            space,
            start,
            end: block.end,
            offer: false,
        };
        offered.map(change).collect()
    }

    /// Pages that a series would save, by the samples of this pass.
    #[must_use]
    pub fn gain(&self) -> u64 {
        let offered = self.blocks.iter().filter(|(_, block)| block.is_offered());
        let gain = offered.map(|(&(_, start), block)| {
            let pages = convert::float((block.end - start) / PAGE_SIZE);
            pages * f64::from(block.gain) / f64::from(block.seen.max(1))
        });
        convert::count(gain.sum())
    }

    /// Whether the gain is worth a series.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let gain = self.gain();
        gain >= MIN_GAIN && gain >= self.totals().offered_pages / GAIN_PART
    }

    /// The totals of all blocks.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            blocks: self.blocks.len() as u64,
            withdrawn: self.withdrawn,
            left_out: self.left_out,
            ..Totals::default()
        };
        for (&(_, start), block) in &self.blocks {
            let pages = (block.end - start) / PAGE_SIZE;
            match block.is_offered() {
                true => totals.offered_pages += pages,
                false => totals.other_pages += pages,
            }
        }
        totals
    }
}

#[cfg(test)]
mod tests;
