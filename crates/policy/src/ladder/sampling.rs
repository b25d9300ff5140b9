//! The choice of the next pages to read.
//!
//! # Problem
//! A call must be large enough to be cheap, small enough not to delay more urgent work, and sorted,
//! whatever the mixture of one-page samples and sweeps.
//!
//! # Approach
//! The top level is dense, and so is a level that gives a region samples for a quarter of its pages
//! in a round: a dense level sweeps 2 MiB blocks, the others sample page by page. Calls are bounded
//! by their expected cost. The bottom level also reads pages that no other level reads: anchors of
//! newcomers (at most half of a call), pages merged on trial, pages of regions whose lifetime class
//! dies young, and sparse mappings.
//!
//! # Source
//! UKSM §5.3.

use super::Ladder;
use super::level::Quota;
use crate::accounts::payer::Payer;
use crate::clock::Moment;
use crate::command::{Nanos, Run};
use crate::convert;
use crate::frugal_vec;
use crate::ids::{RegionId, SpaceSlot, Ticket};
use crate::params::MILLISECOND;
use crate::region::{BLOCK_PAGES, Permutations, Region, Regions, State};
use crate::spaces::Spaces;
use crate::spaces::region_lifetimes::RegionLifetimes;

/// Limit of the cost of one call.
const MAX_CALL_COST: Nanos = 5 * MILLISECOND;
/// Limit of the runs of one call, by the contract.
pub(crate) const MAX_RUNS: usize = uksm_interface::UKSM_MAX_RUNS;
/// Limit of the runs of one block: every other page is left out, and its first and last pages are
/// read.
const MAX_RUNS_OF_BLOCK: usize = BLOCK_PAGES as usize / 2 + 2;
/// Limit of the pages of one call: half of the contract's.
const MAX_PAGES: u64 = 8192;
/// Fewer pages are not worth a call.
const MIN_PAGES: u64 = 256;
/// Anchors of one region that are read in its turn.
const ANCHORS_IN_TURN: u64 = 8;
/// Number of regions, watched or on trial, that are read in one call.
const WATCHED_IN_TURN: usize = 64;
/// A page merged less than this time ago need not be read to see that it still is.
const FRESH_MERGE_TIME: Nanos = 500 * MILLISECOND;
/// Limit of probes of sparse mappings in one call.
const SPARSE_PROBES: usize = 64;
/// Limit of probes of regions that may die young in one call.
const YOUNG_PROBES: usize = 64;

/// The purpose of a pick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// One page of a region.
    Page,
    /// A whole block, or the part of it that is in the region.
    Block,
    /// One page that was merged on trial.
    Trial,
    /// One page of a region that is watched, to see whether it was written.
    Watch,
    /// One merged page of a block, to see whether the block is huge again.
    Merged,
    /// A page of a region, to see whether the region still exists.
    Alive,
    /// Some pages of a block that I/O has touched.
    Hint,
}

/// The pages of one run, with their purpose.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pick {
    /// Pages of a region.
    Region(RegionPick),
    /// One page of a sparse mapping of this space, to see whether there is a page.
    Sparse(SpaceSlot),
}

/// Pages of a region that are read in one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegionPick {
    /// The region.
    pub(crate) region: RegionId,
    /// The first page.
    pub(crate) page: u32,
    /// Number of pages.
    pub(crate) count: u32,
    /// The purpose.
    pub(crate) purpose: Purpose,
    /// The ticket of its hint, if it has one.
    pub(crate) ticket: Option<Ticket>,
}

impl Pick {
    /// Pages of the run.
    pub(crate) fn count(&self) -> u32 {
        match self {
            Pick::Region(pick) => pick.count,
            Pick::Sparse(_) => 1,
        }
    }
}

/// The pages of the next call.
#[derive(Debug)]
pub(crate) struct Selection {
    /// The level that reads them.
    pub(crate) level: usize,
    /// The payer: the level, or newcomers with a share of their own.
    pub(crate) payer: Payer,
    /// The runs, in the order that is best for the module.
    pub(crate) picks: Vec<(Run, Pick)>,
    /// Regions whose last block is among them.
    pub(crate) swept: Vec<RegionId>,
    /// The level's round ends with them.
    pub(crate) round_over: bool,
}

impl Selection {
    /// A selection without pages.
    pub(crate) fn new(level: usize, payer: Payer) -> Selection {
        Selection {
            level,
            payer,
            picks: vec![],
            swept: vec![],
            round_over: false,
        }
    }

    /// Puts the runs in the order that is best for the module.
    fn sort(&mut self) {
        let order = |(run, _): &(Run, Pick)| (run.space, run.start);
        if !self.picks.is_sorted_by_key(order) {
            // A pick is several times as large as its sort key.
            self.picks.sort_by_cached_key(order);
        }
    }

