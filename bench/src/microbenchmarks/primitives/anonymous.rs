//! Anonymous memory that primitives work on.

use std::ptr::NonNull;

use anyhow::{Context, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A mapping. It is unmapped at drop, so no reference into it may live longer.
#[derive(Debug)]
pub(super) struct AnonymousMapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl AnonymousMapping {
    /// A mapping of this many bytes, in pages of the advised size, if the kernel has such.
    ///
    /// # Errors
    /// The machine has too little memory.
    pub(super) fn new(bytes: usize, size: Advice) -> Result<AnonymousMapping> {
        // SAFETY: a new mapping, at any address.
        let memory = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .context("no memory to work on")?;
        // SAFETY: all of the mapping. If the kernel does not take the advice, there are more or
        // fewer walks, without an error.
        let _is_taken = unsafe { madvise(memory, bytes, size) };
        Ok(AnonymousMapping {
            start: NonNull::new(memory.cast()).context("a mapping at no address")?,
            bytes,
        })
    }

    /// Its start.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Takes its pages away: they come back as new ones, of zeros.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn take_away(&mut self) -> Result<()> {
        // SAFETY: all of the mapping, into which there is no reference.
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

impl Drop for AnonymousMapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, into which there is no reference.
        let _gone = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
