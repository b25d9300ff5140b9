//! The state machine: takes an observation, books its cost, and returns the next command.
//!
//! # Problem
//! Finding processes, sampling the levels, merging, freeing frames and sleeping share one thread
//! and one budget, and must be replayable.
//!
//! # Approach
//! The engine keeps turns, budget and accounts; every other concern is a part with its own state
//! and a narrow interface, see [`Engine`]. One command is under way at a time. Each has a [`Turn`],
//! which names the part that requested it, and a payer of its cost. A step takes in the answer,
//! then gives the next turn in a fixed order: work already begun (an answer not yet worked through,
//! pages waiting to be merged), then discovery, frames, hints, and the levels from the bottom up.
//! Lower levels go first because their shares are small: the top uses the rest. Time that even the
//! top leaves goes to newcomers that wait to be listed. Without work the engine sleeps.
//!
//! Concerns of several parts are here, by the observation that brings them: [`mappings`] (processes
//! and mappings), [`hint_turn`] (hints that are followed), [`extension_turn`] (pages between
//! matches), [`sample_turn`] (pages that were read), [`huge_again`] (zeros that khugepaged undoes),
//! [`full_read_turn`] (pages that are read in full), [`give_back_turn`] (frames with one mapping),
//! [`sleep_turn`] (rest without work),
//! [`fold_outcomes`] (results of merging), [`strength_change`] (hash strength), [`cost_by_space`]
//! (work by space), [`space_report`], [`space_figures`], [`merged_sample`] and [`report`].
//!
//! # Source
//! UKSM Figure 4 and §5.3.

mod cost_by_space;
mod extension_turn;
mod fold_outcomes;
mod full_read_turn;
mod give_back_turn;
mod hint_turn;
mod huge_again;
mod mappings;
mod merged_sample;
mod merged_since_read;
mod report;
mod sample_answer;
mod sample_turn;
mod sleep_turn;
mod space_figures;
mod space_report;
mod strength_change;
mod turn;

use crate::accounts::Accounts;
use crate::accounts::payer::Payer;
use crate::clock::Clock;
use crate::command::{Command, Lines, Nanos, Observation, Spent};
use crate::hash::adaptive::AdaptiveHash;
use crate::hints::Hints;
use crate::ladder::Ladder;
use crate::ladder::sampling::{Selection, Sources};
use crate::lookup::Lookup;
use crate::merge::Merge;
use crate::merge::collisions::Collisions;
use crate::merge::extension::Extension;
use crate::params::{ParamError, Params, SECOND};
use crate::region::Regions;
use crate::spaces::Spaces;
use crate::spaces::discovery::{Discover, Discovery};
use crate::spaces::region_lifetimes::RegionLifetimes;
use sample_answer::SampleAnswer;
use turn::{Action, Retry, Turn};

/// Time after the start in which only the governor's share limits discovery, newcomers and the
/// bottom level.
const WARM_UP: Nanos = SECOND;

/// The policy of one group: see the crate's documentation.
#[derive(Debug)]
pub struct Engine {
    params: Params,
    clock: Clock,
    turn: Turn,
    retry: Retry,
    accounts: Accounts,
    /// The schedule of lists.
    discovery: Discovery,
    spaces: Spaces,
    /// The lifetimes of regions by class.
    lifetimes: RegionLifetimes,
    regions: Regions,
    ladder: Ladder,
    hints: Hints,
    hash: AdaptiveHash,
    /// The answer being worked through.
    answer: SampleAnswer,
    lookup: Lookup,
    merge: Merge,
    extension: Extension,
    collisions: Collisions,
}

