//! Control groups that tests make, fill and limit.
//!
//! # Problem
//! Who is charged for a page, and who is killed when a limit is reached, shows in cgroup v2 only.
//!
//! # Approach
//! A group is a directory; it is removed when dropped, after its processes are gone.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use super::accounting::{number, set, value};

const ROOT: &str = "/sys/fs/cgroup";

/// A control group below the root.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes a group.
    #[must_use]
    pub fn new(name: &str) -> Cgroup {
        let path = PathBuf::from(ROOT).join(format!("uksm-{name}"));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Cgroup { path }
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.path.display())
    }

    /// Moves a process here.
    pub fn take(&self, pid: i32) {
        set(&self.file("cgroup.procs"), &pid.to_string());
    }

    /// Does `work` with this process in the group, which then returns to the root.
    pub fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        set(&self.file("cgroup.procs"), "0");
        let result = work();
        set(&format!("{ROOT}/cgroup.procs"), "0");
        result
    }

    /// Pages charged now.
    #[must_use]
    pub fn pages(&self) -> u64 {
        value(&self.file("memory.current")) / 4096
    }

    /// Limits the group to what it has and `more` pages.
    pub fn limit_to_current_and(&self, more: u64) {
        let limit = (self.pages() + more) * 4096;
        set(&self.file("memory.max"), &limit.to_string());
    }

    /// Takes the limit away.
    pub fn unlimit(&self) {
        set(&self.file("memory.max"), "max");
    }

    /// How often a process of the group was killed for memory.
    #[must_use]
    pub fn kills(&self) -> u64 {
        number(&self.file("memory.events"), "oom_kill")
    }

    /// How often the group was out of memory, whether somebody was killed or not.
    #[must_use]
    pub fn shortages(&self) -> u64 {
        number(&self.file("memory.events"), "oom")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Busy until the last process is reaped and its pages are uncharged.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            sleep(Duration::from_millis(20));
        }
    }
}
