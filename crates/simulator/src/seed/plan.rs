//! Decisions of a seed before its run begins.

use uksm_policy::Params;
use uksm_policy::command::Nanos;
use uksm_policy::mix::{SplitMix64, mix};
use uksm_policy::params::{Contents, Governor};

use super::random_event::Event;
use crate::fault::{Canary, Fault};

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1000 * MILLISECOND;

/// Duration of the fault-free end of a run: longer than any fault, and than a listing of all
/// frames.
const CALM: Nanos = 30 * SECOND;

/// A run before it begins.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed that decides all else.
    pub seed: u64,
    /// Parameters of each engine.
    pub params: Params,
    /// Engines, each with a domain of its own.
    pub domains: u16,
    /// Duration of the part with events and faults.
    pub length: Nanos,
    /// Duration of the rest of the run.
    pub calm: Nanos,
    /// Faults, and their strikes in a million chances.
    pub faults: Vec<(Fault, u64)>,
    /// Events of processes.
    pub(crate) events: Vec<Event>,
    /// Processes at the start.
    pub processes: u64,
    /// Limit of the pages of a mapping.
    pub pages: u64,
    /// Mean time between two events.
    pub interval: Nanos,
    /// The deliberate error of the host, if it has one.
    pub canary: Option<Canary>,
    /// Longest permitted wait of a duplicate; none to measure it only.
    pub wait: Option<Nanos>,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Plan {
        let random = &mut SplitMix64::new(mix(seed ^ 0x5eed));
        let governors = [
            Governor::Full,
            Governor::Full,
            Governor::Medium,
            Governor::Low,
        ];
        let governor = governors[choice(random, governors.len())];
        let mut params = Params::governor(governor);
        if random.below(2) == 0 {
            params.index_bytes = Some(1 << (16 + random.below(5)));
        }
        if random.below(4) == 0 {
            params.strength = [Some(1), Some(2), None, Some(64)][choice(random, 4)];
        }
        let faults = Fault::ALL.iter().filter_map(|&(fault, _)| {
            let rate = rates(fault)[choice(random, 3)];
            (random.below(2) == 0).then_some((fault, rate))
        });
        let faults = faults.collect();
        let events = Event::ALL.iter().map(|&(event, _)| event);
        let events = events.filter(|_| random.below(4) > 0).collect();
        let mut plan = Plan {
            seed,
            params,
            domains: 1 + u16::from(random.below(3) == 0),
            length: 4 * SECOND + random.below(12) * SECOND,
            calm: CALM,
            faults,
            events,
            processes: 2 + random.below(6),
            pages: 64 << random.below(5),
            interval: (5 << random.below(6)) * MILLISECOND,
            canary: None,
            wait: None,
        };
        plan.params.patrol = random.below(3) * SECOND;
        if random.below(4) == 0 {
            plan.params.merge = Contents::Between;
        }
        if random.below(4) == 0 {
            plan.params.merge_spaces = 2 + u32::from(random.below(2) == 0);
        }
        plan.params.merge_across_nodes = random.below(4) > 0;
        plan
    }

    /// The names of all parts that can be left out.
    #[must_use]
    pub fn parts(&self) -> Vec<&'static str> {
        let faults = self.faults.iter().map(|(fault, _)| fault.name());
        let events = self.events.iter().map(|event| event.name());
        faults.chain(events).collect()
    }

    /// The plan without the parts of these names.
    #[must_use]
    pub fn without(&self, names: &[String]) -> Plan {
        let is_kept = |name: &str| !names.iter().any(|left_out| left_out == name);
        let mut plan = self.clone();
        plan.faults.retain(|(fault, _)| is_kept(fault.name()));
        plan.events.retain(|event| is_kept(event.name()));
        plan
    }

    /// The names of all possible parts of a plan.
    pub fn all_parts() -> impl Iterator<Item = &'static str> {
        let faults = Fault::ALL.iter().map(|&(_, name)| name);
        faults.chain(Event::ALL.iter().map(|&(_, name)| name))
    }
}

fn choice(random: &mut SplitMix64, among: usize) -> usize {
    usize::try_from(random.below(among as u64)).expect("one of few")
}

/// Strikes of a fault in a million chances, if it is on: seldom, sometimes, often. The chances of
/// each are different: a page, a run of pages, a call, a step.
fn rates(fault: Fault) -> [u64; 3] {
    match fault {
        Fault::StaleSample | Fault::Busy | Fault::Gone => [1000, 20_000, 200_000],
        Fault::Locked => [1000, 10_000, 100_000],
        Fault::Collision => [10_000, 100_000, 300_000],
        Fault::ReusedProcess | Fault::ReusedAddress => [20_000, 100_000, 300_000],
        Fault::PartialSample | Fault::PartialFold => [5000, 50_000, 300_000],
        Fault::LostArrival | Fault::LostExit | Fault::TooManyFiles => [50_000, 200_000, 500_000],
        Fault::Unread => [10_000, 100_000, 300_000],
        Fault::ClockAhead => [200, 1000, 3000],
        Fault::ClockBack => [1000, 10_000, 100_000],
        Fault::FullDomain => [1000, 5000, 20_000],
        Fault::ModuleGone => [200, 1000, 3000],
        Fault::Shrunk => [10_000, 50_000, 200_000],
        Fault::WrongHint | Fault::LostHint | Fault::ShortMemory | Fault::NoCopies => {
            [10_000, 100_000, 500_000]
        }
    }
}
