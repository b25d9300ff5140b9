//! The ledger: files of records, one a day, to which lines are added and nothing else.
//!
//! # Problem
//! A crash at any moment, a full disk or an unwritable folder must not make existing records
//! worthless, and must never stop the daemon.
//!
//! # Approach
//! `YYYY-MM-DD.jsonl` has the records that end on that day in UTC, one JSON object a line, each
//! added by one write. If that fails, the written part is cut off again. A line that a crash has
//! torn is ended by the next record, and readers skip it. The file is opened for each record, so
//! that the folder may disappear and come back. A failure is logged once, until writing works
//! again.
//!
//! Old files are removed once a day. A file is old if its day is more than `days` days ago *and*
//! `days` later files exist: a clock that jumps forward, even by years, removes only files that are
//! also old by the second condition. A file of a future day (such a clock wrote it) is kept and
//! named in the log, since its age is unknown.
//!
//! One daemon at a time writes into a folder: it holds a lock on the file [`LOCK`] there. Another
//! daemon logs an error and writes nothing, since each would count the other's records in its own
//! totals.
//!
//! # Units
//! Days of UTC.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan as _};
use rustix::fs::{FlockOperation, flock};

use super::ledger_reader::{ENDING, files};
use super::record::{Amounts, Record};
use super::totals::{Totals, day_of};

/// The lock file: the daemon that writes into a folder holds its lock.
const LOCK: &str = "lock";

/// The writer of records, if a folder is configured.
#[derive(Debug)]
pub(crate) struct Ledger {
    folder: Option<PathBuf>,
    days: i64,
    state: Mutex<LedgerState>,
}

#[derive(Debug, Default)]
struct LedgerState {
    /// The last failure that was logged.
    fault: Option<String>,
    /// The day of the last sweep for old files.
    swept: Option<Date>,
    /// Loaded at the first request or write.
    totals: Option<Totals>,
    /// Locked at the first write.
    lock: Option<File>,
    /// Merged pages written on the host, by the last count.
    host_written: Option<u64>,
    /// The part of them that is in records.
    host_recorded: u64,
}

impl LedgerState {
    /// Pages written on the host that are in no record yet.
    fn host_growth(&self) -> Option<u64> {
        let counted = self.host_written?;
        Some(counted.saturating_sub(self.host_recorded))
    }
}

impl Ledger {
    /// A ledger in this folder, which is made at the first write; without a folder nothing is
    /// written. Files are kept for this number of days.
    pub(crate) fn new(folder: Option<PathBuf>, days: u64) -> Ledger {
        Ledger {
            folder,
            days: i64::try_from(days).unwrap_or(i64::MAX),
            state: Mutex::default(),
        }
    }

    /// Its folder, if it has one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Sets the number of merged pages that processes of the host have written since the daemon
    /// started. The next record, of any group, has the growth.
    pub(crate) fn count_host_written(&self, pages: Option<u64>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.host_written = pages;
    }

    /// Adds a record that ends at `time`, with the pages written on the host.
    ///
    /// # Errors
    /// It was not written: one line, which is logged unless the last write failed, too.
    pub(super) fn append(&self, record: &Record, time: Timestamp) -> Result<(), String> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let day = day_of(time);
        let done = self.write(folder, &mut state, record, time);
        match &done {
            Ok(()) if state.fault.take().is_some() => {
                tracing::info!("accounts can be written again");
            }
            Err(fault) if state.fault.is_none() => {
                tracing::warn!("accounts: {fault}; the daemon tries again, and loses no record");
                state.fault = Some(fault.clone());
            }
            _ => {}
        }
        if done.is_ok() && state.swept != Some(day) {
            state.swept = Some(day);
            self.sweep(folder, day);
        }
        done
    }

    /// Adds a record to the file of the day and to the totals.
    fn write(
        &self,
        folder: &Path,
        state: &mut LedgerState,
        record: &Record,
        time: Timestamp,
    ) -> Result<(), String> {
        let day = day_of(time);
        let path = folder.join(format!("{day}{ENDING}"));
        let fail = |error| format!("{}: not written: {error}", path.display());
        make(folder).map_err(fail)?;
        if state.lock.is_none() {
            // Another daemon may have written records since: they are summed again.
            state.lock = Some(lock(folder)?);
            state.totals = None;
        }
        let growth = state.host_growth();
        let record = Record {
            host_written_pages: growth,
            ..record.clone()
        };
        // Loaded before the record is written, so that it is not counted twice.
        let totals = state.totals.get_or_insert_with(|| Totals::load(folder));
        let length = add(&path, &record).map_err(fail)?;
        totals.take(&record, day, length);
        state.host_recorded += growth.unwrap_or(0);
        let first = first_kept(&files(folder).unwrap_or_default(), self.days, day);
        if let Err(error) = totals.save_if_due(folder, time, first) {
            tracing::warn!("{}: totals are not written: {error}", folder.display());
        }
        Ok(())
    }

    /// Amounts of a group since totals are kept; zero if it has no record.
    pub(crate) fn totals(&self, group: &str) -> Amounts {
        let Some(folder) = &self.folder else {
            return Amounts::default();
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = state.totals.get_or_insert_with(|| Totals::load(folder));
        totals.of(group)
    }

    /// Removes files that are too old on this day.
    fn sweep(&self, folder: &Path, day: Date) {
        let removed = files(folder).and_then(|files| {
            let first = first_kept(&files, self.days, day);
            for (of, path) in &files {
                if *of < first {
                    std::fs::remove_file(path)?;
                } else if *of > day {
                    let path = path.display();
                    tracing::warn!(
                        "{path}: has a future date, so the clock was wrong: remove this file"
                    );
                }
            }
            Ok(())
        });
        if let Err(error) = removed {
            tracing::warn!(
                "{}: cannot remove an old file of the ledger: {error}",
                folder.display()
            );
        }
    }
}

