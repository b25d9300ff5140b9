//! What became of one process that somebody asks about.
//!
//! # Problem
//! A process of which nothing is merged may never have been chosen, may wait to be looked at, or
//! cannot be attached; each has another cure.
//!
//! # Approach
//! What is known of each process anyway, and for one that was left alone its exclusions, read anew.
//! Nothing is kept for it.

use rustix::io::Errno;
use uksm_policy::command::SpaceId;

use super::{Processes, Unfollowed};
use crate::selection::GroupId;

/// What became of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// It is followed: in this group, with this space.
    Followed(GroupId, SpaceId),
    /// It is this program.
    Itself,
    /// It is a thread of the kernel.
    KernelThread,
    /// It ended, and its parent has not heard of that yet.
    Ended,
    /// It was chosen and could not be attached.
    Failed(GroupId, Errno),
    /// It has to part from this group before it can be in another one.
    Leaving(GroupId),
    /// It is about to be looked at.
    Waiting,
    /// Nobody named it.
    NotChosen,
    /// It was named, and excluded.
    Excluded,
    /// It is not there.
    Gone,
}

impl Processes {
    /// What became of a process.
    #[must_use]
    pub fn whereabouts(&self, pid: u32) -> Whereabouts {
        if let Some(followed) = self.followed.get(&pid) {
            return Whereabouts::Followed(followed.group, followed.space);
        }
        let own = std::process::id();
        let Ok(stat) = self.proc.stat(pid) else {
            return Whereabouts::Gone;
        };
        if pid == own || (self.is_supervisor && stat.parent == own) {
            return Whereabouts::Itself;
        }
        if stat.is_kernel_thread() {
            return Whereabouts::KernelThread;
        }
        if !stat.has_memory() {
            return Whereabouts::Ended;
        }
        match self.unfollowed.get(&pid) {
            Some(&Unfollowed::Failed(group, errno)) => Whereabouts::Failed(group, errno),
            Some(&Unfollowed::Leaving((group, _))) => Whereabouts::Leaving(group),
            // Nobody has looked at it, so it is asked here what a look will tell.
            found if self.is_looked_for(pid, found) => {
                match self.grouping.may_choose(&self.proc, pid, &stat) {
                    true => Whereabouts::Waiting,
                    false => self.unchosen(pid, &stat),
                }
            }
            Some(Unfollowed::NotChosen | Unfollowed::KernelThread) | None => {
                self.unchosen(pid, &stat)
            }
        }
    }

    /// Whether a process is new. Where nobody is looked for, none is known but those that were
    /// named.
    fn is_looked_for(&self, pid: u32, found: Option<&Unfollowed>) -> bool {
        self.arrivals.has(pid) || (found.is_none() && self.grouping.need_search())
    }

    fn unchosen(&self, pid: u32, stat: &crate::proc::Stat) -> Whereabouts {
        match self.grouping.excludes(&self.proc, pid, stat) {
            true => Whereabouts::Excluded,
            false => Whereabouts::NotChosen,
        }
    }
}
