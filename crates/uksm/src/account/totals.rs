//! Totals of a ledger: amounts of each group since totals were first kept.
//!
//! # Problem
//! Monitoring wants counters that continue over restarts of daemon and workers. Summing the ledger
//! for each request is too much, and such a sum falls each day, when the oldest file is removed.
//!
//! # Approach
//! The daemon adds each record that it writes, and keeps the sums in `totals.json` beside the
//! files, with the length of each file when it was last added. It is written when [`WORTH`] bytes
//! of records have been added since, but at most once each [`MIN_INTERVAL`], or when a new day has
//! begun. A new daemon reads it, and adds the records beyond those lengths: nothing is counted
//! twice or left out, however the last daemon ended. If it is lost or bad, totals begin at 0 again,
//! without the records of existing files: monitoring takes that for a reset of the counters, which
//! it is. Groups without a record for as long as files are kept are forgotten. Beyond
//! [`MAX_TOTALS`] groups, those formed by rules whose last record is the oldest are forgotten, too:
//! users can decide how many names a rule forms over time. A bill still has them, since it sums
//! records.
//!
//! # Units
//! As in [`record`](super::record). A negative saving of a record counts as 0: totals never fall.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::ledger_reader;
use super::record::{Amounts, Record};

/// Their file.
const FILE_NAME: &str = "totals.json";

/// Maximum number of bytes of records that are read again at a start: some hundred records.
const WORTH: u64 = 64 << 10;

/// Minimum time between two writes of totals, except on a new day.
const MIN_INTERVAL: SignedDuration = SignedDuration::from_secs(60);

/// Maximum number of groups that have a total: twice the number that a rule may have at a time.
/// Each takes some 800 bytes of the file.
const MAX_TOTALS: usize = 8192;

/// Groups that are left after forgetting: below the maximum, so that a search for the oldest is
/// rare.
const TOTALS_LEFT: usize = MAX_TOTALS / 4 * 3;

/// Version of the form.
const VERSION: u32 = 1;

/// The sums, while a daemon runs.
#[derive(Debug, Default)]
pub(super) struct Totals {
    groups: BTreeMap<String, Total>,
    /// Bytes of each file that are in the sums.
    summed: BTreeMap<Date, u64>,
    /// Bytes of records since the last write.
    unsaved: u64,
    /// Time of the last write.
    saved: Option<Timestamp>,
    /// Totals that were read, and records added since.
    added: u64,
}

#[derive(Debug)]
struct Total {
    amounts: Amounts,
    /// The day of the last record.
    last: Date,
    /// Its position in the order of last records, after all totals that were read.
    place: u64,
}

/// The day in UTC.
pub(super) fn day_of(time: Timestamp) -> Date {
    time.to_zoned_datetime(TimeZone::UTC).date()
}

/// Whether a rule has formed the group: no configured name has this character.
fn is_formed(group: &str) -> bool {
    group.contains('@')
}

