//! The state machine: takes an observation, books what it cost, and says what to do next.
//!
//! # Problem
//! Finding processes, sampling four levels, merging, looking after frames and sleeping share one
//! thread and one budget, and must be replayable.
//!
//! # Approach
//! One command at a time. Each has a *turn* that says who asked for it and so whose clock its cost
//! is booked on. A step handles the answer, then asks in a fixed order who may go next: what was
//! begun (an answer not yet worked through, pages waiting to be merged), then what was asked for
//! (breaking), then looks at the host, frames, and the levels from the bottom up. Lower levels go
//! first because their shares are small: the top takes what is left. If nobody may go, it sleeps.
//!
//! The parts: `admission` (regions come, grow up and go), `sampling` (which pages to read),
//! `sampled` (what was read), `meeting` (who equals
//! whom), `folding` (what became of merges), `moves` (up and down the ladder),
//! `tuning` (hash strength, frames), `telling` (reports).
//!
//! # Units
//! Nanoseconds, pages.
//!
//! # Source
//! UKSM Figure 4 and §5.3.

mod admission;
mod folding;
mod meeting;
mod moves;
mod sampled;
mod sampling;
mod telling;
mod tuning;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::command::{Command, FrameId, Nanos, Observation, SpaceId};
use crate::discovery::{Discovery, Look};
use crate::fold_queue::{FoldQueue, Waiting};
use crate::folded::Outcomes;
use crate::frames::Frames;
use crate::hash::LineHash;
use crate::index::{Merged, Unmerged};
use crate::ladder::Level;
use crate::lifetime::Lifetimes;
use crate::pace::Pace;
use crate::params::{ParamError, Params, SECOND};
use crate::region::{Orders, Regions};
use crate::report::{MergedPages, MoveReport};
use crate::strength::{StrengthControl, Tally};
use sampled::Work;
use sampling::Quota;
use tuning::Listing;

/// Bytes the index of unmerged pages begins with; it grows with the memory that is followed.
const FIRST_INDEX: usize = 1 << 18;

/// For so long after the start the governor's share alone bounds what is done.
const WARM_UP: Nanos = SECOND;

/// Who asked for the command that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Nothing,
    Look(Look),
    Sample(usize),
    Fold(usize),
    Upkeep,
    Listing,
    Break,
    Sleep,
}

/// A space that is to be unmerged.
#[derive(Debug, Clone, Copy)]
struct Breaking {
    space: SpaceId,
    start: u64,
    end: u64,
}

/// The policy of one group: see the crate's documentation.
#[derive(Debug)]
pub struct Engine {
    params: Params,
    seed: u64,
    started: Option<Nanos>,
    now: Nanos,
    turn: Turn,
    /// Length of a global round.
    round: Nanos,
    /// The share of the governor, for everything together.
    total: Pace,
    recent: Recent,
    /// What waking has cost since somebody last paid.
    wake_cost: Nanos,

    hash: LineHash,
    orders: Orders,
    discovery: Discovery,
    regions: Regions,
    levels: Vec<Level>,
    quotas: Vec<Option<Quota>>,
    lives: Lifetimes,
    /// When to look at a region that is not on the ladder, or to call it grown.
    calendar: BTreeSet<(Nanos, u32)>,
    /// Regions whose anchors are still to be looked at.
    fresh: VecDeque<u32>,
    /// Regions with pages merged on trial.
    trials: BTreeSet<u32>,
    /// When to look at expanses and at regions that may die young.
    probes_due: Nanos,

    unmerged: Unmerged,
    merged: Merged,
    frames: Frames,
    /// Frames without room for sharers, and how many they had.
    full: BTreeMap<FrameId, u32>,
    upkeep: Pace,
    listing: Option<Listing>,

    strength: u16,
    settled: u16,
    control: Option<StrengthControl>,
    tally: Tally,
    frame_cost: f64,
    strength_changes: u64,
    /// When a region was last promoted, or the start.
    last_rise: Nanos,

    work: Work,
    queue: FoldQueue,
    in_flight: Vec<Waiting>,
    flush: bool,
    drained: Option<Nanos>,
    /// No frames are to be had before this.
    frames_wait: Nanos,
    frames_waits: u32,
    sample_cost: f64,

    breaks: VecDeque<Breaking>,
    breaks_stopped: u64,
    broken: u64,

    outcomes: Outcomes,
    merged_pages: MergedPages,
    merged_now: u64,
    moves: MoveReport,
    thp_split: u64,
    thp_kept: u64,
    sampled: u64,
}

/// The share used lately: over the last window of a second or more.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    begun: Nanos,
    used: Nanos,
    share: f64,
}

