//! One run of a plan, with all checks at every step.

use std::panic::{AssertUnwindSafe, catch_unwind};

use uksm_policy::command::{Command, Nanos, Observation};
use uksm_policy::params::Contents;

use super::plan::Plan;
use super::random_processes::RandomProcesses;
use crate::check::{self, Bounds, Checks, Violation};
use crate::fault::{Canary, Fault, Faults};
use crate::run::Driven;
use crate::sleep::SleepEnds;
use crate::world::World;
use crate::{Costs, Host};

/// Pages in memory for each step between two counts of all page tables: a step counts this many
/// pages on average.
const AUDITED: u64 = 64;
/// Least steps between two counts.
const AUDIT_EVERY: u64 = 64;
/// Time between two looks for waiting duplicates.
const LOOK_EVERY: Nanos = 2_000_000_000;

/// Longest duration of a fault.
const MAX_FAULT: Nanos = 20_000_000_000;
/// Longest time after the last fault until the engine has listed all its frames again. The
/// intervals of its listings double up to 256 s.
const MAX_LISTING: Nanos = 600_000_000_000;

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The number of strikes of each fault.
    pub fired: Vec<(Fault, u64)>,
    /// Steps of all engines.
    pub steps: u64,
    /// Pages merged.
    pub merged: u64,
    /// Longest wait of a duplicate.
    pub longest_wait: Nanos,
    /// The failed check, and its time.
    pub failed: Option<(Nanos, Violation)>,
}

/// One engine of a run, and the time of its next step.
struct Member {
    driven: Driven,
    checks: Checks,
    now: Nanos,
    /// The events that end its sleep and the cost of waking, if it sleeps.
    asleep: Option<(SleepEnds, Nanos)>,
    /// Start of the current listing of frames, and of the last complete one.
    listing: Nanos,
    listed: Nanos,
}

impl Member {
    /// Whether the pending answer reports frames.
    fn has_news_of_frames(&self) -> bool {
        let (answer, _) = self.driven.answer();
        matches!(answer, Observation::Folded(_) | Observation::Frames { .. })
    }
}

/// A run under way.
struct PlanRun {
    world: World,
    members: Vec<Member>,
    steps: u64,
    next_audit: u64,
    next_look: Nanos,
    now: Nanos,
}

/// Runs a plan.
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    let mut run = PlanRun::new(plan);
    let result = catch_unwind(AssertUnwindSafe(|| run.all_of(plan)));
    let violation = match result {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            Some(Violation {
                check: "panic",
                what: text.unwrap_or_default(),
            })
        }
    };
    let waits = run.members.iter().map(|m| m.checks.longest_wait());
    Outcome {
        fired: run.world.host.faults.fired(),
        steps: run.steps,
        merged: run.world.host.merged,
        longest_wait: waits.max().unwrap_or(0),
        failed: violation.map(|violation| (run.now, violation)),
    }
}

impl PlanRun {
    fn new(plan: &Plan) -> PlanRun {
        let mut host = Host::new(plan.seed, Costs::default());
        let mut faults = Faults::new(plan.seed);
        for &(fault, rate) in &plan.faults {
            faults.set(fault, rate);
        }
        host.faults = faults;
        host.canary = plan.canary;
        host.least_spaces = plan.params.merge_spaces;
        host.keeps_nodes = !plan.params.merge_across_nodes;
        let members = (0..plan.domains).map(|domain| {
            let mut given = plan.params.clone();
            if plan.canary == Some(Canary::Hoard) {
                given.index_bytes = given.index_bytes.map(|bytes| bytes * 64);
            }
            if plan.canary == Some(Canary::SelfSharing) {
                given.merge = Contents::All;
            }
            let driven = Driven::new(given, plan.seed, domain);
            let bounds = Bounds {
                params: plan.params.clone(),
                wait: plan.wait,
            };
            Member {
                driven: driven.expect("a plan's parameters are accepted"),
                checks: Checks::new(domain, bounds),
                now: 0,
                asleep: None,
                listing: 0,
                listed: 0,
            }
        });
        let members = members.collect();
        let anything = Box::new(RandomProcesses::new(plan));
        PlanRun {
            world: World::new(host, vec![anything]),
            members,
            steps: 0,
            next_audit: AUDIT_EVERY,
            next_look: 0,
            now: 0,
        }
    }