/// The contents of the file.
#[derive(Debug, Serialize, Deserialize)]
struct StoredTotals {
    version: u32,
    groups: BTreeMap<String, StoredTotal>,
    summed: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredTotal {
    last: String,
    amounts: Amounts,
}

impl Totals {
    /// The totals of the ledger in this folder; empty ones if they cannot be read, which is logged.
    pub(super) fn load(folder: &Path) -> Totals {
        let file = folder.join(FILE_NAME);
        let text = match std::fs::read(&file) {
            Ok(text) => Some(text),
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::warn!(
                        "{}: cannot read the totals, which start again from zero: {error}",
                        file.display()
                    );
                }
                None
            }
        };
        let kept = text.map(|text| Totals::read(&text));
        let mut totals = match kept {
            Some(Ok(totals)) => totals,
            Some(Err(fault)) => {
                tracing::warn!(
                    "{}: cannot read the totals, which start again from zero: {fault}",
                    file.display()
                );
                return Totals::beginning(folder);
            }
            None => return Totals::beginning(folder),
        };
        if let Err(fault) = totals.catch_up(folder) {
            tracing::warn!("totals start again from zero: {fault}");
            return Totals::beginning(folder);
        }
        totals
    }

    /// Totals of records from now on.
    fn beginning(folder: &Path) -> Totals {
        // A missing folder has no files.
        let files = ledger_reader::files(folder).unwrap_or_default();
        let length = |path: &Path| path.metadata().map_or(0, |of| of.len());
        let summed = files.iter().map(|(day, path)| (*day, length(path)));
        Totals {
            summed: summed.collect(),
            ..Totals::default()
        }
    }

    fn read(text: &[u8]) -> Result<Totals, String> {
        let kept: StoredTotals = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if kept.version != VERSION {
            let version = kept.version;
            return Err(format!("version {version}: this program reads {VERSION}"));
        }
        let day = |text: &str| text.parse::<Date>().map_err(|_| format!("day '{text}'"));
        let mut totals = Totals::default();
        for (name, StoredTotal { last, amounts }) in kept.groups {
            let last = day(&last)?;
            totals.added += 1;
            let total = Total {
                amounts,
                last,
                place: totals.added,
            };
            totals.groups.insert(name, total);
        }
        for (of, length) in kept.summed {
            totals.summed.insert(day(&of)?, length);
        }
        Ok(totals)
    }

    /// Adds the records of files beyond the lengths that are summed.
    fn catch_up(&mut self, folder: &Path) -> Result<(), String> {
        let files = ledger_reader::files(folder);
        let files = files.map_err(|error| format!("{}: {error}", folder.display()))?;
        for (day, path) in files {
            let from = self.summed.get(&day).copied().unwrap_or(0);
            let mut torn = Vec::new();
            let length = ledger_reader::read_file(&path, from, &mut torn, &mut |record, _| {
                self.add(&record, day);
            })?;
            self.summed.insert(day, length);
            self.unsaved += length.saturating_sub(from);
        }
        Ok(())
    }

    fn add(&mut self, record: &Record, day: Date) {
        let group = record.group.clone();
        let total = self.groups.entry(group).or_insert_with(|| Total {
            amounts: Amounts::default(),
            last: day,
            place: 0,
        });
        let mut amounts = record.amounts;
        amounts.saved_byte_seconds = amounts.saved_byte_seconds.max(0.0);
        total.amounts.add(&amounts);
        total.last = total.last.max(day);
        self.added += 1;
        total.place = self.added;
        if self.groups.len() > MAX_TOTALS {
            self.forget_oldest();
        }
    }

    /// Forgets the oldest down to [`TOTALS_LEFT`] groups; configured groups stay.
    fn forget_oldest(&mut self) {
        let formed = self.groups.iter().filter(|(name, _)| is_formed(name));
        let mut ages: Vec<_> = formed.map(|(_, of)| (of.last, of.place)).collect();
        ages.sort_unstable();
        let excess = self.groups.len() - TOTALS_LEFT;
        let Some(newest) = ages.get(excess.min(ages.len()).wrapping_sub(1)).copied() else {
            return;
        };
        self.groups
            .retain(|name, of| !is_formed(name) || (of.last, of.place) > newest);
    }

    /// Adds a record that is now in the file of this day, whose length is `length` with it.
    pub(super) fn take(&mut self, record: &Record, day: Date, length: u64) {
        self.add(record, day);
        let before = self.summed.insert(day, length).unwrap_or(0);
        self.unsaved += length.saturating_sub(before);
    }

    fn is_due(&self, time: Timestamp) -> bool {
        let Some(saved) = self.saved else {
            return true;
        };
        let since = time.duration_since(saved);
        // A clock that was set back does not stop it.
        let is_time = since >= MIN_INTERVAL || since.is_negative();
        day_of(saved) != day_of(time) || is_time && self.unsaved >= WORTH
    }

    /// Writes the totals if a write is due at this time. Groups and files before `first` are
    /// forgotten.
    ///
    /// # Errors
    /// They cannot be written; the old file stays.
    pub(super) fn save_if_due(
        &mut self,
        folder: &Path,
        time: Timestamp,
        first: Date,
    ) -> io::Result<()> {
        if !self.is_due(time) {
            return Ok(());
        }
        self.groups.retain(|_, total| total.last >= first);
        self.summed.retain(|day, _| *day >= first);
        // Even after a failure it is not tried again for each record.
        (self.saved, self.unsaved) = (Some(time), 0);
        let groups = self.groups.iter().map(|(name, total)| {
            let last = total.last.to_string();
            let amounts = total.amounts;
            (name.clone(), StoredTotal { last, amounts })
        });
        let summed = self
            .summed
            .iter()
            .map(|(day, length)| (day.to_string(), *length));
        let kept = StoredTotals {
            version: VERSION,
            groups: groups.collect(),
            summed: summed.collect(),
        };
        let beside = folder.join(format!("{FILE_NAME}.new"));
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside)?;
        file.write_all(&serde_json::to_vec(&kept)?)?;
        // Without it, a machine that stops now could find the new name with an empty file.
        file.sync_data()?;
        std::fs::rename(&beside, folder.join(FILE_NAME))
    }

    /// The totals of a group; zero if it has no record.
    pub(super) fn of(&self, group: &str) -> Amounts {
        let total = self.groups.get(group);
        total.map_or_else(Amounts::default, |total| total.amounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::ledger::Ledger;
    use crate::account::record::written;

    /// A minute of a group, in which a page was merged.
    fn minute(ledger: &Ledger, group: &str, time: &str) {
        let time: Timestamp = time.parse().unwrap();
        let mut record = Record {
            version: 1,
            time: written(time),
            group: group.to_owned(),
            ..Record::default()
        };
        record.amounts.seconds = 60.0;
        record.amounts.merged_pages = 1;
        record.amounts.saved_byte_seconds = 4096.0;
        ledger.append(&record, time).unwrap();
    }

    fn ledger(folder: &Path) -> Ledger {
        Ledger::new(Some(folder.to_owned()), 2)
    }

    fn merged(ledger: &Ledger, group: &str) -> u64 {
        ledger.totals(group).merged_pages
    }

    #[test]
    fn totals_go_on_over_daemons_however_they_ended() {
        let root = tempfile::tempdir().unwrap();
        let first = ledger(root.path());
        for second in 10..40 {
            minute(&first, "web", &format!("2026-03-01T00:00:{second}Z"));
        }
        minute(&first, "db", "2026-03-01T00:01:00Z");
        assert_eq!((merged(&first, "web"), merged(&first, "db")), (30, 1));
        // It writes nothing when it ends: the files have the records that are not in totals.
        drop(first);
        let second = ledger(root.path());
        assert_eq!((merged(&second, "web"), merged(&second, "db")), (30, 1));
        assert_eq!(merged(&second, "none"), 0);
        minute(&second, "web", "2026-03-01T23:59:59Z");
        minute(&second, "web", "2026-03-02T00:00:01Z");
        assert_eq!(merged(&ledger(root.path()), "web"), 32);
        drop(second);
        // A torn record is in no total, and the one behind it is.
        let path = root.path().join("2026-03-02.jsonl");
        let mut text = std::fs::read(&path).unwrap();
        text.extend(b"{\"version\":1,\"ti");
        std::fs::write(&path, text).unwrap();
        let third = ledger(root.path());
        minute(&third, "web", "2026-03-02T00:00:02Z");
        assert_eq!(merged(&third, "web"), 33);
        assert_eq!(merged(&ledger(root.path()), "web"), 33);
    }

    #[test]
    fn totals_stay_when_old_files_go_and_groups_that_are_long_gone_do_not() {
        let root = tempfile::tempdir().unwrap();
        let running = ledger(root.path());
        minute(&running, "web", "2026-03-01T00:00:00Z");
        minute(&running, "old", "2026-03-01T00:00:00Z");
        for day in 2..9 {
            minute(&running, "web", &format!("2026-03-0{day}T00:00:00Z"));
        }
        assert!(!root.path().join("2026-03-01.jsonl").exists());
        for running in [running, ledger(root.path())] {
            assert_eq!((merged(&running, "web"), merged(&running, "old")), (8, 0));
        }
    }

    #[test]
    fn a_ledger_from_before_and_one_whose_totals_are_bad_begin_at_nothing() {
        let root = tempfile::tempdir().unwrap();
        minute(&ledger(root.path()), "web", "2026-03-01T00:00:00Z");
        for bad in [
            None,
            Some("{"),
            Some("{\"version\":7,\"groups\":{},\"summed\":{}}"),
        ] {
            std::fs::remove_file(root.path().join(FILE_NAME)).unwrap();
            if let Some(bad) = bad {
                std::fs::write(root.path().join(FILE_NAME), bad).unwrap();
            }
            let running = ledger(root.path());
            assert_eq!(merged(&running, "web"), 0, "{bad:?}");
            minute(&running, "web", "2026-03-01T00:01:00Z");
            assert_eq!(merged(&running, "web"), 1, "{bad:?}");
            assert_eq!(merged(&ledger(root.path()), "web"), 1, "{bad:?}");
        }
    }

    #[test]
    fn totals_never_fall() {
        let mut totals = Totals::default();
        let mut record = Record::default();
        let day = Date::constant(2026, 3, 1);
        record.amounts.saved_byte_seconds = 10.0;
        totals.take(&record, day, 1);
        record.amounts.saved_byte_seconds = -4.0;
        totals.take(&record, day, 2);
        assert_eq!(totals.of("").saved_byte_seconds, 10.0);
    }

    #[test]
    fn they_are_written_seldom() {
        let root = tempfile::tempdir().unwrap();
        let running = ledger(root.path());
        minute(&running, "web", "2026-03-01T00:00:00Z");
        let path = root.path().join(FILE_NAME);
        let text = std::fs::read(&path).unwrap();
        minute(&running, "web", "2026-03-01T00:01:00Z");
        assert_eq!(std::fs::read(&path).unwrap(), text);
        for _ in 0..WORTH / 300 {
            minute(&running, "web", "2026-03-01T00:02:00Z");
        }
        let later = std::fs::read(&path).unwrap();
        assert_ne!(later, text);
        for _ in 0..2 * WORTH / 300 {
            minute(&running, "web", "2026-03-01T00:02:59Z");
        }
        assert_eq!(std::fs::read(&path).unwrap(), later, "within a minute");
        minute(&running, "web", "2026-03-01T00:03:00Z");
        assert_ne!(std::fs::read(&path).unwrap(), later);
    }

    #[test]
    fn groups_that_are_formed_without_end_have_no_more_totals_than_the_bound() {
        let mut totals = Totals::default();
        let day = Date::constant(2026, 3, 1);
        let mut take = |group: String| {
            let mut record = Record {
                group,
                ..Record::default()
            };
            record.amounts.merged_pages = 1;
            totals.take(&record, day, 1);
            assert!(totals.groups.len() <= MAX_TOTALS);
        };
        take("web".to_owned());
        for number in 0..3 * MAX_TOTALS {
            take(format!("r@{number}"));
            take("r@stays".to_owned());
        }
        let merged = |group: &str| totals.of(group).merged_pages;
        assert_eq!(merged("web"), 1, "configured");
        assert_eq!(merged("r@stays"), 3 * MAX_TOTALS as u64, "the newest");
        assert_eq!((merged("r@0"), merged("r@24575")), (0, 1));
    }
}
