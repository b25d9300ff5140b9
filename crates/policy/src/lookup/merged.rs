//! The index of merged pages: exact, one entry a frame.
//!
//! # Problem
//! A page that equals a frame must always find it: each miss loses a saving and makes a second
//! frame of the same contents. Several frames can have one hash, because a frame takes a limited
//! number of sharers, or because a weak hash does not distinguish their contents.
//!
//! # Approach
//! Entries lie in a table by the number of their frame ([`FrameTable`]) and are chained by hash, in
//! both directions, so that an entry is removed at constant cost even if many share its hash. A
//! frame without room for sharers is in no chain: thousands of full frames of one content cost a
//! lookup nothing. There are as many chain heads as entries; they are added one by one, by linear
//! hashing: a new head takes its part of one chain. With millions of frames, rebuilding all chains
//! would block the engine for a tenth of a second and more. No entry is ever moved.
//!
//! Contents of a frame never change, so a change of strength shifts its hash by a difference that
//! the machine reports: [`MergedIndex::shift`].
//!
//! # Units
//! At most [`BYTES_A_FRAME`] bytes a frame, beside [`MIN_HEADS`] chain heads and the blocks of the
//! table that are begun.
//!
//! # Source
//! UKSM §5.3 (`Tr_s`); W. Litwin, "Linear hashing", VLDB 1980.

use crate::command::FrameId;
use crate::lookup::frame_table::FrameTable;
use crate::mix::mix;

/// Limit of bytes of an entry with its share of the table and the heads, once there are thousands
/// of neighbouring numbers: 16 and a quarter in the table, 4 for its chain head, a quarter more of
/// that when just grown.
pub const BYTES_A_FRAME: usize = 22;

/// Initial number of chain heads.
pub const MIN_HEADS: usize = 1024;

/// Ends a chain.
const NONE: u32 = u32::MAX;
/// Stands for the frame in front of one that is in no chain, because it takes no more sharers.
const FULL: u32 = u32::MAX - 1;

#[derive(Debug, Clone, Copy, Default)]
struct FrameEntry {
    hash: u64,
    /// The frame in front of it in its chain, `NONE` for the first.
    before: u32,
    next: u32,
}

const _: () = assert!(size_of::<FrameEntry>() == 16);

impl FrameEntry {
    fn is_full(&self) -> bool {
        self.before == FULL
    }
}

/// The index.
#[derive(Debug, Clone)]
pub struct MergedIndex {
    entries: FrameTable<FrameEntry>,
    /// First frame of each chain, `NONE` if it has none. At least as many as entries.
    heads: Vec<u32>,
    /// Their number, rounded up to a power of two, less one.
    mask: usize,
}

impl Default for MergedIndex {
    fn default() -> MergedIndex {
        MergedIndex {
            entries: FrameTable::default(),
            heads: vec![NONE; MIN_HEADS],
            mask: MIN_HEADS - 1,
        }
    }
}

impl MergedIndex {
    /// An empty index.
    #[must_use]
    pub fn new() -> MergedIndex {
        MergedIndex::default()
    }