/// The first day whose file is kept on `day`, from files in order.
fn first_kept(files: &[(Date, PathBuf)], days: i64, day: Date) -> Date {
    let by_date = day.checked_sub(days.days()).unwrap_or(Date::MIN);
    let newer = usize::try_from(days).unwrap_or(usize::MAX);
    let by_count = files
        .iter()
        .rev()
        .nth(newer)
        .map_or(Date::MIN, |(of, _)| *of);
    by_date.min(by_count)
}

/// Locks the folder for this daemon, until the file is closed.
///
/// # Errors
/// Another daemon has locked it, or it cannot be locked: one line.
fn lock(folder: &Path) -> Result<File, String> {
    let path = folder.join(LOCK);
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let locked = options.open(&path).and_then(|file| {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    });
    locked.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => format!(
            "{}: another uksm writes its accounts there: give each its own account_dir",
            folder.display()
        ),
        _ => format!("{}: cannot lock: {error}", path.display()),
    })
}

/// Makes the folder; only its owner can read it.
fn make(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)
}

/// Adds a line, and answers the file's length; on failure the file is as it was.
fn add(path: &Path, record: &Record) -> io::Result<u64> {
    let mut options = File::options();
    options.read(true).append(true).create(true).mode(0o600);
    let mut file = options.open(path)?;
    let length = file.metadata()?.len();
    let mut text = Vec::new();
    if ends_torn(&file, length)? {
        text.push(b'\n');
    }
    serde_json::to_writer(&mut text, record)?;
    text.push(b'\n');
    file.write_all(&text).inspect_err(|_| {
        if let Err(error) = file.set_len(length) {
            tracing::debug!(
                "{}: cannot remove a part of a record: {error}",
                path.display()
            );
        }
    })?;
    Ok(length + u64::try_from(text.len()).unwrap_or(u64::MAX - length))
}

