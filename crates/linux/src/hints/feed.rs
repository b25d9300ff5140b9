//! The source of a machine's hints.
//!
//! A daemon without groups loads its own programs. The worker of a group receives the hints of its
//! spaces from its supervisor, which has loaded the programs.

use std::os::fd::{AsFd, BorrowedFd};

use uksm_policy::command::SpaceId;

use super::{Counts, HintBatch, HintReceiver, Hints};

/// A source of hints of I/O.
#[derive(Debug)]
pub enum Feed {
    /// The daemon's own programs.
    Programs(Box<Hints>),
    /// The supervisor, which knows the followed processes.
    Supervisor(HintReceiver),
}

impl Feed {
    /// Starts hints of this process, which has this space.
    pub fn follow(&mut self, pid: u32, space: SpaceId) {
        if let Feed::Programs(hints) = self {
            hints.follow(pid, space);
        }
    }

    /// Ends hints of this process.
    pub fn forget(&mut self, pid: u32) {
        if let Feed::Programs(hints) = self {
            hints.forget(pid);
        }
    }

    /// Reads the hints that wait, a bounded number.
    pub fn take(&mut self) -> HintBatch {
        match self {
            Feed::Programs(hints) => hints.take(),
            Feed::Supervisor(hints) => hints.take(),
        }
    }

    /// The counts of the programs; from a supervisor only the lost hints.
    #[must_use]
    pub fn counts(&self) -> Counts {
        match self {
            Feed::Programs(hints) => hints.counts(),
            Feed::Supervisor(hints) => Counts {
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
            Feed::Supervisor(_) => &[],
        }
    }
}

/// Readable when hints wait.
impl AsFd for Feed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Feed::Programs(hints) => hints.as_fd(),
            Feed::Supervisor(hints) => hints.as_fd(),
        }
    }
}
