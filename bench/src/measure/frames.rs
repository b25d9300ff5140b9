//! The frame of each page of a mapping, read repeatedly.

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use uksm_testkit::pagemap::Pagemap;

use super::pagemap::{FrameSet, mapping_of};

/// The pages of one mapping.
pub(crate) struct Frames {
    pagemap: Pagemap,
    start: u64,
    buffer: Vec<u8>,
    pages: Vec<u64>,
}

impl Frames {
    /// The only private anonymous mapping of this process with this many pages.
    pub(crate) fn of(pid: u32, pages: usize) -> Result<Frames> {
        let start = mapping_of(pid, pages as u64 * 4096)?;
        Ok(Frames {
            pagemap: Pagemap::open(pid)?,
            start: start.with_context(|| format!("process {pid}: no mapping of {pages} pages"))?,
            buffer: Vec::new(),
            pages: vec![0; pages],
        })
    }

    /// Reads the frames of all pages.
    pub(crate) fn read(&mut self) -> Result<()> {
        let entries = self
            .pagemap
            .read(self.start, self.pages.len(), &mut self.buffer)?;
        ensure!(
            entries.len() == self.pages.len(),
            "a machine's mapping has become shorter"
        );
        for (page, entry) in self.pages.iter_mut().zip(entries) {
            *page = entry.pfn().unwrap_or(0);
        }
        let hidden = !self.pages.is_empty() && self.pages.iter().all(|&page| page == 0);
        ensure!(
            !hidden,
            "page frame numbers are hidden: run as root (CAP_SYS_ADMIN)"
        );
        Ok(())
    }

    /// The addresses of the mapping.
    pub(crate) fn addresses(&self) -> Range<u64> {
        self.start..self.start + self.pages.len() as u64 * 4096
    }

    /// The frame of each page at the last reading; 0 for one that is not in memory.
    pub(crate) fn pages(&self) -> &[u64] {
        &self.pages
    }
}

/// Pages in memory, less the frames under them. `seen` is a reused buffer.
pub(crate) fn saved_pages(mappings: &[Frames], seen: &mut FrameSet) -> usize {
    seen.clear();
    let mut saved = 0;
    for &frame in mappings.iter().flat_map(|mapping| &mapping.pages) {
        saved += usize::from(frame != 0 && !seen.insert(frame));
    }
    saved
}
