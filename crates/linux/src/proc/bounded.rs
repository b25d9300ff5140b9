//! Bounded reads of files whose length a process decides.
//!
//! # Problem
//! A process decides the length of its environment, its command line and the paths of its mappings,
//! without any right: with `prctl(PR_SET_MM_MAP)` an environment of a gibibyte costs the process
//! nothing, and its reader a gibibyte.
//!
//! # Approach
//! Every reader names the maximum number of bytes that it reads. [`read_start`] reads the start of
//! a file, [`Lines`] reads a file line by line and the start of each line. Both report a cut, so
//! that no reader mistakes a part for the whole.
//!
//! # Units
//! Bytes.
//!
//! # Source
//! proc(5), `PR_SET_MM_MAP` in prctl(2).

use std::fs::File;
use std::io::{self, BufRead};

use rustix::io::Errno;

/// Room for the first read: more than the length of most of these files.
const FIRST_READ_BYTES: usize = 2048;

/// Maximum length of a line in [`Lines`]: a line of `maps` with a path of `PATH_MAX` bytes, each of
/// them escaped (`\012`).
pub const MAX_LINE_BYTES: usize = 4 * 4096 + 512;

/// The start of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The file may go on.
    pub is_cut: bool,
}

impl Start {
    /// The entries of a file, each of which ends in this byte; a last one that was cut off is left
    /// out.
    pub fn entries(&self, end: u8) -> impl Iterator<Item = &[u8]> {
        let whole = match self.bytes.iter().rposition(|&byte| byte == end) {
            Some(last) => &self.bytes[..last],
            None if self.is_cut => &[],
            None => self.bytes.as_slice(),
        };
        let last = match self.is_cut {
            true => &[],
            false => self.bytes.get(whole.len() + 1..).unwrap_or(&[]),
        };
        let entries = whole.split(move |&byte| byte == end);
        entries.chain((!last.is_empty()).then_some(last))
    }
}

/// Reads at most `max_bytes` of a file of `/proc`. The kernel makes these files anew for each
/// reader, and fills the buffer of a read: a shorter read is the last one.
///
/// # Errors
/// As read(2).
pub fn read_start(file: &File, max_bytes: usize) -> io::Result<Start> {
    let mut bytes = Vec::with_capacity(FIRST_READ_BYTES.min(max_bytes));
    while bytes.len() < max_bytes {
        if bytes.capacity() == bytes.len() {
            bytes.reserve_exact(bytes.len().min(max_bytes - bytes.len()));
        }
        let length = bytes.len();
        let room = bytes.capacity().min(max_bytes) - length;
        bytes.resize(length + room, 0);
        let read = loop {
            match rustix::io::read(file, &mut bytes[length..]) {
                Err(Errno::INTR) => {}
                read => break read?,
            }
        };
        bytes.truncate(length + read);
        if read < room {
            return Ok(Start {
                bytes,
                is_cut: false,
            });
        }
    }
    Ok(Start {
        bytes,
        is_cut: true,
    })
}

/// A line without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its bytes; the first [`MAX_LINE_BYTES`] of a longer line.
    pub bytes: &'a [u8],
    /// The line goes on.
    pub is_cut: bool,
}

/// The lines of a file, one at a time, in bounded memory.
#[derive(Debug)]
pub struct Lines<R> {
    from: R,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// The lines of this file.
    pub fn of(from: R) -> Lines<R> {
        Lines {
            from,
            line: Vec::new(),
        }
    }

    /// The next line; none at the end.
    ///
    /// # Errors
    /// As read(2).
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let (mut is_cut, mut is_end) = (false, true);
        loop {
            let bytes = match self.from.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                bytes => bytes?,
            };
            if bytes.is_empty() {
                break;
            }
            is_end = false;
            let newline = bytes.iter().position(|&byte| byte == b'\n');
            let part = &bytes[..newline.unwrap_or(bytes.len())];
            let kept = part.len().min(MAX_LINE_BYTES - self.line.len());
            self.line.extend_from_slice(&part[..kept]);
            is_cut |= kept < part.len();
            let used = part.len() + usize::from(newline.is_some());
            self.from.consume(used);
            if newline.is_some() {
                break;
            }
        }
        Ok((!is_end).then_some(Line {
            bytes: &self.line,
            is_cut,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn start(bytes: &[u8], max_bytes: usize) -> Start {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        read_start(&File::open(file.path()).unwrap(), max_bytes).unwrap()
    }

    fn entries(start: &Start) -> Vec<&[u8]> {
        start.entries(0).collect()
    }

    #[test]
    fn no_more_is_read_than_the_bound_and_a_cut_is_said() {
        let long: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        let whole = start(&long, 2 << 20);
        assert!(whole.bytes == long && !whole.is_cut);
        for max_bytes in [1, 2047, 2048, 2049, 100_000] {
            let part = start(&long, max_bytes);
            assert!(
                part.bytes == long[..max_bytes] && part.is_cut,
                "{max_bytes}"
            );
            assert!(part.bytes.capacity() <= max_bytes.max(16), "{max_bytes}");
        }
        assert_eq!(start(b"", 10).bytes, b"");
    }

    #[test]
    fn an_entry_that_was_cut_off_is_none() {
        let file = b"A=1\0BC=23\0";
        assert_eq!(entries(&start(file, 100)), [b"A=1".as_slice(), b"BC=23"]);
        assert_eq!(entries(&start(file, 10)), [b"A=1".as_slice(), b"BC=23"]);
        for max_bytes in 4..10 {
            assert_eq!(entries(&start(file, max_bytes)), [b"A=1"], "{max_bytes}");
        }
        assert!(
            entries(&start(file, 3))
                .iter()
                .all(|entry| entry.is_empty())
        );
        // A process can omit the end of the last entry.
        assert_eq!(
            entries(&start(b"A=1\0B=2", 100)),
            [b"A=1".as_slice(), b"B=2"]
        );
        assert_eq!(entries(&start(b"B=2", 100)), [b"B=2"]);
    }

    #[test]
    fn lines_of_any_length_are_read_in_bounded_memory() {
        let long = vec![b'x'; 10 * MAX_LINE_BYTES];
        let file = [b"a\n\n".as_slice(), &long, b"\nlast"].concat();
        let mut lines = Lines::of(io::BufReader::with_capacity(7, file.as_slice()));
        let line = |bytes, is_cut| Some(Line { bytes, is_cut });
        assert_eq!(lines.next_line().unwrap(), line(b"a".as_slice(), false));
        assert_eq!(lines.next_line().unwrap(), line(b"".as_slice(), false));
        let cut = line(&long[..MAX_LINE_BYTES], true);
        assert_eq!(lines.next_line().unwrap(), cut);
        assert!(lines.line.capacity() <= 2 * MAX_LINE_BYTES);
        assert_eq!(lines.next_line().unwrap(), line(b"last".as_slice(), false));
        assert_eq!(lines.next_line().unwrap(), None);
    }
}