    /// The selection as a call of its own; none if it is empty.
    pub(crate) fn finish(mut self) -> Option<Selection> {
        self.sort();
        (!self.picks.is_empty()).then_some(self)
    }
}

/// The other parts that the ladder needs to choose pages.
pub(crate) struct Sources<'a> {
    /// The regions.
    pub(crate) regions: &'a mut Regions,
    /// Their spaces, and sparse mappings.
    pub(crate) spaces: &'a mut Spaces,
    /// The lifetime classes, some of which die young.
    pub(crate) lifetimes: &'a RegionLifetimes,
    /// The shortest time until a region is looked at again.
    pub(crate) shortest: Nanos,
}

impl Ladder {
    /// The pages of the next call for a level, if it may make one; a call without pages only ends
    /// its round. `may_sample_newcomers` returns whether the share of newcomers allows a call.
    pub(crate) fn select(
        &mut self,
        level: usize,
        may_sample_newcomers: impl FnOnce() -> bool,
        from: &mut Sources<'_>,
        at: Moment<'_>,
    ) -> Option<Selection> {
        let limit = self.call_limit(level);
        let mut selection = Selection::new(level, Payer::Newcomers);
        if level == 0 && may_sample_newcomers() {
            self.pick_anchors(&mut selection.picks, limit, from, at.now);
        }
        if selection.picks.is_empty() {
            if !self.levels[level].budget().is_ready(at.now) {
                return None;
            }
            selection.payer = Payer::level(level);
            self.pick_round(&mut selection, limit, from, at);
        }
        selection.sort();
        Some(selection)
    }

    /// Limit of the pages of a call for this level.
    pub(crate) fn call_limit(&self, level: usize) -> u64 {
        let affordable = convert::count(convert::float(MAX_CALL_COST) / self.sample_cost.each());
        affordable
            .clamp(MIN_PAGES, MAX_PAGES)
            .min(self.levels[level].stretch().max(MIN_PAGES))
    }

    /// Adds pages of the level's round up to `limit`, and the extra pages of the bottom level.
    fn pick_round(
        &mut self,
        selection: &mut Selection,
        limit: u64,
        from: &mut Sources<'_>,
        at: Moment<'_>,
    ) {
        let level = selection.level;
        if level == 0 {
            self.pick_extras(&mut selection.picks, limit / 2, from, at);
        }
        self.levels[level].begin(at.now, |id, level_slot| {
            from.regions[id].set_level_slot(level_slot);
        });
        let mut pages = selection.picks.len() as u64;
        while pages < limit && has_room_for_block(&selection.picks) {
            let Some(count) = self.pick(selection, from, at) else {
                break;
            };
            pages += count;
        }
    }

    /// Adds one pick of the level's round; returns the number of its pages, or none if the round is
    /// over.
    fn pick(
        &mut self,
        selection: &mut Selection,
        from: &mut Sources<'_>,
        at: Moment<'_>,
    ) -> Option<u64> {
        let level = selection.level;
        loop {
            if self.quotas[level].is_none() {
                if !self.levels[level].is_walking() {
                    return None;
                }
                let Some((id, samples)) = self.levels[level].next() else {
                    selection.round_over = true;
                    return None;
                };
                self.quotas[level] = Some(self.quota(level, id, samples, from.regions));
            }
            let quota = self.quotas[level].as_mut()?;
            let id = quota.region;
            let is_here = from
                .regions
                .find_ranked(id, 0)
                .is_some_and(|region| region.level() == level);
            if !is_here || (quota.pages == 0 && quota.blocks == 0) {
                self.quotas[level] = None;
                continue;
            }
            if quota.blocks == 0 {
                quota.pages -= 1;
                let page = from.regions[id].next_page(&self.permutations);
                push_page(&mut selection.picks, from, id, page, Purpose::Page);
                return Some(1);
            }
            quota.blocks -= 1;
            let (count, is_last) = push_block(selection, from, id, &self.permutations, at);
            if is_last {
                quota.blocks = 0;
            }
            return Some(count);
        }
    }

    fn quota(&self, level: usize, id: RegionId, samples: u32, regions: &Regions) -> Quota {
        let region = &regions[id];
        let is_dense = level == self.top()
            || (level > 0 && u64::from(samples) * 4 >= u64::from(region.pages()));
        if !is_dense {
            return Quota {
                region: id,
                pages: samples.min(region.pages()),
                blocks: 0,
            };
        }
        let left = region.blocks_left();
        let blocks = if samples >= region.weight() {
            left
        } else {
            samples.div_ceil(BLOCK_PAGES).clamp(1, left.max(1))
        };
        Quota {
            region: id,
            pages: 0,
            blocks,
        }
    }

