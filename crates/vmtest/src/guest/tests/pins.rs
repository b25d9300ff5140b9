//! Pages that the kernel holds references to: given to a pipe, registered with an io_uring.
//!
//! # Problem
//! A page that a device or a pipe refers to must not be exchanged for another under it: what is
//! written through the reference would be lost, or would reach a page that others map.
//!
//! # Approach
//! vmsplice(2) takes plain references; io_uring's fixed buffers take long-term pins, through which
//! the kernel writes when a file is read into the buffer. Both are taken and checked in a peer.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::{IoUring, opcode, types};

use super::contents::{Content, PAGE};
use super::memory::Memory;
use super::peer::pipe;

/// Pages that sit in a pipe.
#[derive(Debug)]
pub struct Splice {
    out: OwnedFd,
    _into: OwnedFd,
    pages: usize,
}

impl Splice {
    /// Gives `pages` of `memory` to a new pipe.
    ///
    /// # Panics
    /// If the kernel does not take them all.
    #[must_use]
    pub fn new(memory: &Memory, pages: Range<usize>) -> Splice {
        let (out, into) = pipe();
        // SAFETY: F_SETPIPE_SZ touches no memory.
        let size = unsafe { libc::fcntl(into.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20) };
        assert!(size > 0, "F_SETPIPE_SZ: {}", io::Error::last_os_error());
        let vector = memory.vector(pages.clone());
        // SAFETY: the vector names this process's own mapping.
        let taken = unsafe { libc::vmsplice(into.as_raw_fd(), &raw const vector, 1, 0) };
        assert_eq!(
            usize::try_from(taken).ok(),
            Some(vector.iov_len),
            "vmsplice should take all pages: {}",
            io::Error::last_os_error()
        );
        Splice {
            out,
            _into: into,
            pages: pages.len(),
        }
    }

    /// Empties the pipe and tells how many of its pages do not hold what `content` says of each.
    ///
    /// # Panics
    /// If the pipe holds fewer pages.
    #[must_use]
    pub fn changed(self, content: impl Fn(usize) -> Content) -> usize {
        let mut pipe = File::from(self.out);
        let mut page = vec![0u8; PAGE];
        let mut changed = 0;
        for at in 0..self.pages {
            pipe.read_exact(&mut page).expect("the pages of the pipe");
            changed += usize::from(page != content(at).bytes());
        }
        changed
    }
}

/// Pages registered with an io_uring as one fixed buffer.
pub struct FixedBuffers {
    ring: IoUring,
    address: u64,
    pages: usize,
}

impl std::fmt::Debug for FixedBuffers {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "FixedBuffers({} pages at {:#x})",
            self.pages, self.address
        )
    }
}

impl FixedBuffers {
    /// Registers `pages` of `memory`.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn new(memory: &Memory, pages: Range<usize>) -> FixedBuffers {
        let ring = IoUring::new(4).expect("io_uring_setup");
        let vector = memory.vector(pages.clone());
        // SAFETY: the buffer is a mapping of this process that outlives the ring's use of it: it
        // is unmapped at exit only, and pins keep its pages even then.
        unsafe { ring.submitter().register_buffers(&[vector]) }.expect("IORING_REGISTER_BUFFERS");
        FixedBuffers {
            ring,
            address: memory.address(pages.start),
            pages: pages.len(),
        }
    }

    /// Has the kernel write into the pinned pages: reads a file of contents (`seed`, page) there.
    ///
    /// # Panics
    /// If the read does not fill the buffer.
    pub fn receive(&mut self, seed: u64) {
        let mut file = tempfile("receive");
        for page in 0..self.pages {
            file.write_all(&Content::new(seed, page as u64).bytes())
                .expect("write the source");
        }
        file.rewind().expect("rewind the source");
        let length = u32::try_from(self.pages * PAGE).expect("a small buffer");
        let pointer = usize::try_from(self.address).expect("guests are 64-bit");
        let read = opcode::ReadFixed::new(
            types::Fd(file.as_raw_fd()),
            std::ptr::with_exposed_provenance_mut(pointer),
            length,
            0,
        )
        .build();
        // SAFETY: the buffer is registered, and file and buffer live until the wait below ends.
        unsafe { self.ring.submission().push(&read) }.expect("room in the ring");
        self.ring.submit_and_wait(1).expect("io_uring_enter");
        let done = self.ring.completion().next().expect("one completion");
        assert_eq!(
            u32::try_from(done.result()).ok(),
            Some(length),
            "the fixed read should fill the buffer"
        );
    }
}

/// A new empty file, already unlinked.
fn tempfile(name: &str) -> File {
    let path = std::env::temp_dir().join(format!("uksm-{name}-{}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    std::fs::remove_file(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file
}
