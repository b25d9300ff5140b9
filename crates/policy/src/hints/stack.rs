//! The waiting hints of one space: a stack whose oldest can be dropped (XLH §4.2).
//!
//! # Problem
//! I/O comes in bursts, and a hint is worth most while it is new. A large file would fill a stack
//! with one entry for each of its blocks.
//!
//! # Approach
//! A deque: the newest are at the back, where they are taken, and the oldest at the front, where
//! they are dropped. A hint that continues the newest entry is added to it. Entries are numbered,
//! so that a waiting one can be emptied when its hint comes again.
//!
//! # Units
//! Pages. An entry takes 56 bytes.

use std::collections::VecDeque;

use super::file_yield::Origin;
use crate::command::{Nanos, SpaceId};

/// Limit of the growth of an entry, 2 MiB.
const MAX_ENTRY_PAGES: u64 = 512;

/// Pages of one space, half-open, numbered from address 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitingHint {
    pub(super) from: u64,
    pub(super) to: u64,
    /// The time when the hint was taken in.
    pub(super) at: Nanos,
    pub(super) space: SpaceId,
    /// The place of its first page in a file, see [`super::file_page`], if known.
    pub(super) file: Option<u64>,
    /// The file and the direction.
    pub(super) origin: Origin,
    /// Number of tries at which it could not be followed yet.
    pub(super) tries: u8,
}

impl WaitingHint {
    pub(super) fn pages(&self) -> u64 {
        self.to - self.from
    }

    /// The part of it that begins `pages` pages later.
    pub(super) fn after(self, pages: u64) -> WaitingHint {
        WaitingHint {
            from: self.from + pages,
            file: self.file.map(|page| page.wrapping_add(pages)),
            ..self
        }
    }

    /// Whether `next` goes on where this entry ends, or in it, in memory and in the file.
    fn is_continued_by(&self, next: &WaitingHint) -> bool {
        (self.tries, self.origin) == (next.tries, next.origin)
            && (self.from..=self.to).contains(&next.from)
            && self.after(next.from - self.from).file == next.file
            && next.to.max(self.to) - self.from <= MAX_ENTRY_PAGES
    }
}

/// The stack of one space.
#[derive(Debug, Default)]
pub(super) struct Stack {
    entries: VecDeque<WaitingHint>,
    /// Number of entries ever dropped at the front, which is the number of the first.
    first: u64,
    pages: u64,
}

impl Stack {
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Number of entries, with the emptied ones.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Its pages, or its entries.
    pub(super) fn fullness(&self, by_pages: bool) -> u64 {
        if by_pages {
            self.pages
        } else {
            self.entries.len() as u64
        }
    }

    /// Memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<WaitingHint>()
    }

    /// Adds `entry` to the newest entry, if it continues that; returns its pages that waited
    /// already.
    pub(super) fn join(&mut self, entry: &WaitingHint) -> Option<u64> {
        let top = self
            .entries
            .back_mut()
            .filter(|top| top.is_continued_by(entry))?;
        let to = top.to.max(entry.to);
        let more = to - top.to;
        (top.to, top.at) = (to, entry.at);
        self.pages += more;
        Some(entry.pages() - more)
    }

    /// Pushes an entry on top; returns its number.
    pub(super) fn push(&mut self, entry: WaitingHint) -> u64 {
        let number = self.first + self.entries.len() as u64;
        self.pages += entry.pages();
        self.entries.push_back(entry);
        number
    }

    /// Empties the entry of this number, if it begins at this page; returns its pages.
    pub(super) fn empty(&mut self, number: u64, from: u64) -> u64 {
        let at = number.checked_sub(self.first).map(usize::try_from);
        let Some(Ok(at)) = at else {
            return 0;
        };
        let Some(waiting) = self.entries.get_mut(at).filter(|w| w.from == from) else {
            return 0;
        };
        let pages = waiting.pages();
        waiting.to = waiting.from;
        self.pages -= pages;
        pages
    }

    /// The newest entry, which may be empty.
    pub(super) fn pop(&mut self) -> Option<WaitingHint> {
        let entry = self.entries.pop_back()?;
        self.pages -= entry.pages();
        Some(entry)
    }

    /// Drops the oldest entry; returns its pages.
    pub(super) fn drop_oldest(&mut self) -> Option<u64> {
        let oldest = self.entries.pop_front()?;
        self.first += 1;
        self.pages -= oldest.pages();
        Some(oldest.pages())
    }
}
