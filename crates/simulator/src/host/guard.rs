//! Pages that a deduplicator in the kernel has marked read-only, to be notified of writes.
//!
//! # Source
//! XLH §4.4: hinted pages in the unstable tree.

use std::collections::HashSet;

use super::Host;
use super::in_kernel::PageAddress;

/// Marked pages, and those of them that were written since the last query.
#[derive(Debug, Default)]
pub(super) struct Guards {
    pages: HashSet<PageAddress>,
    written: Vec<PageAddress>,
}

impl Guards {
    /// A page changes, or goes: the fault ends its mark.
    pub(super) fn changes(&mut self, place: PageAddress) {
        if !self.pages.is_empty() && self.pages.remove(&place) {
            self.written.push(place);
        }
    }
}

impl Host {
    /// Marks a page read-only, until it is written.
    pub(crate) fn guard(&mut self, place: PageAddress) {
        self.guards.pages.insert(place);
    }

    /// The marked pages that were written since the last call, in the order of the writes.
    pub(crate) fn take_faults(&mut self) -> Vec<PageAddress> {
        std::mem::take(&mut self.guards.written)
    }
}
