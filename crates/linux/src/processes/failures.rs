//! Processes that could not be read or attached.
//!
//! # Problem
//! A failure of one process must not stop the others, and must not be silent either.
//!
//! # Approach
//! Failures are counted, and lasting ones are listed for a status.

use rustix::io::Errno;
use uksm_policy::command::Nanos;

use super::{Processes, UnfollowedReason};
use crate::proc;
use crate::selection::GroupId;

impl Processes {
    /// Processes that were chosen and could not be attached, with the group and the errno of each.
    pub fn failures(&self) -> impl Iterator<Item = (u32, GroupId, Errno)> + '_ {
        self.unfollowed.iter().filter_map(|(&pid, why)| match why {
            UnfollowedReason::Failed(group, errno) => Some((pid, *group, *errno)),
            UnfollowedReason::NotChosen
            | UnfollowedReason::KernelThread
            | UnfollowedReason::Leaving(_) => None,
        })
    }

    /// The group of a process that was read. None if the input of its group cannot be read because
    /// of the process, for example a path of its control group that is too long: it may have moved
    /// out of its group, and must share nothing there.
    ///
    /// # Errors
    /// The process is gone, or can be read another time.
    pub(super) fn readable(
        &mut self,
        pid: u32,
        group: proc::Result<Option<GroupId>>,
    ) -> proc::Result<Option<GroupId>> {
        match group {
            Err(error) if error.is_lasting() => {
                self.unread += 1;
                if self.followed.contains_key(&pid) {
                    tracing::info!("process {pid}: {error}: it leaves its group");
                }
                Ok(None)
            }
            group => group,
        }
    }

    /// Number of failed reads of processes.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// Processes that could not be attached for lack of memory, repetitions included.
    #[must_use]
    pub fn shortages(&self) -> u64 {
        self.shortages
    }

    /// Processes that hold their own locks, so that they cannot be attached or read, with the
    /// duration.
    pub fn locked(&self) -> impl Iterator<Item = (u32, Nanos)> + '_ {
        self.locked.long().chain(self.proc.locked())
    }

    /// The same for a group, including processes whose group is not known yet.
    pub fn locked_of(&self, group: GroupId) -> impl Iterator<Item = (u32, Nanos)> + '_ {
        self.locked().filter(move |(pid, _)| {
            let of = match (self.followed.get(pid), self.unfollowed.get(pid)) {
                (Some(followed), _) => Some(followed.group),
                (_, Some(UnfollowedReason::Failed(of, _) | UnfollowedReason::Leaving((of, _)))) => {
                    Some(*of)
                }
                _ => None,
            };
            of.is_none_or(|of| of == group)
        })
    }

    /// Number of calls that gave up on them.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.locked.given_up()
    }
}
