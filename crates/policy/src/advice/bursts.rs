//! Plans when ksmd runs.
//!
//! # Problem
//! ksmd reads all offered memory again and again, whether or not anything changed. A share of a
//! core must hold for ksmd and for sampling together.
//!
//! # Approach
//! ksmd runs in *series*: the full scans that all equal pages need to meet. The first scan of a
//! page only takes its checksum, the second one merges it; if ksmd stands inside a scan, the pages
//! before it need a third. Within a series ksmd runs in bursts while the budget is paid, and is
//! stopped otherwise. A series that saved less than half of the expected pages makes the next one
//! wait twice as long, so that memory that changes too fast, or cannot be merged, is not scanned
//! for ever.
//!
//! # Units
//! Nanoseconds; pages.
//!
//! # Source
//! `mm/ksm.c` (`cmp_and_merge_page`, `scan_get_next_rmap_item`).

use crate::accounts::budget::CpuBudget;
use crate::command::Nanos;
use crate::convert;

/// Pages of one batch of ksmd, after which it can be stopped: at 5 µs for a page without partner, 5
/// to 25 ms.
const BATCH: (u32, u32) = (1000, 5000);

/// Full scans of a series: from the beginning of a scan, and from inside one.
const SCANS: (u64, u64) = (2, 3);

/// Limit of the wait after failed series, in rounds.
const MAX_WAIT: u64 = 64;

/// A series ends after this number of bursts without work for ksmd: no memory is offered any more.
const MAX_IDLE: u32 = 50;

/// Figures of ksmd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// Full scans so far.
    pub full_scans: u64,
    /// Pages saved on this host so far.
    pub saved_pages: u64,
    /// Its processor time so far.
    pub used: Nanos,
}

/// The next action of ksmd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KsmAction {
    /// Run for `slice`, with `pages` a batch.
    Run {
        /// Pages of a batch.
        pages: u32,
        /// Duration of the run.
        slice: Nanos,
    },
    /// Rest until then.
    Rest {
        /// The time to ask again.
        until: Nanos,
    },
    /// Stop: no series is under way.
    Stop,
}

#[derive(Debug)]
struct Series {
    until: u64,
    before: Reading,
    expected: u64,
    /// ksmd's time at the last turn, and the number of turns in which it stayed the same.
    last: Nanos,
    idle: u32,
}

/// The plan of ksmd's bursts.
#[derive(Debug)]
pub struct Bursts {
    budget: CpuBudget,
    /// End of the rest that [`Bursts::may_work`] returned.
    rest_end: Option<Nanos>,
    sleep: Nanos,
    round: Nanos,
    wait: Nanos,
    next: Nanos,
    series: Option<Series>,
    done: u64,
}

impl Bursts {
    /// A plan with this share of a core; `sleep` and `round` are the policy's.
    ///
    /// # Panics
    /// The share is not above 0 and at most 1.
    #[must_use]
    pub fn new(share: f64, sleep: Nanos, round: Nanos) -> Bursts {
        Bursts {
            budget: CpuBudget::new(share, sleep).in_full(),
            rest_end: None,
            sleep,
            round,
            wait: round,
            next: 0,
            series: None,
            done: 0,
        }
    }

    /// Books time that ksmd or the daemon used until now.
    pub fn charge(&mut self, now: Nanos, cost: Nanos) {
        self.budget.charge(now, cost);
    }

    /// Whether the daemon may work now; otherwise the time from which it may. At that time it
    /// may take one turn, whatever was booked meanwhile: at a small share, waking up alone can cost
    /// more than a rest has paid, and the daemon would never work again. The turn and the waking
    /// are paid for afterwards.
    ///
    /// # Errors
    /// The time from which it may.
    pub fn may_work(&mut self, now: Nanos) -> Result<(), Nanos> {
        if self.rest_end.is_some_and(|end| now >= end) {
            self.budget.end_rest();
        }
        if self.budget.is_ready(now) {
            self.rest_end = None;
            return Ok(());
        }
        let end = self.budget.ready_at(now);
        Err(*self.rest_end.get_or_insert(end))
    }