/// Whether the last line has no end.
fn ends_torn(file: &File, length: u64) -> io::Result<bool> {
    let Some(last) = length.checked_sub(1) else {
        return Ok(false);
    };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::ledger_reader;

    fn record(group: &str) -> Record {
        let mut record = Record {
            version: 1,
            time: "2026-03-01T00:00:00Z".to_owned(),
            group: group.to_owned(),
            ..Record::default()
        };
        record.amounts.cpu_seconds = 0.1 + 0.2;
        record.amounts.merged_pages = u64::MAX;
        record.levels.saved_bytes = -4096;
        record
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let days = files(folder).unwrap().into_iter();
        days.map(|(day, _)| day.to_string()).collect()
    }

    fn read(folder: &Path) -> (Vec<Record>, Vec<String>) {
        let mut records = Vec::new();
        let torn = ledger_reader::read(folder, None, &mut |record, _| records.push(record));
        (records, torn.unwrap())
    }

    #[test]
    fn what_was_written_is_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        let ledger = Ledger::new(Some(folder.clone()), 90);
        for group in ["a", "b"] {
            let time = at("2026-03-01T00:00:00Z");
            ledger.append(&record(group), time).unwrap();
        }
        assert_eq!(read(&folder), (vec![record("a"), record("b")], vec![]));
    }

    #[test]
    fn a_page_written_on_the_host_is_in_one_record_of_any_group() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("accounts");
        let ledger = Ledger::new(Some(folder.clone()), 90);
        let time = at("2026-03-01T00:00:00Z");
        ledger.append(&record("a"), time).unwrap();
        ledger.count_host_written(Some(7));
        // A record that cannot be written has none.
        std::fs::rename(&folder, root.path().join("away")).unwrap();
        std::fs::write(&folder, "in the way").unwrap();
        ledger.append(&record("a"), time).unwrap_err();
        std::fs::remove_file(&folder).unwrap();
        std::fs::rename(root.path().join("away"), &folder).unwrap();
        for group in ["b", "c"] {
            ledger.append(&record(group), time).unwrap();
        }
        for counted in [Some(12), None] {
            ledger.count_host_written(counted);
            ledger.append(&record("a"), time).unwrap();
        }
        let (records, _) = read(&folder);
        let pages: Vec<_> = records.iter().map(|of| of.host_written_pages).collect();
        assert_eq!(pages, [None, Some(7), Some(0), Some(5), None]);
    }

    #[test]
    fn each_day_has_a_file_and_old_ones_go() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().to_owned();
        let others = ["2020-01-01.txt", "20200101.jsonl", "notes.jsonl"];
        for other in others {
            std::fs::write(folder.join(other), "").unwrap();
        }
        let ledger = Ledger::new(Some(folder.clone()), 2);
        for time in [
            "2026-02-27T23:59:59Z",
            "2026-02-28T00:00:00Z",
            "2026-03-01T12:00:00Z",
        ] {
            ledger.append(&record("a"), at(time)).unwrap();
        }
        let three = ["2026-02-27", "2026-02-28", "2026-03-01"];
        assert_eq!(names(&folder), three);
        let time = at("2026-03-02T00:00:01Z");
        ledger.append(&record("a"), time).unwrap();
        assert_eq!(names(&folder), ["2026-02-28", "2026-03-01", "2026-03-02"]);
        assert!(others.iter().all(|other| folder.join(other).exists()));
    }

    #[test]
    fn a_clock_that_is_wrong_once_removes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().to_owned();
        let ledger = Ledger::new(Some(folder.clone()), 90);
        for day in 1..=9 {
            let time = at(&format!("2026-03-0{day}T00:00:00Z"));
            ledger.append(&record("b"), time).unwrap();
        }
        let before = ledger.totals("b");
        ledger
            .append(&record("a"), at("2036-02-07T00:00:00Z"))
            .unwrap();
        let right = at("2026-03-10T00:00:00Z");
        ledger.append(&record("a"), right).unwrap();
        assert_eq!(names(&folder).len(), 11);
        assert_eq!(ledger.totals("b"), before);
        drop(ledger);
        assert_eq!(Ledger::new(Some(folder), 90).totals("b"), before);
    }

    #[test]
    fn a_second_daemon_writes_nothing_into_the_folder_of_the_first() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().to_owned();
        let time = at("2026-03-01T00:00:00Z");
        let first = Ledger::new(Some(folder.clone()), 90);
        first.append(&record("a"), time).unwrap();
        let second = Ledger::new(Some(folder.clone()), 90);
        let fault = second.append(&record("b"), time).unwrap_err();
        assert!(
            fault.contains("another uksm writes its accounts there"),
            "{fault}"
        );
        drop(first);
        second.append(&record("b"), time).unwrap();
        assert_eq!(read(&folder), (vec![record("a"), record("b")], vec![]));
    }

    #[test]
    fn a_torn_last_line_is_ended_and_left_out() {
        let root = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(Some(root.path().to_owned()), 90);
        let time = at("2026-03-01T00:00:00Z");
        ledger.append(&record("a"), time).unwrap();
        let path = root.path().join("2026-03-01.jsonl");
        let mut text = std::fs::read(&path).unwrap();
        let half = text[..text.len() / 2].to_vec();
        text.extend(half);
        std::fs::write(&path, text).unwrap();
        let place = format!("{}:2", path.display());
        assert_eq!(read(root.path()), (vec![record("a")], vec![place.clone()]));
        ledger.append(&record("b"), time).unwrap();
        let both = vec![record("a"), record("b")];
        assert_eq!(read(root.path()), (both, vec![place]));
    }

    #[test]
    fn a_disk_that_is_full_leaves_no_part_of_a_record() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("2026-03-01.jsonl");
        // Every write to it fails for want of room.
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let ledger = Ledger::new(Some(root.path().to_owned()), 90);
        let time = at("2026-03-01T00:00:00Z");
        let fault = ledger.append(&record("a"), time).unwrap_err();
        assert!(fault.contains("2026-03-01.jsonl: not written: "), "{fault}");
        std::fs::remove_file(&path).unwrap();
        ledger.append(&record("a"), time).unwrap();
        assert_eq!(read(root.path()).0.len(), 1);
        assert!(ledger.state.lock().unwrap().fault.is_none());
    }

    #[test]
    fn a_ledger_that_is_turned_off_writes_nothing() {
        let ledger = Ledger::new(None, 90);
        let time = at("2026-03-01T00:00:00Z");
        ledger.append(&record("a"), time).unwrap();
        assert!(ledger.folder().is_none());
    }
}
