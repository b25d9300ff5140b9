//! Which physical pages a process maps.
//!
//! # Problem
//! Whether two pages are one, and whether two domains share anything, only page tables tell.
//!
//! # Approach
//! /proc/PID/pagemap shows physical page numbers to root, independently of the module.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::accounting::{number, set};
use super::contents::PAGE;
use super::memory::BASE;

/// An entry of a page map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(u64);

impl Entry {
    /// The physical page, if one is mapped.
    #[must_use]
    pub fn frame_number(self) -> Option<u64> {
        (self.0 >> 63 == 1).then_some(self.0 & ((1 << 55) - 1))
    }

    /// Whether the page is in swap.
    #[must_use]
    pub fn is_swapped(self) -> bool {
        self.0 >> 62 & 1 == 1
    }

    /// Whether the page counts as file or shared memory.
    #[must_use]
    pub fn is_file(self) -> bool {
        self.0 >> 61 & 1 == 1
    }

    /// Whether userfaultfd has write-protected the page.
    #[must_use]
    pub fn is_write_protected(self) -> bool {
        self.0 >> 57 & 1 == 1
    }

    /// Whether the page was written since the soft-dirty bits were cleared.
    #[must_use]
    pub fn is_soft_dirty(self) -> bool {
        self.0 >> 55 & 1 == 1
    }
}

/// The entries of `pages` of a process, counted from [`BASE`].
///
/// # Panics
/// If the page map cannot be read.
#[must_use]
pub fn entries(pid: i32, pages: Range<usize>) -> Vec<Entry> {
    let path = format!("/proc/{pid}/pagemap");
    let file = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut bytes = vec![0u8; pages.len() * 8];
    let offset = (BASE / PAGE as u64 + pages.start as u64) * 8;
    file.read_exact_at(&mut bytes, offset)
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    bytes
        .chunks_exact(8)
        .map(|entry| Entry(u64::from_ne_bytes(entry.try_into().expect("8 bytes"))))
        .collect()
}

/// The physical pages that `pages` of a process map; none of them may be missing.
///
/// # Panics
/// If one is missing.
#[must_use]
pub fn frame_numbers(pid: i32, pages: Range<usize>) -> Vec<u64> {
    let first = pages.start;
    entries(pid, pages)
        .iter()
        .enumerate()
        .map(|(at, entry)| {
            entry
                .frame_number()
                .unwrap_or_else(|| panic!("page {} of {pid} is not mapped", first + at))
        })
        .collect()
}

/// Asserts that no page of the machine is marked as merged, mapped or not, of whatever domain.
///
/// # Panics
/// If there is one, or /proc/kpageflags cannot be read.
pub fn assert_no_merged_page_is_left() {
    // A page that was used just now may be on its way to the LRU, and look like one.
    for _ in 0..5 {
        if merged_pages().is_empty() {
            return;
        }
    }
    let left = merged_pages();
    assert!(
        left.is_empty(),
        "no merged page should be left, {} are: {:x?}",
        left.len(),
        &left[..left.len().min(8)]
    );
}

/// Number and flags of the pages that are marked as merged.
///
/// Kernels show the mark (`KPF_KSM`) of other anonymous pages too, and what the kernel keeps in a
/// page of its own can look like it. Frames are anonymous, up to date, off the LRU, not on their way
/// to its active list, and nobody's own (`PG_anon_exclusive`), as a page is that was just written to.
fn merged_pages() -> Vec<(usize, u64)> {
    const PATH: &str = "/proc/kpageflags";
    const KPF_UPTODATE: u64 = 1 << 3;
    const KPF_LRU: u64 = 1 << 5;
    const KPF_ACTIVE: u64 = 1 << 6;
    const KPF_SWAPBACKED: u64 = 1 << 14;
    /// Memory that failed keeps its marks for ever; the kernel never uses it again.
    const KPF_HWPOISON: u64 = 1 << 19;
    const KPF_KSM: u64 = 1 << 21;
    /// `PG_mappedtodisk`, later `PG_owner_2`: of an anonymous page it is `PG_anon_exclusive`.
    const KPF_EXCLUSIVE: u64 = 1 << 34;
    const OTHERS: u64 = KPF_LRU | KPF_ACTIVE | KPF_HWPOISON | KPF_EXCLUSIVE;
    const MERGED: u64 = KPF_UPTODATE | KPF_SWAPBACKED | KPF_KSM;
    // Room first, and then what is on its way to the LRU is sent there.
    let pages = number("/proc/meminfo", "MemTotal") / 2;
    let mut words = vec![1u8; usize::try_from(pages).expect("guests are small") * 8];
    set("/proc/sys/vm/compact_memory", "1");
    let mut file = File::open(PATH).unwrap_or_else(|error| panic!("{PATH}: {error}"));
    let mut length = 0;
    while let Ok(read @ 1..) = file.read(&mut words[length..]) {
        length += read;
    }
    words[..length]
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
        .enumerate()
        .filter(|(_, flags)| flags & (MERGED | OTHERS) == MERGED)
        .collect()
}

/// What the kernel says of a physical page (`KPF_*`), for messages.
///
/// # Panics
/// If /proc/kpageflags cannot be read.
#[must_use]
pub fn kernel_flags(number: u64) -> u64 {
    const PATH: &str = "/proc/kpageflags";
    let mut word = [0u8; 8];
    File::open(PATH)
        .and_then(|file| file.read_exact_at(&mut word, number * 8))
        .unwrap_or_else(|error| panic!("{PATH}: {error}"));
    u64::from_ne_bytes(word)
}
