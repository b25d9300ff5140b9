//! The private and present pages of a process.
//!
//! # Approach
//! `/proc/PID/pagemap` has an entry for each page. Bit 63 means that the page is present, bit 62
//! that it is swapped out or being moved, bit 61 that it is of a file or of shared memory, bit 56
//! that no other process maps it. The kernel's page of zeros is present, of no file, and has
//! several mappings. A page that is swapped out is not present.
//!
//! # Source
//! `Documentation/admin-guide/mm/pagemap.rst` of the kernel.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use uksm_policy::command::PAGE_SIZE;

use crate::proc::{self, Proc};

pub(crate) const PRESENT: u64 = 1 << 63;
pub(crate) const SWAPPED: u64 = 1 << 62;
pub(crate) const FILE: u64 = 1 << 61;
pub(crate) const EXCLUSIVE: u64 = 1 << 56;

/// Bytes of a page's entry.
const WORD: usize = 8;

/// The open file.
#[derive(Debug)]
pub(crate) struct Pagemap {
    file: File,
    path: PathBuf,
    pid: u32,
}

impl Pagemap {
    /// Opens the pagemap of a process.
    ///
    /// # Errors
    /// Gone, or no right.
    pub(crate) fn of(proc: &Proc, pid: u32) -> proc::Result<Pagemap> {
        Ok(Pagemap {
            file: proc.open(pid, "pagemap")?,
            path: proc.path(pid, "pagemap"),
            pid,
        })
    }

    /// The entry of one page.
    ///
    /// # Errors
    /// The process ended, or has another address space.
    pub(crate) fn word(&self, address: u64) -> proc::Result<u64> {
        let mut word = [0; WORD];
        let place = address / PAGE_SIZE * WORD as u64;
        self.file
            .read_exact_at(&mut word, place)
            .map_err(|source| self.failed(source))?;
        Ok(u64::from_le_bytes(word))
    }

    fn failed(&self, source: std::io::Error) -> proc::Error {
        match source.kind() {
            // The address space is gone.
            ErrorKind::UnexpectedEof => proc::Error::Gone { pid: self.pid },
            _ => proc::Error::Read {
                path: self.path.clone(),
                source,
            },
        }
    }

    /// The private pages that are present in a range, ascending: the address, and whether another
    /// process maps it.
    ///
    /// # Errors
    /// The process ended, or has another address space.
    pub(crate) fn private(
        &self,
        start: u64,
        end: u64,
    ) -> proc::Result<impl Iterator<Item = (u64, bool)> + use<>> {
        let pages = usize::try_from((end - start) / PAGE_SIZE).unwrap_or(0);
        let mut words = vec![0; pages * WORD];
        let place = start / PAGE_SIZE * WORD as u64;
        self.file
            .read_exact_at(&mut words, place)
            .map_err(|source| self.failed(source))?;
        Ok((0..pages).filter_map(move |page| {
            let word = words[page * WORD..][..WORD].try_into();
            let word = word.map_or(0, u64::from_le_bytes);
            let private = word & PRESENT != 0 && word & FILE == 0;
            let address = start + page as u64 * PAGE_SIZE;
            private.then_some((address, word & EXCLUSIVE == 0))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_pages_that_are_present_are_distinguished_from_all_others() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("7")).unwrap();
        let words = [
            0,
            PRESENT | EXCLUSIVE,
            PRESENT,
            PRESENT | FILE | EXCLUSIVE,
            1 << 62,
        ];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        std::fs::write(root.path().join("7/pagemap"), bytes).unwrap();
        let pagemap = Pagemap::of(&Proc::at(root.path()), 7).unwrap();
        let pages: Vec<_> = pagemap.private(0, 5 * PAGE_SIZE).unwrap().collect();
        assert_eq!(pages, [(PAGE_SIZE, false), (2 * PAGE_SIZE, true)]);
        let beyond = pagemap.private(4 * PAGE_SIZE, 6 * PAGE_SIZE).map(|_| ());
        assert!(matches!(beyond, Err(proc::Error::Gone { pid: 7 })));
    }
}
