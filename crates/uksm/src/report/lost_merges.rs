//! Merged pages that ended without the daemon's doing.
//!
//! # Problem
//! The kernel copies a written merged page without a notice; it also ends unmapped ones without
//! one.
//!
//! # Approach
//! The number of mapped pages grows by merging, and shrinks by the daemon's breaking. Between two
//! consecutive records of one worker, pages missing beyond that have ended otherwise: they were
//! written, unmapped, or their process ended. A fork maps frames once more and hides as many.
//! Stretches in which the worker changes, or has no index, are skipped: frames of an ended worker
//! continue to save memory, but are not counted.
//!
//! # Units
//! Pages.

use std::collections::BTreeMap;

use uksm_policy::command::PAGE_SIZE;

use super::span::Piece;
use crate::account::Record;

/// Maximum distance between consecutive records, in seconds.
const MAX_GAP_SECONDS: f64 = 1.0;

/// The results, while records are read.
#[derive(Debug, Default)]
pub(super) struct LostMergeCounter {
    groups: BTreeMap<String, GroupLosses>,
}

#[derive(Debug, Default)]
struct GroupLosses {
    last: Option<LastRecord>,
    found: LostMerges,
}

/// The record before.
#[derive(Debug)]
struct LastRecord {
    worker: u32,
    to: f64,
    mapped: i64,
}

/// Mappings that ended otherwise, and the merged pages for which that is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LostMerges {
    /// Mappings that ended and that the daemon did not break, less those that forks added.
    pub(super) ended: i64,
    /// Pages merged meanwhile.
    pub(super) merged: u64,
    /// Whether there were two records to compare.
    pub(super) is_known: bool,
}

impl LostMergeCounter {
    /// Adds the next record of its group, which covers this time range.
    pub(super) fn add(&mut self, record: &Record, (from, to): Piece) {
        let group = self.groups.entry(record.group.clone()).or_default();
        let levels = &record.levels;
        if levels.index_bytes == 0 {
            group.last = None;
            return;
        }
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let mapped = levels
            .saved_bytes
            .saturating_add(signed(levels.frame_bytes))
            / signed(PAGE_SIZE);
        if let Some(last) = &group.last
            && last.worker == record.worker
            && (from - last.to).abs() <= MAX_GAP_SECONDS
        {
            let (merged, broken) = (record.amounts.merged_pages, record.amounts.broken_pages);
            let expected = last.mapped.saturating_add(signed(merged));
            let kept = mapped.saturating_add(signed(broken));
            let found = &mut group.found;
            found.ended = found.ended.saturating_add(expected.saturating_sub(kept));
            found.merged = found.merged.saturating_add(merged);
            found.is_known = true;
        }
        group.last = Some(LastRecord {
            worker: record.worker,
            to,
            mapped,
        });
    }

    /// The results for a group.
    pub(super) fn of(&self, group: &str) -> LostMerges {
        let group = self.groups.get(group);
        group.map_or_else(LostMerges::default, |group| group.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a minute that ends at `to`, with `mapped` pages mapped.
    fn minute(
        endings: &mut LostMergeCounter,
        to: f64,
        worker: u32,
        mapped: i64,
        counts: (u64, u64),
    ) {
        let mut record = Record {
            group: "web".to_owned(),
            worker,
            ..Record::default()
        };
        record.levels.index_bytes = 1;
        record.levels.frame_bytes = 10 * PAGE_SIZE;
        record.levels.saved_bytes = (mapped - 10) * 4096;
        (record.amounts.merged_pages, record.amounts.broken_pages) = counts;
        endings.add(&record, (to - 60.0, to));
    }

    fn found(ended: i64, merged: u64) -> LostMerges {
        LostMerges {
            ended,
            merged,
            is_known: true,
        }
    }

    #[test]
    fn what_is_mapped_no_more_and_was_not_broken_has_ended_otherwise() {
        let mut endings = LostMergeCounter::default();
        minute(&mut endings, 60.0, 7, 100, (500, 0));
        assert!(!endings.of("web").is_known, "what was before is not known");
        minute(&mut endings, 120.0, 7, 150, (80, 0));
        assert_eq!(endings.of("web"), found(30, 80));
        minute(&mut endings, 180.001, 7, 120, (0, 20));
        assert_eq!(endings.of("web"), found(40, 80));
        // A fork maps frames once more.
        minute(&mut endings, 240.001, 7, 130, (0, 0));
        assert_eq!(endings.of("web"), found(30, 80));
        assert_eq!(endings.of("db"), LostMerges::default());
    }

    #[test]
    fn no_loss_is_counted_across_another_worker_a_gap_or_an_end() {
        let mut endings = LostMergeCounter::default();
        minute(&mut endings, 60.0, 7, 100, (0, 0));
        minute(&mut endings, 120.0, 8, 10, (0, 0));
        minute(&mut endings, 300.0, 8, 0, (0, 0));
        let mut last = Record {
            group: "web".to_owned(),
            worker: 8,
            ..Record::default()
        };
        last.levels.index_bytes = 0;
        endings.add(&last, (300.0, 360.0));
        minute(&mut endings, 420.0, 8, 5, (0, 0));
        assert!(!endings.of("web").is_known);
    }
}
