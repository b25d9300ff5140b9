//! The ladder: its levels, who is on them, who moves, and what is sampled next (UKSM §5.2, §5.3).
//!
//! # Problem
//! Regions come, grow old enough, rise, fall, are refused, get lost and go, while rounds walk over
//! them; and the bottom level also reads what nobody else does.
//!
//! # Approach
//! [`level`] is one level and its round. [`membership`] puts regions on the ladder and takes them
//! off, and keeps the calendar of those that wait. [`promotion`] moves them up and down.
//! [`sampling`] chooses the pages of the next call, [`first_sweep`] those of a call that nobody
//! else needs the time for. A region's own state is in the region; what is here is who is where.

mod calendar;
mod checks;
mod first_sweep;
pub(crate) mod level;
mod membership;
mod promotion;
pub(crate) mod sampling;
mod spread;
mod watched;

use std::collections::VecDeque;

use crate::accounts::budget::CpuBudget;
use crate::accounts::page_cost::PageCost;
use crate::accounts::payer::Payer;
use crate::command::Nanos;
use crate::convert;
use crate::hash::adaptive::ReadingCost;
use crate::params::{Params, SECOND};
use crate::region::{Permutations, Region, Regions, State};
use crate::report::{LevelReport, PromotionReport, SamplingReport};
use calendar::{Calendar, Note};
use level::{Level, Quota};
use spread::Spread;

/// What a page is assumed to cost until some were sampled.
const FIRST_COST: f64 = 1000.0;

/// Regions that one step looks at because of a list that may have all of them: a few milliseconds.
const MAX_IN_STEP: usize = 16_384;
/// So much of the bottom level's share goes to watching processes and frames at most.
const WATCHING: f64 = 0.75;
/// So much of it goes to checks at most.
const CHECKING: f64 = 0.5;
/// So much of all that may be used goes to looks at what is watched or on trial.
const LOOKING: f64 = 1.0 / 32.0;
/// Lists of a large host come in bursts: that for so long ahead is given at once.
const WATCHED_IN_ADVANCE: Nanos = 2 * SECOND;

/// The levels, and all that decides what they read.
#[derive(Debug)]
pub(crate) struct Ladder {
    /// Bottom first.
    levels: Vec<Level>,
    /// What the member whose turn it is has left, by level.
    quotas: Vec<Option<Quota>>,
    /// What the bottom level gives to watching processes and frames, of its own share.
    watching: CpuBudget,
    permutations: Permutations,
    /// When a region is old enough, is tried again, may have been filled, or counts as grown.
    calendar: Calendar,
    /// How many newcomers there were.
    arrivals: u64,
    /// Regions whose anchors are still to be read, with the number of their arrival: the next one
    /// last.
    newcomers: VecDeque<Note>,
    /// Regions that may be due for a first sweep, by arrival.
    unswept: Calendar,
    /// Pages read by first sweeps.
    swept_first: u64,
    /// How far a search has gone through the regions.
    spread: Spread,
    /// When regions that are watched or on trial are looked at, and what that may cost beside the
    /// bottom level's share.
    watched: Calendar,
    looking: CpuBudget,
    /// When regions that were swept are checked, and what that may cost.
    checks: Calendar,
    checking: CpuBudget,
    /// When sparse mappings, and regions that may die young, are next looked into.
    probes_due: Nanos,
    /// Cost of a page of the last calls.
    sample_cost: PageCost,
    /// Cost of the work on a page that they brought, and the pages that it is not known of yet.
    work_cost: PageCost,
    brought: u64,
    /// What it costs to wake once.
    waking: Nanos,
    /// When a region was last promoted, or the start.
    last_promotion: Nanos,
    counts: PromotionReport,
}

impl Ladder {
    /// The levels of `params`, without members. `seed` decides in which order regions are read.
    pub(crate) fn new(params: &Params, seed: u64) -> Ladder {
        let levels = Level::all(params);
        Ladder {
            quotas: vec![None; levels.len()],
            watching: CpuBudget::new(params.bottom_cpu * WATCHING, WATCHED_IN_ADVANCE),
            levels,
            permutations: Permutations::new(seed),
            calendar: Calendar::default(),
            arrivals: 0,
            newcomers: VecDeque::new(),
            unswept: Calendar::default(),
            swept_first: 0,
            spread: Spread::default(),
            watched: Calendar::default(),
            looking: CpuBudget::new(params.cpu * LOOKING, WATCHED_IN_ADVANCE),
            checks: Calendar::default(),
            checking: CpuBudget::new(params.bottom_cpu * CHECKING, WATCHED_IN_ADVANCE),
            probes_due: 0,
            sample_cost: PageCost::new(FIRST_COST, 20.0, 1000.0),
            work_cost: PageCost::new(FIRST_COST, 20.0, 1000.0),
            brought: 0,
            waking: 0,
            last_promotion: 0,
            counts: PromotionReport::default(),
        }
    }

    /// The governor's share has changed.
    pub(crate) fn take_shares(&mut self, params: &Params) {
        for (level, share) in self.levels.iter_mut().zip(params.shares()) {
            level.budget().set_share(share);
        }
        self.looking.set_share(params.cpu * LOOKING);
    }

    /// The run starts.
    pub(crate) fn start(&mut self, now: Nanos) {
        self.last_promotion = now;
    }