impl Engine {
    /// An engine without any knowledge. `seed` is the domain's hash seed, and the source of all its
    /// random choices.
    ///
    /// # Errors
    /// A parameter out of bounds or in contradiction to another.
    pub fn new(params: Params, seed: u64) -> Result<Engine, ParamError> {
        params.check()?;
        let hash = AdaptiveHash::new(&params, seed);
        Ok(Engine {
            clock: Clock::new(params.global_round()),
            turn: Turn::Nothing,
            retry: Retry::default(),
            accounts: Accounts::new(&params),
            discovery: Discovery::new(&params),
            spaces: Spaces::new(seed),
            lifetimes: RegionLifetimes::new(params.v_life),
            regions: Regions::default(),
            ladder: Ladder::new(&params, seed),
            hints: Hints::new(&params),
            lookup: Lookup::new(&params, hash.strength()),
            hash,
            answer: SampleAnswer::new(),
            merge: Merge::new(),
            extension: Extension::new(),
            collisions: Collisions::default(),
            params,
        })
    }

    /// Sets the share of a core that the engine may use, with all shares that depend on it, as if
    /// `cpu` were that parameter.
    ///
    /// # Errors
    /// The share is out of bounds, or contradicts another parameter; the engine goes on with the
    /// old one.
    pub fn set_cpu(&mut self, cpu: f64) -> Result<(), ParamError> {
        let params = Params {
            cpu,
            ..self.params.clone()
        };
        params.check()?;
        self.accounts.take_shares(&params);
        self.discovery.take_shares(&params);
        self.ladder.take_shares(&params);
        self.hints.take_shares(&params);
        self.params = params;
        Ok(())
    }

    /// Takes in the answer to the last command and returns the next command.
    ///
    /// `now` never goes back; `spent` is the processor time since the last step. The first step
    /// takes [`Observation::Started`].
    ///
    /// # Panics
    /// If the observation answers another command than the last one.
    pub fn step(&mut self, now: Nanos, spent: Spent, observation: Observation) -> Command {
        if self.clock.advance(now) {
            self.accounts.start(self.clock.now());
        }
        self.book(spent);
        self.observe(observation, spent.call);
        let Action { turn, command } = match self.retry.next(self.clock.now()) {
            Some(again) => again,
            None => {
                self.work();
                self.choose()
            }
        };
        self.turn = turn;
        self.accounts.begin(self.payer_of(turn));
        command
    }

    /// Books the costs since the last step.
    fn book(&mut self, spent: Spent) {
        let now = self.clock.now();
        let is_warming_up = self.clock.elapsed() < WARM_UP;
        let answered = self.accounts.book(now, spent, |payer, cost| match payer {
            // The first touch of code and memory is charged to the governor: at the bottom's share
            // its repayment would take seconds of silence.
            Payer::List(_) | Payer::Newcomers | Payer::Level(0) if is_warming_up => {}
            Payer::List(list) => {
                self.discovery.charge(list, now, cost);
                if list.is_watching() {
                    self.ladder.owes_watching(now, cost);
                }
            }
            Payer::Newcomers => self.discovery.charge_newcomers(now, cost),
            Payer::Level(level) => {
                self.ladder.budget(usize::from(level)).charge(now, cost);
            }
            Payer::Reap => {
                self.lookup.reap_budget().charge(now, cost);
                self.ladder.owes_watching(now, cost);
            }
            Payer::Hints => self.hints.charge(now, cost),
            Payer::Nobody | Payer::Spare | Payer::Next | Payer::Batch => {}
        });
        self.ladder.note_waking(self.accounts.waking());
        match answered {
            // The cost of a sample includes this.
            Payer::Level(level) => self.ladder.worked(usize::from(level), spent.step),
            Payer::Batch => self.batch_worked(spent.step),
            _ => {}
        }
    }

    /// The payer for the command of this turn.
    fn payer_of(&self, turn: Turn) -> Payer {
        match turn {
            Turn::Nothing | Turn::Rehash | Turn::GiveBack(_) => Payer::Nobody,
            Turn::Sleep => Payer::Next,
            Turn::Discover(_) => self.discovery.payer(),
            Turn::Hints => Payer::Hints,
            Turn::Sample => self.answer.payer(),
            Turn::Extend => self.extension_payer(),
            Turn::ReadInFull(finder) | Turn::HashInFull(finder, ..) => self.colliding_payer(finder),
            Turn::Fold | Turn::Undo => Payer::Batch,
            Turn::Reap(payer) => payer,
        }
    }

