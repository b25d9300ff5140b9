//! Pages that a deduplicator in the kernel has marked read-only, to be notified of writes.
//!
//! # Source
//! XLH §4.4: hinted pages in the unstable tree.

use std::collections::HashSet;

use crate::memory::PageAddress;

/// Marked pages, and those of them that were written since the last query.
#[derive(Debug, Default)]
pub(super) struct Guards {
    pub(super) pages: HashSet<PageAddress>,
    pub(super) written: Vec<PageAddress>,
}

impl Guards {
    /// A page changes, or goes: the fault ends its mark.
    pub(super) fn changes(&mut self, place: PageAddress) {
        if !self.pages.is_empty() && self.pages.remove(&place) {
            self.written.push(place);
        }
    }
}
