//! Returns memory to the kernel that was needed only once.
//!
//! # Problem
//! Loading a program into the kernel requires reading the kernel's BTF: a hundred thousand small
//! pieces of memory, 12 MiB in all. They are freed when the program is loaded, and yet stay with
//! the daemon: pieces needed longer lie among them, and the C library returns only the end of a
//! heap. So a daemon of 8 MiB had 23 until it ended, and the host did without this memory.
//!
//! # Approach
//! The free pages of all heaps are returned. Later allocations from this heap would get a huge page
//! for each hole that they touch, and in time all 12 MiB again. So the heap of the loading thread,
//! which holds no index, gets no huge pages any more.
//!
//! # Cost
//! A walk over the free pieces of all heaps, some milliseconds, under their locks.

use std::fs::File;
use std::io::BufReader;

use crate::smaps::{NameKind, SmapsEntries};

/// Returns the free pages of all heaps to the kernel. The heap of this thread gets no huge pages
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

/// Forbids huge pages in the mapping from which this thread allocates. All threads use the first
/// heap, which has a name, so it is left alone. A failure costs memory, nothing else.
fn forbid_huge_pages() {
    let piece = Box::new(0_u64);
    let address = (&raw const *piece).addr() as u64;
    let Ok(maps) = File::open("/proc/self/maps") else {
        return;
    };
    let mut entries = SmapsEntries::of(BufReader::new(maps)).map_while(Result::ok);
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
