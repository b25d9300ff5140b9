//! The times at which the supervisor looks for processes.
//!
//! # Problem
//! New processes should be found at once. An idle host should not be woken for nothing, and a storm
//! of new processes may not take a whole processor.
//!
//! # Approach
//! Each look is repaid by a pause in proportion to its cost. While processes wait, the share of a
//! core is that of the strongest governor of all groups, as if that group searched by itself. An
//! event may end a pause early, after a shorter minimum; without events, looks come at a steady
//! interval. Looks without a cause remain, for lost events and for changes without an event.
//!
//! # Units
//! Nanoseconds of the monotonic clock and of processor time.

use std::time::Duration;

use uksm_policy::command::Nanos;

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;

/// First checks of processes get at least this share of a core: each process is checked for the
/// first time only once.
const MIN_SHARE: f64 = 0.05;
/// Minimum pause before a first check, and before a search because of an event.
const MIN_PAUSE_NS: Nanos = 10 * MILLISECOND;
/// Searches because of events take at most 1/`EVENT_SHARE_DIVISOR` of a core.
const EVENT_SHARE_DIVISOR: Nanos = 20;
/// Searches without a cause: minimum pause, and maximum part of a core. They are rarer if moves are
/// reported as well: there is less to repair. If moves are not reported, a moved process shares
/// pages with its old group until it is checked.
const MIN_REPAIR_PAUSE_NS: Nanos = SECOND;
const REPAIR_SHARE_DIVISOR: Nanos = 250;
const MIN_RARE_REPAIR_PAUSE_NS: Nanos = 4 * SECOND;
const RARE_REPAIR_SHARE_DIVISOR: Nanos = 4000;
/// The same without events.
const MIN_POLL_PAUSE_NS: Nanos = 100 * MILLISECOND;
const POLL_SHARE_DIVISOR: Nanos = 200;
/// Minimum pause between two measurements of spaces, and their maximum part of a core.
const MIN_MEASURE_PAUSE_NS: Nanos = 2 * SECOND;
const MEASURE_SHARE_DIVISOR: Nanos = 2000;

/// The changes that events report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Events {
    /// None: processes are searched for.
    None,
    /// Processes, but not moves between control groups.
    Processes,
    /// All changes that decide about a process's group.
    All,
}

/// The times of the next looks.
#[derive(Debug)]
pub(super) struct DiscoverySchedule {
    share: f64,
    /// Time of the next search.
    due: Nanos,
    /// Time from which an event makes a search due.
    events_wake_from: Nanos,
    /// Time of the next measurement.
    measure_due: Nanos,
}

impl DiscoverySchedule {
    /// A schedule whose first search is due at once. `share` is the largest share of a core of any
    /// group.
    pub(super) fn new(share: f64) -> DiscoverySchedule {
        DiscoverySchedule {
            share: share.max(MIN_SHARE),
            due: 0,
            events_wake_from: 0,
            measure_due: 0,
        }
    }

    /// Sets the largest share, and makes a search due.
    pub(super) fn begin_again(&mut self, share: f64) {
        *self = DiscoverySchedule::new(share);
    }

    /// Makes a search due, because of a change that no event reports.
    pub(super) fn search_soon(&mut self) {
        self.due = 0;
    }

    /// Makes a search due as soon as the last one is repaid, because of a worker's report: a
    /// compromised worker can send one in each turn.
    pub(super) fn search_when_repaid(&mut self) {
        self.due = self.due.min(self.events_wake_from);
    }

    /// Time of the next search.
    pub(super) fn due(&self) -> Nanos {
        self.due
    }

    /// Time from which an event makes a search due.
    pub(super) fn events_wake_from(&self) -> Nanos {
        self.events_wake_from
    }

    /// Time of the next measurement of spaces.
    pub(super) fn measure_due(&self) -> Nanos {
        self.measure_due
    }

    /// Measuring all spaces has cost this.
    pub(super) fn note_measurement(&mut self, now: Nanos, cost: Nanos) {
        self.measure_due =
            now + MIN_MEASURE_PAUSE_NS.max(cost.saturating_mul(MEASURE_SHARE_DIVISOR));
    }

