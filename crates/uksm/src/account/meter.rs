//! Adds up a group's costs and savings, until a record of them is written.
//!
//! # Problem
//! Counters continue, levels go up and down between two readings, a worker can be gone at a
//! reading, and a disk can be full. None of that may lose an amount or count it twice.
//!
//! # Approach
//! A [`GroupFigures`] adds the growth of counters, and for levels the mean of both ends times the
//! time between them: on a straight line, so that a change within an interval is not seen. A level
//! that is not reported is assumed unchanged: merged pages stay merged without a worker. Amounts
//! are reset only when the ledger has them; otherwise the next record covers them, too.
//!
//! # Units
//! Nanoseconds of a clock that does not jump; byte-seconds.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use uksm_policy::command::Nanos;

use super::ledger::Ledger;
use super::record::{Amounts, Record, VERSION, unix_seconds, written};
pub(crate) use super::record::{Counts, WorkerFigures};
use super::record::{HintMerges, Levels};
use crate::account::redistributed::RedistributedTotals;

/// Figures of a group at one time. Counters are since its domain or its first worker was made, and
/// never go back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GroupFigures {
    /// Processor time of all its workers.
    pub(crate) cpu: Nanos,
    /// Counts of its domain, if the module answers.
    pub(crate) counts: Option<Counts>,
    /// Figures from its present worker, if it answers.
    pub(crate) worker: Option<WorkerFigures>,
    /// Workers replaced.
    pub(crate) restarts: u64,
    /// Memory that its members were given.
    pub(crate) given: RedistributedTotals,
}

/// The meter of one group.
#[derive(Debug)]
pub(crate) struct Meter {
    group: String,
    ledger: Arc<Ledger>,
    /// Amounts up to this time are in `accrued` or in the ledger.
    at: Nanos,
    cpu: Nanos,
    counts: Counts,
    /// Counts of the present worker.
    hinted: HintMerges,
    written: u64,
    restarts: u64,
    given: RedistributedTotals,
    levels: Option<Levels>,
    /// Nothing was merged before the first reading, and there were no indexes.
    was_empty: bool,
    accrued: Amounts,
}

impl Meter {
    /// A meter that begins now. `kept` has the counts of a domain that is not new: an earlier
    /// supervisor has written those.
    pub(crate) fn new(group: &str, ledger: Arc<Ledger>, now: Nanos, kept: Option<Counts>) -> Meter {
        Meter {
            group: group.to_owned(),
            ledger,
            at: now,
            cpu: 0,
            was_empty: kept.is_none(),
            counts: kept.unwrap_or_default(),
            hinted: HintMerges::default(),
            written: 0,
            restarts: 0,
            given: RedistributedTotals::default(),
            levels: None,
            accrued: Amounts::default(),
        }
    }

    /// Adds a reading.
    pub(crate) fn take(&mut self, now: Nanos, reading: &GroupFigures) {
        let levels = reading.worker.map(|worker| worker.levels).or(self.levels);
        let to = levels.map(|levels| Levels {
            held_bytes: reading.given.held,
            ..levels
        });
        self.pass(now, to);
        self.levels = to;
        let accrued = &mut self.accrued;
        accrued.cpu_seconds += seconds(grown(&mut self.cpu, reading.cpu));
        accrued.restarts += grown(&mut self.restarts, reading.restarts);
        let (seen, given) = (&mut self.given, &reading.given);
        accrued.given_bytes += grown(&mut seen.given, given.given);
        accrued.taken_back_bytes += grown(&mut seen.taken_back, given.taken_back);
        if let Some(counts) = reading.counts {
            accrued.merged_pages += grown(&mut self.counts.merged, counts.merged);
            accrued.broken_pages += grown(&mut self.counts.broken, counts.broken);
            accrued.freed_frames += grown(&mut self.counts.freed, counts.freed);
        }
        if let Some(WorkerFigures {
            hinted: now,
            written,
            ..
        }) = reading.worker
        {
            accrued.written_pages += grown(&mut self.written, written);
            let seen = &mut self.hinted;
            accrued.hint_merged_within_100_ms += grown(&mut seen.within_100_ms, now.within_100_ms);
            accrued.hint_merged_within_1_s += grown(&mut seen.within_1_s, now.within_1_s);
            accrued.hint_merged_within_10_s += grown(&mut seen.within_10_s, now.within_10_s);
            accrued.hint_merged_after_10_s += grown(&mut seen.after_10_s, now.after_10_s);
        }
    }