    fn all_of(&mut self, plan: &Plan) -> Result<(), Violation> {
        self.until(plan.length)?;
        self.world.host.faults.stop();
        let calm = plan.length + MAX_FAULT;
        let mut end = plan.length + plan.calm;
        self.until(end)?;
        for at in 0..self.members.len() {
            while self.members[at].listed < calm && end < calm + MAX_LISTING {
                end += LOOK_EVERY;
                self.until(end)?;
            }
            // The engine has not received the last changes of frames yet.
            while self.members[at].has_news_of_frames() {
                self.step(at)?;
            }
            let member = &self.members[at];
            check::settled(
                &self.world.host,
                member.driven.domain(),
                &member.driven.engine,
            )?;
        }
        check::audit(&self.world.host)
    }

    fn until(&mut self, end: Nanos) -> Result<(), Violation> {
        loop {
            let places = self.members.iter().enumerate();
            let (at, now) = places
                .map(|(at, member)| (at, member.now))
                .min_by_key(|&(at, now)| (now, at))
                .expect("there is an engine");
            if now >= end {
                return Ok(());
            }
            // Until then a workload may cause an event that wakes an engine.
            match self.world.next_act().filter(|&next| next < now) {
                Some(next) if self.members.iter().any(|member| member.asleep.is_some()) => {
                    self.world.pass(next);
                    self.wake(next);
                }
                _ => self.step(at)?,
            }
        }
    }

    /// Wakes the engines whose sleep is ended by an event.
    fn wake(&mut self, now: Nanos) {
        for member in &mut self.members {
            if let Some((ends, cost)) = member.asleep
                && let Some(at) = ends.at(&self.world.host)
            {
                member.now = member.now.min(at.max(now).saturating_add(cost));
            }
        }
    }

    /// Makes one step of the engine that is due.
    fn step(&mut self, at: usize) -> Result<(), Violation> {
        let member = &mut self.members[at];
        if let Some((_, cost)) = member.asleep.take() {
            member.checks.worked(member.now - cost, member.now, cost)?;
        }
        self.world.pass(member.now);
        let host = &mut self.world.host;
        if host.faults.strikes(Fault::ClockAhead) {
            member.now += host.faults.below(10_000_000_000);
            self.world.pass(member.now);
        }
        let host = &mut self.world.host;
        let clock = if host.faults.strikes(Fault::ClockBack) {
            member.now.saturating_sub(host.faults.below(2_000_000_000))
        } else {
            member.now
        };
        self.now = member.now;
        let is_folded = matches!(member.driven.answer().0, Observation::Folded(_));
        let (command, step) = member.driven.decide(host, clock);
        if is_folded {
            member.checks.counted(&member.driven.engine)?;
        }
        let domain = member.driven.domain();
        let (begun, ends) = match SleepEnds::of(&command, domain, member.now) {
            Some((until, ends)) => (until, Some(ends)),
            None => (member.now, None),
        };
        let cost = member.driven.perform(host, &command, step);
        member.now = begun + cost;
        let (observation, _) = member.driven.answer();
        member.checks.performed(host, &command, observation)?;
        if let Command::Frames {
            cursor, reap: true, ..
        } = command
        {
            if cursor == 0 {
                member.listing = begun;
            }
            if matches!(observation, Observation::Frames { cursor: 0, .. }) {
                member.listed = member.listing;
            }
        }
        member.asleep = ends.map(|ends| (ends, cost));
        if member.asleep.is_none() {
            member.checks.worked(begun, member.now, cost)?;
        }
        self.steps += 1;
        if self.steps >= self.next_audit {
            self.next_audit = self.steps + AUDIT_EVERY.max(host.resident() / AUDITED);
            check::audit(host)?;
            member.checks.memory(&member.driven.engine)?;
        }
        if self.now >= self.next_look {
            self.next_look = self.now + LOOK_EVERY;
            for member in &mut self.members {
                member.checks.progress(host, self.now)?;
            }
        }
        Ok(())
    }
}
