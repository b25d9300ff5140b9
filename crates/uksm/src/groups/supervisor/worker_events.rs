//! Events of workers: messages, and exits.
//!
//! # Problem
//! With hundreds of workers, polling every worker on each message would cost more than the
//! messages.
//!
//! # Approach
//! One epoll over all channels and processes; the data of an event is the worker's group. Events
//! are level-triggered: a group stays ready until its messages are read. A closed descriptor is no
//! longer watched.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use uksm_linux::selection::GroupId;

/// Events of one call; more are left for the next call.
const MAX_EVENTS: usize = 256;

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// An epoll over all workers.
#[derive(Debug)]
pub(super) struct WorkerEvents {
    epoll: OwnedFd,
}

impl WorkerEvents {
    /// An epoll that watches nothing yet.
    ///
    /// # Errors
    /// No more file descriptors.
    pub(super) fn new() -> io::Result<WorkerEvents> {
        Ok(WorkerEvents {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    /// Also watches this descriptor of a group's worker.
    ///
    /// # Errors
    /// No memory, or too many watches.
    pub(super) fn watch(&self, group: GroupId, to: &impl AsFd) -> io::Result<()> {
        let data = epoll::EventData::new_u64(u64::from(group.0));
        epoll::add(&self.epoll, to, data, epoll::EventFlags::IN)?;
        Ok(())
    }

    /// Waits until a worker is ready, or until the timeout.
    pub(super) fn wait(&self, timeout: Duration) {
        let mut here = [PollFd::new(&self.epoll, PollFlags::IN)];
        if let Ok(timeout) = Timespec::try_from(timeout) {
            // A signal ends the wait early, as an event does.
            let _woken = poll(&mut here, Some(&timeout));
        }
    }

    /// The groups whose workers have sent a message or ended.
    pub(super) fn ready(&self) -> BTreeSet<GroupId> {
        let mut events = Vec::with_capacity(MAX_EVENTS);
        let buffer = rustix::buffer::spare_capacity(&mut events);
        if let Err(errno) = epoll::wait(&self.epoll, buffer, Some(&NOW)) {
            // Interrupted: the events are left for the next call.
            tracing::debug!("waiting for workers: {errno}");
        }
        let group = |event: &epoll::Event| u32::try_from(event.data.u64()).ok().map(GroupId);
        events.iter().filter_map(group).collect()
    }
}

/// Readable while a worker is ready.
impl AsFd for WorkerEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::wire::channel::Channel;

    #[test]
    fn a_worker_that_sends_or_ends_is_ready_until_it_is_read() {
        let events = WorkerEvents::new().unwrap();
        let (ours, theirs) = Channel::pair().unwrap();
        let (others, _quiet) = Channel::pair().unwrap();
        events.watch(GroupId(7), &ours).unwrap();
        events.watch(GroupId(8), &others).unwrap();
        assert!(events.ready().is_empty());
        theirs.send(&1, None).unwrap();
        for _ in 0..2 {
            assert_eq!(events.ready(), BTreeSet::from([GroupId(7)]));
        }
        ours.receive::<u32>(None).unwrap();
        assert!(events.ready().is_empty());
        drop(theirs);
        assert_eq!(events.ready(), BTreeSet::from([GroupId(7)]));
        drop(ours);
        assert!(events.ready().is_empty());
    }
}
