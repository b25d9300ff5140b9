//! The record of the pages of a region that were merged, or should have been.
//!
//! # Problem
//! Hardly any of the tens of thousands of small regions of an idle host has a page that was merged.
//!
//! # Approach
//! The record is allocated with the first page that is merged, or was busy when it should be; and
//! when a region has to wait, because promotions led to no merges, its pages are refused, or its
//! mapping is lost.

use super::backoff::Backoff;
use super::cow::Cow;
use super::merged_pages::MergedPages;
use super::write_watch::WriteWatch;
use crate::command::Nanos;

/// The record of the pages of one region that were merged, or should have been.
#[derive(Debug, Clone, Default)]
pub(super) struct MergeRecord {
    pub(super) pages: Option<MergedPages>,
    /// Pages merged so far.
    pub(super) merges: u64,
    /// Pages that were busy when tried.
    pub(super) busy: u64,
    /// Merged pages that were given back, and not read since.
    pub(super) given_back: u32,
    pub(super) cow: Cow,
    pub(super) watch: Option<Box<WriteWatch>>,
    pub(super) backoff: Backoff,
    /// Since when its mapping is lost, or until when its refusal holds.
    pub(super) since: Nanos,
}

impl MergeRecord {
    /// Whether the record of a region on the ladder is empty; `cow` needs no test, because broken
    /// pages were merged before.
    pub(super) fn is_empty(&self) -> bool {
        let was_any_tried = self.pages.is_some() || self.merges + self.busy > 0;
        !was_any_tried && self.watch.is_none() && self.backoff == Backoff::default()
    }

    /// Sets its number of pages.
    pub(super) fn resize(&mut self, pages: u32) {
        if let Some(merged) = &mut self.pages {
            merged.resize(pages);
        }
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<MergeRecord>()
            + self.pages.as_ref().map_or(0, MergedPages::bytes)
            + self.watch.as_ref().map_or(0, |watch| watch.bytes())
    }
}
