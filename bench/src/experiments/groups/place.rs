//! The control groups of members, which have little memory, and swap for the rest.
//!
//! # Problem
//! Groups must not take each other's processors, nor must the merging of one take that of the other
//! (Euro-Par'11 §4.1 uses cpu, cpuset and blkio for that).
//!
//! # Approach
//! A control group for each group, with a processor of its own where there are two, and one below
//! it for each member. Swap is compressed memory (zram), so that a lack of memory costs processor
//! time, independent of any disk of the host.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use uksm_testkit::control_group;
use uksm_testkit::kernel_file;

use crate::measure::cgroup;

/// The control group of a group, until it is dropped.
pub(super) struct Cgroup {
    folder: PathBuf,
    members: Vec<PathBuf>,
}

impl Cgroup {
    /// Makes it with these members, on this processor.
    pub(super) fn make(name: &str, members: &[&str], cpu: usize) -> Result<Cgroup> {
        let folder = control_group::create(name)?;
        let mut made = Cgroup {
            folder,
            members: Vec::new(),
        };
        kernel_file::write(made.folder.join("cpuset.cpus"), &cpu.to_string())?;
        kernel_file::write(made.folder.join("cgroup.subtree_control"), "+memory +cpu")?;
        for member in members {
            let folder = made.folder.join(member);
            fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
            made.members.push(folder);
        }
        Ok(made)
    }

    /// Folders of its members.
    pub(super) fn members(&self) -> &[PathBuf] {
        &self.members
    }

    /// Slows each member down above this use.
    pub(super) fn limit(&self, bytes: u64) -> Result<()> {
        let mut members = self.members.iter();
        members.try_for_each(|member| {
            Ok(kernel_file::write(
                member.join("memory.high"),
                &bytes.to_string(),
            )?)
        })
    }

    /// Processor time of the group and all below it, in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        Ok(control_group::cpu_time(&self.folder)?.as_secs_f64())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let own = self.folder.join("uksm");
        let below = self.members.iter().chain(own.is_dir().then_some(&own));
        for folder in below.chain([&self.folder]) {
            cgroup::remove(folder);
        }
    }
}