impl Engine {
    /// An engine that knows nothing yet. `seed` is the domain's hash seed; everything the engine
    /// does at random comes from it, too.
    ///
    /// # Errors
    /// A parameter out of bounds or in contradiction to another.
    pub fn new(params: Params, seed: u64) -> Result<Engine, ParamError> {
        params.check()?;
        let strength = params.strength.unwrap_or(crate::strength::START);
        let levels = Level::all(&params);
        let mut unmerged = Unmerged::with_bytes(params.index_bytes.min(FIRST_INDEX));
        unmerged.set_era(era(strength));
        Ok(Engine {
            seed,
            started: None,
            now: 0,
            turn: Turn::Nothing,
            round: params.global_round(),
            total: Pace::new(params.cpu, params.sleep),
            recent: Recent::default(),
            wake_cost: 0,
            hash: LineHash::new(seed),
            orders: Orders::new(seed),
            discovery: Discovery::new(&params),
            regions: Regions::default(),
            quotas: vec![None; levels.len()],
            levels,
            lives: Lifetimes::new(params.v_life),
            calendar: BTreeSet::new(),
            fresh: VecDeque::new(),
            trials: BTreeSet::new(),
            probes_due: 0,
            unmerged,
            merged: Merged::new(),
            frames: Frames::new(),
            full: BTreeMap::new(),
            upkeep: Pace::new(params.bottom_cpu / 4.0, params.sleep),
            listing: Some(Listing::learn(strength)),
            strength,
            settled: strength,
            control: params.strength.is_none().then(StrengthControl::new),
            tally: Tally::default(),
            frame_cost: 500.0,
            strength_changes: 0,
            last_rise: 0,
            work: Work::default(),
            queue: FoldQueue::new(),
            in_flight: vec![],
            flush: false,
            drained: None,
            frames_wait: 0,
            frames_waits: 0,
            sample_cost: 1000.0,
            breaks: VecDeque::new(),
            breaks_stopped: 0,
            broken: 0,
            outcomes: Outcomes::default(),
            merged_pages: MergedPages::default(),
            merged_now: 0,
            moves: MoveReport::default(),
            thp_split: 0,
            thp_kept: 0,
            sampled: 0,
            params,
        })
    }

    /// Takes in the answer to the last command and says what to do next.
    ///
    /// `now` never goes back; `cost` is the processor time, user and kernel, spent since the last
    /// step, this engine's own included. The first step takes [`Observation::Started`].
    ///
    /// # Panics
    /// If the observation answers another command than the last one.
    pub fn step(&mut self, now: Nanos, cost: Nanos, observation: Observation) -> Command {
        self.now = self.now.max(now);
        if self.started.is_none() {
            self.started = Some(self.now);
            self.recent.begun = self.now;
            self.last_rise = self.now;
        }
        self.book(cost);
        self.observe(observation, cost);
        let (turn, command) = self.choose();
        self.turn = turn;
        command
    }

    /// Leaves a space alone from now on. Merged pages stay merged.
    pub fn stop_space(&mut self, space: SpaceId) {
        if let Some(slot) = self.discovery.slot(space) {
            self.discovery.space_mut(slot).stopped = true;
            self.drop_regions(slot);
        }
    }

    /// Leaves a space alone from now on and gives its merged pages their own copies again. Those
    /// that cannot be had for lack of memory stay merged; see [`Engine::is_breaking`].
    pub fn break_space(&mut self, space: SpaceId) {
        if let Some(slot) = self.discovery.slot(space) {
            let ranges = self.merged_ranges(slot);
            self.breaks
                .extend(
                    ranges
                        .into_iter()
                        .map(|(start, end)| Breaking { space, start, end }),
                );
        }
        // What is merged and not known to be: one call for the rest, holes cost nothing.
        self.breaks.push_back(Breaking {
            space,
            start: 0,
            end: 1 << 47,
        });
        self.stop_space(space);
    }

    /// Whether spaces are still being unmerged.
    #[must_use]
    pub fn is_breaking(&self) -> bool {
        !self.breaks.is_empty() || self.turn == Turn::Break
    }

    fn top(&self) -> usize {
        self.levels.len() - 1
    }

    /// Rounds since the start: the clock of the index.
    fn round_number(&self) -> u32 {
        crate::number::narrow((self.now - self.started.unwrap_or(self.now)) / self.round)
    }

