//! The time for which tasks of the host, or of a control group, have waited for processors or
//! memory.
//!
//! # Problem
//! Only the control groups of a group show its pressure. One may be gone, or the kernel may not
//! count.
//!
//! # Approach
//! PSI's total of "some" is the time in which at least one task waited. It only grows, so two
//! readings give the share of the time between them. Without PSI, no task counts as waiting.
//!
//! # Units
//! [`Nanos`] since the control group was made.
//!
//! # Source
//! Kernel documentation, `accounting/psi.rst` and `admin-guide/cgroup-v2.rst`.

use std::path::Path;

use crate::cgroup_tree::CgroupTree;
use crate::guard::{Nanos, Pressure};
use crate::host;

/// The resource that tasks wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Processors.
    Cpu,
    /// Memory.
    Memory,
}

impl Resource {
    fn name(self) -> &'static str {
        match self {
            Resource::Cpu => "cpu",
            Resource::Memory => "memory",
        }
    }
}

/// The time for which tasks of a control group of this tree have waited; none if it is not counted.
#[must_use]
pub fn of_cgroup(tree: &CgroupTree, folder: &Path, resource: Resource) -> Option<Nanos> {
    let name = format!("{}.pressure", resource.name());
    let read = tree.open(folder).and_then(|folder| folder.read(&name));
    let pressure = host::pressure_of(read.map(String::into_bytes), &folder.join(name));
    waited(pressure.ok()?)
}

/// The time for which tasks of the host have waited; none if it is not counted.
#[must_use]
pub fn of_host(proc_root: &Path, resource: Resource) -> Option<Nanos> {
    let path = proc_root.join("pressure").join(resource.name());
    waited(host::pressure(&path).ok()?)
}

fn waited(pressure: Option<Pressure>) -> Option<Nanos> {
    Some(pressure?.some.total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_which_some_waited_is_read_and_a_missing_file_tells_nothing() {
        let root = tempfile::tempdir().unwrap();
        let text = "some avg10=1.50 avg60=0.50 avg300=0.10 total=123\n\
                    full avg10=0.25 avg60=0.00 avg300=0.00 total=7\n";
        std::fs::create_dir(root.path().join("pressure")).unwrap();
        std::fs::write(root.path().join("pressure/cpu"), text).unwrap();
        std::fs::write(root.path().join("memory.pressure"), text).unwrap();
        assert_eq!(of_host(root.path(), Resource::Cpu), Some(123_000));
        assert_eq!(of_host(root.path(), Resource::Memory), None);
        let tree = CgroupTree::fake(root.path());
        let of_cgroup = |resource| of_cgroup(&tree, root.path(), resource);
        assert_eq!(of_cgroup(Resource::Memory), Some(123_000));
        assert_eq!(of_cgroup(Resource::Cpu), None);
    }
}
