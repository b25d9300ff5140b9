//! Names for the members of a proposed group.
//!
//! # Problem
//! A list of process ids is valid until one of them ends. A control group is valid for longer, but
//! must not include unintended processes.
//!
//! # Approach
//! A control group stands for its processes if all processes that live in it, or below, are
//! members; processes that were not read count as well. Only the control groups in which members
//! themselves live are tried, none further up: other processes would come to live there. Others are
//! named by id and start time. A unit is named by its control group, because a container can have a
//! unit of the same name. A program's name is never used: any user can run a program of any name.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use uksm_linux::proc::{Proc, Stat};
use uksm_linux::selection::Cgroup;

/// A part of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum MemberName {
    /// All processes of a control group, and of those below it.
    Cgroup {
        /// Its path.
        cgroup: String,
        /// Number of its processes now.
        processes: u64,
    },
    /// One process.
    Process {
        /// Its id.
        pid: u32,
        /// When it started, in clock ticks.
        start_ticks: u64,
        /// Name of its program.
        comm: String,
    },
}

impl MemberName {
    /// A process.
    pub(super) fn process(pid: u32, stat: &Stat) -> MemberName {
        MemberName::Process {
            pid,
            start_ticks: stat.start_ticks,
            comm: stat.comm.clone(),
        }
    }
}

/// The control group of each process that has memory. Processes without one are left out, on a host
/// without cgroup v2 all of them.
///
/// # Errors
/// Processes cannot be listed.
pub(super) fn cgroups(proc: &Proc) -> anyhow::Result<BTreeMap<u32, String>> {
    let mut pids = Vec::new();
    proc.list(&mut pids)?;
    let alive = pids
        .into_iter()
        .filter(|&pid| proc.stat(pid).is_ok_and(|stat| stat.has_memory()));
    Ok(alive
        .filter_map(|pid| Some((pid, proc.cgroup(pid).ok()?)))
        .collect())
}

/// The members by control groups where these have the same processes, control groups first.
pub(super) fn shortest<'a>(
    processes: impl Iterator<Item = &'a MemberName>,
    cgroups: &BTreeMap<u32, String>,
) -> Vec<MemberName> {
    let mut left: BTreeMap<u32, &MemberName> = BTreeMap::new();
    for process in processes {
        if let MemberName::Process { pid, .. } = process {
            left.insert(*pid, process);
        }
    }
    let lived_in: BTreeSet<&String> = left.keys().filter_map(|pid| cgroups.get(pid)).collect();
    let mut members = Vec::new();
    // Ascending: a control group comes before those below it.
    for path in lived_in {
        let Some(cgroup) = one(path) else { continue };
        let inside = cgroups.iter().filter(|(_, path)| cgroup.holds(path));
        let inside: Vec<u32> = inside.map(|(&pid, _)| pid).collect();
        if !inside.is_empty() && inside.iter().all(|pid| left.contains_key(pid)) {
            for pid in &inside {
                left.remove(pid);
            }
            members.push(MemberName::Cgroup {
                cgroup: path.clone(),
                processes: inside.len() as u64,
            });
        }
    }
    members.extend(left.into_values().cloned());
    members
}

/// The control group of a path that can be written into a configuration, and that is below the
/// root.
fn one(path: &str) -> Option<Cgroup> {
    let cgroup: Cgroup = path.parse().ok()?;
    // A path outside of the visible part of the tree begins with `/..`.
    let is_seen = !path.split('/').any(|name| name == "..");
    (cgroup.is_one() && is_seen && !cgroup.path().is_empty()).then_some(cgroup)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32) -> MemberName {
        MemberName::Process {
            pid,
            start_ticks: 5,
            comm: "x".to_owned(),
        }
    }

    fn cgroup(path: &str, processes: u64) -> MemberName {
        MemberName::Cgroup {
            cgroup: path.to_owned(),
            processes,
        }
    }

    #[test]
    fn a_control_group_stands_for_members_only_if_nobody_else_is_in_it_or_below() {
        let cgroups: BTreeMap<u32, String> = [
            (1, "/"),
            (2, "/a"),
            (3, "/a/b"),
            (4, "/c"),
            (5, "/c/d"),
            (6, "/ab"),
            (7, "/e[1]"),
            (8, "/../f"),
            (9, "/c/d"),
        ]
        .map(|(pid, path)| (pid, path.to_owned()))
        .into();
        let named = |pids: &[u32]| {
            let members: Vec<MemberName> = pids.iter().map(|&pid| process(pid)).collect();
            shortest(members.iter(), &cgroups)
        };
        assert_eq!(named(&[2, 3]), [cgroup("/a", 2)]);
        assert_eq!(named(&[2]), [process(2)]);
        assert_eq!(named(&[3, 6]), [cgroup("/a/b", 1), cgroup("/ab", 1)]);
        assert_eq!(named(&[4, 5]), [process(4), process(5)]);
        assert_eq!(named(&[5, 9]), [cgroup("/c/d", 2)]);
        assert_eq!(named(&[1, 7, 8]), [process(1), process(7), process(8)]);
        assert_eq!(named(&[99]), [process(99)]);
    }
}
