//! A mapping whose pages are filled and checked.
//!
//! # Problem
//! The pages under test are merged, remapped, protected and thrown away while a process reads and
//! writes them, and tests must speak of them by number in every process.
//!
//! # Approach
//! One private mapping at a fixed address, the same in every process, with room behind it to move
//! pages to. All access is volatile and word by word, because the kernel changes what lies under
//! the mapping. All `unsafe` of the tests' memory is here.
//!
//! # Units
//! Pages are numbered from the start of the mapping; ranges are half-open.

use std::io;
use std::ops::Range;
use std::path::Path;

use super::contents::{Content, PAGE, WORDS};

/// Where the mapping of every process under test starts: aligned to 1 GiB, used by nobody else.
pub const BASE: u64 = 0x1000_0000_0000;

/// What the kernel is told about huge pages in a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Huge {
    /// Use none.
    Never,
    /// Use them at once.
    Always,
}

impl Huge {
    /// Whether this kernel can make huge pages at all: real-time kernels cannot.
    #[must_use]
    pub fn exist() -> bool {
        Path::new("/sys/kernel/mm/transparent_hugepage").exists()
    }
}

/// Pages of this process at [`BASE`], or elsewhere for a second mapping.
#[derive(Debug)]
pub struct Memory {
    base: u64,
    pages: usize,
}

impl Memory {
    /// Maps `pages` private anonymous pages at [`BASE`], instead of what was mapped there.
    #[must_use]
    pub fn anonymous(pages: usize, huge: Huge) -> Memory {
        let memory = Memory::at(BASE, pages, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        memory.advise_huge(huge);
        memory
    }

    /// Has all of it use huge pages, or none; on a kernel that has none there is nothing to ask.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn advise_huge(&self, huge: Huge) {
        let advice = match huge {
            Huge::Never => libc::MADV_NOHUGEPAGE,
            Huge::Always => libc::MADV_HUGEPAGE,
        };
        let advised = self.advise(0..self.pages, advice);
        assert_eq!(
            advised.is_ok(),
            Huge::exist(),
            "madvise about huge pages: {advised:?}"
        );
    }

