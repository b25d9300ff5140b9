//! An engine and a simulated host, running in simulated time.
//!
//! This is the loop of the real driver with a clock that moves by costs: a command moves it by its
//! cost, a sleep to its end. [`Driven`] is an engine with its driver. [`Run`] runs one on a host
//! whose workload acts in small steps, for tests that examine the reports of the engine.

use uksm_policy::command::{
    Command, FoldEntry, FoldKind, Nanos, Observation, PageState, SpaceId, Spent,
};
use uksm_policy::{Engine, ParamError, Params};

use crate::fault::Canary;
use crate::sleep::SleepEnds;
use crate::stopwatch::{self, StepRecord, Steps};
use crate::{Costs, Host};

/// Time between two actions of a workload while the engine sleeps.
const WORKLOAD_STEP: Nanos = 5_000_000;

/// State of the driver of an engine.
#[derive(Debug)]
struct Driver {
    domain: u16,
    /// The pending answer to the engine.
    next: Option<(Observation, Spent)>,
    spent: Nanos,
    /// Entries of sets in the last FOLD.
    pairs: u64,
    /// Runs of the last SAMPLE.
    runs: u64,
    /// Times of its steps on this machine.
    steps: Steps,
    /// The first watched space, and the time at which a page of it or of a later one was sampled.
    watched: Option<SpaceId>,
    looked: Option<Nanos>,
}

impl Driver {
    fn new(domain: u16) -> Driver {
        Driver {
            domain,
            next: Some((Observation::Started, Spent::default())),
            spent: 0,
            pairs: 0,
            runs: 0,
            steps: Steps::default(),
            watched: None,
            looked: None,
        }
    }

    fn answer(&self) -> &(Observation, Spent) {
        self.next.as_ref().expect("there is always an answer")
    }

    /// Gives the engine the last answer; returns its next command and the cost of deciding.
    fn decide(&mut self, engine: &mut Engine, host: &Host, now: Nanos) -> (Command, Nanos) {
        let (mut observation, spent) = self.next.take().expect("there is always an answer");
        if matches!(observation, Observation::Woke | Observation::MemoryIsShort) {
            if host.events_at(self.domain).is_some_and(|at| at <= now) {
                observation = Observation::EventsArrived;
            } else if host.is_hinted(self.domain) {
                observation = Observation::HintsArrived;
            }
        }
        let what = stopwatch::name(&observation);
        let mut step = self.taken_in(&observation);
        let cost = self.cost(&observation, step, host.costs());
        let begun = stopwatch::thread_time();
        let command = engine.step(now, spent, observation);
        step.time = stopwatch::thread_time() - begun;
        self.steps.took(what, step);
        (command, cost)
    }

    /// A step that processes this answer, with no time yet.
    fn taken_in(&self, answer: &Observation) -> StepRecord {
        let mut step = StepRecord::default();
        match answer {
            Observation::Sampled(pages) => {
                let merged = pages.iter().filter(|page| page.state == PageState::Frame);
                step.sampled = pages.len() as u64;
                step.runs = self.runs;
                step.merged = merged.count() as u64;
            }
            Observation::Folded(outcomes) => step.folded = outcomes.len() as u64,
            _ => {}
        }
        step
    }

    /// Cost of the step that processes this answer.
    fn cost(&self, answer: &Observation, step: StepRecord, costs: &Costs) -> Nanos {
        let start = match answer {
            Observation::Started => costs.start,
            _ => 0,
        };
        let pairs = self.pairs.min(step.folded);
        costs.step
            + start
            + costs.step_page * (step.sampled - step.merged)
            + costs.step_merged * step.merged
            + costs.step_run * step.runs
            + costs.step_pair * pairs
            + costs.step_join * (step.folded - pairs)
    }

    /// Performs a command whose decision cost `step`; returns the cost of both.
    fn perform(&mut self, host: &mut Host, command: &Command, step: Nanos) -> Nanos {
        if let Command::Fold(batch) = command {
            let is_pair = |entry: &&FoldEntry| matches!(entry.kind, FoldKind::Set(_));
            self.pairs = batch.entries.iter().filter(is_pair).count() as u64;
        }
        if let Command::Sample { runs, .. } = command {
            self.runs = runs.len() as u64;
        }
        if let (Some(watched), None, Command::Sample { runs, .. }) =
            (self.watched, self.looked, command)
            && runs.iter().any(|run| run.space >= watched)
        {
            self.looked = Some(host.time());
        }
        let (observation, call) = host.perform_in(self.domain, command);
        self.next = Some((observation, Spent { step, call }));
        let hidden = if host.canary == Some(Canary::HiddenCost) {
            9 * call
        } else {
            0
        };
        self.spent += call + hidden + step;
        call + hidden + step
    }
}

/// An engine with its driver.
#[derive(Debug)]
pub struct Driven {
    /// The engine.
    pub engine: Engine,
    driver: Driver,
}