    /// The top level.
    pub(crate) fn top(&self) -> usize {
        self.levels.len() - 1
    }

    /// All levels, bottom first.
    pub(crate) fn level_numbers(&self) -> std::ops::Range<usize> {
        0..self.levels.len()
    }

    /// When a region was last promoted, or the start.
    pub(crate) fn last_promotion(&self) -> Nanos {
        self.last_promotion
    }

    /// Pages of the regions on the ladder.
    pub(crate) fn total(&self) -> u64 {
        self.levels.iter().map(Level::total).sum()
    }

    /// What it would cost to read all pages once, and so many that are indexed.
    pub(crate) fn reading_cost(&self, indexed: u64) -> ReadingCost {
        let each = self.sample_cost.each() + self.work_cost.each();
        ReadingCost {
            pages: self.total(),
            all: convert::float(self.total()) * each,
            indexed: convert::float(indexed) * each,
        }
    }

    /// What it costs to wake once.
    pub(crate) fn note_waking(&mut self, cost: Nanos) {
        self.waking = cost;
    }

    /// What it is expected to cost to read so many single pages.
    fn expected_cost(&self, pages: usize) -> Nanos {
        convert::nanos(convert::float(pages as u64) * self.sample_cost.each())
    }

    /// The share of a level, to be charged.
    pub(crate) fn budget(&mut self, level: usize) -> &mut CpuBudget {
        self.levels[level].budget()
    }

    /// To watch processes of which none came or changed, or frames that nobody gave up, has cost
    /// this much. On an idle host that and the bottom level's samples together cost the bottom's
    /// share, not each a share of its own.
    pub(crate) fn owes_watching(&mut self, now: Nanos, cost: Nanos) {
        if self.watching.is_ready(now) {
            self.watching.charge(now, cost);
            self.levels[0].budget().owe(now, cost);
        }
    }

    /// Merging what a level found has cost this much.
    pub(crate) fn merged(&mut self, level: usize, cost: Nanos) {
        self.levels[level].worked(cost);
    }

    /// Working through what was sampled for `payer` has cost this much.
    pub(crate) fn worked(&mut self, payer: Payer, cost: Nanos) {
        if let Payer::Level(level) = payer {
            self.levels[usize::from(level)].worked(cost);
        }
        self.work_cost
            .measured(std::mem::take(&mut self.brought), cost);
    }

    /// `samples` pages were sampled for `payer`, for `cost`.
    pub(crate) fn measured(&mut self, payer: Payer, samples: u64, cost: Nanos) {
        match payer {
            Payer::Level(level) => self.levels[usize::from(level)].measured(samples, cost),
            Payer::Spare => self.swept_first += samples,
            _ => self.levels[0].measured(samples, cost),
        }
        self.sample_cost.measured(samples, cost);
        self.brought = samples;
    }

    /// When something of the ladder is due and may be done. Newcomers are paid from a share of
    /// their own, too, which is ready at `newcomers_at`. The bottom level looks into sparse
    /// mappings even where it has no region.
    pub(crate) fn due_at(
        &self,
        now: Nanos,
        newcomers_at: Nanos,
        has_sparse_mappings: bool,
    ) -> Option<Nanos> {
        let calendar = self.calendar.first_due();
        let levels = self.levels.iter().filter_map(|level| level.ready_at(now));
        let bottom_at = self.levels[0].share_ready_at(now);
        let newcomers = (!self.newcomers.is_empty()).then(|| newcomers_at.min(bottom_at));
        let probes = has_sparse_mappings.then(|| self.probes_due.max(bottom_at));
        let is_any_spare = !self.unswept.is_empty() || !self.newcomers.is_empty();
        let spare = is_any_spare.then_some(now);
        let (checks, looks) = (self.checks_due_at(now), self.looks_due_at(now));
        let due = [calendar, newcomers, probes, spare, checks, looks];
        let due = due.into_iter().flatten();
        levels.chain(due).min()
    }

    /// Bytes that the lists of members take.
    pub(crate) fn bytes(&self) -> usize {
        self.levels.iter().map(Level::bytes).sum()
    }

    /// What the levels have done, bottom first.
    pub(crate) fn report_levels(&self, regions: &Regions) -> Vec<LevelReport> {
        let mut pages = vec![0; self.levels.len()];
        for region in regions.iter().filter(|r| r.state() == State::Ranked) {
            pages[region.level()] += u64::from(region.pages());
        }
        let levels = self.levels.iter().zip(pages);
        (1..)
            .zip(levels)
            .map(|(number, (level, pages))| level.report(number, pages))
            .collect()
    }

    /// What all levels have sampled.
    pub(crate) fn report_sampling(&self) -> SamplingReport {
        SamplingReport {
            pages: self.levels.iter().map(Level::sampled).sum::<u64>() + self.swept_first,
            swept_first: self.swept_first,
        }
    }

    /// What moved, and what was held back.
    pub(crate) fn report_promotions(&self) -> PromotionReport {
        self.counts
    }

    /// The members of a level.
    #[cfg(test)]
    pub(crate) fn members(&self, level: usize) -> impl Iterator<Item = crate::ids::RegionId> + '_ {
        self.levels[level].members()
    }

    /// Whether a region is swept: it is on the top level.
    pub(crate) fn is_on_top(&self, region: &Region) -> bool {
        region.level() == self.top()
    }
}
