//! Gives memory back that was needed once.
//!
//! # Problem
//! To load a program into the kernel, the kernel's BTF is read: a hundred thousand small pieces of
//! memory, 12 MiB in all. They are freed when the program is loaded, and yet stay with the daemon:
//! what is needed longer lies among them, and the C library gives only the end of a heap back. So a
//! daemon of 8 MiB had 23 until it ended, which is memory that the host does not get.
//!
//! # Approach
//! The free pages of all heaps are given back. Whoever allocates later from this heap would get a
//! huge page for each hole that it touches, and in time all 12 MiB again. So the heap of the thread
//! that loads, which no index is in, gets no huge pages any more.
//!
//! # Cost
//! A walk over the free pieces of all heaps, some milliseconds, under their locks.

use std::fs::File;
use std::io::BufReader;

use crate::smaps::{Entries, NameKind};

/// Gives the free pages of all heaps back to the kernel. The heap of this thread gets no huge pages
/// from now on, if it is its own.
pub(crate) fn trim() {
    forbid_huge_pages();
    #[cfg(target_env = "gnu")]
    // SAFETY: it frees nothing that is in use, takes the locks of the heaps itself, and any thread
    // may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// In the mapping from which this thread allocates. That of the first heap, which has a name, is
/// everybody's and is left alone. What cannot be read or is refused costs memory, nothing else.
fn forbid_huge_pages() {
    let piece = Box::new(0_u64);
    let address = (&raw const *piece).addr() as u64;
    let Ok(maps) = File::open("/proc/self/maps") else {
        return;
    };
    let mut entries = Entries::of(BufReader::new(maps)).map_while(Result::ok);
    let own = entries.find(|entry| {
        (entry.start..entry.end).contains(&address) && entry.name_kind() == NameKind::Anonymous
    });
    let Some((start, end)) = own.map(|entry| (entry.start, entry.end)) else {
        return;
    };
    let (Ok(at), Ok(length)) = (usize::try_from(start), usize::try_from(end - start)) else {
        return;
    };
    let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(at);
    // SAFETY: the advice changes no contents and no protection; the range is mapped, since a live
    // allocation is in it and the C library makes a heap smaller from its end only, where advice is
    // refused.
    let _refused = unsafe { libc::madvise(at, length, libc::MADV_NOHUGEPAGE) };
}
