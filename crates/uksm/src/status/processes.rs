//! What of each process is merged, could be merged and was done for it, as it travels to who asks.
//!
//! # Problem
//! The engine knows spaces, and who knows their processes may be another program: the supervisor of
//! groups. A host has thousands of processes, and a message its bounds.
//!
//! # Approach
//! A worker tells of at most [`MAX_SPACES`] spaces ([`Spaces`]); who knows the processes names
//! them. Of processes that share one space the one with the lowest id is told, and all of the space
//! counts for it. A space whose process has just ended is nobody's, and passed over.
//!
//! # Units
//! Pages; seconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uksm_linux::processes::Target;
use uksm_policy::report::{SpaceFigures, SpacesFigures};

/// Most of one answer. With the longest numbers they fit into a message between supervisor and
/// worker.
pub(crate) const MAX_SPACES: usize = 256;

/// What is known of a process in sums, or of its space.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Sums {
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

/// What a worker tells.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Spaces {
    /// How long the worker has run.
    pub(crate) uptime_seconds: f64,
    /// Spaces by their names, ascending.
    pub(crate) spaces: Vec<(u32, Sums)>,
    /// Those that are not among them.
    pub(crate) left_out: u64,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Its id.
    pub(crate) pid: u32,
    /// Name of its program.
    pub(crate) comm: String,
    /// What is known of it.
    #[serde(flatten)]
    pub(crate) sums: Sums,
}

/// The processes of a daemon without groups, or of a group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Processes {
    /// How long the worker has run that tells of them.
    pub(crate) uptime_seconds: f64,
    /// By id, ascending.
    pub(crate) processes: Vec<Process>,
    /// Those that are not among them: they have less merged, less left and took less work.
    pub(crate) left_out: u64,
}

impl Sums {
    fn of(figures: &SpaceFigures) -> Sums {
        Sums {
            resident_pages: figures.resident,
            merged_pages: figures.merged,
            left_pages: figures.left,
            read_pages: figures.read,
            work_seconds: figures.work_time as f64 / 1e9,
        }
    }
}

impl Spaces {
    /// As an engine knows them, in a worker that has run for so long.
    pub(crate) fn of(figures: &SpacesFigures, uptime_seconds: f64) -> Spaces {
        let spaces = figures.spaces.iter();
        Spaces {
            uptime_seconds,
            spaces: spaces
                .map(|space| (space.space.0, Sums::of(space)))
                .collect(),
            left_out: figures.left_out,
        }
    }

    /// The processes whose these spaces are, among the followed ones by id.
    pub(crate) fn of_processes(self, followed: impl IntoIterator<Item = Target>) -> Processes {
        let sums: BTreeMap<u32, Sums> = self.spaces.into_iter().collect();
        let mut named: BTreeMap<u32, Process> = BTreeMap::new();
        for target in followed {
            if let Some(&sums) = sums.get(&target.space.0) {
                named.entry(target.space.0).or_insert(Process {
                    pid: target.pid,
                    comm: target.comm,
                    sums,
                });
            }
        }
        let mut processes: Vec<Process> = named.into_values().collect();
        processes.sort_by_key(|process| process.pid);
        Processes {
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
    fn spaces_are_named_by_their_first_process_and_those_of_nobody_are_passed_over() {
        let sums = |merged_pages| Sums {
            merged_pages,
            ..Sums::default()
        };
        let spaces = Spaces {
            uptime_seconds: 2.0,
            spaces: vec![(1, sums(10)), (2, sums(20)), (3, sums(30))],
            left_out: 4,
        };
        // 7 and 9 share a space; that of 8 is not known yet.
        let followed = [target(5, 3), target(7, 1), target(8, 77), target(9, 1)];
        let told = spaces.of_processes(followed);
        let rows = told.processes.iter();
        let rows: Vec<(u32, u64)> = rows.map(|it| (it.pid, it.sums.merged_pages)).collect();
        assert_eq!(rows, [(5, 30), (7, 10)]);
        assert_eq!(told.left_out, 4);
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
        let text = serde_json::to_vec(&Spaces::of(&figures, 1e-300)).unwrap();
        assert!(text.len() < 100 << 10, "{}", text.len());
    }
}