    /// Number of frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.bytes() + self.heads.capacity() * size_of::<u32>() + size_of::<MergedIndex>()
    }

    /// Enters a frame, open to sharers. A known frame gets the new hash and is open again: its
    /// number names another frame now.
    ///
    /// # Panics
    /// If the frame's number is one of the last two of 32 bits, which no machine uses.
    pub fn insert(&mut self, hash: u64, frame: FrameId) {
        assert!(frame.0 < FULL, "frames are numbered below 2^31");
        let entry = FrameEntry {
            hash,
            before: NONE,
            next: NONE,
        };
        if let Some(old) = self.entries.insert(frame, entry) {
            self.unlink(old);
        } else if self.len() > self.heads.len() {
            self.add_head();
        }
        let head = self.head_of(hash);
        let next = std::mem::replace(&mut self.heads[head], frame.0);
        if next != NONE {
            self.entry_mut(next).before = frame.0;
            self.entry_mut(frame.0).next = next;
        }
    }

    /// The frames of this hash that are open to sharers, the newest first. All must be tried: equal
    /// hashes do not prove equal contents.
    pub fn candidates(&self, hash: u64) -> impl Iterator<Item = FrameId> + '_ {
        self.chain(self.first_of_hash(hash))
            .filter(move |(_, entry)| entry.hash == hash)
            .map(|(frame, _)| frame)
    }

    /// For each of `hashes` that has [`MergedIndex::candidates`], calls `found` with its index in
    /// `hashes` and the first candidate. Cache misses overlap.
    pub fn newest_batch(&self, hashes: &[u64], mut found: impl FnMut(usize, FrameId)) {
        const LOOKUPS_IN_FLIGHT: usize = 16;
        let mut number = 0;
        for together in hashes.chunks(LOOKUPS_IN_FLIGHT) {
            let mut first = [NONE; LOOKUPS_IN_FLIGHT];
            for (first, &hash) in first.iter_mut().zip(together) {
                *first = self.first_of_hash(hash);
            }
            // Most chains are empty where most pages equal no frame.
            let touched = first
                .iter()
                .filter(|&&first| first != NONE)
                .filter_map(|&first| self.entries.get(FrameId(first)))
                .fold(0, |sum, entry| sum ^ entry.hash);
            std::hint::black_box(touched);
            for (at, (&first, &hash)) in first.iter().zip(together).enumerate() {
                if first == NONE {
                    continue;
                }
                let mut chain = self.chain(first);
                if let Some((frame, _)) = chain.find(|(_, entry)| entry.hash == hash) {
                    found(number + at, frame);
                }
            }
            number += together.len();
        }
    }

    /// Whether the frame is there and takes sharers.
    #[must_use]
    pub fn is_open(&self, frame: FrameId) -> bool {
        self.entries
            .get(frame)
            .is_some_and(|entry| !entry.is_full())
    }

    /// The frame's hash, if it is there.
    #[must_use]
    pub fn hash_of(&self, frame: FrameId) -> Option<u64> {
        self.entries.get(frame).map(|entry| entry.hash)
    }

    /// Removes the frame; returns whether it was there.
    pub fn remove(&mut self, frame: FrameId) -> bool {
        let Some(entry) = self.entries.remove(frame) else {
            return false;
        };
        self.unlink(entry);
        true
    }

    /// The frame takes no more sharers: it is no candidate until [`MergedIndex::mark_open`].
    /// Returns whether it is there.
    pub fn mark_full(&mut self, frame: FrameId) -> bool {
        self.mark(frame, true)
    }

    /// The frame lost sharers and takes new ones. Returns whether it is there.
    pub fn mark_open(&mut self, frame: FrameId) -> bool {
        self.mark(frame, false)
    }

    /// Adds `difference` to the frame's hash, modulo 2^64; returns whether it is there. With the
    /// hash of the lines `a..b` this takes it from strength `a` to `b`, with its negative back.
    pub fn shift(&mut self, frame: FrameId, difference: u64) -> bool {
        let Some(&old) = self.entries.get(frame) else {
            return false;
        };
        let hash = old.hash.wrapping_add(difference);
        if old.is_full() {
            self.entries.insert(frame, FrameEntry { hash, ..old });
        } else {
            self.insert(hash, frame);
        }
        true
    }

    fn mark(&mut self, frame: FrameId, full: bool) -> bool {
        let Some(&old) = self.entries.get(frame) else {
            return false;
        };
        if full && !old.is_full() {
            self.unlink(old);
            self.entry_mut(frame.0).before = FULL;
        } else if !full && old.is_full() {
            self.insert(old.hash, frame);
        }
        true
    }

    /// The entry of a frame that is there.
    fn entry_mut(&mut self, frame: u32) -> &mut FrameEntry {
        let entry = self.entries.get_mut(FrameId(frame));
        entry.expect("a chain has entries only")
    }

    fn chain(&self, first: u32) -> impl Iterator<Item = (FrameId, &FrameEntry)> {
        let mut next = FrameId(first);
        // No frame has the number `NONE`.
        std::iter::from_fn(move || {
            let entry = self.entries.get(next)?;
            let frame = std::mem::replace(&mut next, FrameId(entry.next));
            Some((frame, entry))
        })
    }

    fn first_of_hash(&self, hash: u64) -> u32 {
        self.heads[self.head_of(hash)]
    }

    /// The head of the chain of a hash: by its low bits. With one head more, only the hashes of one
    /// chain change theirs, to the new one.
    #[inline]
    fn head_of(&self, hash: u64) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "more bits than there are heads are left"
        )]
        let wide = mix(hash) as usize & self.mask;
        if wide < self.heads.len() {
            wide
        } else {
            wide & self.mask >> 1
        }
    }

    /// Removes an entry from its chain, unless it is full and in none.
    fn unlink(&mut self, entry: FrameEntry) {
        if entry.is_full() {
            return;
        }
        self.point(entry.before, entry.hash, entry.next);
        if entry.next != NONE {
            self.entry_mut(entry.next).before = entry.before;
        }
    }

    /// Makes `next` follow the frame `before` in the chain of `hash`, or begin the chain.
    fn point(&mut self, before: u32, hash: u64, next: u32) {
        if before == NONE {
            let head = self.head_of(hash);
            self.heads[head] = next;
        } else {
            self.entry_mut(before).next = next;
        }
    }

    /// One more chain, which takes the entries that belong to it from the chain that had them.
    fn add_head(&mut self) {
        let number = self.heads.len();
        if number == self.heads.capacity() {
            self.heads.reserve_exact(number / 4);
        }
        self.heads.push(NONE);
        self.mask = (number + 1).next_power_of_two() - 1;
        let parent = number & self.mask >> 1;
        let mut next = std::mem::replace(&mut self.heads[parent], NONE);
        // The last of either chain so far: both keep their order.
        let mut last = [NONE; 2];
        while next != NONE {
            let this = next;
            let entry = self.entry_mut(this);
            let hash = entry.hash;
            next = std::mem::replace(&mut entry.next, NONE);
            let is_new = self.head_of(hash) == number;
            let last = &mut last[usize::from(is_new)];
            self.entry_mut(this).before = *last;
            self.point(*last, hash, this);
            *last = this;
        }
    }
}

#[cfg(test)]
mod tests;
