//! A block device in memory (zram), and swap on it.
//!
//! The guest has no mkswap: the header of the swap area is written here.
//!
//! # Source
//! The swap header: include/linux/swap.h of the kernel, `union swap_header`.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::kernel_file;

const SYSFS: &str = "/sys/block/zram0";
const DEVICE: &str = "/dev/zram0";
const PAGE_SIZE: usize = 4096;

/// The device, until dropped. There is one; its module must be loaded.
#[derive(Debug)]
pub struct Zram(());

impl Zram {
    /// Makes one of this size.
    ///
    /// # Errors
    /// There is no such device, or it is in use.
    pub fn create(mebibytes: u64) -> io::Result<Zram> {
        let bytes = (mebibytes << 20).to_string();
        kernel_file::write(format!("{SYSFS}/disksize"), &bytes)?;
        Ok(Zram(()))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &'static str {
        DEVICE
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        if let Err(error) = kernel_file::write(format!("{SYSFS}/reset"), "1") {
            eprintln!("{DEVICE} stays in use: {error}");
        }
    }
}

/// A device that is used as swap, until dropped.
#[derive(Debug)]
pub struct Swap {
    path: CString,
    /// Removed after it was taken out of use.
    device: Option<Zram>,
}

impl Swap {
    /// Makes and uses compressed memory of this size.
    ///
    /// # Errors
    /// As [`Zram::create`] and [`Swap::on`].
    pub fn compressed(mebibytes: u64) -> io::Result<Swap> {
        let device = Zram::create(mebibytes)?;
        let mut swap = Swap::on(device.path(), mebibytes)?;
        swap.device = Some(device);
        Ok(swap)
    }

    /// Uses all of a device of this size; what it held is lost.
    ///
    /// # Errors
    /// The device is not there, or the kernel does not swap to it.
    pub fn on(path: &str, mebibytes: u64) -> io::Result<Swap> {
        write_header(path, mebibytes)?;
        let path = CString::new(path)?;
        // SAFETY: swapon reads the path only.
        if unsafe { libc::swapon(path.as_ptr(), 0) } != 0 {
            let error = io::Error::last_os_error();
            return Err(io::Error::new(error.kind(), format!("swapon: {error}")));
        }
        Ok(Swap { path, device: None })
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // SAFETY: swapoff reads the path only.
        if unsafe { libc::swapoff(self.path.as_ptr()) } != 0 {
            let error = io::Error::last_os_error();
            eprintln!("{:?} stays in use as swap: {error}", self.path);
        }
    }
}

fn write_header(path: &str, mebibytes: u64) -> io::Result<()> {
    let pages = (mebibytes << 20) / PAGE_SIZE as u64;
    let last_page = u32::try_from(pages - 1).map_err(io::Error::other)?;
    let mut header = vec![0_u8; PAGE_SIZE];
    header[1024..1028].copy_from_slice(&1_u32.to_le_bytes());
    header[1028..1032].copy_from_slice(&last_page.to_le_bytes());
    header[PAGE_SIZE - 10..].copy_from_slice(b"SWAPSPACE2");
    let written = File::options().write(true).open(path).and_then(|device| {
        device.write_all_at(&header, 0)?;
        device.sync_all()
    });
    written.map_err(|error| kernel_file::at_path(Path::new(path), &error))
}
