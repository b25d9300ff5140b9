//! Anonymous memory that a workload maps, writes and reads.
//!
//! # Problem
//! An experiment decides on the position of a mapping (in-kernel KSM walks addresses upwards, so
//! the order matters) and on huge pages and KSM for it.
//!
//! # Approach
//! The parts of a workload are laid into one reservation, lowest first, with a gap between them, so
//! that each stays a mapping of its own.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::{self, NonNull};

use anyhow::{Context, Result, ensure};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::contents::{PAGE, WORDS};

/// Unmapped pages between two parts, so that the kernel does not join them (one huge page).
const GAP_PAGES: usize = 512;
/// Pages of 2 MiB.
pub(crate) const BLOCK_PAGES: usize = 512;
/// Addresses of captured memory: above any program's own, and below the kernel's choices.
pub(crate) const CAPTURED: Range<u64> = 1 << 44..1 << 45;

/// A range of addresses into which nothing else is mapped. It is given back at drop, with all
/// mappings in it.
pub(crate) struct Reservation {
    base: NonNull<u8>,
    bytes: usize,
    used: usize,
}

impl Reservation {
    /// Reserves room for parts of these many pages.
    pub(crate) fn for_parts(pages: &[usize]) -> Result<Reservation> {
        Reservation::at(ptr::null_mut(), pages)
    }

    /// The same, among the addresses of captured memory.
    pub(crate) fn for_captured(pages: &[usize]) -> Result<Reservation> {
        let first = usize::try_from(CAPTURED.start)?;
        let reservation = Reservation::at(ptr::without_provenance_mut(first), pages)?;
        let found = reservation.base.as_ptr().addr();
        ensure!(found == first, "addresses from {first:#x} on are taken");
        Ok(reservation)
    }

    /// The same, from this address on if it is free.
    fn at(address: *mut c_void, pages: &[usize]) -> Result<Reservation> {
        let bytes = pages
            .iter()
            .map(|count| (count + GAP_PAGES + BLOCK_PAGES) * PAGE)
            .sum::<usize>()
            + GAP_PAGES * PAGE;
        // SAFETY: a fresh mapping aliases nothing: the kernel chooses the address, and takes the
        // one it is given as a hint.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                address,
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .with_context(|| format!("cannot reserve {bytes} bytes of addresses"))?;
        let base = NonNull::new(base.cast()).context("mmap returned address 0")?;
        Ok(Reservation {
            base,
            bytes,
            // There is a gap below the first part, too: a thread's stack may come to lie there.
            used: GAP_PAGES * PAGE,
        })
    }

    /// Starts the next part this many pages behind a multiple of 2 MiB.
    pub(crate) fn align(&mut self, phase: usize) {
        let page = (self.base.as_ptr().addr() + self.used) / PAGE;
        self.used += (BLOCK_PAGES + phase - page % BLOCK_PAGES) % BLOCK_PAGES * PAGE;
    }

    /// Maps the next part, above all earlier ones.
    pub(crate) fn map(&mut self, pages: usize, kind: Kind) -> Result<Mapping> {
        let bytes = pages * PAGE;
        assert!(
            self.used + bytes <= self.bytes,
            "part of {pages} pages was not reserved"
        );
        // SAFETY: used + bytes <= self.bytes, so this stays inside the reservation.
        let start = unsafe { self.base.add(self.used) };
        self.used += bytes + GAP_PAGES * PAGE;
        let mut mapping = Mapping {
            start,
            pages,
            mapped: false,
        };
        mapping.map_again(kind)?;
        Ok(mapping)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is ours; mappings made in it are documented to end with it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Options of a mapped part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// Offer it to huge pages; else forbid them.
    pub huge: bool,
    /// Offer it to in-kernel KSM.
    pub mergeable: bool,
}

/// One part of a workload: `pages` pages, readable and writable, used by one thread.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    pages: usize,
    mapped: bool,
}

impl Mapping {
    /// Number of pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// The words of one page.
    pub(crate) fn page(&self, index: usize) -> &[u64] {
        assert!(self.mapped && index < self.pages);
        // SAFETY: index is inside the mapping.
        let start = unsafe { self.start.add(index * PAGE) };
        // SAFETY: page-aligned, readable, initialised by the kernel, and borrowed from self.
        unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), WORDS) }
    }

    /// The words of one page, to write.
    pub(crate) fn page_mut(&mut self, index: usize) -> &mut [u64] {
        assert!(self.mapped && index < self.pages);
        // SAFETY: index is inside the mapping.
        let start = unsafe { self.start.add(index * PAGE) };
        // SAFETY: page-aligned, writable, and borrowed from self exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast(), WORDS) }
    }

    /// One page, for system calls. The caller borrows the page for the duration of the call.
    pub(crate) fn iovec(&mut self, index: usize) -> libc::iovec {
        libc::iovec {
            iov_base: self.page_mut(index).as_mut_ptr().cast(),
            iov_len: PAGE,
        }
    }

    /// Gives the pages back; the addresses stay reserved. The mapping cannot be used afterwards.
    pub(crate) fn unmap(&mut self) -> Result<()> {
        self.mapped = false;
        // SAFETY: no slice is borrowed, since self is borrowed exclusively; `mapped` bars new ones.
        unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.pages * PAGE) }
            .context("cannot unmap")
    }

    /// Gives one page back: there is none until it is written again.
    pub(crate) fn drop_page(&mut self, index: usize) -> Result<()> {
        let start = NonNull::from(self.page_mut(index)).cast();
        // SAFETY: the page is ours, and no slice of it is borrowed, since self is borrowed
        // exclusively.
        unsafe { rustix::mm::madvise(start.as_ptr(), PAGE, Advice::LinuxDontNeed) }
            .context("cannot give a page back")
    }

    /// Maps the same addresses anew, empty.
    pub(crate) fn map_again(&mut self, kind: Kind) -> Result<()> {
        let bytes = self.pages * PAGE;
        // SAFETY: our own addresses, inside our reservation, not borrowed (exclusive self).
        unsafe {
            rustix::mm::mmap_anonymous(
                self.start.as_ptr().cast(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED,
            )
        }
        .with_context(|| format!("cannot map {} pages", self.pages))?;
        let huge = if kind.huge {
            Advice::LinuxHugepage
        } else {
            Advice::LinuxNoHugepage
        };
        advise(self.start, bytes, huge)
            .with_context(|| format!("cannot set huge pages to {}", kind.huge))?;
        if kind.mergeable {
            advise(self.start, bytes, Advice::LinuxMergeable)
                .context("madvise(MADV_MERGEABLE) failed: does this kernel have CONFIG_KSM?")?;
        }
        self.mapped = true;
        Ok(())
    }
}

fn advise(start: NonNull<u8>, bytes: usize, advice: Advice) -> rustix::io::Result<()> {
    // SAFETY: these advices change how the kernel treats memory of ours, never its contents.
    unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, advice) }
}
