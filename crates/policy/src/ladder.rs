//! The ladder: its levels, their members, moves between them, and the next samples (UKSM §5.2,
//! §5.3).
//!
//! # Problem
//! Regions come, grow old enough, rise, fall, are refused, get lost and go, while rounds walk over
//! them; and the bottom level also reads the pages that no other part reads.
//!
//! # Approach
//! [`level`] is one level and its round. [`membership`] puts regions on the ladder and takes them
//! off, and keeps the calendar of waiting regions. [`promotion`] moves them up and down.
//! [`sampling`] chooses the pages of the next call, [`first_sweep`] those of a call in unused time.
//! The state of a region is in the region; the ladder only has its place.

mod calendar;
mod first_sweep;
pub(crate) mod level;
mod membership;
mod promotion;
mod rewrite_checks;
pub(crate) mod sampling;
mod watch_schedule;

use std::collections::VecDeque;

use crate::accounts::budget::CpuBudget;
use crate::accounts::page_cost::PageCost;
use crate::accounts::payer::Payer;
use crate::command::Nanos;
use crate::convert;
use crate::params::{Params, SECOND};
use crate::region::{Permutations, Region, Regions, State};
use crate::report::{LevelReport, PromotionReport, SamplingReport};
use calendar::{Calendar, Note};
use level::{Level, Quota};

/// Cost of a page, in nanoseconds, assumed until it is measured.
const FIRST_COST: f64 = 1000.0;

/// Limit of the regions of one step, from a list that may have all of them: a few milliseconds.
const MAX_IN_STEP: usize = 16_384;
/// The part of the bottom level's share that watching processes and frames may use.
const WATCHING_SHARE: f64 = 0.75;
/// The part of the bottom level's share that checks may use.
const CHECKS_SHARE: f64 = 0.5;
/// The part of the governor's share for looks at regions that are watched or on trial.
const LOOKS_SHARE: f64 = 1.0 / 32.0;
/// Rounds of the bottom level without news after which the host counts as calm, and the part of its
/// samples that the level takes then.
const CALM_ROUNDS: u32 = 16;
const CALM_PART: f64 = 0.1;
/// Lists of a large host come in bursts: their time is given this long ahead at once.
const WATCHED_IN_ADVANCE: Nanos = 2 * SECOND;

/// The levels, and all that decides about their reads.
#[derive(Debug)]
pub(crate) struct Ladder {
    /// Bottom first.
    levels: Vec<Level>,
    /// The rest of the current member's part of the round, by level.
    quotas: Vec<Option<Quota>>,
    /// The part of the bottom level's share that pays for watching processes and frames.
    watching: CpuBudget,
    permutations: Permutations,
    /// The times when regions are old enough, are tried again, may have been filled, or count as
    /// grown.
    calendar: Calendar,
    /// The number of newcomers so far.
    arrivals: u64,
    /// Regions with anchors still to be read, with the number of their arrival: the next one last.
    newcomers: VecDeque<Note>,
    /// Regions that may be due for a first sweep, by arrival.
    unswept: Calendar,
    /// Pages read by first sweeps.
    swept_first: u64,
    /// The times of looks at regions that are watched or on trial, and the budget of these looks
    /// beside the bottom level's share.
    watched: Calendar,
    looking: CpuBudget,
    /// The times of checks of swept regions, and their budget.
    checks: Calendar,
    checking: CpuBudget,
    /// The time of the next probes of sparse mappings, and of regions that may die young.
    probes_due: Nanos,
    /// Cost of a page in the last calls.
    sample_cost: PageCost,
    /// Cost of one wake-up.
    waking: Nanos,
    counts: PromotionReport,
    /// Whether there was a newcomer, a promotion or a reason for a sweep in this round of the
    /// bottom level, and the number of rounds without any before it.
    has_news: bool,
    calm_rounds: u32,
}

