//! The state machine: takes an observation, books what it cost, and says what to do next.
//!
//! # Problem
//! Finding processes, sampling four levels, merging, looking after frames and sleeping share one
//! thread and one budget, and must be replayable.
//!
//! # Approach
//! One command at a time. Each has a *turn* that says who asked for it, and a *payer* on whose
//! clock its cost is booked. A step handles the answer, then asks in a fixed order who may go next: what was
//! begun (an answer not yet worked through, pages waiting to be merged), then what was asked for
//! (breaking), then looks at the host, frames, and the levels from the bottom up. Lower levels go
//! first because their shares are small: the top takes what is left. If nobody may go, it sleeps.
//!
//! A command for which there was no memory is tried again before anything else is done, each time
//! after twice the wait: nothing is lost, and nobody is pressed.
//!
//! The parts: `booking` (who pays), `admission` (regions come, grow up and go), `sampling` (which pages to read),
//! `sampled` (what was read), `meeting` (who equals
//! whom), `folding` (what became of merges), `moves` (up and down the ladder),
//! `tuning` (hash strength, frames), `telling` (reports).
//!
//! # Units
//! Nanoseconds, pages.
//!
//! # Source
//! UKSM Figure 4 and §5.3.

mod accounts;
mod gathering;
#[path = "merge/matching.rs"]
mod lookup;
mod mappings;
#[path = "engine/outcomes.rs"]
mod merged;
#[path = "ladder/promotion.rs"]
mod promotion;
mod report;
mod sampled;
#[path = "ladder/sampling.rs"]
mod sampling;
mod strength;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::accounts::budget::CpuBudget;
use crate::accounts::payer::{BatchPayers, Payer};
use crate::command::{Command, FrameId, Nanos, Observation, PAGE_SIZE, SpaceId, Spent};
use crate::hash::LineHash;
use crate::hash::strength::{StrengthControl, Tally};
use crate::ladder::level::Level;
use crate::lookup::frames::Frames;
use crate::lookup::{Merged, Unmerged};
use crate::merge::outcomes::Outcomes;
use crate::merge::queue::{FoldQueue, Waiting};
use crate::params::{ParamError, Params, SECOND};
use crate::region::{Permutations, Regions};
use crate::report::{MergedPages, PromotionReport};
use crate::spaces::lifetime::Lifetimes;
use crate::spaces::{Discover, Discovery};
use sampled::SampleAnswer;
use sampling::Quota;
use strength::Rehash;

/// Bytes the index of unmerged pages begins with; it grows with the memory that is followed.
const FIRST_INDEX: usize = 1 << 18;

/// For so long after the start the governor's share alone bounds what is done.
const WARM_UP: Nanos = SECOND;

/// One past the last page of user space, with page tables of four levels.
const USER_END: u64 = (1 << 47) - PAGE_SIZE;

/// The longest wait before a command is tried again for which there was no memory.
const LONGEST_AGAIN: Nanos = 2 * SECOND;

