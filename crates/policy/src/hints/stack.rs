//! The hints that wait: a bounded stack, of which the oldest are overwritten (XLH §4.2).
//!
//! # Problem
//! I/O comes in bursts, and a hint is worth most while it is new. A buffer that is read into again and
//! again would fill a stack with itself, and a large file with one entry for each of its blocks.
//!
//! # Approach
//! A deque: the newest at the back, from where they are taken, and the oldest at the front, where they
//! are dropped when pages or entries are too many. What continues the newest entry is added to it. What
//! is hinted again while it waits moves to the top: a small table finds the entry that begins at the same
//! page, and empties it.
//!
//! # Units
//! Pages. An entry takes 56 bytes.

use std::collections::VecDeque;

use crate::command::{Nanos, SpaceId};
use crate::convert;
use crate::hash::mix;

/// Entries at least, 3.5 MiB, and at most, 56 MiB; between, one for so many pages that are followed: most
/// hints are of a file, or of some.
const LEAST_ENTRIES: u64 = 1 << 16;
const MOST_ENTRIES: u64 = 1 << 20;
const PAGES_PER_ENTRY: u64 = 64;
/// Entries grow to so many pages, 2 MiB.
const GROWN: u64 = 512;
/// Slots of the table of what waits.
const SLOTS: usize = 1 << 12;

/// Pages of one space, half-open, numbered from address 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) from: u64,
    pub(super) to: u64,
    /// When the hint was taken in.
    pub(super) at: Nanos,
    pub(super) space: SpaceId,
    /// What its first page is in a file, see [`super::file_page`], if that is known.
    pub(super) file: Option<u64>,
    /// How often it could not be followed yet.
    pub(super) tries: u8,
}

impl Entry {
    pub(super) fn pages(&self) -> u64 {
        self.to - self.from
    }

    /// The part of it that begins so many pages later.
    pub(super) fn after(self, pages: u64) -> Entry {
        Entry {
            from: self.from + pages,
            file: self.file.map(|page| page.wrapping_add(pages)),
            ..self
        }
    }
}

/// What became of other entries when one was pushed, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pushed {
    /// That waited already.
    pub(super) again: u64,
    /// That were dropped because they were the oldest.
    pub(super) overwritten: u64,
}

/// The stack.
#[derive(Debug)]
pub(super) struct Stack {
    entries: VecDeque<Entry>,
    /// Entries ever dropped at the front: the number of the first.
    first: u64,
    pages: u64,
    room: u64,
    most_entries: u64,
    /// The number of the entry that was pushed last for a slot.
    pushed: Box<[u64]>,
}

impl Stack {
    /// An empty stack for so many pages.
    pub(super) fn new(room: u64) -> Stack {
        Stack {
            entries: VecDeque::new(),
            first: 0,
            pages: 0,
            room,
            most_entries: LEAST_ENTRIES,
            pushed: Box::default(),
        }
    }

    /// It has room for so many pages from now on, of so many that are followed.
    pub(super) fn set_room(&mut self, pages: u64, followed: u64) {
        self.room = pages;
        self.most_entries = (followed / PAGES_PER_ENTRY).clamp(LEAST_ENTRIES, MOST_ENTRIES);
    }

    /// How full it is: by pages, which time to follow them bounds, or nearly so by entries, which only memory
    /// bounds.
    pub(super) fn load(&self) -> f64 {
        let entries = self.entries.len() as u64;
        let by_entries = convert::ratio(entries, self.most_entries) / 4.0;
        convert::ratio(self.pages, self.room).max(by_entries)
    }

    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// One more hint, on top.
    pub(super) fn push(&mut self, entry: Entry) -> Pushed {
        if self.pushed.is_empty() {
            self.pushed = vec![u64::MAX; SLOTS].into();
        }
        let mut pushed = Pushed::default();
        if let Some(top) = self.entries.back_mut()
            && top.space == entry.space
            && top.tries == entry.tries
            && (top.from..=top.to).contains(&entry.from)
            && top.after(entry.from - top.from).file == entry.file
            && entry.to.max(top.to) - top.from <= GROWN
        {
            let to = top.to.max(entry.to);
            pushed.again = (entry.pages()) - (to - top.to);
            self.pages += to - top.to;
            (top.to, top.at) = (to, entry.at);
        } else {
            let slot = slot(&entry);
            let number = self.first + self.entries.len() as u64;
            let before = std::mem::replace(&mut self.pushed[slot], number);
            if let Some(waiting) = self.numbered(before)
                && (waiting.space, waiting.from) == (entry.space, entry.from)
            {
                let pages = waiting.pages();
                waiting.to = waiting.from;
                self.pages -= pages;
                pushed.again = pages.min(entry.pages());
            }
            self.pages += entry.pages();
            self.entries.push_back(entry);
        }
        while self.pages > self.room || self.entries.len() as u64 > self.most_entries {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.first += 1;
            self.pages -= oldest.pages();
            pushed.overwritten += oldest.pages();
        }
        pushed
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + size_of_val(&*self.pushed)
    }