    fn observe(&mut self, observation: Observation, cost: Nanos) {
        let now = self.clock.now();
        if !matches!(
            observation,
            Observation::NoMemory(_)
                | Observation::Woke
                | Observation::MemoryIsShort
                | Observation::EventsArrived
                | Observation::HintsArrived
                | Observation::Hints { .. }
                | Observation::Started
        ) {
            self.retry.succeeded();
        }
        match (self.turn, observation) {
            (
                turn @ (Turn::Sample
                | Turn::Extend
                | Turn::ReadInFull(_)
                | Turn::HashInFull(..)
                | Turn::Fold
                | Turn::Reap(_)
                | Turn::Rehash
                | Turn::Discover(Discover::Sizes)),
                Observation::NoMemory(command),
            ) => self
                .retry
                .later(turn.requests(command), now, self.params.sleep),
            (Turn::Nothing, Observation::Started) => {}
            (Turn::Sleep, Observation::Woke) => self.hints.woken(false, now),
            (Turn::Sleep, Observation::MemoryIsShort) => {
                self.hints.woken(false, now);
                self.lookup.memory_is_short(now);
            }
            (Turn::Sleep, Observation::HintsArrived) => self.hints.woken(true, now),
            (Turn::Sleep, Observation::EventsArrived) => self.discovery.events_arrived(now),
            (
                Turn::Hints,
                Observation::Hints {
                    hints,
                    lost,
                    lost_of,
                    grown,
                    more,
                },
            ) => {
                let followed = self.ladder.total();
                self.hints.came(&hints, lost, more, followed, now);
                self.on_lost_hints(&lost_of);
                self.on_grown(&grown);
            }
            (
                Turn::Discover(Discover::Processes),
                Observation::Processes {
                    arrived,
                    left,
                    resized,
                    more,
                    event_source,
                },
            ) => {
                self.on_processes(&arrived, &left);
                self.on_resized(&resized);
                let changed = !arrived.is_empty() || !left.is_empty();
                self.discovery
                    .processes_listed(changed, more, event_source, now);
            }
            (Turn::Discover(Discover::Sizes), Observation::Sizes(sizes)) => self.on_sizes(&sizes),
            (
                Turn::Discover(Discover::Mappings(slot)),
                Observation::Mappings {
                    space,
                    mappings,
                    age,
                },
            ) => self.on_mappings(slot, space, &mappings, (age, cost)),
            (Turn::Discover(Discover::Mappings(slot)), Observation::Unread { space }) => {
                self.on_unread(slot, space);
            }
            (Turn::Sample, Observation::Sampled(pages)) => self.on_sampled(pages, cost),
            (Turn::Extend, Observation::Sampled(pages)) => self.on_extension_read(pages, cost),
            (Turn::ReadInFull(_), Observation::Sampled(pages)) => self.on_read_in_full(pages, cost),
            (Turn::HashInFull(_, first, ids), Observation::Frames { frames, .. }) => {
                self.on_hashed_in_full(&frames, (first, ids));
            }
            (Turn::Fold, Observation::Folded(outcomes)) => self.on_folded(outcomes, cost),
            (
                Turn::GiveBack(region),
                answer @ (Observation::GivenBack { .. } | Observation::NoMemory(_)),
            ) => self.on_given_back(region, &answer),
            (Turn::Undo, answer @ (Observation::GivenBack { .. } | Observation::NoMemory(_))) => {
                self.on_undone(&answer, cost);
            }
            (Turn::Reap(_), Observation::Frames { frames, cursor }) => {
                self.lookup.reaped(&frames, cursor, now);
            }
            (Turn::Rehash, Observation::Frames { frames, cursor }) => {
                self.hash.rehashed(&mut self.lookup, &frames, cursor, now);
            }
            (turn, observation) => panic!("{observation:?} does not answer {turn:?}"),
        }
    }

    /// Acts on due entries, and works through the answer as far as there is room.
    fn work(&mut self) {
        let now = self.clock.now();
        self.ladder
            .read_calendar(&mut self.regions, &mut self.lifetimes, now);
        self.propose_extended();
        self.look_up_in_full();
        // Pages of an extended match need not be looked up.
        if !self.merge.is_flush_wanted() && !self.is_extension_due() {
            self.work_through();
        }
    }