/// Who asked for the command that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Nothing,
    Discover(Discover),
    Sample(usize),
    Fold,
    Reap,
    Rehash,
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
    total: CpuBudget,
    recent: Recent,
    /// What waking has cost since somebody last paid.
    wake_cost: Nanos,
    /// Who pays for the command under way, and for working through the answer before.
    payer: Payer,
    answered: Payer,
    /// Who pays for the pages of the last batch.
    batch: BatchPayers,
    /// A command to be tried again, and from when on.
    again: Option<(Turn, Command)>,
    again_at: Nanos,
    again_wait: Nanos,
    shortages: u64,

    hash: LineHash,
    permutations: Permutations,
    discovery: Discovery,
    regions: Regions,
    levels: Vec<Level>,
    quotas: Vec<Option<Quota>>,
    lifetimes: Lifetimes,
    /// When to look at a region that is not on the ladder, or to call it grown.
    calendar: BTreeSet<(Nanos, u32)>,
    /// Regions whose anchors are still to be looked at.
    newcomers: VecDeque<u32>,
    /// Regions with pages merged on trial, and who was asked for them last.
    trials: BTreeSet<u32>,
    trial_turn: u32,
    /// Expanses of all spaces, and the space that was looked into last.
    sparse_mappings: usize,
    sparse_turn: SpaceId,
    /// Surveys that could not be made.
    unread: u64,
    /// When to look at expanses and at regions that may die young.
    probes_due: Nanos,

    unmerged: Unmerged,
    merged: Merged,
    frames: Frames,
    /// Frames without room for sharers, and how many they had.
    full: BTreeMap<FrameId, u32>,
    reap_budget: CpuBudget,
    listing: Option<Rehash>,

    strength: u16,
    settled: u16,
    control: Option<StrengthControl>,
    tally: Tally,
    frame_cost: f64,
    strength_changes: u64,
    /// When a region was last promoted, or the start.
    last_promotion: Nanos,

    work: SampleAnswer,
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
    promotions: PromotionReport,
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
        let strength = params.strength.unwrap_or(crate::hash::strength::START);
        let levels = Level::all(&params);
        let mut unmerged = Unmerged::with_bytes(params.index_bytes.min(FIRST_INDEX));
        unmerged.set_era(era(strength));
        Ok(Engine {
            seed,
            started: None,
            now: 0,
            turn: Turn::Nothing,
            round: params.global_round(),
            total: CpuBudget::new(params.cpu, params.sleep),
            recent: Recent::default(),
            wake_cost: 0,
            payer: Payer::Nobody,
            answered: Payer::Nobody,
            batch: BatchPayers::default(),
            again: None,
            again_at: 0,
            again_wait: 0,
            shortages: 0,
            hash: LineHash::new(seed),
            permutations: Permutations::new(seed),
            discovery: Discovery::new(&params),
            regions: Regions::default(),
            quotas: vec![None; levels.len()],
            levels,
            lifetimes: Lifetimes::new(params.v_life),
            calendar: BTreeSet::new(),
            newcomers: VecDeque::new(),
            trials: BTreeSet::new(),
            trial_turn: 0,
            sparse_mappings: 0,
            sparse_turn: SpaceId(0),
            unread: 0,
            probes_due: 0,
            unmerged,
            merged: Merged::new(),
            frames: Frames::new(),
            full: BTreeMap::new(),
            reap_budget: CpuBudget::new(params.bottom_cpu / 4.0, params.sleep),
            listing: Some(Rehash::learn(strength)),
            strength,
            settled: strength,
            control: params.strength.is_none().then(StrengthControl::new),
            tally: Tally::default(),
            frame_cost: 500.0,
            strength_changes: 0,
            last_promotion: 0,
            work: SampleAnswer::default(),
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
            promotions: PromotionReport::default(),
            thp_split: 0,
            thp_kept: 0,
            sampled: 0,
            params,
        })
    }

    /// Takes in the answer to the last command and says what to do next.
    ///
    /// `now` never goes back; `spent` is the processor time since the last step. The first step
    /// takes [`Observation::Started`].
    ///
    /// # Panics
    /// If the observation answers another command than the last one.
    pub fn step(&mut self, now: Nanos, spent: Spent, observation: Observation) -> Command {
        self.now = self.now.max(now);
        if self.started.is_none() {
            self.started = Some(self.now);
            self.recent.begun = self.now;
            self.last_promotion = self.now;
        }
        self.book(spent);
        self.observe(observation, spent.call);
        let (turn, command) = self.choose();
        self.turn = turn;
        self.payer = self.payer_of(turn);
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
            end: USER_END,
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
        crate::convert::narrow((self.now - self.started.unwrap_or(self.now)) / self.round)
    }

    fn observe(&mut self, observation: Observation, cost: Nanos) {
        if !matches!(
            observation,
            Observation::NoMemory(_) | Observation::Woke | Observation::Started
        ) {
            self.again_wait = 0;
        }
        match (self.turn, observation) {
            (
                turn @ (Turn::Sample(_) | Turn::Fold | Turn::Reap | Turn::Rehash | Turn::Break),
                Observation::NoMemory(command),
            ) => self.try_again_later(turn, command),
            (Turn::Nothing, Observation::Started) | (Turn::Sleep, Observation::Woke) => {}
            (
                Turn::Discover(Discover::Processes),
                Observation::Processes {
                    arrived,
                    left,
                    resident,
                },
            ) => {
                self.on_processes(&arrived, &left);
                for (space, pages) in resident {
                    self.on_resident(space, pages);
                }
            }
            (
                Turn::Discover(Discover::Mappings(slot)),
                Observation::Mappings {
                    space,
                    mappings,
                    age,
                },
            ) => self.on_mappings(slot, space, &mappings, age),
            (Turn::Discover(Discover::Mappings(slot)), Observation::Unread { space }) => {
                self.on_unread(slot, space);
            }
            (Turn::Sample(level), Observation::Sampled(pages)) => {
                self.on_sampled(level, pages, cost)
            }
            (Turn::Fold, Observation::Folded(outcomes)) => self.on_folded(&outcomes, cost),
            (Turn::Reap, Observation::Frames { frames, cursor }) => self.on_reaped(&frames, cursor),
            (Turn::Rehash, Observation::Frames { frames, cursor }) => {
                self.on_listing(&frames, cursor, cost);
            }
            (Turn::Break, Observation::Broken { pages, stopped }) => self.on_broken(pages, stopped),
            (turn, observation) => panic!("{observation:?} does not answer {turn:?}"),
        }
    }

    /// Keeps a command for which there was no memory, and waits.
    fn try_again_later(&mut self, turn: Turn, command: Command) {
        self.shortages += 1;
        self.again_wait = (self.again_wait * 2).clamp(self.params.sleep, LONGEST_AGAIN);
        self.again_at = self.now + self.again_wait;
        self.again = Some((turn, command));
    }

    fn choose(&mut self) -> (Turn, Command) {
        if self.again.is_some() && self.now < self.again_at {
            let until = self.again_at;
            return (Turn::Sleep, Command::Sleep { until });
        }
        if let Some(again) = self.again.take() {
            return again;
        }
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
            return (Turn::Rehash, command);
        }
        if let Some(look) = self.discovery.next(self.now) {
            let command = match look {
                Discover::Processes => Command::ListProcesses,
                Discover::Mappings(slot) => Command::ListMappings(self.discovery.space(slot).id),
            };
            return (Turn::Discover(look), command);
        }
        if self.now >= self.frames.due() && self.reap_budget.is_ready(self.now) {
            return (Turn::Reap, self.list_frames());
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
            until = until.min(self.frames.due().max(self.reap_budget.ready_at(now)));
        }
        if let Some(&(due, _)) = self.calendar.first() {
            until = until.min(due);
        }
        for level in &self.levels {
            if let Some(due) = level.due_at(now) {
                until = until.min(due.max(level.budget.ready_at(now)));
            }
        }
        if !self.newcomers.is_empty() {
            let first = self.levels[0].budget.ready_at(now);
            until = until.min(self.discovery.newcomers_at(now).min(first));
        }
        let until = until
            .max(self.total.ready_at(now))
            .max(now + self.params.sleep);
        (Turn::Sleep, Command::Sleep { until })
    }

    fn on_broken(&mut self, pages: u64, stopped: bool) {
        self.broken += pages;
        self.frames.expect_freed(self.now);
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
#[path = "engine/tests/parts.rs"]
mod parts_tests;
#[cfg(test)]
#[path = "engine/tests/any_machine.rs"]
mod tests;
