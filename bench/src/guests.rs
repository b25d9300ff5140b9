//! Real virtual machines inside the guest: QEMU, KVM, Debian's kernel, and a disk.
//!
//! # Problem
//! A simulated virtual machine ([`crate::disk_machines`]) does only the work that its author
//! thought of. A real one also boots, has its kernel and its file system's metadata in memory,
//! reads ahead by its kernel's rules, and its memory is QEMU's.
//!
//! # Approach
//! The harness packs QEMU and the parts of a machine (`uksm-vm run --nested`). Each machine has a
//! copy of one disk, a file of its own in a file system that caches pages like any other (ramfs).
//! Its `/init` is this program ([`reader`]): it reads all files of its disk in an order of its own
//! ([`order`]), no faster than a given rate. Nothing in it knows of merging. [`qemu`] starts a
//! machine and talks with it on its serial console.
//!
//! # Source
//! XLH §5.2 for files that several machines read.

mod order;
pub(crate) mod qemu;
pub(crate) mod reader;

pub(crate) use qemu::{Guest, GuestDisk, GuestSpec, again_if_lost};

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// The harness's folder for the parts of machines.
const PARTS: &str = "/nested";
/// Names of draws; numbers of machines are added.
const ORDER: u64 = 1 << 49;
/// Family of contents that only one machine has; its number is added.
const AGED: u64 = 1 << 50;

/// Copies of the disk, one for each machine. They are gone at drop.
pub(crate) struct Disks {
    folder: PathBuf,
    /// The files.
    pub(crate) files: Vec<PathBuf>,
}

impl Disks {
    /// This many copies.
    pub(crate) fn create(count: usize) -> Result<Disks> {
        let folder = std::env::temp_dir().join("uksm-bench-disks");
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        mount("disks", &folder, "ramfs", MountFlags::empty(), None)
            .with_context(|| format!("cannot mount a ramfs on {}", folder.display()))?;
        let mut disks = Disks {
            folder,
            files: Vec::new(),
        };
        let source = Path::new(PARTS).join("disk");
        for number in 0..count {
            let file = disks.folder.join(format!("disk-{number}"));
            std::fs::copy(&source, &file)
                .with_context(|| format!("{}: boot with --nested", source.display()))?;
            disks.files.push(file);
        }
        Ok(disks)
    }
}

/// Makes the kernel give huge pages to all processes, or to none.
pub(crate) fn huge_pages(on: bool) -> Result<()> {
    let file = "/sys/kernel/mm/transparent_hugepage/enabled";
    if !Path::new(file).exists() {
        return Ok(()); // a kernel without them
    }
    std::fs::write(file, if on { "always" } else { "never" }).context(file)
}

impl Drop for Disks {
    fn drop(&mut self) {
        // A disk that cannot be unmounted stays in a guest that ends soon.
        let _ = unmount(&self.folder, UnmountFlags::DETACH);
    }
}