    fn choose(&mut self) -> Action {
        let now = self.clock.now();
        if !self.accounts.is_ready(now) {
            return self.sleep();
        }
        if let Some(undo) = self.undo_false_match() {
            return undo;
        }
        if !self.merge.is_flush_wanted() {
            if let Some(next) = self.extend() {
                return next;
            }
            if let Some(next) = self.read_in_full(true) {
                return next;
            }
            // The pages that were to be read before the answer is worked through no longer exist.
            self.work_through();
        }
        if self.merge.is_flush_wanted() {
            return self.fold();
        }
        if let Some(command) = self.tune() {
            return Turn::Rehash.requests(command);
        }
        if let Some(list) = self.discovery.next(now) {
            return self.discover(list);
        }
        if let Some(next) = self.sweep_singles() {
            return next;
        }
        if let Some(payer) = self.lookup.payer(now)
            && self.lookup.is_reap_due(now)
        {
            return Turn::Reap(payer).requests(self.lookup.reap(now));
        }
        if self.hints.is_take_due(now) {
            self.hints.taking();
            return Turn::Hints.requests(Command::TakeHints);
        }
        if let Some(next) = self.follow_hints(false) {
            return next;
        }
        for level in self.ladder.level_numbers() {
            if let Some(command) = self.sample(Some(level)) {
                return Turn::Sample.requests(command);
            }
        }
        // Newcomers are listed before known memory is read in full.
        if let Some(list) = self.discovery.next_spare() {
            return self.discover(list);
        }
        if self.lookup.is_reap_worthwhile(now) {
            return Turn::Reap(Payer::Nobody).requests(self.lookup.reap(now));
        }
        if let Some(next) = self.follow_hints(true) {
            return next;
        }
        if let Some(command) = self.sample(None) {
            return Turn::Sample.requests(command);
        }
        if self.merge.len() > 0 {
            return self.fold();
        }
        if let Some(next) = self.read_in_full(false) {
            return next;
        }
        self.sleep()
    }

    fn discover(&self, list: Discover) -> Action {
        let command = match list {
            Discover::Processes => Command::ListProcesses,
            Discover::Sizes => {
                let asked = self.discovery.asked().iter();
                Command::MeasureSpaces(asked.map(|&slot| self.spaces.id(slot)).collect())
            }
            Discover::Mappings(slot) => Command::ListMappings(self.spaces.id(slot)),
        };
        Turn::Discover(list).requests(command)
    }

    /// The next call for a level, or one in time that all levels leave unused, if it may be made
    /// and has pages to read.
    fn sample(&mut self, level: Option<usize>) -> Option<Command> {
        let at = self.clock.moment(&self.params);
        let mut from = Sources {
            regions: &mut self.regions,
            spaces: &mut self.spaces,
            lifetimes: &self.lifetimes,
            shortest: self.discovery.shortest(),
        };
        let may_sample_newcomers = || self.discovery.may_sample_newcomers(at.now);
        let selection = match level {
            Some(level) => self
                .ladder
                .select(level, may_sample_newcomers, &mut from, at),
            None => self.ladder.select_spare(&mut from, at),
        }?;
        if selection.picks.is_empty() {
            if selection.round_over {
                let scale = self.scale();
                let (level, v_dup) = (selection.level, self.params.v_dup);
                self.ladder
                    .end_round(level, &mut self.regions, &scale, v_dup);
            }
            return None;
        }
        Some(self.read(selection))
    }

    /// The call that reads these pages.
    fn read(&mut self, selection: Selection) -> Command {
        Command::Sample {
            runs: self.answer.expect(selection),
            lines: self.lines(),
        }
    }

    /// The lines by which pages are hashed at the present strength.
    fn lines(&self) -> Lines {
        Lines {
            from: 0,
            to: self.hash.strength(),
        }
    }
}

#[cfg(test)]
mod tests;
