//! What the kernel does for a page, each alone: code with locks, branches and structures, of which
//! less is done at a time than of a loop over a page.

use super::anonymous::Anonymous;
use crate::contents::PAGE;
use anyhow::{Context, Result};
use rustix::mm::Advice;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Pages of the mapping.
const PAGES: usize = 512;

/// What the kernel is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// A system call that does next to nothing.
    Call,
    /// What a page table says of a page, of 512 in a call.
    Walk,
    /// A page is taken away, of 512 in a call, and comes back by a fault, as a new one.
    Fault,
}

impl Request {
    /// All.
    pub(super) const ALL: [Request; 3] = [Request::Call, Request::Walk, Request::Fault];

    /// Its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Request::Call => "call",
            Request::Walk => "walk",
            Request::Fault => "fault",
        }
    }
}

/// A mapping of small pages, and what tells of it.
#[derive(Debug)]
pub(super) struct Mapping {
    memory: Anonymous,
    pagemap: File,
    entries: Vec<u8>,
}

impl Mapping {
    /// All its pages are there.
    ///
    /// # Errors
    /// No memory, or no `/proc`.
    pub(super) fn new() -> Result<Mapping> {
        let mapping = Mapping {
            memory: Anonymous::new(PAGES * PAGE, Advice::LinuxNoHugepage)?,
            pagemap: File::open("/proc/self/pagemap").context("cannot open /proc/self/pagemap")?,
            entries: vec![0; PAGES * 8],
        };
        mapping.touch();
        Ok(mapping)
    }

    fn touch(&self) {
        for page in 0..PAGES {
            // SAFETY: it lies in the mapping.
            let first = unsafe { self.memory.start().add(page * PAGE) };
            // SAFETY: nobody has a reference into the mapping. Volatile: nobody reads it.
            unsafe { first.write_volatile(1) };
        }
    }

    /// Asks for so many pages, or a whole number of mappings that is at least that.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn ask(&mut self, request: Request, count: usize) -> Result<()> {
        if request == Request::Call {
            for _ in 0..count {
                std::hint::black_box(rustix::process::getppid());
            }
            return Ok(());
        }
        for _ in 0..count.div_ceil(PAGES) {
            if request == Request::Walk {
                let at = self.memory.start().as_ptr() as u64 / PAGE as u64 * 8;
                self.pagemap
                    .read_exact_at(&mut self.entries, at)
                    .context("cannot read /proc/self/pagemap")?;
            } else {
                self.memory.take_away()?;
                self.touch();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_told_of_and_come_back() {
        let mut mapping = Mapping::new().unwrap();
        for request in Request::ALL {
            mapping.ask(request, PAGES + 1).unwrap();
        }
        let is_present = |entry: &[u8]| entry[7] & 0x80 != 0;
        assert!(mapping.entries.chunks_exact(8).all(is_present));
    }
}
