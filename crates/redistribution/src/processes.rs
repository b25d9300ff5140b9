//! The processes of a control group.
//!
//! # Problem
//! A member is a whole tree of control groups, and what it freed is told by process.
//!
//! # Approach
//! `cgroup.procs` of each, down to a bounded depth. Who ends meanwhile is listed and freed nothing.
//!
//! # Units
//! At most [`MOST_PROCESSES`] of a member are looked at: of more, what the others freed is divided as the group's.
//!
//! # Source
//! Kernel documentation, `admin-guide/cgroup-v2.rst`.

use std::path::Path;

/// So many processes of a member are looked at.
const MOST_PROCESSES: usize = 4096;
/// Control groups below control groups below a member are followed so deep.
const DEEPEST: usize = 16;

/// All processes in a control group and below it.
pub(crate) fn of_cgroup(folder: &Path) -> Vec<u32> {
    let mut pids = Vec::new();
    collect(folder, 0, &mut pids);
    pids
}

fn collect(folder: &Path, depth: usize, pids: &mut Vec<u32>) {
    let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let left = MOST_PROCESSES - pids.len();
    pids.extend(
        text.lines()
            .filter_map(|line| line.parse::<u32>().ok())
            .take(left),
    );
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && depth < DEEPEST && pids.len() < MOST_PROCESSES {
            collect(&entry.path(), depth + 1, pids);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_below_belong_to_it() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("below")).unwrap();
        std::fs::write(tree.path().join("cgroup.procs"), "7\n99\n").unwrap();
        std::fs::write(tree.path().join("below/cgroup.procs"), "8\n").unwrap();
        assert_eq!(of_cgroup(tree.path()), [7, 99, 8]);
        assert!(of_cgroup(&tree.path().join("none")).is_empty());
    }
}