impl Ladder {
    /// The levels of `params`, without members. `seed` decides the order in which regions are read.
    pub(crate) fn new(params: &Params, seed: u64) -> Ladder {
        let levels = Level::all(params);
        Ladder {
            quotas: vec![None; levels.len()],
            watching: CpuBudget::new(params.bottom_cpu * WATCHING_SHARE, WATCHED_IN_ADVANCE),
            levels,
            permutations: Permutations::new(seed),
            calendar: Calendar::default(),
            arrivals: 0,
            newcomers: VecDeque::new(),
            unswept: Calendar::default(),
            swept_first: 0,
            watched: Calendar::default(),
            looking: CpuBudget::new(params.cpu * LOOKS_SHARE, WATCHED_IN_ADVANCE),
            checks: Calendar::default(),
            checking: CpuBudget::new(params.bottom_cpu * CHECKS_SHARE, WATCHED_IN_ADVANCE),
            probes_due: 0,
            sample_cost: PageCost::new(FIRST_COST, 20.0, 1000.0),
            waking: 0,
            counts: PromotionReport::default(),
            has_news: false,
            calm_rounds: 0,
        }
    }

    /// A round of the bottom level is over: after some without news the level takes a part of its
    /// samples only, until there are news. Its share stays, since it pays for others, too.
    fn end_bottom_round(&mut self) {
        self.calm_rounds = match std::mem::take(&mut self.has_news) {
            true => 0,
            false => self.calm_rounds.saturating_add(1),
        };
        let is_calm = self.calm_rounds >= CALM_ROUNDS;
        self.levels[0].set_part(if is_calm { CALM_PART } else { 1.0 });
    }

    /// The governor's share has changed.
    pub(crate) fn take_shares(&mut self, params: &Params) {
        for (level, share) in self.levels.iter_mut().zip(params.shares()) {
            level.budget().set_share(share);
        }
        self.looking.set_share(params.cpu * LOOKS_SHARE);
    }

    /// The top level.
    pub(crate) fn top(&self) -> usize {
        self.levels.len() - 1
    }

    /// All levels, bottom first.
    pub(crate) fn level_numbers(&self) -> std::ops::Range<usize> {
        0..self.levels.len()
    }

    /// Pages of the regions on the ladder.
    pub(crate) fn total(&self) -> u64 {
        self.levels.iter().map(Level::total).sum()
    }

    /// Sets the cost of one wake-up.
    pub(crate) fn note_waking(&mut self, cost: Nanos) {
        self.waking = cost;
    }

    /// The expected cost of reading `pages` single pages.
    fn expected_cost(&self, pages: usize) -> Nanos {
        convert::nanos(convert::float(pages as u64) * self.sample_cost.each())
    }

    /// The share of a level, to be charged.
    pub(crate) fn budget(&mut self, level: usize) -> &mut CpuBudget {
        self.levels[level].budget()
    }

    /// Watching processes of which none came or changed, or frames that are all in use, has cost
    /// this much. On an idle host that and the bottom level's samples together cost the bottom's
    /// share, not each a share of its own.
    pub(crate) fn owes_watching(&mut self, now: Nanos, cost: Nanos) {
        if self.watching.is_ready(now) {
            self.watching.charge(now, cost);
            self.levels[0].budget().owe(now, cost);
        }
    }

    /// Work for a level has cost this much: on its samples, or on merging its pages.
    pub(crate) fn worked(&mut self, level: usize, cost: Nanos) {
        self.levels[level].worked(cost);
    }

    /// `samples` pages were sampled for `payer`, for `cost`.
    pub(crate) fn measured(&mut self, payer: Payer, samples: u64, cost: Nanos) {
        match payer {
            Payer::Level(level) => self.levels[usize::from(level)].measured(samples, cost),
            Payer::Spare => self.swept_first += samples,
            _ => self.levels[0].measured(samples, cost),
        }
        self.sample_cost.measured(samples, cost);
    }

    /// The time at which a part of the ladder is due and may run. Newcomers are also paid from a
    /// share of their own, which is ready at `newcomers_at`. The bottom level probes sparse
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

    /// Memory used by the lists of members, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.levels.iter().map(Level::bytes).sum()
    }

    /// The figures of the levels, bottom first.
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

    /// The samples of all levels.
    pub(crate) fn report_sampling(&self) -> SamplingReport {
        SamplingReport {
            pages: self.levels.iter().map(Level::sampled).sum::<u64>() + self.swept_first,
            swept_first: self.swept_first,
        }
    }

    /// Counts of moves, and of regions held back.
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
