//! The answers of a monitor, line by line, with bounds.
//!
//! # Problem
//! A reader of lines waits for ever for a line that does not end, and takes any length of it. And
//! the protocol's types know only the events of the QEMU version that they were made for.
//!
//! # Approach
//! Whole lines are passed on, of at most [`MAX_LINE_BYTES`] bytes, within the time that was allowed
//! for a command, at any speed of arrival. Lines that are events are left out: none is needed here.
//! The end of the stream is an error, not an empty answer.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest line. The greeting and the answers that are asked for take some hundred bytes.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The stream of a monitor's answers.
pub(super) struct Answers {
    stream: UnixStream,
    deadline: Instant,
    /// Bytes received.
    received: Vec<u8>,
    /// Length of the first whole line in it that is an answer.
    line: usize,
    /// Part of the line that was taken.
    taken: usize,
}

impl Answers {
    pub(super) fn new(stream: UnixStream) -> Answers {
        Answers {
            stream,
            deadline: Instant::now(),
            received: Vec::new(),
            line: 0,
            taken: 0,
        }
    }

    /// Sets the deadline to this time from now.
    pub(super) fn allow(&mut self, time: Duration) {
        self.deadline = Instant::now() + time;
    }

    fn late() -> io::Error {
        io::Error::new(ErrorKind::TimedOut, "no answer in time")
    }

    /// Reads until there is a whole line that is an answer.
    fn next_line(&mut self) -> io::Result<()> {
        self.received.drain(..self.line);
        (self.line, self.taken) = (0, 0);
        let mut searched = 0;
        loop {
            if let Some(end) = self.received[searched..]
                .iter()
                .position(|&byte| byte == b'\n')
            {
                let line = searched + end + 1;
                searched = 0;
                if is_answer(&self.received[..line]) {
                    self.line = line;
                    return Ok(());
                }
                self.received.drain(..line);
                continue;
            }
            searched = self.received.len();
            if searched > MAX_LINE_BYTES {
                let what = format!("a line of more than {MAX_LINE_BYTES} bytes");
                return Err(io::Error::new(ErrorKind::InvalidData, what));
            }
            self.receive()?;
        }
    }

    /// Receives the next bytes.
    fn receive(&mut self) -> io::Result<()> {
        let time = left(self.deadline).ok_or_else(Answers::late)?;
        self.stream.set_read_timeout(Some(time))?;
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                "it closed the connection",
            )),
            Ok(count) => {
                self.received.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Answers::late()),
            Err(error) => Err(error),
        }
    }
}

/// An event is an object with a key of that name at its top. Anything that is no object is an
/// answer, which the protocol's types then refuse; a blank line is nothing.
fn is_answer(line: &[u8]) -> bool {
    let object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line);
    let is_event = object.is_ok_and(|object| object.contains_key("event"));
    !is_event && !line.trim_ascii().is_empty()
}

impl BufRead for Answers {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.line {
            self.next_line()?;
        }
        Ok(&self.received[self.taken..self.line])
    }

    fn consume(&mut self, count: usize) {
        self.taken = (self.taken + count).min(self.line);
    }
}

impl Read for Answers {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(bytes)?;
        self.consume(count);
        Ok(count)
    }
}

impl Write for Answers {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let time = left(self.deadline).ok_or_else(Answers::late)?;
        self.stream.set_write_timeout(Some(time))?;
        match self.stream.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Answers::late()),
            answer => answer,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The time left until the deadline, if any.
fn left(deadline: Instant) -> Option<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}
