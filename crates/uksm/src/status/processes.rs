//! Figures of each process: merged pages, pages that could be merged, and work spent on it.
//!
//! # Problem
//! The engine knows spaces; their processes may be known to another program only, the supervisor of
//! groups. A host has thousands of processes, and a message is bounded.
//!
//! # Approach
//! A worker reports at most [`MAX_SPACES`] spaces ([`SpaceList`]); the program that knows the
//! processes names them. If processes share a space, the one with the lowest id is reported, with
//! all of the space. A space whose process has just ended is skipped.
//!
//! # Units
//! Pages; seconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uksm_linux::processes::Target;
use uksm_policy::report::{SpaceFigures, SpacesFigures};

/// Maximum number of spaces in one answer. With the longest numbers they fit into a message between
/// supervisor and worker.
pub(crate) const MAX_SPACES: usize = 256;

/// Figures of a process, or of its space.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct ProcessSums {
    /// Pages believed to be in memory, of what is followed.
    pub(crate) resident_pages: u64,
    /// Pages believed to be merged.
    pub(crate) merged_pages: u64,
    /// Duplicates believed to be left.
    pub(crate) left_pages: u64,
    /// Pages that were read.
    pub(crate) read_pages: u64,
    /// Its part of the processor time of calls that read pages or tried to merge them.
    pub(crate) work_seconds: f64,
}

/// A worker's answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct SpaceList {
    /// The worker's uptime.
    pub(crate) uptime_seconds: f64,
    /// Spaces by number, ascending.
    pub(crate) spaces: Vec<(u32, ProcessSums)>,
    /// Number of spaces that are not among them.
    pub(crate) left_out: u64,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct ProcessFigures {
    /// Its id.
    pub(crate) pid: u32,
    /// Name of its program.
    pub(crate) comm: String,
    /// Its figures.
    #[serde(flatten)]
    pub(crate) sums: ProcessSums,
}

/// The processes of a daemon without groups, or of a group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct ProcessList {
    /// Uptime of the worker that reports them.
    pub(crate) uptime_seconds: f64,
    /// By id, ascending.
    pub(crate) processes: Vec<ProcessFigures>,
    /// Number of processes that are not among them: they have less merged, less left and took less
    /// work.
    pub(crate) left_out: u64,
}

impl ProcessSums {
    fn of(figures: &SpaceFigures) -> ProcessSums {
        ProcessSums {
            resident_pages: figures.resident,
            merged_pages: figures.merged,
            left_pages: figures.left,
            read_pages: figures.read,
            work_seconds: figures.work_time as f64 / 1e9,
        }
    }
}

impl SpaceList {
    /// The engine's figures, from a worker with this uptime.
    pub(crate) fn of(figures: &SpacesFigures, uptime_seconds: f64) -> SpaceList {
        let spaces = figures.spaces.iter();
        SpaceList {
            uptime_seconds,
            spaces: spaces
                .map(|space| (space.space.0, ProcessSums::of(space)))
                .collect(),
            left_out: figures.left_out,
        }
    }

    /// The processes of these spaces, among the followed ones by id.
    pub(crate) fn of_processes(self, followed: impl IntoIterator<Item = Target>) -> ProcessList {
        let sums: BTreeMap<u32, ProcessSums> = self.spaces.into_iter().collect();
        let mut named: BTreeMap<u32, ProcessFigures> = BTreeMap::new();
        for target in followed {
            if let Some(&sums) = sums.get(&target.space.0) {
                named.entry(target.space.0).or_insert(ProcessFigures {
                    pid: target.pid,
                    comm: target.comm,
                    sums,
                });
            }
        }
        let mut processes: Vec<ProcessFigures> = named.into_values().collect();
        processes.sort_by_key(|process| process.pid);
        ProcessList {
            uptime_seconds: self.uptime_seconds,
            processes,
            left_out: self.left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_linux::selection::GroupId;
    use uksm_policy::command::SpaceId;

    fn target(pid: u32, space: u32) -> Target {
        Target {
            pid,
            comm: format!("p{pid}"),
            group: GroupId::default(),
            space: SpaceId(space),
        }
    }

    #[test]
    fn spaces_are_named_by_their_first_process_and_those_without_are_skipped() {
        let sums = |merged_pages| ProcessSums {
            merged_pages,
            ..ProcessSums::default()
        };
        let spaces = SpaceList {
            uptime_seconds: 2.0,
            spaces: vec![(1, sums(10)), (2, sums(20)), (3, sums(30))],
            left_out: 4,
        };
        // 7 and 9 share a space; that of 8 is not known yet.
        let followed = [target(5, 3), target(7, 1), target(8, 77), target(9, 1)];
        let listed = spaces.of_processes(followed);
        let rows = listed.processes.iter();
        let rows: Vec<(u32, u64)> = rows.map(|it| (it.pid, it.sums.merged_pages)).collect();
        assert_eq!(rows, [(5, 30), (7, 10)]);
        assert_eq!(listed.left_out, 4);
    }

    #[test]
    fn as_many_as_may_be_fit_into_a_message_between_supervisor_and_worker() {
        let most = SpaceFigures {
            space: SpaceId(u32::MAX),
            resident: u64::MAX,
            merged: u64::MAX,
            left: u64::MAX,
            read: u64::MAX,
            work_time: u64::MAX - 1,
        };
        let figures = SpacesFigures {
            spaces: vec![most; MAX_SPACES],
            left_out: u64::MAX,
        };
        let text = serde_json::to_vec(&SpaceList::of(&figures, 1e-300)).unwrap();
        assert!(text.len() < 100 << 10, "{}", text.len());
    }
}
