//! The address spaces of the followed processes, and what has changed in them.
//!
//! # Problem
//! Several processes can share one address space (vfork), a process can get another one (exec), and
//! the policy wants to hear of spaces, not of processes.
//!
//! # Approach
//! A space is here from its first process to its last one. Changes are collected until the policy
//! is told; a space that comes and goes in between is never mentioned.

use std::collections::{BTreeMap, BTreeSet};

use uksm_policy::command::{Nanos, SpaceArrival, SpaceId};

/// What changed since the process list before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Spaces that came.
    pub arrived: Vec<SpaceArrival>,
    /// Spaces that went.
    pub left: Vec<SpaceId>,
    /// Whether processes are still to be looked at.
    pub more: bool,
}

/// Spaces with their processes.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    processes: BTreeMap<SpaceId, Vec<u32>>,
    /// Spaces that the module calls dead, while a process of theirs is followed.
    dead: BTreeSet<SpaceId>,
    changes: Changes,
}

impl Spaces {
    /// Whether a followed process has this space.
    pub(super) fn has(&self, space: SpaceId) -> bool {
        self.processes.contains_key(&space)
    }

    /// A process that has this space.
    pub(super) fn process_of(&self, space: SpaceId) -> Option<u32> {
        self.processes.get(&space)?.first().copied()
    }

    /// A process has this space. `age` is that of its memory.
    pub(super) fn add(&mut self, pid: u32, space: SpaceId, comm: &str, age: Nanos) {
        let pids = self.processes.entry(space).or_default();
        pids.push(pid);
        if pids.len() == 1 {
            let kind = kind(comm);
            self.changes.arrived.push(SpaceArrival { space, kind, age });
        }
    }

    /// A process no longer has this space. Answers whether no process has it any more.
    pub(super) fn remove(&mut self, pid: u32, space: SpaceId) -> bool {
        let Some(pids) = self.processes.get_mut(&space) else {
            return false;
        };
        pids.retain(|&other| other != pid);
        if !pids.is_empty() {
            return false;
        }
        self.processes.remove(&space);
        self.dead.remove(&space);
        let arrived = self.changes.arrived.len();
        self.changes
            .arrived
            .retain(|arrival| arrival.space != space);
        if self.changes.arrived.len() == arrived {
            self.changes.left.push(space);
        }
        true
    }

    /// The module calls this space dead.
    pub(super) fn note_dead(&mut self, space: SpaceId) {
        if self.has(space) {
            self.dead.insert(space);
        }
    }

    /// The processes whose spaces were called dead since the last time.
    pub(super) fn take_dead(&mut self) -> Vec<u32> {
        let dead = std::mem::take(&mut self.dead);
        let pids = dead.iter().filter_map(|space| self.processes.get(space));
        pids.flatten().copied().collect()
    }

    /// Spaces that went and were not told yet.
    pub(super) fn left(&self) -> &[SpaceId] {
        &self.changes.left
    }

    /// All changes since the last time.
    pub(super) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }
}

/// One value for all processes of one program (FNV-1a of its name), so that lifetimes are learned by
/// program.
fn kind(comm: &str) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    comm.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: SpaceId = SpaceId(7);

    #[test]
    fn a_space_that_comes_and_goes_between_two_lists_is_never_mentioned() {
        let mut spaces = Spaces::default();
        spaces.add(10, SPACE, "a", 0);
        assert!(spaces.remove(10, SPACE));
        assert_eq!(spaces.take_changes(), Changes::default());
    }

    #[test]
    fn a_space_is_dead_once_and_only_while_it_is_followed() {
        let mut spaces = Spaces::default();
        spaces.note_dead(SPACE);
        assert!(spaces.take_dead().is_empty());
        spaces.add(10, SPACE, "a", 0);
        spaces.add(11, SPACE, "a", 0);
        spaces.note_dead(SPACE);
        assert_eq!(spaces.take_dead(), [10, 11]);
        assert!(spaces.take_dead().is_empty());
    }
}
