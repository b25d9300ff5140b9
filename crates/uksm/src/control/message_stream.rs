//! Messages between client and daemon, bounded in length and time.
//!
//! # Problem
//! The library reads a message of any length for as long as it takes. A client that sends one byte
//! a second, or never ends, would keep all others from asking, and fill the daemon's memory. What
//! listens at the daemon's socket could do the same to a client.
//!
//! # Approach
//! A message is read up to its end (a zero byte) before it is parsed: within a maximum length, and
//! within one deadline for the whole message, not for each read. Replies are written within a
//! deadline as well.
//!
//! # Units
//! Bytes; instants of the monotonic clock.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes of one read.
const READ_BYTES: usize = 4096;

/// The stream to a peer, and the bytes after its last message.
#[derive(Debug)]
pub(super) struct MessageStream {
    peer: UnixStream,
    said: Vec<u8>,
}

fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

impl MessageStream {
    /// The stream to this peer.
    pub(super) fn of(peer: UnixStream) -> MessageStream {
        MessageStream {
            peer,
            said: Vec::new(),
        }
    }

    /// The next message, with the zero byte that ends it. None if the peer has closed.
    ///
    /// # Errors
    /// It is longer than `longest`, or incomplete at the deadline.
    pub(super) fn next(
        &mut self,
        longest: usize,
        deadline: Instant,
    ) -> io::Result<Option<Vec<u8>>> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.said[searched..].iter().position(|&byte| byte == 0) {
                let rest = self.said.split_off(searched + at + 1);
                return Ok(Some(std::mem::replace(&mut self.said, rest)));
            }
            searched = self.said.len();
            if searched >= longest {
                let what = format!("a message of more than {longest} bytes");
                return Err(io::Error::new(ErrorKind::InvalidData, what));
            }
            self.peer.set_read_timeout(Some(left(deadline)?))?;
            let mut part = [0; READ_BYTES];
            match self.peer.read(&mut part) {
                Ok(0) => return Ok(None),
                Ok(read) => self.said.extend_from_slice(&part[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes a reply.
    ///
    /// # Errors
    /// The peer is gone, or does not read in time.
    pub(super) fn write(&mut self, mut reply: &[u8], deadline: Instant) -> io::Result<()> {
        while !reply.is_empty() {
            self.peer.set_write_timeout(Some(left(deadline)?))?;
            match self.peer.write(reply) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => reply = &reply[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (MessageStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (MessageStream::of(ours), theirs)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn messages_end_where_they_end_however_they_come() {
        let (mut stream, mut client) = pair();
        client.write_all(b"one\0two\0th").unwrap();
        assert_eq!(stream.next(100, late()).unwrap().unwrap(), b"one\0");
        assert_eq!(stream.next(100, late()).unwrap().unwrap(), b"two\0");
        client.write_all(b"ree\0four").unwrap();
        assert_eq!(stream.next(100, late()).unwrap().unwrap(), b"three\0");
        drop(client);
        assert_eq!(stream.next(100, late()).unwrap(), None, "cut short");
    }

    #[test]
    fn client_that_sends_too_much_or_too_slowly_is_disconnected() {
        let (mut stream, mut client) = pair();
        client.write_all(&[b'x'; 9000]).unwrap();
        let error = stream.next(5000, late()).unwrap_err();
        assert_eq!(error.to_string(), "a message of more than 5000 bytes");

        let (mut stream, mut client) = pair();
        let slow = std::thread::spawn(move || {
            // Each byte comes in time, the whole message does not.
            while client.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let begun = Instant::now();
        let error = stream.next(1 << 20, soon()).unwrap_err();
        let is_late = [ErrorKind::TimedOut, ErrorKind::WouldBlock].contains(&error.kind());
        assert!(
            is_late && begun.elapsed() < Duration::from_secs(30),
            "{error}"
        );
        drop(stream);
        slow.join().unwrap();
    }

    #[test]
    fn client_that_does_not_read_is_disconnected() {
        let (mut stream, client) = pair();
        let error = stream.write(&vec![b'x'; 64 << 20], soon()).unwrap_err();
        assert!(
            [ErrorKind::TimedOut, ErrorKind::WouldBlock].contains(&error.kind()),
            "{error}"
        );
        drop(client);
        assert!(stream.write(b"x", late()).is_err());
    }
}
