//! Where a machine has its hints from.
//!
//! A daemon without groups has programs of its own; the worker of a group is handed what its
//! supervisor's tell of its spaces.

use std::os::fd::{AsFd, BorrowedFd};

use uksm_policy::command::SpaceId;

use super::{Counts, HandedHints, Hints, Taken};

/// Who tells of I/O.
#[derive(Debug)]
pub enum Feed {
    /// Programs of its own.
    Programs(Box<Hints>),
    /// The supervisor, who knows which processes are followed.
    HandedOver(HandedHints),
}

impl Feed {
    /// From now on tells of this process, whose space is this one.
    pub fn follow(&mut self, pid: u32, space: SpaceId) {
        if let Feed::Programs(hints) = self {
            hints.follow(pid, space);
        }
    }

    /// No longer tells of this process.
    pub fn forget(&mut self, pid: u32) {
        if let Feed::Programs(hints) = self {
            hints.forget(pid);
        }
    }

    /// The hints that have come, a bounded number.
    pub fn take(&mut self) -> Taken {
        match self {
            Feed::Programs(hints) => hints.take(),
            Feed::HandedOver(hints) => hints.take(),
        }
    }

    /// What has been counted; of what is handed over only what was lost.
    #[must_use]
    pub fn counts(&self) -> Counts {
        match self {
            Feed::Programs(hints) => hints.counts(),
            Feed::HandedOver(hints) => Counts {
                lost: hints.lost(),
                ..Counts::default()
            },
        }
    }

    /// Functions that cannot be watched here, and why.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        match self {
            Feed::Programs(hints) => hints.missing(),
            Feed::HandedOver(_) => &[],
        }
    }
}

/// Readable when hints wait.
impl AsFd for Feed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Feed::Programs(hints) => hints.as_fd(),
            Feed::HandedOver(hints) => hints.as_fd(),
        }
    }
}