    /// The newest hint.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        while let Some(entry) = self.entries.pop_back() {
            if entry.pages() > 0 {
                self.pages -= entry.pages();
                return Some(entry);
            }
        }
        None
    }

    /// What is left of the hint that was popped last goes back on top.
    pub(super) fn put_back(&mut self, entry: Entry) {
        self.pages += entry.pages();
        self.entries.push_back(entry);
    }

    fn numbered(&mut self, number: u64) -> Option<&mut Entry> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(at)
    }
}

fn slot(entry: &Entry) -> usize {
    let key = mix(entry.from ^ u64::from(entry.space.0) << 40);
    convert::index(convert::narrow(key >> 32)) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(from: u64, pages: u64) -> Entry {
        Entry {
            from,
            to: from + pages,
            space: SpaceId(1),
            at: 0,
            file: None,
            tries: 0,
        }
    }

    fn all(stack: &mut Stack) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| stack.pop())
            .map(|entry| (entry.from, entry.pages()))
            .collect()
    }

    #[test]
    fn the_newest_come_first_and_the_oldest_are_overwritten() {
        let mut stack = Stack::new(30);
        let pushed: Vec<Pushed> = (1..=4).map(|n| stack.push(entry(n * 100, 10))).collect();
        assert_eq!(pushed[2], Pushed::default());
        assert_eq!(pushed[3].overwritten, 10);
        assert_eq!(all(&mut stack), [(400, 10), (300, 10), (200, 10)]);
        assert!(stack.is_empty());
    }

    #[test]
    fn a_sequential_read_is_one_hint_up_to_two_mebibytes() {
        let mut stack = Stack::new(10_000);
        for n in 0..40 {
            stack.push(entry(1000 + n * 32, 32));
        }
        assert_eq!(stack.pages(), 1280);
        let entries = all(&mut stack);
        assert_eq!(entries, [(2024, 256), (1512, 512), (1000, 512)]);
    }

    #[test]
    fn what_is_hinted_again_waits_once_and_on_top() {
        let mut stack = Stack::new(1000);
        stack.push(entry(100, 8));
        stack.push(entry(500, 8));
        assert_eq!(stack.push(entry(100, 8)).again, 8);
        assert_eq!(stack.pages(), 16);
        assert_eq!(all(&mut stack), [(100, 8), (500, 8)]);
    }

    #[test]
    fn a_bounce_buffer_does_not_swamp_the_stack() {
        let mut stack = Stack::new(1 << 20);
        for n in 0..100_000 {
            stack.push(entry(100, 8));
            stack.push(entry(1000 + n, 1));
        }
        assert!(stack.entries.len() as u64 <= LEAST_ENTRIES);
        let buffers = all(&mut stack)
            .iter()
            .filter(|&&(from, _)| from == 100)
            .count();
        assert!((1..100).contains(&buffers), "{buffers}: slots are shared");
    }

    #[test]
    fn it_is_as_full_as_pages_or_entries_say() {
        let mut stack = Stack::new(0);
        stack.set_room(20_000, 0);
        for n in 0..1000 {
            stack.push(entry(n * 100, 10));
        }
        assert_eq!(stack.load(), 0.5, "little time");
        stack.set_room(1 << 30, 0);
        let short = 1000.0 / convert::float(LEAST_ENTRIES) / 4.0;
        assert_eq!(stack.load(), short, "many short hints");
        stack.set_room(1 << 20, 1 << 40);
        assert_eq!(stack.most_entries, MOST_ENTRIES, "much memory");
    }

    #[test]
    fn a_number_that_was_given_again_empties_no_other_entry() {
        let mut stack = Stack::new(1000);
        stack.push(entry(100, 8));
        stack.pop();
        stack.push(entry(500, 8));
        stack.push(entry(100, 8));
        assert_eq!(all(&mut stack), [(100, 8), (500, 8)]);
    }
}
