//! The interface of a machine to its disk: `preadv` and `pwritev`, or io_uring.
//!
//! The vectors of a request are pages that are not borrowed until it is done.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use super::Aio;

/// The direction of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Direction {
    /// From the disk to memory.
    Read,
    /// From memory to the disk.
    Write,
}

/// An interface.
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

    /// Moves these pages from or to a disk; returns the bytes moved.
    pub(super) fn request(
        &mut self,
        direction: Direction,
        disk: &File,
        at: u64,
        pages: &[libc::iovec],
    ) -> io::Result<usize> {
        let (first, count) = (pages.as_ptr(), u32::try_from(pages.len()));
        let (disk, count) = (disk.as_raw_fd(), count.map_err(io::Error::other)?);
        match self {
            Interface::Ring(ring) => {
                let disk = types::Fd(disk);
                let entry = match direction {
                    Direction::Read => opcode::Readv::new(disk, first, count).offset(at).build(),
                    Direction::Write => opcode::Writev::new(disk, first, count).offset(at).build(),
                };
                carry_out(ring, &entry)
            }
            Interface::Calls => {
                let call = match direction {
                    Direction::Read => libc::preadv,
                    Direction::Write => libc::pwritev,
                };
                // SAFETY: the caller gives whole pages of its own, which are not borrowed.
                done(unsafe { call(disk, first, count.cast_signed(), at.cast_signed()) })
            }
        }
    }
}

/// Submits a request and waits for it.
fn carry_out(ring: &mut IoUring, entry: &io_uring::squeue::Entry) -> io::Result<usize> {
    // SAFETY: the request's vectors and pages are the caller's, which waits until it is done.
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
