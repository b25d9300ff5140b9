//! An engine and a simulated host, running in simulated time.
//!
//! This is the loop of the real driver with a clock that moves by what things cost: a command moves
//! it by its cost, a sleep to its end, in steps in which the workload acts.

use uksm_policy::command::{Command, Nanos, Observation, Spent};
use uksm_policy::{Engine, ParamError, Params};

use crate::Host;

/// How often a workload may act while the engine sleeps.
const WORKLOAD_STEP: Nanos = 5_000_000;

/// A run of one engine on one host.
#[derive(Debug)]
pub struct Run {
    /// The engine.
    pub engine: Engine,
    /// The host.
    pub host: Host,
    now: Nanos,
    next: Option<(Observation, Spent)>,
    spent: Nanos,
    /// Start, end and cost of every piece of work, for checks of budgets.
    pub ledger: Vec<(Nanos, Nanos, Nanos)>,
    /// Every command given, if it is to be kept.
    pub commands: Option<Vec<Command>>,
    /// Every observation with its time and what was spent for it, if it is to be kept.
    pub observations: Option<Vec<(Nanos, Spent, Observation)>>,
}

impl Run {
    /// An engine of these parameters and seed on `host`, which was made with the same seed.
    ///
    /// # Errors
    /// The parameters are not accepted.
    pub fn new(params: Params, seed: u64, host: Host) -> Result<Run, ParamError> {
        Ok(Run {
            engine: Engine::new(params, seed)?,
            host,
            now: 0,
            next: Some((Observation::Started, Spent::default())),
            spent: 0,
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
        self.spent
    }

    /// Runs until `end`; `workload` may change the host at each step and is told the time.
    pub fn until(&mut self, end: Nanos, mut workload: impl FnMut(&mut Host, Nanos)) {
        while self.now < end {
            self.host.at(self.now);
            workload(&mut self.host, self.now);
            self.step(&mut workload);
        }
    }

    /// Runs until `end` with nothing else happening.
    pub fn quietly_until(&mut self, end: Nanos) {
        self.until(end, |_, _| {});
    }

    /// Runs until `done` or `end`; the time it took, if it was done.
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
        let (observation, spent) = self.next.take().expect("there is always an answer");
        if let Some(observations) = &mut self.observations {
            observations.push((self.now, spent, observation.clone()));
        }
        let pages = match &observation {
            Observation::Sampled(pages) => pages.len(),
            Observation::Folded(outcomes) => outcomes.len(),
            _ => 0,
        };
        let command = self.engine.step(self.now, spent, observation);
        let costs = *self.host.costs();
        let step = costs.step + costs.step_page * pages as u64;
        if let Command::Sleep { until } = command {
            assert!(until > self.now, "a sleep that does not end");
            while self.now < until {
                self.now = until.min(self.now + WORKLOAD_STEP);
                self.host.at(self.now);
                workload(&mut self.host, self.now);
            }
        }
        let begun = self.now;
        let (observation, call) = self.host.perform(&command);
        let cost = call + step;
        self.now += cost;
        self.spent += cost;
        self.ledger.push((begun, self.now, cost));
        if let Some(commands) = &mut self.commands {
            commands.push(command);
        }
        self.next = Some((observation, Spent { step, call }));
    }
}
