//! How a machine asks its disk: `preadv` and `pwritev`, or io_uring.
//!
//! The vectors of a request are pages that nobody borrows until it is done.

use super::Aio;
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A way to ask.
pub(super) enum Interface {
    /// System calls.
    Calls,
    /// A ring, with one request at a time.
    Ring(Box<IoUring>),
}

impl Interface {
    /// # Errors
    /// The kernel gives no ring.
    pub(super) fn of(aio: Aio) -> io::Result<Interface> {
        Ok(match aio {
            Aio::Threads => Interface::Calls,
            Aio::IoUring => Interface::Ring(Box::new(IoUring::new(4)?)),
        })
    }

    /// Reads a disk into these pages; the bytes read.
    pub(super) fn read(
        &mut self,
        disk: &File,
        at: u64,
        pages: &[libc::iovec],
    ) -> io::Result<usize> {
        let (first, count) = (pages.as_ptr(), length(pages)?);
        match self {
            Interface::Ring(ring) => {
                let entry = opcode::Readv::new(types::Fd(disk.as_raw_fd()), first, count);
                carry_out(ring, &entry.offset(at).build())
            }
            Interface::Calls => {
                let (count, at) = (count.cast_signed(), at.cast_signed());
                // SAFETY: the caller gives whole pages of its own, borrowed by nobody.
                done(unsafe { libc::preadv(disk.as_raw_fd(), first, count, at) })
            }
        }
    }

    /// Writes these pages to a disk; the bytes written.
    pub(super) fn write(
        &mut self,
        disk: &File,
        at: u64,
        pages: &[libc::iovec],
    ) -> io::Result<usize> {
        let (first, count) = (pages.as_ptr(), length(pages)?);
        match self {
            Interface::Ring(ring) => {
                let entry = opcode::Writev::new(types::Fd(disk.as_raw_fd()), first, count);
                carry_out(ring, &entry.offset(at).build())
            }
            Interface::Calls => {
                let (count, at) = (count.cast_signed(), at.cast_signed());
                // SAFETY: the caller gives whole pages of its own, borrowed by nobody.
                done(unsafe { libc::pwritev(disk.as_raw_fd(), first, count, at) })
            }
        }
    }
}

fn length(pages: &[libc::iovec]) -> io::Result<u32> {
    u32::try_from(pages.len()).map_err(io::Error::other)
}

/// Submits a request and waits for it.
fn carry_out(ring: &mut IoUring, entry: &io_uring::squeue::Entry) -> io::Result<usize> {
    // SAFETY: the request's vectors and pages are the caller's, who waits until it is done.
    unsafe { ring.submission().push(entry) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    let entry = ring.completion().next();
    let result = entry
        .map(|entry| entry.result())
        .ok_or_else(|| io::Error::other("no completion"))?;
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    usize::try_from(result).map_err(io::Error::other)
}

/// The result of a system call.
fn done(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
