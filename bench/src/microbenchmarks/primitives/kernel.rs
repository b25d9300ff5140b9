//! The kernel's operations on a page, each alone: code with locks, branches and structures, which
//! runs fewer instructions at a time than a loop over a page.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use rustix::mm::Advice;

use super::anonymous::AnonymousMapping;
use crate::contents::PAGE;

/// Pages of the mapping.
const PAGES: usize = 512;

/// A request to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// A system call that does next to nothing.
    Call,
    /// The page-table state of a page, for 512 in a call.
    Walk,
    /// A page is taken away, 512 in a call, and comes back by a fault, as a new one.
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

/// A mapping of small pages, and the file that describes it.
#[derive(Debug)]
pub(super) struct SmallPageMapping {
    memory: AnonymousMapping,
    pagemap: File,
    entries: Vec<u8>,
}

impl SmallPageMapping {
    /// A mapping with all its pages present.
    ///
    /// # Errors
    /// No memory, or no `/proc`.
    pub(super) fn new() -> Result<SmallPageMapping> {
        let mapping = SmallPageMapping {
            memory: AnonymousMapping::new(PAGES * PAGE, Advice::LinuxNoHugepage)?,
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
            // SAFETY: there is no reference into the mapping. Volatile: the value is never read.
            unsafe { first.write_volatile(1) };
        }
    }

    /// Makes requests for `count` pages, rounded up to whole mappings.
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
        let mut mapping = SmallPageMapping::new().unwrap();
        for request in Request::ALL {
            mapping.ask(request, PAGES + 1).unwrap();
        }
        let is_present = |entry: &[u8]| entry[7] & 0x80 != 0;
        assert!(mapping.entries.chunks_exact(8).all(is_present));
    }
}
