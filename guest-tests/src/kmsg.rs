//! The kernel's log, as records.
//!
//! Problem: a complaint must be charged to the test that ran at that time, and one that only went
//! to the log (below the console's level) must not be lost.
//!
//! Approach: `/dev/kmsg` numbers its records; each test begins at a number. A record overwritten
//! before it was read shows as a gap and is an error, because a complaint may have been in it.
//!
//! Source: Documentation/ABI/testing/dev-kmsg.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

use uksm_vm_protocol::markers;

/// One record of the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogRecord {
    /// Its number, growing by one.
    pub sequence: u64,
    /// Its text, without continuation lines.
    pub text: String,
}

/// Parses one record as `/dev/kmsg` gives it.
fn parse(raw: &str) -> Option<LogRecord> {
    let (prefix, rest) = raw.split_once(';')?;
    let sequence = prefix.split(',').nth(1)?.parse().ok()?;
    let text = rest.lines().next().unwrap_or("").to_owned();
    Some(LogRecord { sequence, text })
}

/// All records after number `after` (all there are, for `None`).
///
/// # Errors
/// The log cannot be read, or records were overwritten unread.
pub(crate) fn since(after: Option<u64>) -> io::Result<Vec<LogRecord>> {
    let mut file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg")?;
    let mut records: Vec<LogRecord> = Vec::new();
    let mut buffer = vec![0_u8; 16 * 1024];
    loop {
        let length = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            // The record under the cursor was overwritten: read on.
            Err(e) if e.raw_os_error() == Some(libc::EPIPE) => continue,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let raw = String::from_utf8_lossy(&buffer[..length]);
        if let Some(record) = parse(&raw)
            && after.is_none_or(|after| record.sequence > after)
        {
            records.push(record);
        }
    }
    if let (Some(after), Some(first)) = (after, records.first())
        && first.sequence > after + 1
    {
        return Err(io::Error::other(format!(
            "kernel log: records {} to {} were overwritten unread",
            after + 1,
            first.sequence - 1
        )));
    }
    Ok(records)
}

/// The number of the newest record, if there is one.
///
/// # Errors
/// The log cannot be read.
pub(crate) fn last_sequence() -> io::Result<Option<u64>> {
    Ok(since(None)?.last().map(|record| record.sequence))
}

/// The complaints among records after number `after`.
///
/// # Errors
/// As [`since`].
pub(crate) fn complaints_since(after: Option<u64>) -> io::Result<Vec<String>> {
    Ok(since(after)?
        .into_iter()
        .map(|r| r.text)
        .filter(|text| markers::severity(text).is_some())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_with_continuation_lines_keeps_its_first_line() {
        let record =
            parse("6,339,5140900,-;NET: Registered protocol family 10\n SUBSYSTEM=net\n").unwrap();
        assert_eq!(
            record,
            LogRecord {
                sequence: 339,
                text: "NET: Registered protocol family 10".into()
            }
        );
    }

    #[test]
    fn text_without_a_prefix_is_no_record() {
        assert_eq!(parse("hello"), None);
    }
}