    /// The share of a core.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.budget.share()
    }

    /// Processor time booked so far.
    #[must_use]
    pub fn used(&self) -> Nanos {
        self.budget.used()
    }

    /// Series that have ended.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Whether a series is under way.
    #[must_use]
    pub fn is_scanning(&self) -> bool {
        self.series.is_some()
    }

    /// Pages of a batch: those that the share allows in a tenth of a second, within bounds.
    #[must_use]
    pub fn batch(&self) -> u32 {
        let pages = self.budget.share() * 20_000.0;
        let (least, most) = BATCH;
        let bounded = pages.clamp(f64::from(least), f64::from(most));
        convert::narrow(convert::count(bounded))
    }

    /// Begins a series that is expected to save `expected` pages, unless one is under way or it is
    /// too early. `is_fresh` if ksmd stands at the beginning of a scan.
    pub fn begin(&mut self, now: Nanos, reading: Reading, expected: u64, is_fresh: bool) -> bool {
        if self.series.is_some() || now < self.next {
            return false;
        }
        let scans = if is_fresh { SCANS.0 } else { SCANS.1 };
        self.series = Some(Series {
            until: reading.full_scans + scans,
            before: reading,
            expected,
            last: reading.used,
            idle: 0,
        });
        true
    }

    /// New memory has appeared since the last series failed: the next series need not wait.
    pub fn hurry(&mut self) {
        (self.wait, self.next) = (self.round, 0);
    }

    /// The next action of ksmd.
    pub fn turn(&mut self, now: Nanos, reading: Reading) -> KsmAction {
        let batch = self.batch();
        let Some(series) = &mut self.series else {
            return KsmAction::Stop;
        };
        series.idle = match reading.used == series.last {
            true => series.idle + 1,
            false => 0,
        };
        series.last = reading.used;
        if reading.full_scans >= series.until || series.idle > MAX_IDLE {
            let saved = reading
                .saved_pages
                .saturating_sub(series.before.saved_pages);
            let failed = saved < series.expected / 2;
            self.series = None;
            self.done += 1;
            self.wait = match failed {
                true => (self.wait * 2).min(self.round * MAX_WAIT),
                false => self.round,
            };
            self.next = now + if failed { self.wait } else { 0 };
            return KsmAction::Stop;
        }
        match self.budget.is_ready(now) {
            true => KsmAction::Run {
                pages: batch,
                slice: self.sleep,
            },
            false => {
                // ksmd was stopped, so it could not run.
                series.idle = 0;
                KsmAction::Rest {
                    until: self.budget.ready_at(now),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const SECOND: Nanos = 1000 * MS;

    /// A ksmd that needs `scan` of processor time for a full scan, driven until the series ends.
    /// Returns the time that it used.
    fn drive(bursts: &mut Bursts, now: &mut Nanos, reading: &mut Reading, scan: Nanos) -> Nanos {
        let begun = reading.used;
        loop {
            match bursts.turn(*now, *reading) {
                KsmAction::Run { slice, .. } => {
                    *now += slice;
                    reading.used += slice;
                    reading.full_scans = reading.used / scan;
                    bursts.charge(*now, slice);
                }
                KsmAction::Rest { until } => *now = until.max(*now + 1),
                KsmAction::Stop => return reading.used - begun,
            }
        }
    }

    #[test]
    fn a_series_takes_two_scans_and_three_from_inside_of_one() {
        for (is_fresh, scans) in [(true, 2), (false, 3)] {
            let mut bursts = Bursts::new(0.95, 20 * MS, 2 * SECOND);
            let (mut now, mut reading) = (SECOND, Reading::default());
            assert!(bursts.begin(now, reading, 0, is_fresh));
            assert!(!bursts.begin(now, reading, 0, is_fresh), "one at a time");
            let used = drive(&mut bursts, &mut now, &mut reading, 100 * MS);
            assert_eq!(used, scans * 100 * MS);
            assert_eq!((bursts.done(), bursts.is_scanning()), (1, false));
        }
    }

    #[test]
    fn a_rest_ends_at_its_time_though_waking_costs_more_than_it_paid() {
        const WAKING: Nanos = 4 * MS;
        let mut bursts = Bursts::new(0.01, 20 * MS, 2 * SECOND);
        let (begun, mut now, mut turns) = (SECOND, SECOND, 0);
        while now < begun + 600 * SECOND {
            now += WAKING;
            bursts.charge(now, WAKING);
            match bursts.may_work(now) {
                Ok(()) => turns += 1,
                Err(until) => now = until.max(now),
            }
        }
        // Each turn, and each time that it is woken for one or before one.
        let time = (now - begun) / 100;
        assert!(bursts.used() <= time + 2 * WAKING, "{}", bursts.used());
        assert!(turns >= 600 * SECOND / 100 / (3 * WAKING), "{turns}");
    }

    #[test]
    fn the_share_holds_for_bursts_and_for_what_else_is_booked() {
        for share in [0.01, 0.2375, 0.95] {
            let mut bursts = Bursts::new(share, 20 * MS, 2 * SECOND);
            let begun = SECOND;
            let (mut now, mut reading) = (begun, Reading::default());
            bursts.begin(now, reading, 0, true);
            bursts.charge(now, 300 * MS);
            let used = 300 * MS + drive(&mut bursts, &mut now, &mut reading, SECOND);
            let most = share * convert::float(now - begun + 320 * MS) + convert::float(20 * MS);
            assert!(
                convert::float(used) <= most,
                "{used} ns in {} ns at {share}",
                now - begun
            );
        }
    }

    #[test]
    fn a_series_in_vain_makes_the_next_one_wait_and_one_that_saves_does_not() {
        let mut bursts = Bursts::new(0.95, 20 * MS, 2 * SECOND);
        let (mut now, mut reading) = (SECOND, Reading::default());
        let mut waits = Vec::new();
        for _ in 0..9 {
            assert!(bursts.begin(now, reading, 1000, true));
            drive(&mut bursts, &mut now, &mut reading, 100 * MS);
            let ended = now;
            while !bursts.begin(now, reading, 1000, true) {
                now += SECOND;
            }
            waits.push((now - ended) / SECOND);
            drive(&mut bursts, &mut now, &mut reading, 100 * MS);
            now = bursts.next;
        }
        assert!(waits.is_sorted() && waits[0] == 4, "{waits:?}");
        assert_eq!(*waits.last().unwrap(), 128, "64 rounds at most");
        assert!(bursts.begin(now, reading, 1000, true));
        reading.saved_pages += 600;
        drive(&mut bursts, &mut now, &mut reading, 100 * MS);
        assert!(bursts.begin(now, reading, 1000, true), "it saved enough");
        drive(&mut bursts, &mut now, &mut reading, 100 * MS);
        bursts.hurry();
        assert!(bursts.begin(now, reading, 1000, true), "new memory came");
    }

    #[test]
    fn a_ksmd_that_does_nothing_ends_the_series() {
        let mut bursts = Bursts::new(0.95, 20 * MS, 2 * SECOND);
        let reading = Reading::default();
        bursts.begin(0, reading, 10, true);
        let turns =
            (0..1000).position(|turn| bursts.turn(turn * 20 * MS, reading) == KsmAction::Stop);
        assert_eq!(turns, Some(50));
    }

    #[test]
    fn batches_are_short_where_the_share_is_small() {
        let batch = |share| Bursts::new(share, 20 * MS, SECOND).batch();
        assert_eq!((batch(0.01), batch(0.1), batch(0.95)), (1000, 2000, 5000));
    }
}