    /// Adds the pages that only the bottom level reads.
    fn pick_extras(
        &mut self,
        picks: &mut Vec<(Run, Pick)>,
        limit: u64,
        from: &mut Sources<'_>,
        at: Moment<'_>,
    ) {
        self.pick_watched(picks, WATCHED_IN_TURN, from, at);
        self.pick_anchors(picks, limit, from, at.now);
        if at.now < self.probes_due {
            return;
        }
        self.probes_due = at.now + self.levels[0].round_time();
        self.pick_young(picks, from);
        pick_sparse(picks, from.spaces);
    }

    /// Anchors of newcomers, a few of each in turn, the newest first: enough for clones to show, in
    /// any order of arrival.
    pub(super) fn pick_anchors(
        &mut self,
        picks: &mut Vec<(Run, Pick)>,
        limit: u64,
        from: &mut Sources<'_>,
        now: Nanos,
    ) {
        let mut left = limit.min((MAX_RUNS - picks.len()) as u64);
        while left > 0
            && let Some(newcomer) = self.newcomers.pop_back()
        {
            let id = newcomer.id();
            let is_ranked = from.regions.find_ranked(id, 0).is_some();
            let turn = if is_ranked {
                left.min(ANCHORS_IN_TURN)
            } else {
                0
            };
            let mut taken = 0;
            while taken < turn
                && let Some(page) = from.regions[id].next_anchor(&self.permutations)
            {
                push_page(picks, from, id, page, Purpose::Page);
                taken += 1;
            }
            left -= taken;
            if is_ranked && taken == turn {
                self.newcomers.push_front(newcomer);
            } else if is_ranked {
                self.await_filling(id, from.regions, now, from.shortest);
                self.unswept.insert(newcomer.number(), id);
            }
        }
        frugal_vec::shrink(&mut self.newcomers);
    }

    /// Adds pages of waiting regions whose class died young, to see whether they still exist.
    fn pick_young(&self, picks: &mut Vec<(Run, Pick)>, from: &Sources<'_>) {
        let may_die = |region: &Region| {
            region.state() == State::Young && from.lifetimes.is_suspect(region.lifetime_class())
        };
        let ids = self
            .calendar
            .ids()
            .take(4 * YOUNG_PROBES)
            .filter(|&id| from.regions.find(id, 0).is_some_and(may_die))
            .take(YOUNG_PROBES);
        for id in ids {
            push_page(picks, from, id, 0, Purpose::Alive);
        }
    }
}

/// Adds pages of sparse mappings, of one space after the other, and of each mapping in turn.
fn pick_sparse(picks: &mut Vec<(Run, Pick)>, spaces: &mut Spaces) {
    for (slot, space, start) in spaces.sparse_probes(SPARSE_PROBES) {
        let run = Run {
            start,
            space,
            count: 1,
            stride: 1,
        };
        picks.push((run, Pick::Sparse(slot)));
    }
}

/// Whether the runs of a block fit into the same call.
pub(super) fn has_room_for_block(picks: &[(Run, Pick)]) -> bool {
    picks.len() + MAX_RUNS_OF_BLOCK <= MAX_RUNS
}

/// Adds the next block of a region's sweep; returns the number of its pages, and whether it is the
/// last. Pages merged just now are left out, except with the COW filter off: an operator who turns
/// that off wants written pages merged again at once.
pub(super) fn push_block(
    selection: &mut Selection,
    from: &mut Sources<'_>,
    id: RegionId,
    permutations: &Permutations,
    at: Moment<'_>,
) -> (u64, bool) {
    let region = &mut from.regions[id];
    let (block, is_last) = region.next_block(permutations, at.now);
    if is_last {
        selection.swept.push(id);
    }
    let since = match at.params.v_cow {
        Some(_) => at.now.saturating_sub(FRESH_MERGE_TIME.min(at.round)),
        None => Nanos::MAX,
    };
    let runs = region.next_runs(block, since);
    let mut pages = 0;
    for (page, count) in runs {
        let pick = RegionPick {
            region: id,
            page,
            count,
            purpose: Purpose::Block,
            ticket: None,
        };
        pages += u64::from(count);
        push_run(&mut selection.picks, from.regions, from.spaces, pick);
    }
    (pages, is_last)
}

/// Adds one page of a region.
pub(super) fn push_page(
    picks: &mut Vec<(Run, Pick)>,
    from: &Sources<'_>,
    region: RegionId,
    page: u32,
    purpose: Purpose,
) {
    let pick = RegionPick {
        region,
        page,
        count: 1,
        purpose,
        ticket: None,
    };
    push_run(picks, from.regions, from.spaces, pick);
}

/// Adds pages of a region that are read in one run.
pub(crate) fn push_run(
    picks: &mut Vec<(Run, Pick)>,
    regions: &Regions,
    spaces: &Spaces,
    pick: RegionPick,
) {
    let region = &regions[pick.region];
    let run = Run {
        start: region.address(pick.page),
        space: spaces.id(region.space()),
        count: pick.count,
        stride: 1,
    };
    picks.push((run, Pick::Region(pick)));
}
