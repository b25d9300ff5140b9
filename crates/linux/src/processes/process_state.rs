//! The state of one process, for a question about it.
//!
//! # Problem
//! A process without merged pages may never have been chosen, may wait for its check, or cannot be
//! attached; each has another remedy.
//!
//! # Approach
//! The answer uses the known state of each process, and for an unfollowed one its exclusions, read
//! anew. No data is kept for it.

use rustix::io::Errno;
use uksm_policy::command::SpaceId;

use super::{Processes, UnfollowedReason};
use crate::selection::GroupId;

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// It is followed: in this group, with this space.
    Followed(GroupId, SpaceId),
    /// It is this program.
    Itself,
    /// It is a thread of the kernel.
    KernelThread,
    /// It ended, and its parent has not waited for it yet.
    Ended,
    /// It was chosen and could not be attached.
    Failed(GroupId, Errno),
    /// It must be unmerged from this group before it can join another.
    Leaving(GroupId),
    /// It waits for its check.
    Waiting,
    /// No selector names it.
    NotChosen,
    /// A selector names it, and another excludes it.
    Excluded,
    /// It does not exist.
    Gone,
}

impl Processes {
    /// The state of a process.
    #[must_use]
    pub fn state_of(&self, pid: u32) -> ProcessState {
        if let Some(followed) = self.followed.get(&pid) {
            return ProcessState::Followed(followed.group, followed.space);
        }
        let own = std::process::id();
        let Ok(stat) = self.proc.stat(pid) else {
            return ProcessState::Gone;
        };
        if pid == own || (self.is_supervisor && stat.parent == own) {
            return ProcessState::Itself;
        }
        if stat.is_kernel_thread() {
            return ProcessState::KernelThread;
        }
        if !stat.has_memory() {
            return ProcessState::Ended;
        }
        match self.unfollowed.get(&pid) {
            Some(&UnfollowedReason::Failed(group, errno)) => ProcessState::Failed(group, errno),
            Some(&UnfollowedReason::Leaving((group, _))) => ProcessState::Leaving(group),
            // It was not checked yet, so the result of a check is predicted here.
            found if self.is_looked_for(pid, found) => {
                match self.grouping.may_choose(&self.proc, pid, &stat) {
                    true => ProcessState::Waiting,
                    false => self.unchosen(pid, &stat),
                }
            }
            Some(UnfollowedReason::NotChosen | UnfollowedReason::KernelThread) | None => {
                self.unchosen(pid, &stat)
            }
        }
    }

    /// Whether a process is new. Without a search, only processes named by id are known.
    fn is_looked_for(&self, pid: u32, found: Option<&UnfollowedReason>) -> bool {
        self.process_events.has(pid) || (found.is_none() && self.grouping.need_search())
    }

    fn unchosen(&self, pid: u32, stat: &crate::proc::Stat) -> ProcessState {
        match self.grouping.excludes(&self.proc, pid, stat) {
            true => ProcessState::Excluded,
            false => ProcessState::NotChosen,
        }
    }
}
