//! Sleep that a signal or a request can end early.
//!
//! # Problem
//! The policy sleeps most of the time. A stop or a request must not wait for the end of a sleep.
//!
//! # Approach
//! A socket pair: to wake the thread, a caller writes a byte to the sender; so does the handler of
//! SIGTERM and SIGINT. A sleep polls the receiver. A byte that was written before the sleep ends it
//! as well, so no wake is lost between a check and the sleep.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};
use uksm_policy::command::Nanos;

use crate::clock;

/// Puts one thread to sleep.
#[derive(Debug)]
pub struct Sleeper {
    receiver: UnixStream,
    sender: UnixStream,
    stop: Arc<AtomicBool>,
}

/// The reason for the end of a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeCause {
    /// Its time is over.
    InTime,
    /// A [`Waker`], or a signal.
    Called,
    /// The watched descriptor with this index is readable.
    Readable(usize),
}

/// Exits the sleep of a [`Sleeper`].
#[derive(Debug)]
pub struct Waker {
    sender: UnixStream,
    stop: Arc<AtomicBool>,
}

impl Sleeper {
    /// A sleeper without a waker.
    ///
    /// # Errors
    /// No more file descriptors.
    pub fn new() -> std::io::Result<Sleeper> {
        let (receiver, sender) = UnixStream::pair()?;
        receiver.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        Ok(Sleeper {
            receiver,
            sender,
            stop: Arc::new(AtomicBool::new(false)),
        })
    }

    /// From now on SIGTERM and SIGINT request a stop instead of ending the process. A second one
    /// ends it, in case the stop hangs.
    ///
    /// # Errors
    /// The handlers cannot be set.
    pub fn stop_on_signals(&self) -> std::io::Result<()> {
        for signal in [libc::SIGTERM, libc::SIGINT] {
            let again = Arc::clone(&self.stop);
            signal_hook::flag::register_conditional_shutdown(signal, 1, again)?;
            self.stop_on(signal)?;
        }
        Ok(())
    }

    /// From now on this signal requests a stop, each time.
    ///
    /// # Errors
    /// The handler cannot be set.
    pub fn stop_on(&self, signal: i32) -> std::io::Result<()> {
        signal_hook::flag::register(signal, Arc::clone(&self.stop))?;
        signal_hook::low_level::pipe::register(signal, self.sender.try_clone()?)?;
        Ok(())
    }

    /// From now on this signal ends a sleep instead of the process; returns a flag that is set when
    /// it came.
    ///
    /// # Errors
    /// The handler cannot be set.
    pub fn note_signal(&self, signal: i32) -> std::io::Result<Arc<AtomicBool>> {
        let came = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, Arc::clone(&came))?;
        signal_hook::low_level::pipe::register(signal, self.sender.try_clone()?)?;
        Ok(came)
    }

    /// A handle for another thread.
    ///
    /// # Errors
    /// No more file descriptors.
    pub fn waker(&self) -> std::io::Result<Waker> {
        Ok(Waker {
            sender: self.sender.try_clone()?,
            stop: Arc::clone(&self.stop),
        })
    }

    /// Whether a stop was requested.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps until `until` on [`clock::now`], until woken, or until one of `others` is readable;
    /// the caller reads it.
    pub fn sleep(&mut self, until: Nanos, others: &[BorrowedFd<'_>]) -> WakeCause {
        loop {
            let left = until.saturating_sub(clock::now());
            if left == 0 {
                return WakeCause::InTime;
            }
            let timeout = Timespec {
                tv_sec: i64::try_from(left / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(left % 1_000_000_000).unwrap_or(0),
            };
            let own = [self.receiver.as_fd()];
            let watched = own.iter().chain(others).copied();
            let mut watched: Vec<PollFd<'_>> = watched
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            // An error means that a signal came. If it is one of ours, its byte is there now.
            let Ok(count) = rustix::event::poll(&mut watched, Some(&timeout)) else {
                continue;
            };
            if count == 0 {
                return WakeCause::InTime;
            }
            if !watched[0].revents().is_empty() {
                break;
            }
            let others = &watched[1..];
            if let Some(which) = others.iter().position(|fd| !fd.revents().is_empty()) {
                return WakeCause::Readable(which);
            }
        }
        let mut bytes = [0; 64];
        // Emptied, so that the next sleep does not end as well.
        while matches!(self.receiver.read(&mut bytes), Ok(1..)) {}
        WakeCause::Called
    }
}

impl Waker {
    /// Exits the sleep, or the next if there is none now.
    pub fn wake(&self) {
        // A full pipe holds enough bytes to wake the thread.
        let _full = (&self.sender).write(&[0]);
    }

    /// Requests a stop.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Nanos = 60_000_000_000;

    #[test]
    fn a_wake_before_the_sleep_is_not_lost() {
        let mut sleeper = Sleeper::new().unwrap();
        let waker = sleeper.waker().unwrap();
        (0..1000).for_each(|_| waker.wake());
        let start = clock::now();
        assert_eq!(sleeper.sleep(start + MINUTE, &[]), WakeCause::Called);
        assert!(clock::now() - start < MINUTE / 2);
        let start = clock::now();
        assert_eq!(sleeper.sleep(start + 20_000_000, &[]), WakeCause::InTime);
        assert!(
            clock::now() - start >= 20_000_000,
            "one wake ends one sleep"
        );
    }

    #[test]
    fn another_thread_ends_a_sleep_and_asks_for_a_stop() {
        let mut sleeper = Sleeper::new().unwrap();
        let waker = sleeper.waker().unwrap();
        let start = clock::now();
        let thread = std::thread::spawn(move || waker.stop());
        while !sleeper.stopping() {
            sleeper.sleep(start + MINUTE, &[]);
        }
        assert!(clock::now() - start < MINUTE / 2);
        thread.join().unwrap();
    }

    #[test]
    fn time_that_is_past_is_not_slept() {
        let mut sleeper = Sleeper::new().unwrap();
        sleeper.sleep(0, &[]);
        sleeper.sleep(clock::now(), &[]);
    }

    #[test]
    fn what_can_be_read_elsewhere_ends_a_sleep_and_stays() {
        let mut sleeper = Sleeper::new().unwrap();
        let (mut there, here) = UnixStream::pair().unwrap();
        let start = clock::now();
        let woken = sleeper.sleep(start + 20_000_000, &[here.as_fd()]);
        assert_eq!(woken, WakeCause::InTime);
        there.write_all(&[1]).unwrap();
        for _ in 0..2 {
            let woken = sleeper.sleep(start + MINUTE, &[here.as_fd()]);
            assert_eq!(woken, WakeCause::Readable(0));
        }
        sleeper.waker().unwrap().wake();
        let woken = sleeper.sleep(start + MINUTE, &[here.as_fd()]);
        assert_eq!(woken, WakeCause::Called);
        assert!(clock::now() - start < MINUTE / 2);
    }
}
