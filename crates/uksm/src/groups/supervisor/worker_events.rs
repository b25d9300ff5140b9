//! Which workers have something to say, or have ended.
//!
//! # Problem
//! With hundreds of workers, to look at each whenever one speaks would cost more than to listen.
//!
//! # Approach
//! One epoll over all channels and processes; what is told is the worker's group. It is told again and again until the worker was heard
//! (level-triggered). A descriptor that is closed is watched no longer.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use uksm_linux::selection::GroupId;

/// Most that are told at once; more are told the next time.
const MOST: usize = 256;

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Listens to all workers.
#[derive(Debug)]
pub(super) struct WorkerEvents {
    epoll: OwnedFd,
}

impl WorkerEvents {
    /// Listens to nobody yet.
    ///
    /// # Errors
    /// No more file descriptors.
    pub(super) fn new() -> io::Result<WorkerEvents> {
        Ok(WorkerEvents {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    /// Listens to this one, too.
    ///
    /// # Errors
    /// No memory, or too many.
    pub(super) fn watch(&self, group: GroupId, to: &impl AsFd) -> io::Result<()> {
        let data = epoll::EventData::new_u64(u64::from(group.0));
        epoll::add(&self.epoll, to, data, epoll::EventFlags::IN)?;
        Ok(())
    }

    /// Waits for a worker that is to be heard, or for so long.
    pub(super) fn wait(&self, timeout: Duration) {
        let mut here = [PollFd::new(&self.epoll, PollFlags::IN)];
        if let Ok(timeout) = Timespec::try_from(timeout) {
            // A signal ends it sooner, as a worker does.
            let _woken = poll(&mut here, Some(&timeout));
        }
    }

    /// The groups whose workers are to be heard.
    pub(super) fn ready(&self) -> BTreeSet<GroupId> {
        let mut events = Vec::with_capacity(MOST);
        let buffer = rustix::buffer::spare_capacity(&mut events);
        if let Err(errno) = epoll::wait(&self.epoll, buffer, Some(&NOW)) {
            // Interrupted: they are told the next time.
            tracing::debug!("waiting for workers: {errno}");
        }
        let group = |event: &epoll::Event| u32::try_from(event.data.u64()).ok().map(GroupId);
        events.iter().filter_map(group).collect()
    }
}

/// Readable while somebody is to be heard.
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
    fn who_speaks_or_ends_is_heard_until_it_is_listened_to() {
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
