//! The page frames of a process, from `/proc/PID/pagemap`.
//!
//! Only page tables show whether two pages are one. The kernel shows page frame numbers (PFNs) to
//! root only, elsewhere they are 0.
//!
//! # Source
//! Documentation/admin-guide/mm/pagemap.rst of the kernel.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use crate::kernel_file::at_path;

const PAGE_SIZE: u64 = 4096;
const ENTRY_BYTES: usize = 8;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FILE: u64 = 1 << 61;
const WRITE_PROTECTED: u64 = 1 << 57;
const SOFT_DIRTY: u64 = 1 << 55;
const PFN_MASK: u64 = (1 << 55) - 1;

/// The entry of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagemapEntry(u64);

impl PagemapEntry {
    /// The entry with these bits of the file.
    #[must_use]
    pub fn from_bits(bits: u64) -> PagemapEntry {
        PagemapEntry(bits)
    }

    /// The page frame, if one is mapped.
    #[must_use]
    pub fn pfn(self) -> Option<u64> {
        (self.0 & PRESENT != 0).then_some(self.0 & PFN_MASK)
    }

    /// Whether the page is in swap.
    #[must_use]
    pub fn is_swapped(self) -> bool {
        self.0 & SWAPPED != 0
    }

    /// Whether the page counts as file or shared memory.
    #[must_use]
    pub fn is_file(self) -> bool {
        self.0 & FILE != 0
    }

    /// Whether userfaultfd has write-protected the page.
    #[must_use]
    pub fn is_write_protected(self) -> bool {
        self.0 & WRITE_PROTECTED != 0
    }

    /// Whether the page was written since the soft-dirty bits were cleared.
    #[must_use]
    pub fn is_soft_dirty(self) -> bool {
        self.0 & SOFT_DIRTY != 0
    }
}

/// The open page map of a process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    path: PathBuf,
}

impl Pagemap {
    /// Opens the page map of a process.
    ///
    /// # Errors
    /// The process is gone (`NotFound`), or no right.
    pub fn open(pid: u32) -> io::Result<Pagemap> {
        let path = PathBuf::from(format!("/proc/{pid}/pagemap"));
        let file = File::open(&path).map_err(|error| at_path(&path, &error))?;
        Ok(Pagemap { file, path })
    }

    /// The entries of this number of pages from `address` on; fewer where the address space ends.
    /// `buffer` is reused.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read<'buffer>(
        &self,
        address: u64,
        pages: usize,
        buffer: &'buffer mut Vec<u8>,
    ) -> io::Result<impl ExactSizeIterator<Item = PagemapEntry> + use<'buffer>> {
        buffer.resize(pages * ENTRY_BYTES, 0);
        let first_byte = address / PAGE_SIZE * ENTRY_BYTES as u64;
        let mut length = 0;
        while length < buffer.len() {
            let offset = first_byte + length as u64;
            match self.file.read_at(&mut buffer[length..], offset) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(at_path(&self.path, &error)),
            }
        }
        let entries = buffer[..length].chunks_exact(ENTRY_BYTES);
        Ok(entries
            .map(|entry| PagemapEntry(u64::from_ne_bytes(entry.try_into().expect("8 bytes")))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_pages_are_present_and_untouched_ones_are_not() {
        let mut map = memmap2::MmapMut::map_anon(8 * 4096).unwrap();
        // A huge page would bring in the others.
        map.advise(memmap2::Advice::NoHugePage).unwrap();
        map[2 * 4096] = 1;
        let pagemap = Pagemap::open(std::process::id()).unwrap();
        let mut buffer = Vec::new();
        let entries = pagemap.read(map.as_ptr().addr() as u64, 8, &mut buffer);
        let present: Vec<bool> = entries
            .unwrap()
            .map(|entry| entry.pfn().is_some())
            .collect();
        assert_eq!(present.len(), 8);
        assert_eq!(present.iter().position(|&is| is), Some(2));
        assert_eq!(present.iter().filter(|&&is| is).count(), 1);
    }

    #[test]
    fn a_process_that_is_gone_has_no_page_map() {
        let error = Pagemap::open(u32::MAX >> 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
