//! A machine that has less memory than its processes demand, and swap for the rest.
//!
//! # Problem
//! Shortage of memory depends on the machine, and a disk's speed on its host.
//!
//! # Approach
//! Swap is compressed memory (zram), so that a lack costs processor time, or a disk whose requests
//! are limited, so that it costs time. Memory is taken away as unused huge pages: these are not
//! scanned, merged or swapped.

use std::fs;

use anyhow::{Context, Result, ensure};
use uksm_testkit::kernel_file;
use uksm_testkit::zram::Swap;

const HUGE: &str = "/proc/sys/vm/nr_hugepages";
/// KiB of a huge page.
const HUGE_KIB: u64 = 2048;

/// The disk of a guest that is started with one.
const DISK: &str = "/dev/vda";

/// Swap on the guest's disk, of this size.
///
/// # Errors
/// It has none.
pub(crate) fn swap_on_disk(mib: u64) -> Result<Swap> {
    Swap::on(DISK, mib).context(DISK)
}

/// Memory that is taken away, until this is dropped.
pub(crate) struct OccupiedMemory(());

impl OccupiedMemory {
    /// Leaves this many MiB available.
    ///
    /// # Errors
    /// The kernel has fewer, or found no huge pages for the others.
    pub(crate) fn leaving(mib: usize) -> Result<OccupiedMemory> {
        let available = kernel_file::number("/proc/meminfo", "MemAvailable")?;
        let left = mib as u64 * 1024;
        ensure!(
            available > left,
            "{} MiB are available, and {mib} are to be left",
            available / 1024
        );
        let taken = OccupiedMemory(());
        let wanted = (available - left) / HUGE_KIB;
        fs::write(HUGE, wanted.to_string()).context(HUGE)?;
        let got: u64 = fs::read_to_string(HUGE)?.trim().parse().context(HUGE)?;
        ensure!(
            got + wanted / 20 >= wanted,
            "the kernel gave {got} huge pages of {wanted}"
        );
        Ok(taken)
    }
}

impl Drop for OccupiedMemory {
    fn drop(&mut self) {
        // A guest that cannot release them is short of memory in later work, which then reports it.
        let _ = fs::write(HUGE, "0");
    }
}
