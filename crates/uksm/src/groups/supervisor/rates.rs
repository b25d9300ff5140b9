//! Dynamic rates: the readings of each group, and the share of a core that its worker may use.
//!
//! # Problem
//! The frees and the processor time of a worker must be known each second, and an idle worker may
//! not be woken for that.
//!
//! # Approach
//! The supervisor reads all of it (`turns/rate_turn.rs`): processor time from the worker's clock,
//! freed pages from the counts of its domain, and the waiting time of tasks from the control groups
//! of the group's members, or else of its payer, or else of the host. Of an idle worker nothing
//! else is read. Turns come each second while any worker is busy, and ever less often, down to one
//! in [`LONGEST`], while all are idle. A worker that could not be sent its share is sent it in the
//! next turn; a new worker begins with the share of its group.
//!
//! # Units
//! Pages freed: merged pages less frames made. Pages that are written later are not subtracted:
//! merging the same pages again and again counts each time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use uksm_policy::command::Nanos;
use uksm_redistribution::rates::{CORE, RateStatus, Rates, millionths};

/// Time between two turns while any worker is busy.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time between two turns while all are idle.
pub(super) const LONGEST: Duration = Duration::from_secs(8);

/// The rates of all groups whose rate is dynamic.
#[derive(Debug)]
pub(super) struct GroupRates {
    pub(super) rates: Rates,
    pub(super) next: Instant,
    pub(super) interval: Duration,
    /// The last reading of each group.
    pub(super) read: BTreeMap<String, Reading>,
    /// Groups whose worker has not received its share yet.
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

/// Growing counters, at one reading.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reading {
    pub(super) at: Nanos,
    pub(super) cpu: Nanos,
    /// The counters at the last reading with a busy worker.
    pub(super) working: Working,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Working {
    pub(super) freed: u64,
    pub(super) cpu: Waiting,
    pub(super) memory: Waiting,
}

/// The kernel adds up the waiting time of tasks every two seconds: the share of the time between
/// two sums holds until the next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waiting {
    pub(super) at: Nanos,
    total: Nanos,
    share: f64,
}

/// A sum that stays the same for this long means that no task waited.
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

    /// The waiting part of this time.
    pub(super) fn of(self, time: Nanos) -> Nanos {
        // A part of a whole number of nanoseconds.
        millionths(self.share).saturating_mul(time) / CORE
    }
}

impl GroupRates {
    /// Time of the next turn, if there is anything to do.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.is_idle()).then_some(self.next)
    }

    /// Whether no group's rate is dynamic, and all workers have received their shares.
    pub(super) fn is_idle(&self) -> bool {
        self.rates.is_idle() && self.untold.is_empty()
    }

    /// The rate of a group, if it is dynamic.
    pub(super) fn status(&self, group: &str) -> Option<RateStatus> {
        self.rates.status(group)
    }
}
