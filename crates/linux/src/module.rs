//! The kernel module's device, as safe calls with the policy's types.
//!
//! # Problem
//! The module is driven by ioctls on `/dev/uksm` with batches of plain structures.
//!
//! # Approach
//! [`Device`] is one open file, hence one domain. Each call is one method of it, in [`ioctl`],
//! which has the unsafe code. [`raw`] is the contract, made from its header. The policy knows the
//! module's bounds: a batch over them is an error. The device keeps its buffers between calls,
//! because a fresh quarter of a megabyte for each call would cost a page fault every 256 sampled
//! pages.
//!
//! # Units
//! Addresses are bytes, counts pages, strength lines. Ranges are half-open.
//!
//! # Source
//! `interface/uksm_ioctl.h`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
pub use uksm_interface as raw;

mod answers;
mod error;
pub mod ioctl;

pub use answers::{
    AttachAnswer, BreakAnswer, Configuration, CountAnswer, FramesAnswer, MappingsAnswer,
};
pub use error::{Error, Result};
pub use raw::{Verb, tried_kernels, uksm_info as Info};

/// Path of the module's device.
pub const DEVICE_PATH: &str = "/dev/uksm";

/// The calls of a worker whose domain exists, and whose spaces others attach: all except configure,
/// attach and seal.
pub const WORKER_CALLS: [u32; 9] = [
    raw::UKSM_IOC_INFO,
    raw::UKSM_IOC_DETACH,
    raw::UKSM_IOC_SAMPLE,
    raw::UKSM_IOC_FOLD,
    raw::UKSM_IOC_BREAK,
    raw::UKSM_IOC_COUNT,
    raw::UKSM_IOC_FRAMES,
    raw::UKSM_IOC_SIZES,
    raw::UKSM_IOC_MAPPINGS,
];

/// One domain of the module.
#[derive(Debug)]
pub struct Device {
    file: OwnedFd,
    runs: Vec<raw::uksm_run>,
    pages: Vec<raw::uksm_page>,
    entries: Vec<raw::uksm_fold_entry>,
}

impl Device {
    /// Opens [`DEVICE_PATH`]: makes a domain.
    ///
    /// # Errors
    /// The module is not loaded, no right, wrong version.
    pub fn open() -> Result<Device> {
        Device::open_at(Path::new(DEVICE_PATH))
    }

    /// Opens the device at another path.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_at(path: &Path) -> Result<Device> {
        let fail = |errno| match errno {
            Errno::NOENT => Error::Missing {
                path: path.to_owned(),
            },
            errno => Error::Open {
                path: path.to_owned(),
                errno,
            },
        };
        // Close-on-exec: a device that a child inherits would keep the module from unloading.
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(fail)?;
        Device::from_file(file, path.to_owned())
    }

    /// Takes over an open file of the device, such as one handed over by another process.
    /// `path` is for error messages.
    ///
    /// # Errors
    /// The file is of another kind, or of another version.
    pub fn from_file(file: OwnedFd, path: PathBuf) -> Result<Device> {
        let device = Device {
            file,
            runs: Vec::new(),
            pages: Vec::new(),
            entries: Vec::new(),
        };
        match device.info() {
            Ok(info) if info.api_version == raw::UKSM_API_VERSION => Ok(device),
            Ok(info) => Err(Error::Version {
                path,
                found: info.api_version,
            }),
            // A module whose INFO has another size does not know this request number, either; a
            // foreign character device answers in the same way.
            Err(Error::Call {
                errno: Errno::NOTTY | Errno::INVAL,
                ..
            }) => Err(Error::NotDevice { path }),
            Err(error) => Err(error),
        }
    }

    /// Whether frames are protected now, so that FOLD maps them.
    ///
    /// # Errors
    /// The module does not answer.
    pub fn is_guarded(&self) -> Result<bool> {
        Ok(self.info()?.features & raw::UKSM_FEATURE_GUARD != 0)
    }

    /// Another handle of the same domain.
    ///
    /// # Errors
    /// No more file descriptors.
    pub fn try_clone(&self) -> std::io::Result<Device> {
        let file = self.file.try_clone()?;
        Ok(Device {
            file,
            runs: Vec::new(),
            pages: Vec::new(),
            entries: Vec::new(),
        })
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
