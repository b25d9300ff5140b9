//! Dynamic rates, as the supervisor keeps them: what each group did is read, and workers are told what they may use now.
//!
//! # Problem
//! What a worker frees and uses must be known each second, and a worker that has nothing to do must not be woken for that.
//!
//! # Approach
//! The supervisor reads it all itself: a worker's processor time from its clock, what was freed from its domain's counts, and how long
//! tasks wait from the control groups of the group's members, or else from that which pays for it, or else from the host. Of a worker that used
//! nothing, nothing else is read. Turns come each second while anybody works, and ever more seldom, down to each
//! [`LONGEST`], while nobody does. A worker that was not told, because it does not read, is told at the next turn; one that is started begins
//! with what its group has.
//!
//! # Units
//! Pages freed: those merged less frames made. What is written afterwards is not taken off: merging the same pages again and again
//! counts each time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use uksm_policy::command::Nanos;
use uksm_redistribution::rates::{CORE, Rates, Status, millionths};

/// From one turn to the next while somebody works.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// The same while nobody does.
pub(super) const LONGEST: Duration = Duration::from_secs(8);

/// The rates of all groups whose rate is dynamic.
#[derive(Debug)]
pub(super) struct GroupRates {
    pub(super) rates: Rates,
    pub(super) next: Instant,
    pub(super) interval: Duration,
    /// What was read of each at the last turn.
    pub(super) read: BTreeMap<String, Reading>,
    /// Groups whose worker is to be told still.
    pub(super) untold: Vec<String>,
}

impl Default for GroupRates {
    fn default() -> GroupRates {
        GroupRates {
            rates: Rates::default(),
            next: Instant::now(),
            interval: INTERVAL,
            read: BTreeMap::new(),
            untold: Vec::new(),
        }
    }
}

/// What only grows, as it was read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reading {
    pub(super) at: Nanos,
    pub(super) cpu: Nanos,
    /// What was read when its worker had worked last.
    pub(super) working: Working,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Working {
    pub(super) freed: u64,
    pub(super) cpu: Waiting,
    pub(super) memory: Waiting,
}

/// The kernel adds up every two seconds how long tasks waited: the share of the time between two sums holds until the next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waiting {
    pub(super) at: Nanos,
    total: Nanos,
    share: f64,
}

/// A sum that stays so long is one of nobody who waited.
const SUMMED: Nanos = 3_000_000_000;

impl Waiting {
    pub(super) fn read(self, at: Nanos, total: Nanos) -> Waiting {
        let time = at - self.at;
        if self.at == 0 {
            let share = 0.0;
            return Waiting { at, total, share };
        }
        if total == self.total && time < SUMMED {
            return self;
        }
        let share = total.saturating_sub(self.total) as f64 / time.max(1) as f64;
        Waiting {
            at,
            total,
            share: share.min(1.0),
        }
    }

    /// How long of this time.
    pub(super) fn of(self, time: Nanos) -> Nanos {
        // A part of a whole number of nanoseconds.
        millionths(self.share).saturating_mul(time) / CORE
    }
}

impl GroupRates {
    /// When the next turn is, if there is anything to do.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.is_idle()).then_some(self.next)
    }

    /// Whether no group's rate is dynamic, and all workers know what they may use.
    pub(super) fn is_idle(&self) -> bool {
        self.rates.is_idle() && self.untold.is_empty()
    }

    /// How a group stands, if its rate is dynamic.
    pub(super) fn status(&self, group: &str) -> Option<Status> {
        self.rates.status(group)
    }
}
