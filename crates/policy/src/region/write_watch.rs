//! Watches a region that is left alone because it is written: when the writes end, it is tried or
//! read again.
//!
//! # Problem
//! A program that starts, or loads, writes its pages again and again, and then never more. Pages
//! merged meanwhile were broken, so its regions are left alone: for some time, and each time for
//! twice as long, though a moment after the last write all of them could be merged for good. The
//! same holds for written regions that were read again too often in vain (`rewrite_detector.rs`).
//!
//! # Approach
//! Some pages of the region are read, and their hashes kept; after some time the same pages are
//! read again. If none has changed, the region is tried: merging on trial shows whether the hashes,
//! which cover a part of each page, were right. The interval is chosen so that a region of which
//! V_cow is written in a round looks unwritten in only 2 % (e^-4) of looks; it doubles with each
//! strike from the second on, as the ban does, so that a ban costs only some looks. Where pages
//! merged on trial are broken nevertheless, with unchanged hashes, as where memory is written with
//! its own contents, the region is watched no more until a trial has held.
//!
//! # Units
//! Nanoseconds; shares 0 to 1, a round. A watched region takes 16 bytes for each of at most
//! [`WATCHED_PAGES`] pages.
//!
//! # Source
//! In-kernel KSM leaves pages alone whose checksum changes from scan to scan, for the same reason.

use crate::command::Nanos;
use crate::convert;

/// Limit of pages of a region that are watched.
pub(crate) const WATCHED_PAGES: u32 = 16;
/// The value used for V_cow where the COW filter is off.
pub(super) const USUAL_V_COW: f64 = 0.5;
/// Expected number of watched pages that are written between two looks, where V_cow is written in a
/// round.
const EXPECTED_WRITES: f64 = 4.0;
/// Limit of the writes to a page in a round that follow from V_cow.
const MAX_WRITES: f64 = 4.0;

/// The time for which `pages` pages have to be watched for [`EXPECTED_WRITES`] of them to be
/// written, where `v_cow` of a region's pages is written in a round.
pub(crate) fn telling(pages: u32, v_cow: f64, round: Nanos) -> Nanos {
    let writes = (-(1.0 - v_cow).max(0.0).ln()).min(MAX_WRITES);
    convert::nanos(convert::float(round) * EXPECTED_WRITES / (f64::from(pages.max(1)) * writes))
}

/// The pages of one region that are watched.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteWatch {
    /// Pages, and the hash of each at the last look.
    pages: Vec<(u32, u64)>,
    /// Time of the next look.
    next: Nanos,
    /// Pages of this look that are still to be read.
    awaited: u32,
    /// Whether this look is the first, or a page was written since the last.
    is_written: bool,
    /// The result of the last look, until it is taken: whether no page was written.
    is_calm: Option<bool>,
}

impl WriteWatch {
    /// Whether the time of the next look is still to come: an earlier one would show fewer writes.
    pub(super) fn waits(&self, now: Nanos) -> bool {
        now < self.next
    }

    /// Begins a look at these pages, which are the same each time; the `next` look is due then.
    pub(super) fn look(&mut self, pages: &[u32], next: Nanos) {
        self.next = next;
        self.is_written = self.pages.is_empty() || self.awaited > 0;
        self.awaited = convert::narrow(pages.len() as u64);
    }

    /// A page was read, with this hash.
    pub(super) fn saw(&mut self, page: u32, content: u64) {
        match self.pages.iter_mut().find(|(known, _)| *known == page) {
            Some((_, held)) => self.is_written |= std::mem::replace(held, content) != content,
            None => {
                self.pages.push((page, content));
                self.is_written = true;
            }
        }
        self.awaited = self.awaited.saturating_sub(1);
        self.is_calm = (self.awaited == 0).then_some(!self.is_written);
    }

    /// Whether no page was written: once for each look, when all its pages were read.
    pub(super) fn take_calm(&mut self) -> Option<bool> {
        self.is_calm.take()
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<WriteWatch>() + self.pages.capacity() * size_of::<(u32, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::SECOND;

    fn look(watch: &mut WriteWatch, contents: &[u64]) -> bool {
        let pages: Vec<u32> = (0..).take(contents.len()).collect();
        watch.look(&pages, 0);
        for (&page, &content) in pages.iter().zip(contents) {
            watch.saw(page, content);
        }
        watch.take_calm() == Some(true)
    }

    #[test]
    fn it_is_calm_when_two_looks_in_a_row_show_the_same() {
        let mut watch = WriteWatch::default();
        assert!(!look(&mut watch, &[1, 2, 3]), "the first");
        assert!(!look(&mut watch, &[1, 2, 4]));
        assert!(!look(&mut watch, &[1, 5, 4]));
        assert!(look(&mut watch, &[1, 5, 4]));
    }

    #[test]
    fn a_look_that_was_cut_short_says_nothing() {
        let mut watch = WriteWatch::default();
        look(&mut watch, &[1, 2]);
        watch.look(&[0, 1], 0);
        watch.saw(0, 1);
        assert_eq!(watch.take_calm(), None);
        assert!(!look(&mut watch, &[1, 2]), "the last was not whole");
        assert!(look(&mut watch, &[1, 2]));
    }

    #[test]
    fn fewer_pages_and_stricter_bounds_take_longer() {
        let round = 8 * SECOND;
        let seconds = |pages, v_cow| telling(pages, v_cow, round) / SECOND;
        assert_eq!((seconds(16, 0.5), seconds(8, 0.5)), (2, 5));
        assert_eq!((seconds(16, 0.1), seconds(1, 0.5)), (18, 46));
        assert_eq!(seconds(16, 1.0), 0);
    }
}
