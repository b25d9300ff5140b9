//! Expected contents of pages of files: the hash that a page of the same place had last.
//!
//! # Problem
//! Two processes that read the same block of the same file, or of two files that are copies, are
//! partners before a byte of the second page is read (design.md §4). To sample that page first
//! costs half as much as to compare it.
//!
//! # Approach
//! A page that was sampled for a hint gives the hash of its place in files. The next page of that
//! place is not sampled: it goes to the module as equal to the page with this hash, a frame or an
//! unmerged page, and the module compares. A page that differs is sampled after all. While more
//! than one in [`MAX_WRONG_DIVISOR`] differ only one in [`TRIED_DIVISOR`] is compared, because a
//! comparison in vain costs more than a sample.
//!
//! Places are direct-mapped: two places of one slot replace each other. When there is room for more
//! slots all are forgotten, which happens while a host fills.
//!
//! Without it: at governor quiet, beside a backup, 72 % of what two guests read is shared over a
//! minute instead of 84. Where there is time it costs 5 % more processor time.
//!
//! # Units
//! A slot takes 12 bytes.

use crate::convert;
use crate::mix::mix;

/// Bounds of the number of slots; the upper one is for 1 GiB of files.
const MIN_SLOTS: u64 = 1 << 10;
const MAX_SLOTS: u64 = 1 << 18;
/// Bytes of a slot.
const SLOT_BYTES: u64 = 12;
/// One expectation in this number may be wrong.
const MAX_WRONG_DIVISOR: u32 = 8;
/// While more are wrong, one in this number is still tried.
const TRIED_DIVISOR: u32 = 16;
/// At this number of outcomes both counts are halved, so that recent outcomes count for more.
const OUTCOMES: u32 = 512;

/// The hashes of places.
#[derive(Debug)]
pub(super) struct ExpectedContents {
    /// A part of the number of each slot's place; 0 for an empty slot.
    tags: Box<[u32]>,
    hashes: Box<[u64]>,
    /// The strength of the hashes.
    strength: u16,
    /// Pages compared with their expected contents, and the number of them that differed.
    tried: u32,
    wrong: u32,
    /// Number of successive hints that were not compared.
    passed: u32,
}

impl ExpectedContents {
    pub(super) fn new() -> ExpectedContents {
        ExpectedContents {
            tags: Box::default(),
            hashes: Box::default(),
            strength: 0,
            tried: 0,
            wrong: 0,
            passed: 0,
        }
    }

    /// Sets the limit of memory in bytes, and the strength of hashes: those of another strength are
    /// forgotten.
    pub(super) fn fit(&mut self, bytes: u64, strength: u16) {
        let slots = (bytes / SLOT_BYTES).clamp(MIN_SLOTS, MAX_SLOTS);
        let slots = convert::index(1 << slots.ilog2());
        if slots > self.tags.len() {
            self.tags = vec![0; slots].into();
            self.hashes = vec![0; slots].into();
        } else if self.strength != strength {
            self.tags.fill(0);
        }
        self.strength = strength;
    }

    /// Memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.tags) + size_of_val(&*self.hashes)
    }

    /// The page at this place, as [`super::file_page`] numbers them, has this hash.
    pub(super) fn note(&mut self, place: u64, hash: u64) {
        let (slot, tag) = self.slot(place);
        (self.tags[slot], self.hashes[slot]) = (tag, hash);
    }

    /// The page at this place differed from its expected contents.
    pub(super) fn forget(&mut self, place: u64) {
        let (slot, tag) = self.slot(place);
        if self.tags[slot] == tag {
            self.tags[slot] = 0;
        }
    }

    /// The hash that the page at this place is expected to have.
    pub(super) fn hash(&self, place: u64) -> Option<u64> {
        let (slot, tag) = self.slot(place);
        (self.tags[slot] == tag).then(|| self.hashes[slot])
    }

    /// Whether the next pages are to be compared with their expected contents.
    pub(super) fn is_worth(&mut self) -> bool {
        if self.wrong * MAX_WRONG_DIVISOR <= self.tried.max(OUTCOMES / 8) {
            return true;
        }
        self.passed = (self.passed + 1) % TRIED_DIVISOR;
        self.passed == 0
    }

    /// A page was compared with its expected contents.
    pub(super) fn tried(&mut self, is_right: bool) {
        self.tried += 1;
        self.wrong += u32::from(!is_right);
        if self.tried >= OUTCOMES {
            self.tried /= 2;
            self.wrong /= 2;
        }
    }

    /// The slot of a place, and its tag there.
    fn slot(&self, place: u64) -> (usize, u32) {
        let key = mix(place);
        // Slots are a power of two, and fewer than 2^32.
        let slot = convert::index(convert::narrow(key >> 32)) & (self.tags.len() - 1);
        (slot, convert::narrow(key & 0xFFFF_FFFF).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(bytes: u64) -> ExpectedContents {
        let mut expected = ExpectedContents::new();
        expected.fit(bytes, 4);
        expected
    }

    #[test]
    fn a_place_is_expected_to_hold_what_it_held_last() {
        let mut expected = expected(0);
        assert_eq!(expected.hash(7), None);
        expected.note(7, 70);
        expected.note(8, 80);
        expected.note(7, 71);
        assert_eq!((expected.hash(7), expected.hash(8)), (Some(71), Some(80)));
        assert_eq!(expected.hash(9), None);
    }

    #[test]
    fn hashes_of_another_strength_are_forgotten() {
        let mut expected = expected(0);
        expected.note(7, 70);
        expected.fit(0, 4);
        assert_eq!(expected.hash(7), Some(70));
        expected.fit(0, 5);
        assert_eq!(expected.hash(7), None);
    }

    #[test]
    fn it_takes_no_more_than_it_may_and_replaces_what_it_has_no_room_for() {
        let mut expected = expected(100_000);
        assert!((50_000..=100_000).contains(&expected.bytes()));
        for place in 0..100_000 {
            expected.note(place, place);
        }
        let known = (0..100_000).filter(|&place| expected.hash(place) == Some(place));
        assert!((4000..=8192).contains(&known.count()));
        let wrong = (0..100_000).filter(|&at| expected.hash(at).is_some_and(|hash| hash != at));
        assert_eq!(wrong.count(), 0, "tags tell places apart");
    }

    #[test]
    fn while_expectations_are_wrong_few_are_tried() {
        let mut expected = expected(0);
        let worth =
            |expected: &mut ExpectedContents| (0..64).filter(|_| expected.is_worth()).count();
        (0..100).for_each(|_| expected.tried(true));
        assert_eq!(worth(&mut expected), 64);
        (0..100).for_each(|_| expected.tried(false));
        assert_eq!(worth(&mut expected), 4);
        (0..2000).for_each(|_| expected.tried(true));
        assert_eq!(worth(&mut expected), 64);
    }
}
