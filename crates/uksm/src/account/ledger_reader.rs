//! A reader of ledgers, record by record.
//!
//! # Problem
//! A ledger of months is large, and its last line may be torn. A bill may leave out a torn record
//! if it names it, but no record that it does not understand.
//!
//! # Approach
//! Lines are read one at a time. A line that ends early, or in the zero bytes that a crash of the
//! machine leaves in a file, is torn: its place is returned. Any other line that is no record is an
//! error, with file and line. Files of days before the span are not opened: a record is in the file
//! of the day on which it ends.

use std::io;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use uksm_input::regular_file;

use super::record::{Record, TimeRange};

/// Most bytes of a record.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// The ending of a file's name.
pub(super) const ENDING: &str = ".jsonl";

/// Reads all records that do not end before `since`, in the order of the files; answers the places
/// of torn records.
///
/// # Errors
/// No ledger, or a line that is no record: one line that names it.
pub(crate) fn read(
    folder: &Path,
    since: Option<Timestamp>,
    each: &mut dyn FnMut(Record, TimeRange),
) -> Result<Vec<String>, String> {
    let first = since.map(|since| since.to_zoned_datetime(TimeZone::UTC).date());
    let files = files(folder);
    let files = files.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{}: does not exist, so nothing is recorded yet: a running daemon adds a record each \
             account_interval (1 minute by default)",
            folder.display()
        ),
        _ => format!("{}: cannot read: {error}", folder.display()),
    })?;
    let mut torn = Vec::new();
    for (_, path) in files
        .into_iter()
        .filter(|(day, _)| first.is_none_or(|first| *day >= first))
    {
        read_file(&path, 0, &mut torn, &mut |record, time_range| {
            if since.is_none_or(|since| time_range.to >= since) {
                each(record, time_range);
            }
        })?;
    }
    Ok(torn)
}

/// Reads the records of a file from the byte `from` on; adds the places of torn ones, by their line
/// from there. Answers the file's length.
///
/// # Errors
/// As [`read`].
pub(super) fn read_file(
    path: &Path,
    from: u64,
    torn: &mut Vec<String>,
    each: &mut dyn FnMut(Record, TimeRange),
) -> Result<u64, String> {
    let unreadable = |error| format!("{}: cannot read: {error}", path.display());
    let mut file = regular_file::open_regular(path).map_err(unreadable)?;
    let mut length = file.seek(SeekFrom::Start(from)).map_err(unreadable)?;
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut part = file.by_ref().take(MAX_RECORD_BYTES);
        let read = part.read_until(b'\n', &mut line).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        length += u64::try_from(read).unwrap_or(0);
        let place = || format!("{}:{number}", path.display());
        if part.limit() == 0 {
            let place = place();
            return Err(format!("{place}: not a record: longer than 1 MiB"));
        }
        // A torn line can lack its end.
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        match serde_json::from_slice::<Record>(text) {
            Ok(record) => {
                let time_range = record.time_range();
                let time_range = time_range.map_err(|error| format!("{}: {error}", place()))?;
                each(record, time_range);
            }
            Err(error) if error.is_eof() || line.contains(&0) => torn.push(place()),
            Err(error) => return Err(format!("{}: not a record: {error}", place())),
        }
    }
    Ok(length)
}

/// The files of a ledger by day, the oldest first. Files with other names are ignored.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn files(folder: &Path) -> io::Result<Vec<(Date, PathBuf)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let day = name.to_str().and_then(|name| name.strip_suffix(ENDING));
        let parsed = day.and_then(|day| day.parse::<Date>().ok().filter(|d| d.to_string() == day));
        if let Some(date) = parsed {
            files.push((date, entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("2026-03-01.jsonl"), text).unwrap();
        read(root.path(), None, &mut |_, _| ()).unwrap_err()
    }

    fn line(version: u32, time: &str, seconds: f64) -> String {
        let mut record = Record {
            version,
            time: time.to_owned(),
            ..Record::default()
        };
        record.amounts.seconds = seconds;
        serde_json::to_string(&record).unwrap() + "\n"
    }

    #[test]
    fn what_is_no_file_of_records_is_refused_at_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("2026-03-01.jsonl");
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let device = read(root.path(), None, &mut |_, _| ()).unwrap_err();
        assert!(
            device.contains("is a device, not a regular file"),
            "{device}"
        );
        let long = refused(&" ".repeat(2 << 20));
        assert!(
            long.contains("2026-03-01.jsonl:1: not a record: longer"),
            "{long}"
        );
    }

    #[test]
    fn what_is_no_record_is_named_by_file_and_line() {
        let good = line(1, "2026-03-01T00:00:00Z", 1.0);
        for (bad, says) in [
            ("{}\n".to_owned(), "missing field `version`"),
            ("hello\n".to_owned(), "expected"),
            (line(2, "2026-03-01T00:00:00Z", 1.0), "version 2: this"),
            (line(1, "yesterday", 1.0), "time 'yesterday': must be RFC"),
            (line(1, "2026-03-01T00:00:00Z", -1.0), "seconds -1: must be"),
        ] {
            let line = refused(&(good.clone() + &bad));
            assert!(line.contains("/2026-03-01.jsonl:2: "), "{line}");
            assert!(line.contains(says), "{line}");
        }
    }

    #[test]
    fn zero_bytes_of_a_crashed_machine_are_torn_and_fields_of_later_versions_are_not() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("2026-03-01.jsonl");
        let good = line(1, "2026-03-01T00:00:00Z", 1.0);
        let later = good.replace("{\"version\"", "{\"later_bytes\":7,\"version\"");
        assert_ne!(good, later);
        std::fs::write(&path, later + &good + "\0\0\0\0").unwrap();
        let mut records = 0;
        let torn = read(root.path(), None, &mut |_, _| records += 1).unwrap();
        assert_eq!(records, 2);
        assert_eq!(torn, [format!("{}:3", path.display())]);
    }

    #[test]
    fn only_days_of_the_span_are_read() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("2026-02-28.jsonl"), "not read").unwrap();
        let text = line(1, "2026-03-01T10:00:00Z", 1.0) + &line(1, "2026-03-01T12:00:00Z", 1.0);
        std::fs::write(root.path().join("2026-03-01.jsonl"), text).unwrap();
        let since = "2026-03-01T11:00:00Z".parse().ok();
        let mut ends = Vec::new();
        read(root.path(), since, &mut |_, time_range| {
            ends.push(time_range.to.to_string());
        })
        .unwrap();
        assert_eq!(ends, ["2026-03-01T12:00:00Z"]);
    }
}