    /// Whether nothing was merged, broken or freed since the last reading with levels, and that
    /// reading is younger than `longest`.
    pub(crate) fn is_calm(&self, now: Nanos, counts: Option<Counts>, longest: Nanos) -> bool {
        let is_recent = now.saturating_sub(self.at) < longest;
        counts == Some(self.counts) && self.levels.is_some() && is_recent
    }

    /// The worker has ended, and its indexes with it; the next worker counts from 0.
    pub(crate) fn lose_worker(&mut self, now: Nanos) {
        self.pass(now, self.levels);
        (self.hinted, self.written) = (HintMerges::default(), 0);
        if let Some(levels) = &mut self.levels {
            (levels.index_bytes, levels.worker_bytes) = (0, 0);
        }
    }

    /// Adds the time passed, with these levels at its end.
    fn pass(&mut self, now: Nanos, to: Option<Levels>) {
        let passed = seconds(now.saturating_sub(self.at));
        self.at = self.at.max(now);
        let accrued = &mut self.accrued;
        accrued.seconds += passed;
        let Some(to) = to else {
            return;
        };
        let at_first = match self.was_empty {
            true => Levels::default(),
            false => to,
        };
        let from = self.levels.unwrap_or(at_first);
        let mean = |from: f64, to: f64| f64::midpoint(from, to) * passed;
        accrued.saved_byte_seconds += mean(from.saved_bytes as f64, to.saved_bytes as f64);
        accrued.worker_byte_seconds += mean(from.worker_bytes as f64, to.worker_bytes as f64);
        accrued.index_byte_seconds += mean(from.index_bytes as f64, to.index_bytes as f64);
        accrued.frame_byte_seconds += mean(from.frame_bytes as f64, to.frame_bytes as f64);
        accrued.held_byte_seconds += mean(from.held_bytes as f64, to.held_bytes as f64);
    }

    /// Writes the amounts up to the last reading. Without known levels nothing is written unless
    /// `is_last`: the next record has the amounts then.
    ///
    /// # Errors
    /// The ledger cannot be written, in one line; it is tried again with the next record.
    pub(crate) fn write(
        &mut self,
        time: Timestamp,
        worker: u32,
        is_last: bool,
    ) -> Result<(), String> {
        let is_idle = self.accrued.cpu_seconds == 0.0;
        if self.accrued.seconds == 0.0 && is_idle {
            return Ok(());
        }
        if self.levels.is_none() {
            if is_idle {
                // The worker waits for the control group that pays, and uses nothing.
                self.accrued = Amounts::default();
                return Ok(());
            }
            if !is_last {
                return Ok(());
            }
        }
        let record = Record {
            version: VERSION,
            time: written(time),
            unix_seconds: unix_seconds(time),
            group: self.group.clone(),
            worker,
            host_written_pages: None,
            amounts: self.accrued,
            levels: self.levels.unwrap_or_default(),
        };
        self.ledger.append(&record, time)?;
        self.accrued = Amounts::default();
        Ok(())
    }
}

/// Growth of a counter; a counter that went back has none, and is counted again above its old
/// value.
fn grown(seen: &mut u64, now: u64) -> u64 {
    let growth = now.saturating_sub(*seen);
    *seen += growth;
    growth
}

