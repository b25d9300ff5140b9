//! A host with workloads and deduplicators that act in simulated time.
//!
//! # Problem
//! Engines of several domains, in-kernel KSM and workloads run beside each other, and a run must be
//! the same each time.
//!
//! # Approach
//! Each participant returns the time of its next action. The earliest acts first; at equal times
//! workloads act before deduplicators, and each in the order in which they were added. A
//! deduplicator has a core of its own: its work takes the time that it costs.

use uksm_policy::command::Nanos;

use crate::Host;
use crate::run::Driven;
use crate::sleep::SleepEnds;

/// The result of one turn of a deduplicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Processor time of the turn.
    pub cost: Nanos,
    /// Time of the next turn: later than now.
    pub next: Nanos,
    /// The events that end its sleep before that, if it sleeps.
    pub ends: Option<SleepEnds>,
}

/// Something that merges equal pages.
pub trait Deduplicator {
    /// Does the next piece of work.
    fn turn(&mut self, host: &mut Host, now: Nanos) -> Turn;
}

impl Deduplicator for Driven {
    fn turn(&mut self, host: &mut Host, now: Nanos) -> Turn {
        let (command, step) = self.decide(host, now);
        let cost = self.perform(host, &command, step);
        let (begun, ends) = match SleepEnds::of(&command, self.domain(), now) {
            Some((until, ends)) => (until + host.costs().late, Some(ends)),
            None => (now, None),
        };
        Turn {
            cost,
            next: begun + cost,
            ends,
        }
    }
}

/// Something that changes the host as time passes.
pub trait Workload {
    /// Acts, and returns the time of its next action, later than now, if there is one.
    fn act(&mut self, host: &mut Host, now: Nanos) -> Option<Nanos>;
}

/// A workload, and the time of its next action.
struct Due {
    at: Option<Nanos>,
    workload: Box<dyn Workload>,
}

/// A host and its workloads.
pub struct World {
    /// The host.
    pub host: Host,
    workloads: Vec<Due>,
}

impl World {
    /// On a new host, only workloads that act at once have begun.
    #[must_use]
    pub fn new(host: Host, workloads: Vec<Box<dyn Workload>>) -> World {
        let due = |workload| Due {
            at: Some(0),
            workload,
        };
        World {
            host,
            workloads: workloads.into_iter().map(due).collect(),
        }
    }

    /// Passes the time until an event ends the sleep that began at `now`, or until `until`; returns
    /// the time of the end.
    pub(crate) fn pass_asleep(&mut self, ends: SleepEnds, now: Nanos, until: Nanos) -> Nanos {
        self.pass(now);
        loop {
            let next = self.next_act().unwrap_or(Nanos::MAX);
            if let Some(at) = ends.at(&self.host)
                && at <= next.min(until)
            {
                return at;
            }
            if next > until {
                return until;
            }
            self.pass(next);
        }
    }

    /// The time of the next action of a workload, if there is one.
    pub(crate) fn next_act(&self) -> Option<Nanos> {
        self.workloads.iter().filter_map(|due| due.at).min()
    }

    /// Runs the workloads that are due, and sets the time to `now`.
    pub fn pass(&mut self, now: Nanos) {
        loop {
            let places = self.workloads.iter().zip(0..);
            let due = places.filter_map(|(due, place)| Some((due.at?, place)));
            let Some((at, place)) = due.min().filter(|&(at, _)| at <= now) else {
                break;
            };
            self.host.at(at);
            let due: &mut Due = &mut self.workloads[place];
            due.at = due.workload.act(&mut self.host, at);
            assert!(due.at.is_none_or(|next| next > at), "time stands still");
        }
        self.host.at(now);
    }
}

/// One deduplicator in a world.
pub struct Alone<D> {
    /// The world.
    pub world: World,
    /// The deduplicator.
    pub deduplicator: D,
    now: Nanos,
    spent: Nanos,
}

impl<D: Deduplicator> Alone<D> {
    /// A deduplicator that begins at the start.
    pub fn new(world: World, deduplicator: D) -> Alone<D> {
        Alone {
            world,
            deduplicator,
            now: 0,
            spent: 0,
        }
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Processor time spent so far.
    pub fn spent(&self) -> Nanos {
        self.spent
    }

    /// Does the next piece of work.
    ///
    /// # Panics
    /// If time does not pass.
    pub fn turn(&mut self) {
        self.world.pass(self.now);
        let turn = self.deduplicator.turn(&mut self.world.host, self.now);
        assert!(turn.next > self.now, "time stands still");
        self.now = match turn.ends {
            Some(ends) => self
                .world
                .pass_asleep(ends, self.now, turn.next)
                .max(self.now + 1),
            None => turn.next,
        };
        self.spent += turn.cost;
    }
}
