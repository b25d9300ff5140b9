//! A machine that has less memory than its processes demand, and swap for the rest.
//!
//! # Problem
//! Shortage of memory depends on the machine, and a disk's speed on its host.
//!
//! # Approach
//! Swap is compressed memory (zram), so that a lack costs processor time. Memory is taken away as
//! unused huge pages: these are not scanned, merged or swapped.
//!
//! # Source
//! The swap header: include/linux/swap.h of the kernel, `union swap_header`.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::contents::PAGE;
use crate::measure::cgroup::set;
use crate::measure::meminfo;

const ZRAM: &str = "/sys/block/zram0";
const DEVICE: &str = "/dev/zram0";
const HUGE: &str = "/proc/sys/vm/nr_hugepages";
/// KiB of a huge page.
const HUGE_KIB: u64 = 2048;

/// Turns compressed memory into swap of this size, once in a boot.
///
/// # Errors
/// There is no such device, or it is in use.
pub(crate) fn swap_on(mib: usize) -> Result<()> {
    set(&Path::new(ZRAM).join("disksize"), &(mib << 20).to_string())?;
    let mut header = vec![0; PAGE];
    let last = u32::try_from((mib << 20) / PAGE - 1)?;
    header[1024..1028].copy_from_slice(&1_u32.to_le_bytes());
    header[1028..1032].copy_from_slice(&last.to_le_bytes());
    header[PAGE - 10..].copy_from_slice(b"SWAPSPACE2");
    let device = fs::File::options().write(true).open(DEVICE);
    let device = device.context(DEVICE)?;
    device.write_all_at(&header, 0).context(DEVICE)?;
    device.sync_all().context(DEVICE)?;
    let path = CString::new(DEVICE)?;
    // SAFETY: swapon reads the path only.
    if unsafe { libc::swapon(path.as_ptr(), 0) } != 0 {
        return Err(std::io::Error::last_os_error()).context("swapon");
    }
    Ok(())
}

/// Memory that is taken away, until this is dropped.
pub(crate) struct OccupiedMemory(());

impl OccupiedMemory {
    /// Leaves this many MiB available.
    ///
    /// # Errors
    /// The kernel has fewer, or found no huge pages for the others.
    pub(crate) fn leaving(mib: usize) -> Result<OccupiedMemory> {
        let available = meminfo::kib("MemAvailable")?;
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
