//! Limits work to a share of a core.
//!
//! # Approach
//! After each piece of work, the worker sleeps until the processor time used is no more than the
//! share of the time that has passed. Unused time is not saved up. Sleeps of less than a
//! millisecond are postponed.
//!
//! # Units
//! Nanoseconds.

use std::time::Duration;

use uksm_policy::command::Nanos;

use crate::clock;

/// Minimum time of a sleep.
const MIN_SLEEP_NS: Nanos = 1_000_000;

/// Limits a thread, or this process, to its share.
#[derive(Debug)]
pub(super) struct Pace {
    share: f64,
    since: Nanos,
    /// The clock of the processor time that is limited.
    cpu: fn() -> Nanos,
    /// Its time at the beginning.
    cpu_before: Nanos,
}

impl Pace {
    /// A limit of the calling thread to this share of a core.
    pub(super) fn of_thread(share: f64) -> Pace {
        Pace::from_now(share, clock::thread_cpu)
    }

    /// A limit of this process to this share of a core, including its use since its start.
    pub(super) fn of_process(share: f64) -> Pace {
        Pace {
            cpu_before: 0,
            ..Pace::from_now(share, clock::process_cpu)
        }
    }

    fn from_now(share: f64, cpu: fn() -> Nanos) -> Pace {
        Pace {
            share,
            since: clock::now(),
            cpu,
            cpu_before: cpu(),
        }
    }

    /// Sleeps for the work done.
    pub(super) fn keep(&mut self) {
        let cpu = (self.cpu)() - self.cpu_before;
        let passed = clock::now() - self.since;
        match owed(self.share, cpu, passed) {
            Some(sleep) if sleep < MIN_SLEEP_NS => {}
            Some(sleep) => std::thread::sleep(Duration::from_nanos(sleep)),
            None => *self = Pace::from_now(self.share, self.cpu),
        }
    }
}

/// Time to sleep; none if more time has passed than was needed.
fn owed(share: f64, cpu: Nanos, passed: Nanos) -> Option<Nanos> {
    let due = Duration::from_nanos(cpu).div_f64(share);
    let due = Nanos::try_from(due.as_nanos()).unwrap_or(Nanos::MAX);
    due.checked_sub(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_makes_up_for_work() {
        assert_eq!(owed(0.05, 1_000_000, 1_000_000), Some(19_000_000));
        assert_eq!(owed(1.0, 5, 5), Some(0));
        assert_eq!(owed(0.5, 1_000, 3_000), None);
    }

    #[test]
    fn a_share_is_kept() {
        let (cpu, wall) = (clock::thread_cpu(), clock::now());
        let mut pace = Pace::of_thread(0.1);
        let mut x = 1u64;
        while clock::thread_cpu() - cpu < 10_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
            pace.keep();
        }
        let passed = clock::now() - wall;
        assert!(passed >= 90_000_000, "{passed} ns for 10 ms at a tenth");
    }
}