    /// A search has cost this. `more`: processes wait; `reported`: the changes that events report.
    pub(super) fn note_search(
        &mut self,
        now: Nanos,
        cost: Nanos,
        (more, reported): (bool, Events),
    ) {
        let pause = |shortest: Nanos, part: Nanos| now + shortest.max(cost.saturating_mul(part));
        self.events_wake_from = pause(MIN_PAUSE_NS, EVENT_SHARE_DIVISOR);
        self.due = match (more, reported) {
            (true, _) => now + MIN_PAUSE_NS.max(self.repaid(cost)),
            (false, Events::All) => pause(MIN_RARE_REPAIR_PAUSE_NS, RARE_REPAIR_SHARE_DIVISOR),
            (false, Events::Processes) => pause(MIN_REPAIR_PAUSE_NS, REPAIR_SHARE_DIVISOR),
            (false, Events::None) => pause(MIN_POLL_PAUSE_NS, POLL_SHARE_DIVISOR),
        };
    }

    /// The pause after work of this cost that keeps it within its share.
    fn repaid(&self, cost: Nanos) -> Nanos {
        let worked = Duration::from_nanos(cost);
        let pause = worked.mul_f64(1.0 / self.share).saturating_sub(worked);
        Nanos::try_from(pause.as_nanos()).unwrap_or(Nanos::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = 5 * SECOND;

    #[test]
    fn a_look_is_repaid_by_the_pause_after_it() {
        let mut schedule = DiscoverySchedule::new(0.5);
        assert_eq!((schedule.due(), schedule.events_wake_from()), (0, 0));
        schedule.note_search(NOW, 4 * MILLISECOND, (true, Events::Processes));
        assert_eq!(schedule.due(), NOW + MIN_PAUSE_NS);
        schedule.note_search(NOW, 40 * MILLISECOND, (true, Events::Processes));
        assert_eq!(schedule.due(), NOW + 40 * MILLISECOND);
        schedule.note_search(NOW, 8 * MILLISECOND, (false, Events::Processes));
        assert_eq!(
            (schedule.due(), schedule.events_wake_from()),
            (NOW + 2 * SECOND, NOW + 160 * MILLISECOND)
        );
        schedule.note_search(NOW, MILLISECOND / 10, (false, Events::Processes));
        assert_eq!(
            (schedule.due(), schedule.events_wake_from()),
            (NOW + SECOND, NOW + MIN_PAUSE_NS)
        );
        schedule.note_search(NOW, MILLISECOND, (false, Events::None));
        assert_eq!(schedule.due(), NOW + 200 * MILLISECOND);
        schedule.note_search(NOW, MILLISECOND, (false, Events::All));
        assert_eq!(schedule.due(), NOW + 4 * SECOND);
        schedule.note_search(NOW, 2 * MILLISECOND, (false, Events::All));
        assert_eq!(schedule.due(), NOW + 8 * SECOND);
        schedule.search_soon();
        assert_eq!(schedule.due(), 0);
        schedule.note_measurement(NOW, 9 * MILLISECOND);
        assert_eq!(schedule.measure_due(), NOW + 18 * SECOND);
        schedule.note_measurement(NOW, MILLISECOND);
        assert_eq!(schedule.measure_due(), NOW + 2 * SECOND);
    }

    #[test]
    fn reports_of_a_worker_cause_no_look_that_is_not_paid_for() {
        let mut schedule = DiscoverySchedule::new(0.5);
        schedule.search_when_repaid();
        assert_eq!(schedule.due(), 0);
        schedule.note_search(NOW, 40 * MILLISECOND, (false, Events::All));
        schedule.search_when_repaid();
        assert_eq!(schedule.due(), NOW + 800 * MILLISECOND);
        schedule.note_search(NOW, 40 * MILLISECOND, (true, Events::All));
        schedule.search_when_repaid();
        assert_eq!(
            schedule.due(),
            NOW + 40 * MILLISECOND,
            "no later than without"
        );
    }

    #[test]
    fn newcomers_are_found_whatever_the_governor() {
        let mut schedule = DiscoverySchedule::new(0.0001);
        schedule.note_search(NOW, 4 * MILLISECOND, (true, Events::Processes));
        assert_eq!(schedule.due(), NOW + 76 * MILLISECOND);
    }
}