impl Driven {
    /// An engine of these parameters for a domain; `seed` is that of the host's line hash.
    ///
    /// # Errors
    /// The parameters are not accepted.
    pub fn new(params: Params, seed: u64, domain: u16) -> Result<Driven, ParamError> {
        Ok(Driven {
            engine: Engine::new(params, seed)?,
            driver: Driver::new(domain),
        })
    }

    /// The domain that it serves.
    #[must_use]
    pub fn domain(&self) -> u16 {
        self.driver.domain
    }

    /// Steps of the engine.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.driver.steps.count
    }

    /// Times of its steps on this machine.
    #[must_use]
    pub fn real_steps(&self) -> Steps {
        self.driver.steps.clone()
    }

    /// Keeps the time of each step on this machine from now on.
    pub(crate) fn keep_steps(&mut self) {
        self.driver.steps.keep();
    }

    /// The steps that were kept.
    pub(crate) fn kept_steps(&mut self) -> Vec<StepRecord> {
        self.driver.steps.kept()
    }

    /// Notes the first sample of a space from this one on.
    pub fn watch_spaces(&mut self, from: SpaceId) {
        self.driver.watched = Some(from);
    }

    /// The time of that sample.
    #[must_use]
    pub fn first_look(&self) -> Option<Nanos> {
        self.driver.looked
    }

    /// The pending answer to the engine, and its cost.
    pub(crate) fn answer(&self) -> &(Observation, Spent) {
        self.driver.answer()
    }

    /// Gives the engine the last answer; returns its next command and the cost of deciding.
    pub(crate) fn decide(&mut self, host: &Host, now: Nanos) -> (Command, Nanos) {
        self.driver.decide(&mut self.engine, host, now)
    }

    /// Performs a command whose decision cost `step`; returns the cost of both.
    pub(crate) fn perform(&mut self, host: &mut Host, command: &Command, step: Nanos) -> Nanos {
        self.driver.perform(host, command, step)
    }
}

/// A run of one engine on one host.
#[derive(Debug)]
pub struct Run {
    /// The engine.
    pub engine: Engine,
    driver: Driver,
    /// The host.
    pub host: Host,
    now: Nanos,
    /// Start, end and cost of every piece of work, for checks of budgets.
    pub ledger: Vec<(Nanos, Nanos, Nanos)>,
    /// Every command, if it is to be kept.
    pub commands: Option<Vec<Command>>,
    /// Every observation with its time and cost, if it is to be kept.
    pub observations: Option<Vec<(Nanos, Spent, Observation)>>,
}

impl Run {
    /// An engine of these parameters and seed on `host`, which was made with the same seed.
    ///
    /// # Errors
    /// The parameters are not accepted.
    pub fn new(params: Params, seed: u64, mut host: Host) -> Result<Run, ParamError> {
        host.least_spaces = params.merge_spaces;
        host.keeps_nodes = !params.merge_across_nodes;
        Ok(Run {
            engine: Engine::new(params, seed)?,
            driver: Driver::new(0),
            host,
            now: 0,
            ledger: vec![],
            commands: None,
            observations: None,
        })
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Processor time spent.
    #[must_use]
    pub fn spent(&self) -> Nanos {
        self.driver.spent
    }

    /// Runs until `end`; `workload` may change the host at each step and gets the time.
    pub fn until(&mut self, end: Nanos, mut workload: impl FnMut(&mut Host, Nanos)) {
        while self.now < end {
            self.host.at(self.now);
            workload(&mut self.host, self.now);
            self.step(&mut workload);
        }
    }

    /// Runs until `end` without other events.
    pub fn quietly_until(&mut self, end: Nanos) {
        self.until(end, |_, _| {});
    }

    /// Runs until `done` or `end`; returns the time it took, if it was done.
    pub fn until_done(&mut self, end: Nanos, mut done: impl FnMut(&Host) -> bool) -> Option<Nanos> {
        let begun = self.now;
        while self.now < end {
            if done(&self.host) {
                return Some(self.now - begun);
            }
            self.host.at(self.now);
            self.step(&mut |_, _| {});
        }
        None
    }

    fn step(&mut self, workload: &mut dyn FnMut(&mut Host, Nanos)) {
        if let Some(observations) = &mut self.observations {
            let (observation, spent) = self.driver.answer();
            observations.push((self.now, *spent, observation.clone()));
        }
        let (command, step) = self.driver.decide(&mut self.engine, &self.host, self.now);
        if let Some((until, ends)) = SleepEnds::of(&command, 0, self.now) {
            assert!(until > self.now, "a sleep that does not end");
            let has_ended = |host: &Host, now: Nanos| ends.at(host).is_some_and(|at| at <= now);
            while self.now < until && !has_ended(&self.host, self.now) {
                self.now = until.min(self.now + WORKLOAD_STEP);
                self.host.at(self.now);
                workload(&mut self.host, self.now);
            }
        }
        let begun = self.now;
        let cost = self.driver.perform(&mut self.host, &command, step);
        self.now += cost;
        self.ledger.push((begun, self.now, cost));
        if let Some(commands) = &mut self.commands {
            commands.push(command);
        }
    }
}
