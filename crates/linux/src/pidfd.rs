//! Holds processes by pidfds, and reports their exits.
//!
//! # Problem
//! The kernel reuses process ids. With thousands of followed processes, checking whether each is
//! alive would cost more than the rest of a process list.
//!
//! # Approach
//! A pidfd names one process for good, and becomes readable when the process exits. One epoll over
//! all of them reports exits; its cost grows with the exits, not with the processes.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Maximum number of exits reported at once; the rest waits for the next call.
const MAX_EXITS: usize = 1024;

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Opens a pidfd; none if there is no such process.
///
/// # Errors
/// The id is a thread's, or there are no more file descriptors.
pub fn open(pid: u32) -> Result<Option<OwnedFd>, Errno> {
    let id = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(Errno::INVAL)?;
    match pidfd_open(id, PidfdFlags::empty()) {
        Err(Errno::SRCH) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Whether the process has exited.
///
/// # Errors
/// Interrupted, or no memory.
pub fn has_exited(pidfd: &OwnedFd) -> Result<bool, Errno> {
    let mut ended = [PollFd::new(pidfd, PollFlags::IN)];
    Ok(poll(&mut ended, Some(&NOW))? > 0)
}

/// Reports exits.
#[derive(Debug)]
pub struct Exits {
    epoll: OwnedFd,
}

impl Exits {
    /// Watches no process yet.
    ///
    /// # Errors
    /// No more file descriptors.
    pub fn new() -> std::io::Result<Exits> {
        Ok(Exits {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    /// Reports the exit of this process, too.
    ///
    /// # Errors
    /// No memory, or too many.
    pub fn watch(&self, pid: u32, pidfd: &OwnedFd) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(u64::from(pid));
        epoll::add(&self.epoll, pidfd, data, epoll::EventFlags::IN)
    }

    /// Stops reporting this process. A copy of the descriptor would keep it here otherwise.
    pub fn forget(&self, pidfd: &OwnedFd) {
        if let Err(errno) = epoll::delete(&self.epoll, pidfd) {
            tracing::debug!("cannot watch a process: {errno}");
        }
    }

    /// The processes that have exited and were not forgotten.
    #[must_use]
    pub fn take(&self) -> Vec<u32> {
        let mut events = Vec::with_capacity(MAX_EXITS);
        let buffer = rustix::buffer::spare_capacity(&mut events);
        if let Err(errno) = epoll::wait(&self.epoll, buffer, Some(&NOW)) {
            // Interrupted: the exits are still there next time.
            tracing::debug!("cannot wait for exits of processes: {errno}");
        }
        events
            .iter()
            .filter_map(|event| u32::try_from(event.data.u64()).ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_is_reported_until_it_is_forgotten() {
        let mut child = std::process::Command::new("sleep")
            .arg("300")
            .spawn()
            .unwrap();
        let pidfd = open(child.id()).unwrap().unwrap();
        let exits = Exits::new().unwrap();
        exits.watch(child.id(), &pidfd).unwrap();
        assert!(!has_exited(&pidfd).unwrap() && exits.take().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_exited(&pidfd).unwrap());
        assert_eq!(exits.take(), [child.id()]);
        assert_eq!(exits.take(), [child.id()]);
        exits.forget(&pidfd);
        assert!(exits.take().is_empty());
        assert!(open(child.id()).unwrap().is_none());
    }
}
