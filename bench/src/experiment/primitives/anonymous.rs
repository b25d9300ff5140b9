//! Anonymous memory that primitives work on.

use anyhow::{Context, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::NonNull;

/// A mapping. It is gone at drop, so nobody may keep a reference into it for longer.
#[derive(Debug)]
pub(super) struct Anonymous {
    start: NonNull<u8>,
    bytes: usize,
}

impl Anonymous {
    /// So many bytes, in pages of the size that is advised, where the kernel has such.
    ///
    /// # Errors
    /// The machine has not so much memory.
    pub(super) fn new(bytes: usize, size: Advice) -> Result<Anonymous> {
        // SAFETY: a new mapping, wherever the kernel likes.
        let memory = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .context("no memory to work on")?;
        // SAFETY: all of the mapping. Where the kernel does not take the advice there are more or
        // fewer walks, and nothing is wrong.
        let _is_taken = unsafe { madvise(memory, bytes, size) };
        Ok(Anonymous {
            start: NonNull::new(memory.cast()).context("a mapping at no address")?,
            bytes,
        })
    }

    /// Where it begins.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its pages are taken away: they come back as new ones, of zeros.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn take_away(&mut self) -> Result<()> {
        // SAFETY: all of the mapping, into which nobody has a reference.
        unsafe {
            madvise(
                self.start.as_ptr().cast(),
                self.bytes,
                Advice::LinuxDontNeed,
            )
        }
        .context("pages are not taken away")
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, into which nobody has a reference.
        let _gone = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
