//! The address spaces of the followed processes, and their changes.
//!
//! # Problem
//! Several processes can share one address space (vfork), and a process can get another one (exec).
//! A worker merges spaces, so it needs changes of spaces, not of processes.
//!
//! # Approach
//! A space exists here from its first process to its last one. Changes are collected until they are
//! read. If a space comes and goes in between, only its end is reported; one that goes and comes
//! back in between never left. Two domains may give two spaces the same id, so a space is named by
//! its group as well.

use std::collections::{BTreeMap, BTreeSet};

use uksm_policy::command::{Nanos, SpaceArrival, SpaceId};

use crate::selection::GroupId;

/// A space of the domain of a group.
pub type GroupSpace = (GroupId, SpaceId);

/// A space that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivedSpace {
    /// Its group.
    pub group: GroupId,
    /// A process that has it.
    pub pid: u32,
    /// The arrival as the policy receives it.
    pub arrival: SpaceArrival,
}

/// A space that went, and is still attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftSpace {
    /// Its former group.
    pub group: GroupId,
    /// The space.
    pub space: SpaceId,
    /// Whether its arrival had been reported.
    pub was_reported: bool,
    /// The process lives on, perhaps in another group.
    pub lives: bool,
}

/// Changes since the previous read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpaceChanges {
    /// Spaces that came.
    pub arrived: Vec<ArrivedSpace>,
    /// Spaces that went.
    pub left: Vec<LeftSpace>,
    /// Whether processes still wait for their check.
    pub more: bool,
}

/// Spaces with their processes.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    processes: BTreeMap<GroupSpace, Vec<u32>>,
    /// Spaces that the module calls dead although a followed process has them.
    dead: BTreeSet<GroupSpace>,
    changes: SpaceChanges,
}

impl Spaces {
    /// Whether a followed process has this space.
    pub(super) fn has(&self, place: GroupSpace) -> bool {
        self.processes.contains_key(&place)
    }

    /// A process that has this space.
    pub(super) fn process_of(&self, place: GroupSpace) -> Option<u32> {
        self.processes.get(&place)?.first().copied()
    }

    /// All spaces.
    pub(super) fn all(&self) -> impl Iterator<Item = GroupSpace> + '_ {
        self.processes.keys().copied()
    }

    /// A process has this space. `age` is the age of the space's memory.
    pub(super) fn add(&mut self, pid: u32, (group, space): GroupSpace, comm: &str, age: Nanos) {
        let pids = self.processes.entry((group, space)).or_default();
        pids.push(pid);
        if pids.len() > 1 {
            return;
        }
        let left = &mut self.changes.left;
        let back = left
            .iter()
            .position(|left| (left.group, left.space) == (group, space));
        // If its end was not reported yet, it never left.
        if back.is_some_and(|at| left.remove(at).was_reported) {
            return;
        }
        let kind = kind(comm);
        let arrival = SpaceArrival { space, kind, age };
        let arrived = ArrivedSpace {
            group,
            pid,
            arrival,
        };
        self.changes.arrived.push(arrived);
    }

    /// A process no longer has this space, though it may live. Returns whether no process has it
    /// any more.
    pub(super) fn remove(&mut self, pid: u32, place: GroupSpace, lives: bool) -> bool {
        let Some(pids) = self.processes.get_mut(&place) else {
            return false;
        };
        pids.retain(|&other| other != pid);
        if !pids.is_empty() {
            return false;
        }
        self.processes.remove(&place);
        self.dead.remove(&place);
        let (group, space) = place;
        let before = self.changes.arrived.len();
        let is_other = |arrived: &ArrivedSpace| (arrived.group, arrived.arrival.space) != place;
        self.changes.arrived.retain(is_other);
        self.changes.left.push(LeftSpace {
            group,
            space,
            was_reported: self.changes.arrived.len() == before,
            lives,
        });
        true
    }

    /// The domain of a group is gone, with its spaces; returns the processes that had them.
    pub(super) fn forget(&mut self, gone: GroupId) -> Vec<u32> {
        self.dead.retain(|(group, _)| *group != gone);
        self.changes.arrived.retain(|arrived| arrived.group != gone);
        self.changes.left.retain(|left| left.group != gone);
        let of_group = (gone, SpaceId(0))..=(gone, SpaceId(u32::MAX));
        let places: Vec<GroupSpace> = self.processes.range(of_group).map(|(&at, _)| at).collect();
        let pids = places.iter().filter_map(|at| self.processes.remove(at));
        pids.flatten().collect()
    }

    /// The module calls this space dead.
    pub(super) fn note_dead(&mut self, place: GroupSpace) {
        if self.has(place) {
            self.dead.insert(place);
        }
    }

    /// The processes whose spaces were called dead since the last call.
    pub(super) fn take_dead(&mut self) -> Vec<u32> {
        let dead = std::mem::take(&mut self.dead);
        let pids = dead.iter().filter_map(|place| self.processes.get(place));
        pids.flatten().copied().collect()
    }

    /// Changes since the last call.
    pub(super) fn take_changes(&mut self) -> SpaceChanges {
        std::mem::take(&mut self.changes)
    }
}

/// One value for all processes of a program (FNV-1a of its name), because lifetimes are learned by
/// program.
fn kind(comm: &str) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    comm.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: GroupSpace = (GroupId(3), SpaceId(7));

    #[test]
    fn of_a_space_that_comes_and_goes_only_its_end_is_reported() {
        let mut spaces = Spaces::default();
        spaces.add(10, PLACE, "a", 0);
        assert!(spaces.remove(10, PLACE, false));
        let changes = spaces.take_changes();
        assert_eq!((changes.arrived.len(), changes.left.len()), (0, 1));
        assert!(!changes.left[0].was_reported);
    }

    #[test]
    fn a_space_that_goes_and_comes_never_left() {
        let mut spaces = Spaces::default();
        spaces.add(10, PLACE, "a", 0);
        assert_eq!(spaces.take_changes().arrived.len(), 1);
        spaces.remove(10, PLACE, true);
        spaces.add(10, PLACE, "a", 0);
        assert_eq!(spaces.take_changes(), SpaceChanges::default());
        // A space that came, and whose arrival was not reported yet, never left either.
        let other = (GroupId(4), SpaceId(7));
        spaces.add(11, other, "a", 0);
        spaces.remove(11, other, true);
        spaces.add(11, other, "a", 0);
        let changes = spaces.take_changes();
        assert_eq!((changes.arrived.len(), changes.left.len()), (1, 0));
        assert_eq!(spaces.forget(GroupId(4)), [11]);
        assert!(spaces.has(PLACE) && !spaces.has(other));
    }

    #[test]
    fn a_space_is_dead_once_and_only_while_it_is_followed() {
        let mut spaces = Spaces::default();
        spaces.note_dead(PLACE);
        assert!(spaces.take_dead().is_empty());
        spaces.add(10, PLACE, "a", 0);
        spaces.add(11, PLACE, "a", 0);
        spaces.note_dead(PLACE);
        assert_eq!(spaces.take_dead(), [10, 11]);
        assert!(spaces.take_dead().is_empty());
    }
}
