//! The placement of a worker: it is moved to the control group that pays.
//!
//! # Problem
//! That control group is named by the configuration, or by a request of an authorized client. It
//! may hold no processes if it passes resources on to control groups below it.
//!
//! # Approach
//! It is opened beneath the mount of control groups ([`CgroupTree`]). If the kernel reports that it
//! can hold no process, the worker is moved to a control group of its own in it.
//!
//! # Source
//! Kernel documentation, `admin-guide/cgroup-v2.rst`, "No Internal Process Constraint".

use std::io;
use std::path::Path;

use rustix::io::Errno;
use uksm_linux::selection::Cgroup;
use uksm_redistribution::cgroup_tree::{CgroupTree, Folder};

use crate::groups::supervisor::rights;

/// The file by which processes are moved.
const PROCESSES: &str = "cgroup.procs";

/// Name of the worker's control group in one that has others below it.
const CHILD: &str = "uksm";

/// The control groups of this host.
pub(super) fn cgroup_tree() -> CgroupTree {
    CgroupTree::mounted_at(Path::new(Cgroup::MOUNT))
}

/// Moves a process into the control group of this folder; if that can hold no process, into one of
/// our own there.
///
/// # Errors
/// It does not exist, or the kernel refuses.
pub(super) fn place(pid: u32, tree: &CgroupTree, folder: &str) -> io::Result<()> {
    let into = |folder: &Folder| folder.write(PROCESSES, &pid.to_string());
    let placed = tree
        .open(Path::new(folder))
        .and_then(|parent| match into(&parent) {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                into(&parent.make(CHILD)?)
            }
            answer => answer,
        });
    placed.map_err(|error| rights::of_place(folder, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_placed_in_a_control_group_and_nowhere_else() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("tree/a")).unwrap();
        std::fs::create_dir(at("tree/linked")).unwrap();
        std::fs::write(at("tree/a/cgroup.procs"), "").unwrap();
        std::fs::write(at("cgroup.procs"), "precious").unwrap();
        std::os::unix::fs::symlink(at("cgroup.procs"), at("tree/linked/cgroup.procs")).unwrap();
        let tree = CgroupTree::fake(&at("tree"));
        let place = |name: &str| place(4711, &tree, at(name).to_str().unwrap());
        place("tree/a").unwrap();
        let text = std::fs::read_to_string(at("tree/a/cgroup.procs")).unwrap();
        assert_eq!(text, "4711");
        for name in ["tree/..", "tree/a/../..", "tree/linked", "tree/none"] {
            place(name).unwrap_err();
        }
        let text = std::fs::read_to_string(at("cgroup.procs")).unwrap();
        assert_eq!(text, "precious");
    }
}