fn seconds(time: Nanos) -> f64 {
    Duration::from_nanos(time).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::ledger_reader;

    const SECOND: Nanos = 1_000_000_000;

    struct MeterInFolder {
        folder: tempfile::TempDir,
        meter: Meter,
    }

    impl MeterInFolder {
        fn new() -> MeterInFolder {
            let folder = tempfile::tempdir().unwrap();
            let ledger = Ledger::new(Some(folder.path().join("accounts")), 90);
            let counts = Counts {
                merged: 100,
                ..Counts::default()
            };
            let meter = Meter::new("web", Arc::new(ledger), 10 * SECOND, Some(counts));
            MeterInFolder { folder, meter }
        }

        fn write(&mut self, unix: i64) {
            let time = Timestamp::from_second(unix).unwrap();
            self.meter.write(time, 7, false).unwrap();
        }

        fn records(&self) -> Vec<Record> {
            let mut records = Vec::new();
            let path = self.folder.path().join("accounts");
            if path.is_dir() {
                let torn = ledger_reader::read(&path, None, &mut |record, _| records.push(record));
                assert!(torn.unwrap().is_empty());
            }
            records
        }
    }

    fn reading(cpu: Nanos, merged: u64, saved: i64) -> GroupFigures {
        let counts = Counts {
            merged,
            ..Counts::default()
        };
        let levels = Levels {
            saved_bytes: saved,
            worker_bytes: 20,
            index_bytes: 10,
            frame_bytes: 0,
            held_bytes: 0,
        };
        GroupFigures {
            cpu,
            counts: Some(counts),
            worker: Some(WorkerFigures {
                levels,
                ..WorkerFigures::default()
            }),
            restarts: 0,
            given: RedistributedTotals::default(),
        }
    }

    #[test]
    fn what_a_new_domain_saves_at_its_first_reading_came_from_nothing() {
        let mut place = MeterInFolder::new();
        let ledger = Arc::clone(&place.meter.ledger);
        place.meter = Meter::new("web", ledger, 10 * SECOND, None);
        place.meter.take(20 * SECOND, &reading(SECOND, 100, 1000));
        place.write(100);
        let amounts = place.records()[0].amounts;
        assert_eq!(amounts.merged_pages, 100);
        assert_eq!(amounts.saved_byte_seconds, 5000.0);
    }

    #[test]
    fn growth_is_recorded_once_and_levels_are_the_mean_of_both_ends() {
        let mut place = MeterInFolder::new();
        place.meter.take(12 * SECOND, &reading(SECOND, 100, 1000));
        place.write(100);
        place
            .meter
            .take(22 * SECOND, &reading(3 * SECOND, 140, 2000));
        place.write(110);
        place.write(111);
        let records = place.records();
        let amounts: Vec<Amounts> = records.iter().map(|record| record.amounts).collect();
        assert_eq!(amounts.len(), 2, "nothing accrued, nothing is written");
        assert_eq!((amounts[0].seconds, amounts[0].cpu_seconds), (2.0, 1.0));
        assert_eq!(amounts[0].merged_pages, 0, "an earlier supervisor's");
        assert_eq!(amounts[0].saved_byte_seconds, 2000.0);
        assert_eq!((amounts[1].seconds, amounts[1].cpu_seconds), (10.0, 2.0));
        assert_eq!(amounts[1].merged_pages, 40);
        assert_eq!(amounts[1].saved_byte_seconds, 15_000.0);
        assert_eq!(records[1].levels.saved_bytes, 2000);
        assert_eq!((records[1].group.as_str(), records[1].worker), ("web", 7));
    }

    #[test]
    fn a_worker_that_is_gone_saves_on_and_has_no_index() {
        let mut place = MeterInFolder::new();
        place.meter.take(10 * SECOND, &reading(0, 100, 1000));
        place.meter.lose_worker(20 * SECOND);
        let silent = GroupFigures {
            cpu: SECOND,
            restarts: 1,
            ..GroupFigures::default()
        };
        place.meter.take(30 * SECOND, &silent);
        place.write(100);
        let amounts = place.records()[0].amounts;
        assert_eq!(amounts.saved_byte_seconds, 20_000.0);
        assert_eq!(amounts.index_byte_seconds, 100.0);
        assert_eq!(amounts.net_byte_seconds(), 19_800.0);
        assert_eq!((amounts.restarts, amounts.cpu_seconds), (1, 1.0));
    }

    #[test]
    fn a_group_is_calm_while_its_counts_stand_still_and_not_for_ever() {
        let mut place = MeterInFolder::new();
        let counts = reading(0, 100, 0).counts;
        let calm = |place: &MeterInFolder, at, counts| place.meter.is_calm(at, counts, 5 * SECOND);
        assert!(
            !calm(&place, 10 * SECOND, counts),
            "no levels were reported"
        );
        place.meter.take(11 * SECOND, &reading(SECOND, 100, 1000));
        assert!(calm(&place, 15 * SECOND, counts));
        assert!(!calm(&place, 15 * SECOND, reading(0, 101, 0).counts));
        assert!(!calm(&place, 15 * SECOND, None), "the module says nothing");
        assert!(!calm(&place, 16 * SECOND, counts), "too long");
    }

    #[test]
    fn what_members_were_given_is_counted_and_what_they_hold_is_a_level() {
        let mut place = MeterInFolder::new();
        let with = |held, given| GroupFigures {
            given: RedistributedTotals {
                held,
                given,
                taken_back: given - held,
            },
            ..reading(0, 100, 0)
        };
        place.meter.take(10 * SECOND, &with(0, 0));
        place.meter.take(20 * SECOND, &with(100, 150));
        place.meter.take(30 * SECOND, &with(100, 150));
        place.write(100);
        let record = &place.records()[0];
        let amounts = record.amounts;
        assert_eq!(amounts.held_byte_seconds, 1500.0);
        assert_eq!((amounts.given_bytes, amounts.taken_back_bytes), (150, 50));
        assert_eq!(record.levels.held_bytes, 100);
    }

    #[test]
    fn what_each_worker_counts_is_counted_once() {
        let mut place = MeterInFolder::new();
        let with = |within_1_s, after_10_s| GroupFigures {
            worker: Some(WorkerFigures {
                hinted: HintMerges {
                    within_1_s,
                    after_10_s,
                    ..HintMerges::default()
                },
                written: 2 * within_1_s,
                ..WorkerFigures::default()
            }),
            ..reading(0, 100, 0)
        };
        place.meter.take(10 * SECOND, &with(5, 1));
        // A worker that is not asked, or does not answer, has no known merges.
        let silent = GroupFigures {
            worker: None,
            ..with(0, 0)
        };
        place.meter.take(11 * SECOND, &silent);
        place.meter.take(12 * SECOND, &with(7, 1));
        place.meter.lose_worker(13 * SECOND);
        place.meter.take(14 * SECOND, &with(3, 0));
        place.write(100);
        let amounts = place.records()[0].amounts;
        assert_eq!(
            (
                amounts.hint_merged_within_1_s,
                amounts.hint_merged_after_10_s
            ),
            (10, 1)
        );
        assert_eq!(amounts.written_pages, 20);
        assert_eq!(
            (
                amounts.hint_merged_within_100_ms,
                amounts.hint_merged_within_10_s
            ),
            (0, 0)
        );
    }

    #[test]
    fn counters_that_go_back_add_nothing() {
        let mut place = MeterInFolder::new();
        place
            .meter
            .take(11 * SECOND, &reading(2 * SECOND, 150, 1000));
        place.meter.take(12 * SECOND, &reading(SECOND, 120, 1000));
        place
            .meter
            .take(13 * SECOND, &reading(3 * SECOND, 151, 1000));
        place.write(100);
        let amounts = place.records()[0].amounts;
        assert_eq!((amounts.cpu_seconds, amounts.merged_pages), (3.0, 51));
    }

    #[test]
    fn what_could_not_be_written_is_in_the_next_record() {
        let mut place = MeterInFolder::new();
        let path = place.folder.path().join("accounts");
        std::fs::write(&path, "in the way").unwrap();
        place.meter.take(20 * SECOND, &reading(SECOND, 150, 1000));
        let time = Timestamp::from_second(100).unwrap();
        let fault = place.meter.write(time, 7, false).unwrap_err();
        assert!(fault.contains(path.to_str().unwrap()), "{fault}");
        std::fs::remove_file(&path).unwrap();
        place
            .meter
            .take(30 * SECOND, &reading(2 * SECOND, 160, 1000));
        place.write(110);
        let records = place.records();
        assert_eq!(records.len(), 1);
        let amounts = records[0].amounts;
        assert_eq!((amounts.seconds, amounts.merged_pages), (20.0, 60));
    }

    #[test]
    fn waiting_group_has_no_record_and_a_silent_one_has_its_last() {
        let mut place = MeterInFolder::new();
        place.meter.take(20 * SECOND, &GroupFigures::default());
        place.write(100);
        let busy = GroupFigures {
            cpu: SECOND,
            ..GroupFigures::default()
        };
        place.meter.take(25 * SECOND, &busy);
        place.write(105);
        assert!(place.records().is_empty());
        let time = Timestamp::from_second(106).unwrap();
        place.meter.write(time, 7, true).unwrap();
        let amounts = place.records()[0].amounts;
        assert_eq!((amounts.seconds, amounts.cpu_seconds), (5.0, 1.0));
    }
}
