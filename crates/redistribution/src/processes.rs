//! The processes of a control group.
//!
//! # Problem
//! A member is a whole tree of control groups, and its freed memory is reported by process.
//!
//! # Approach
//! `cgroup.procs` of each is read, down to a bounded depth. A process that ends meanwhile is listed
//! and freed nothing.
//!
//! # Units
//! At most [`MAX_PROCESSES`] of a member, in at most [`MAX_FOLDERS`] control groups, are read:
//! memory that further ones freed is divided as the group's.
//!
//! # Source
//! Kernel documentation, `admin-guide/cgroup-v2.rst`.

use crate::cgroup_tree::Folder;

/// Limit of processes of a member that are read.
const MAX_PROCESSES: usize = 4096;
/// Depth to which control groups below a member are followed.
const MAX_DEPTH: usize = 16;

/// Limit of control groups of a member that are read.
const MAX_FOLDERS: usize = 4096;

/// All processes in a control group and below it.
pub(crate) fn of_cgroup(folder: &Folder) -> Vec<u32> {
    let (mut pids, mut folders_left) = (Vec::new(), MAX_FOLDERS);
    collect(folder, 0, &mut pids, &mut folders_left);
    pids
}

fn collect(folder: &Folder, depth: usize, pids: &mut Vec<u32>, folders_left: &mut usize) {
    let text = folder.read("cgroup.procs").unwrap_or_default();
    let left = MAX_PROCESSES - pids.len();
    pids.extend(
        text.lines()
            .filter_map(|line| line.parse::<u32>().ok())
            .take(left),
    );
    if depth == MAX_DEPTH {
        return;
    }
    for name in folder.child_names() {
        if pids.len() == MAX_PROCESSES || *folders_left == 0 {
            return;
        }
        // One folder of each level is open.
        if let Ok(child) = folder.child(&name) {
            *folders_left -= 1;
            collect(&child, depth + 1, pids, folders_left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup_tree::CgroupTree;
    use rustix::process::{Resource, getrlimit, setrlimit};

    #[test]
    fn processes_below_belong_to_it() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("below")).unwrap();
        std::fs::write(tree.path().join("cgroup.procs"), "7\n99\n").unwrap();
        std::fs::write(tree.path().join("below/cgroup.procs"), "8\n").unwrap();
        let folder = CgroupTree::fake(tree.path()).open(tree.path()).unwrap();
        assert_eq!(of_cgroup(&folder), [7, 99, 8]);
    }

    #[test]
    fn control_groups_of_a_member_are_opened_one_after_another() {
        const FOLDERS: usize = 1500;
        let tree = tempfile::tempdir().unwrap();
        for number in 0..FOLDERS {
            let folder = tree.path().join(number.to_string());
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("cgroup.procs"), format!("{number}\n")).unwrap();
        }
        // The other tests need few as well.
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = Some(512);
        setrlimit(Resource::Nofile, limit).unwrap();
        let folder = CgroupTree::fake(tree.path()).open(tree.path()).unwrap();
        assert_eq!(of_cgroup(&folder).len(), FOLDERS);
    }

    #[test]
    fn a_member_with_more_control_groups_than_the_bound_is_read_in_part() {
        let tree = tempfile::tempdir().unwrap();
        for number in 0..30 {
            let folder = tree.path().join(number.to_string());
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("cgroup.procs"), format!("{number}\n")).unwrap();
        }
        let folder = CgroupTree::fake(tree.path()).open(tree.path()).unwrap();
        let (mut pids, mut left) = (Vec::new(), 20);
        collect(&folder, 0, &mut pids, &mut left);
        assert_eq!((pids.len(), left), (20, 0));
    }
}
