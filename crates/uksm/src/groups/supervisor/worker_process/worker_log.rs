//! Log lines of a worker, on their way to the daemon's log.
//!
//! # Problem
//! A compromised worker can write anything to its standard error. If that were the daemon's, the
//! worker could forge lines of the supervisor and of other groups, with any priority, and fill the
//! disk.
//!
//! # Approach
//! A worker's standard error is a pipe. The supervisor reads it without waiting, and logs each line
//! with the group before it. The log escapes control characters and cuts long messages
//! ([`uksm_input::plain`]); here a line is cut at [`MAX_LINE_BYTES`]. Beyond [`MAX_LINES`] at once
//! and [`LINES_PER_SECOND`] on average, lines are dropped and counted. A worker begins a line with
//! its priority (`<4>`, see [`crate::log`]), which it may choose.
//!
//! # Units
//! Bytes, lines.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// The part of a line that is kept.
const MAX_LINE_BYTES: usize = 1024;
/// Maximum number of lines that are logged at once: a panic prints several.
const MAX_LINES: u32 = 50;
const LINES_PER_SECOND: u32 = 5;
/// Maximum number of bytes read in a turn: as much as the pipe holds.
const MAX_READ_BYTES: usize = 64 << 10;

/// The reading end of one worker's standard error.
#[derive(Debug)]
pub(super) struct WorkerLog {
    pipe: OwnedFd,
    line: Vec<u8>,
    lines: Lines,
}

/// The number of lines that may be logged.
#[derive(Debug)]
struct Lines {
    left: u32,
    /// Time of the last increase.
    counted_at: Instant,
    dropped: u64,
}

impl Lines {
    /// Whether one more may be logged.
    fn take(&mut self, now: Instant) -> bool {
        let one = Duration::from_secs(1) / LINES_PER_SECOND;
        let passed = now.saturating_duration_since(self.counted_at);
        let more = u32::try_from(passed.as_nanos() / one.as_nanos()).unwrap_or(MAX_LINES);
        if self.left.saturating_add(more) >= MAX_LINES {
            (self.left, self.counted_at) = (MAX_LINES, now);
        } else {
            self.left += more;
            self.counted_at += one * more;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        self.dropped += u64::from(!may);
        may
    }
}

impl WorkerLog {
    /// From the pipe to which a worker writes.
    ///
    /// # Errors
    /// The pipe cannot be read without waiting.
    pub(super) fn of(pipe: OwnedFd) -> std::io::Result<WorkerLog> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(WorkerLog {
            pipe,
            line: Vec::new(),
            lines: Lines {
                left: MAX_LINES,
                counted_at: Instant::now(),
                dropped: 0,
            },
        })
    }

    /// Logs the lines in the pipe. Answers whether more can come.
    pub(super) fn pass_on(&mut self, group: &str) -> bool {
        self.read(Instant::now(), &mut |priority, text| {
            log(group, priority, text);
        })
    }

    fn read(&mut self, now: Instant, log: &mut impl FnMut(u8, &str)) -> bool {
        let mut bytes = [0; 4096];
        for _ in 0..MAX_READ_BYTES / bytes.len() {
            let count = match rustix::io::read(&self.pipe, &mut bytes) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return true,
                Ok(0) | Err(_) => {
                    self.end_line(now, log);
                    return false;
                }
                Ok(count) => count,
            };
            for &byte in &bytes[..count] {
                match byte {
                    b'\n' => self.end_line(now, log),
                    byte if self.line.len() < MAX_LINE_BYTES => self.line.push(byte),
                    _ => {}
                }
            }
        }
        true
    }

    fn end_line(&mut self, now: Instant, log: &mut impl FnMut(u8, &str)) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() || !self.lines.take(now) {
            return;
        }
        match std::mem::take(&mut self.lines.dropped) {
            0 => {}
            dropped => log(b'4', &format!("[{dropped} lines dropped]")),
        }
        let cut = if line.len() == MAX_LINE_BYTES {
            " [cut]"
        } else {
            ""
        };
        let (priority, text) = match line.as_slice() {
            [b'<', priority @ b'0'..=b'7', b'>', text @ ..] => (*priority, text),
            // Output of the runtime itself, as at a panic.
            text => (b'4', text),
        };
        log(priority, &format!("{}{cut}", String::from_utf8_lossy(text)));
    }
}

impl AsFd for WorkerLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

fn log(group: &str, priority: u8, text: &str) {
    match priority {
        b'0'..=b'3' => tracing::error!("group {group}, worker: {text}"),
        b'4' => tracing::warn!("group {group}, worker: {text}"),
        b'5' | b'6' => tracing::info!("group {group}, worker: {text}"),
        _ => tracing::debug!("group {group}, worker: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that are logged for these bytes, and whether the pipe stays open.
    fn logged(log: &mut WorkerLog, now: Instant) -> (Vec<(u8, String)>, bool) {
        let mut lines = Vec::new();
        let goes_on = log.read(now, &mut |priority, text| {
            lines.push((priority, text.to_owned()));
        });
        (lines, goes_on)
    }

    fn pipe() -> (WorkerLog, OwnedFd) {
        let (ours, theirs) = rustix::pipe::pipe().unwrap();
        (WorkerLog::of(ours).unwrap(), theirs)
    }

    #[test]
    fn a_worker_cannot_end_a_line_of_the_log_or_fill_it() {
        let (mut log, theirs) = pipe();
        let now = Instant::now();
        let write = |bytes: &[u8]| assert_eq!(rustix::io::write(&theirs, bytes), Ok(bytes.len()));
        write(b"<6>works\n<3>uksm: error: forged\r\x1b]0;x\x07\n\n\nthread panicked\nha");
        let (lines, goes_on) = logged(&mut log, now);
        let texts: Vec<_> = lines
            .iter()
            .map(|(of, text)| (*of, text.as_str()))
            .collect();
        assert_eq!(
            texts,
            [
                (b'6', "works"),
                (b'3', "uksm: error: forged\r\x1b]0;x\x07"),
                (b'4', "thread panicked"),
            ]
        );
        assert!(goes_on, "the rest of the line is waited for");
        write(b"lf\n");
        assert_eq!(logged(&mut log, now).0, [(b'4', "half".to_owned())]);
        write(&[b'x'; 20_000]);
        assert_eq!(logged(&mut log, now).0, []);
        write(b"\n");
        let (lines, _) = logged(&mut log, now);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].1.len() < MAX_LINE_BYTES + 10 && lines[0].1.ends_with("[cut]"));
        for _ in 0..1000 {
            write(b"<6>again and again\n");
        }
        let (lines, _) = logged(&mut log, now);
        assert_eq!(lines.len(), usize::try_from(MAX_LINES).unwrap() - 5);
        write(b"<6>later\nend");
        drop(theirs);
        let (lines, goes_on) = logged(&mut log, now + Duration::from_secs(3600));
        let reported: Vec<_> = lines.into_iter().map(|(_, text)| text).collect();
        assert_eq!(reported, ["[955 lines dropped]", "later", "end"]);
        assert!(!goes_on);
    }

    #[test]
    fn a_worker_that_writes_on_and_on_is_read_for_a_bounded_time() {
        let (mut log, theirs) = pipe();
        let end =
            std::thread::spawn(move || while rustix::io::write(&theirs, &[b'\n'; 4096]).is_ok() {});
        for _ in 0..100 {
            assert!(logged(&mut log, Instant::now()).1);
        }
        drop(log);
        end.join().unwrap();
    }
}