    fn book(&mut self, cost: Nanos) {
        self.total.charge(self.now, cost);
        self.recent.used += cost;
        let window = self.now - self.recent.begun;
        if window >= SECOND {
            self.recent = Recent {
                begun: self.now,
                used: 0,
                share: crate::number::ratio(self.recent.used, window),
            };
        }
        // Waking is paid by whoever comes next: one who had to pay for it before his turn would
        // fall back into debt and never have it.
        if self.turn == Turn::Sleep {
            self.wake_cost += cost;
            return;
        }
        let cost = cost + std::mem::take(&mut self.wake_cost);
        let is_warming_up = self.now - self.started.unwrap_or(self.now) < WARM_UP;
        match self.turn {
            // The first touch of code and memory is the governor's: at the bottom's share it would
            // be paid for by seconds of silence.
            Turn::Look(_) | Turn::Sample(0) | Turn::Fold(0) if is_warming_up => {}
            Turn::Look(look) => self.discovery.charge(look == Look::Census, self.now, cost),
            Turn::Sample(_) | Turn::Fold(_) if self.work.newcomers => {
                self.discovery.charge_newcomers(self.now, cost);
            }
            Turn::Sample(level) | Turn::Fold(level) => {
                self.levels[level].pace.charge(self.now, cost);
            }
            Turn::Upkeep => self.upkeep.charge(self.now, cost),
            Turn::Nothing | Turn::Listing | Turn::Break | Turn::Sleep => {}
        }
    }

    fn observe(&mut self, observation: Observation, cost: Nanos) {
        match (self.turn, observation) {
            (Turn::Nothing, Observation::Started) | (Turn::Sleep, Observation::Woke) => {}
            (
                Turn::Look(Look::Census),
                Observation::Census {
                    arrived,
                    left,
                    resident,
                },
            ) => {
                self.on_census(&arrived, &left);
                for (space, pages) in resident {
                    self.on_resident(space, pages);
                }
            }
            (Turn::Look(Look::Survey(slot)), Observation::Surveyed { space, mappings }) => {
                self.on_survey(slot, space, &mappings);
            }
            (Turn::Sample(level), Observation::Sampled(pages)) => {
                self.on_sampled(level, pages, cost)
            }
            (Turn::Fold(level), Observation::Folded(outcomes)) => {
                self.on_folded(level, &outcomes, cost)
            }
            (Turn::Upkeep, Observation::Frames { frames, cursor }) => {
                self.on_upkeep(&frames, cursor)
            }
            (Turn::Listing, Observation::Frames { frames, cursor }) => {
                self.on_listing(&frames, cursor, cost);
            }
            (Turn::Break, Observation::Broken { pages, stopped }) => self.on_broken(pages, stopped),
            (turn, observation) => panic!("{observation:?} does not answer {turn:?}"),
        }
    }

    fn choose(&mut self) -> (Turn, Command) {
        self.read_calendar();
        self.work_through();
        if self.flush && self.queue.len() > 0 && self.total.is_ready(self.now) {
            return self.fold();
        }
        if !self.total.is_ready(self.now) {
            return self.sleep();
        }
        if let Some(&Breaking { space, start, end }) = self.breaks.front() {
            return (Turn::Break, Command::Break { space, start, end });
        }
        if let Some(command) = self.tune() {
            return (Turn::Listing, command);
        }
        if let Some(look) = self.discovery.next(self.now) {
            let command = match look {
                Look::Census => Command::Census,
                Look::Survey(slot) => Command::Survey(self.discovery.space(slot).id),
            };
            return (Turn::Look(look), command);
        }
        if self.now >= self.frames.due() && self.upkeep.is_ready(self.now) {
            return (Turn::Upkeep, self.list_frames());
        }
        for level in 0..self.levels.len() {
            if let Some(command) = self.sample(level) {
                return (Turn::Sample(level), command);
            }
        }
        if self.queue.len() > 0 {
            return self.fold();
        }
        self.sleep()
    }

    /// Sleeps until somebody may go on, and at least T_s.
    fn sleep(&mut self) -> (Turn, Command) {
        let now = self.now;
        let mut until = self.discovery.due_at(now);
        if !self.merged.is_empty() || self.frames.cursor != 0 || self.frames.len() > 0 {
            until = until.min(self.frames.due().max(self.upkeep.ready_at(now)));
        }
        if let Some(&(due, _)) = self.calendar.first() {
            until = until.min(due);
        }
        for level in &self.levels {
            if let Some(due) = level.due_at(now) {
                until = until.min(due.max(level.pace.ready_at(now)));
            }
        }
        if !self.fresh.is_empty() {
            let first = self.levels[0].pace.ready_at(now);
            until = until.min(self.discovery.newcomers_at(now).min(first));
        }
        let until = until
            .max(self.total.ready_at(now))
            .max(now + self.params.sleep);
        (Turn::Sleep, Command::Sleep { until })
    }

    fn on_broken(&mut self, pages: u64, stopped: bool) {
        self.broken += pages;
        self.frames.stir(self.now);
        let done = self.breaks.pop_front().expect("a break was under way");
        if stopped {
            // More would need memory that is not there: the rest of this space stays merged.
            self.breaks.retain(|other| other.space != done.space);
            self.breaks_stopped += 1;
        }
    }
}

/// The era of the index in which hashes of this strength live.
fn era(strength: u16) -> u8 {
    u8::try_from(strength).expect("strengths are at most 64")
}

#[cfg(test)]
mod tests;
