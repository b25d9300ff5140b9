//! The process at the other end of a connection, identified so that it cannot be mistaken for
//! another.
//!
//! # Problem
//! The kernel gives the id of the process that called connect(2). That process can have ended
//! since, its socket can be held by another one, and its id can belong to a third one by now: an
//! agent would learn of memory of a process that is not its own.
//!
//! # Approach
//! `SO_PEERPIDFD` (Linux 6.5) names the process itself. Before that, the id is opened as a pidfd,
//! and the process is accepted only if it is older than the last moment at which no connection was
//! waiting. The connection was made after that moment, by a process of this id; a process that has
//! had the id since before then, and has it still, is that one. A younger process is refused: the
//! agent connects again after a second, and is older then.
//!
//! # Units
//! Nanoseconds since the machine was started.
//!
//! # Source
//! unix(7); the kernel's `sk_getsockopt()` (`SO_PEERPIDFD`), `do_task_stat()` (the start time
//! counts from boot).

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::socket::{
    getsockopt,
    sockopt::{PeerCredentials, PeerPidfd},
};
use uksm_policy::command::Nanos;

use crate::pidfd;
use crate::proc::Proc;

/// Unit of the start times of processes.
const TICK_NS: Nanos = 10_000_000;

/// A process that has connected.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) pid: u32,
    /// Its user when it connected.
    pub(super) user: u32,
    pub(super) pidfd: OwnedFd,
}

impl Peer {
    /// The peer of a connection; none if the process has ended, is outside this daemon's PID
    /// namespace, or cannot be distinguished from another one. No connection was waiting at
    /// `drained_at`, and this one was made after that.
    pub(super) fn of(socket: &OwnedFd, proc: &Proc, drained_at: Nanos) -> Option<Peer> {
        let of_connect = match getsockopt(socket, PeerPidfd) {
            Err(Errno::ENOPROTOOPT) => None,
            pidfd => Some(pidfd.ok()?),
        };
        Peer::checked(socket, of_connect, proc, drained_at)
    }

    /// The peer, with the kernel's pidfd of the connected process if there is one.
    pub(super) fn checked(
        socket: &OwnedFd,
        of_connect: Option<OwnedFd>,
        proc: &Proc,
        drained_at: Nanos,
    ) -> Option<Peer> {
        let credentials = getsockopt(socket, PeerCredentials).ok()?;
        let pid = u32::try_from(credentials.pid())
            .ok()
            .filter(|&pid| pid > 0)?;
        let pidfd = match of_connect {
            Some(pidfd) => pidfd,
            None => {
                let pidfd = pidfd::open(pid).ok()??;
                let start_ticks = proc.stat(pid).ok()?.start_ticks;
                if !is_older(start_ticks, drained_at) {
                    return None;
                }
                pidfd
            }
        };
        let peer = Peer {
            pid,
            user: credentials.uid(),
            pidfd,
        };
        // This also proves that the start time was of the process that the pidfd names.
        peer.is_alive().then_some(peer)
    }

    /// Whether it runs: while it does, its id belongs to no other process. Anything read by that id
    /// before this call is its own.
    pub(super) fn is_alive(&self) -> bool {
        pidfd::has_exited(&self.pidfd) == Ok(false)
    }
}

/// Whether a process was started before `then`, with its start time rounded down to ticks.
fn is_older(start_ticks: u64, then: Nanos) -> bool {
    start_ticks.saturating_add(1).saturating_mul(TICK_NS) <= then
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_is_older_for_sure_is() {
        assert!(is_older(5, 60_000_000));
        assert!(!is_older(5, 59_999_999), "it may have begun at 59 ms");
        assert!(!is_older(u64::MAX, Nanos::MAX - 1));
        assert!(!is_older(0, 0));
    }
}