    /// Maps `pages` pages at `base` with `flags` of mmap(2) and a file, replacing what was there.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn at(base: u64, pages: usize, flags: i32, file: i32) -> Memory {
        Memory::try_at(base, pages, flags, file)
            .unwrap_or_else(|error| panic!("mmap of {pages} pages at {base:#x}: {error}"))
    }

    /// Like [`Memory::at`], for mappings that the kernel may refuse.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn try_at(base: u64, pages: usize, flags: i32, file: i32) -> io::Result<Memory> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: BASE and what tests add to it lie where nothing else is ever mapped, so that
        // only memory of an earlier `Memory` is replaced, which is used by number only.
        let mapped = unsafe {
            libc::mmap(
                pointer(base).cast(),
                pages * PAGE,
                protection,
                flags | libc::MAP_FIXED,
                file,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Memory { base, pages })
    }

    /// Pages that are mapped already, by other means.
    #[must_use]
    pub fn existing(base: u64, pages: usize) -> Memory {
        Memory { base, pages }
    }

    /// Number of pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The byte address of a page; also of one behind the mapping.
    #[must_use]
    pub fn address(&self, page: usize) -> u64 {
        self.base + (page * PAGE) as u64
    }

    /// The word of a page.
    #[must_use]
    pub fn word(&self, page: usize, word: usize) -> u64 {
        debug_assert!(word < WORDS);
        // SAFETY: the word lies in this process's mapping; volatile, since others change it.
        unsafe {
            pointer(self.address(page))
                .wrapping_add(word)
                .read_volatile()
        }
    }

    /// Sets a word of a page.
    pub fn set_word(&mut self, page: usize, word: usize, value: u64) {
        debug_assert!(word < WORDS);
        // SAFETY: the word lies in this process's mapping; volatile, since others change it.
        unsafe {
            pointer(self.address(page))
                .wrapping_add(word)
                .write_volatile(value)
        }
    }

    /// Writes `content` over a page.
    pub fn fill_page(&mut self, page: usize, content: Content) {
        for (at, word) in content.words().enumerate() {
            self.set_word(page, at, word);
        }
    }

    /// Fills all pages: page `i` holds class `i % distinct` of `seed`.
    pub fn fill(&mut self, seed: u64, distinct: usize) {
        for page in 0..self.pages {
            self.fill_page(page, Content::new(seed, (page % distinct) as u64));
        }
    }

    /// Whether a page holds exactly `content`.
    #[must_use]
    pub fn holds(&self, page: usize, content: Content) -> bool {
        content
            .words()
            .enumerate()
            .all(|(at, word)| self.word(page, at) == word)
    }

    /// Whether a page holds only zeros.
    #[must_use]
    pub fn is_zero(&self, page: usize) -> bool {
        (0..WORDS).all(|at| self.word(page, at) == 0)
    }

    /// How many of `pages` do not hold what [`Memory::fill`] wrote.
    #[must_use]
    pub fn changed(&self, seed: u64, distinct: usize, pages: Range<usize>) -> usize {
        pages
            .filter(|&page| !self.holds(page, Content::new(seed, (page % distinct) as u64)))
            .count()
    }

    /// How many of `pages` hold something else than zeros.
    #[must_use]
    pub fn nonzero(&self, pages: Range<usize>) -> usize {
        pages.filter(|&page| !self.is_zero(page)).count()
    }

    /// Turns some bits of each page over; done twice, the contents are the old ones.
    pub fn flip(&mut self, pages: Range<usize>) {
        for page in pages {
            let word = 1 + page % (WORDS - 1);
            self.set_word(page, word, self.word(page, word) ^ 0x5A00);
        }
    }

    /// madvise(2).
    ///
    /// # Errors
    /// What madvise says.
    pub fn advise(&self, pages: Range<usize>, advice: i32) -> io::Result<()> {
        // SAFETY: the range is this process's own mapping, whose contents nothing relies on but
        // the tests, which know what the advice does.
        answer(unsafe {
            libc::madvise(
                pointer(self.address(pages.start)).cast(),
                pages.len() * PAGE,
                advice,
            )
        })
    }

    /// mprotect(2).
    ///
    /// # Errors
    /// What mprotect says.
    pub fn protect(&self, pages: Range<usize>, protection: i32) -> io::Result<()> {
        // SAFETY: as in `advise`; a test that touches a protected page dies visibly.
        answer(unsafe {
            libc::mprotect(
                pointer(self.address(pages.start)).cast(),
                pages.len() * PAGE,
                protection,
            )
        })
    }

    /// mlock(2).
    ///
    /// # Errors
    /// What mlock says.
    pub fn lock(&self, pages: Range<usize>) -> io::Result<()> {
        // SAFETY: the range is this process's own mapping.
        answer(unsafe {
            libc::mlock(
                pointer(self.address(pages.start)).cast(),
                pages.len() * PAGE,
            )
        })
    }

    /// munlock(2).
    ///
    /// # Errors
    /// What munlock says.
    pub fn unlock(&self, pages: Range<usize>) -> io::Result<()> {
        // SAFETY: the range is this process's own mapping.
        answer(unsafe {
            libc::munlock(
                pointer(self.address(pages.start)).cast(),
                pages.len() * PAGE,
            )
        })
    }

    /// munmap(2).
    ///
    /// # Errors
    /// What munmap says.
    pub fn unmap(&self, pages: Range<usize>) -> io::Result<()> {
        // SAFETY: as in `advise`; a test that touches an unmapped page dies visibly.
        answer(unsafe {
            libc::munmap(
                pointer(self.address(pages.start)).cast(),
                pages.len() * PAGE,
            )
        })
    }

    /// Moves `pages` to where page `to` is or would be, and what was there goes.
    ///
    /// # Errors
    /// What mremap(2) says.
    pub fn relocate(&self, pages: Range<usize>, to: usize) -> io::Result<()> {
        let (old, new) = (
            pointer(self.address(pages.start)),
            pointer(self.address(to)),
        );
        let (length, flags) = (
            pages.len() * PAGE,
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
        );
        // SAFETY: as in `try_at`: both ranges belong to the tests alone.
        let moved = unsafe {
            libc::mremap(
                old.cast(),
                length,
                length,
                flags,
                new.cast::<libc::c_void>(),
            )
        };
        if moved == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Cuts a mapping down to its first `kept` pages.
    ///
    /// # Errors
    /// What mremap(2) says.
    pub fn shrink(&self, pages: Range<usize>, kept: usize) -> io::Result<()> {
        let old = pointer(self.address(pages.start));
        // SAFETY: as in `try_at`: the range belongs to the tests alone.
        let shrunk = unsafe { libc::mremap(old.cast(), pages.len() * PAGE, kept * PAGE, 0) };
        if shrunk == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// The pages as an I/O vector, for calls that take addresses.
    #[must_use]
    pub fn vector(&self, pages: Range<usize>) -> libc::iovec {
        libc::iovec {
            iov_base: pointer(self.address(pages.start)).cast(),
            iov_len: pages.len() * PAGE,
        }
    }
}

/// The pointer to an address that the tests chose themselves.
fn pointer(address: u64) -> *mut u64 {
    let address = usize::try_from(address).expect("guests are 64-bit");
    std::ptr::with_exposed_provenance_mut(address)
}

/// The result of a call that answers -1 and sets errno.
pub fn answer(result: i32) -> io::Result<()> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
