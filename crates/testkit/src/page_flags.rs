//! The kernel's flags of physical pages, from `/proc/kpageflags`.
//!
//! # Source
//! Documentation/admin-guide/mm/pagemap.rst, and `stable_page_flags()` of the kernel.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::kernel_file::{self, at_path};

const PATH: &str = "/proc/kpageflags";

fn open() -> io::Result<File> {
    File::open(PATH).map_err(|error| at_path(Path::new(PATH), &error))
}

/// The flags of a physical page (`KPF_*`).
///
/// # Errors
/// The file cannot be read, or there is no such page.
pub fn of_page(pfn: u64) -> io::Result<u64> {
    let mut word = [0u8; 8];
    open()?
        .read_exact_at(&mut word, pfn * 8)
        .map_err(|error| at_path(Path::new(PATH), &error))?;
    Ok(u64::from_ne_bytes(word))
}

/// Whether a page with these flags is a frame of a domain. Those of in-kernel KSM are not: they are
/// on the LRU.
///
/// Kernels show the mark (`KPF_KSM`) for other anonymous pages too, and the kernel's own pages can
/// look like it. Frames are anonymous, up to date, off the LRU, not on their way to its active
/// list, and not exclusive (`PG_anon_exclusive`), unlike a page that was just written. A page that
/// was used just now may be on its way to the LRU, and look like one.
#[must_use]
pub fn is_frame(flags: u64) -> bool {
    const KPF_UPTODATE: u64 = 1 << 3;
    const KPF_LRU: u64 = 1 << 5;
    const KPF_ACTIVE: u64 = 1 << 6;
    const KPF_SWAPBACKED: u64 = 1 << 14;
    /// Memory that failed keeps its marks for ever; the kernel never uses it again.
    const KPF_HWPOISON: u64 = 1 << 19;
    const KPF_KSM: u64 = 1 << 21;
    /// `PG_mappedtodisk`, later `PG_owner_2`: for an anonymous page it is `PG_anon_exclusive`.
    const KPF_EXCLUSIVE: u64 = 1 << 34;
    const OTHERS: u64 = KPF_LRU | KPF_ACTIVE | KPF_HWPOISON | KPF_EXCLUSIVE;
    const MERGED: u64 = KPF_UPTODATE | KPF_SWAPBACKED | KPF_KSM;
    flags & (MERGED | OTHERS) == MERGED
}

/// Number (PFN) and flags of the frames of all domains, mapped or not, in ascending order, as
/// [`is_frame`] knows them. Compacts all memory.
///
/// # Errors
/// The files cannot be read.
pub fn frames() -> io::Result<Vec<(u64, u64)>> {
    // Memory is allocated first; then pages on their way to the LRU are moved there. Twice the
    // memory's pages: there are holes between addresses.
    let pages = kernel_file::number("/proc/meminfo", "MemTotal")? / 2;
    let length = usize::try_from(pages).map_err(io::Error::other)? * 8;
    let mut words = vec![1u8; length];
    kernel_file::write("/proc/sys/vm/compact_memory", "1")?;
    let mut file = open()?;
    let mut read = 0;
    while let Ok(more @ 1..) = file.read(&mut words[read..]) {
        read += more;
    }
    let flags = words[..read].as_chunks().0.iter();
    let flags = flags.map(|&word| u64::from_ne_bytes(word));
    Ok((0..)
        .zip(flags)
        .filter(|&(_, flags)| is_frame(flags))
        .collect())
}
