//! The index of merged pages: exact, one entry a frame.
//!
//! # Problem
//! A page that equals a frame must find it, always: each miss is a saving lost and a second frame
//! of the same contents made. Several frames can have one hash, because a frame takes a limited
//! number of sharers, or because a weak hash does not tell their contents apart.
//!
//! # Approach
//! Entries lie side by side in one array and are chained through it by hash, in both directions,
//! so that an entry goes at once however many have its hash; a table finds them by the number of
//! their frame. A frame without room for sharers is in no chain: thousands of full frames of one
//! content cost a lookup nothing. An entry that goes is replaced by the last one, so the array has
//! no holes. It grows by a quarter, so that no more than that is ever idle. The chain heads are as
//! many as the entries and grow one by one, by linear hashing: a new head takes its part of one
//! chain. With millions of frames, to chain all of them anew would hold up everything for a tenth of
//! a second and more. What is iterated is in an order that depends on the calls made, and on nothing
//! else.
//!
//! Contents of a frame never change, so a change of strength shifts its hash by a difference that
//! the machine reports: [`Merged::shift`].
//!
//! # Units
//! At most [`BYTES_A_FRAME`] bytes a frame, beside [`LEAST_CAPACITY`] entries.
//!
//! # Source
//! UKSM §5.3 (`Tr_s`); W. Litwin, "Linear hashing", VLDB 1980.

use crate::command::FrameId;
use crate::hash::mix;
use crate::lookup::frame_table::FrameTable;

/// Most bytes an entry takes with everything that belongs to it, once there are more than
/// [`LEAST_CAPACITY`] whose numbers are neighbours: 24 with its chain head, a quarter more when just
/// grown, and 6 in the table.
pub const BYTES_A_FRAME: usize = 40;

/// Entries there is room for before the arrays grow.
pub const LEAST_CAPACITY: usize = 1024;

/// Ends a chain.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    /// The frame's number, which takes 31 bits, and [`FULL`].
    frame: u32,
    next_of_hash: u32,
}

const _: () = assert!(size_of::<Entry>() == 16);

/// Set in an entry's frame if that takes no more sharers.
const FULL: u32 = 1 << 31;

impl Entry {
    fn frame(&self) -> FrameId {
        FrameId(self.frame & !FULL)
    }

    /// The frame, if it has this hash. Only those that take sharers are asked.
    fn open_to(&self, hash: u64) -> Option<FrameId> {
        (self.hash == hash).then_some(FrameId(self.frame))
    }

    fn is_full(&self) -> bool {
        self.frame & FULL != 0
    }
}

/// The index.
#[derive(Debug, Clone, Default)]
pub struct Merged {
    entries: Vec<Entry>,
    /// The entry in front of each in its chain, `NONE` for the first.
    before: Vec<u32>,
    /// First entry of each chain, `NONE` if it has none. At least as many as entries.
    by_hash: Vec<u32>,
    by_frame: FrameTable<u32>,
}

impl Merged {
    /// An empty index.
    #[must_use]
    pub fn new() -> Merged {
        Merged::default()
    }

    /// Number of frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.before.capacity() * size_of::<u32>()
            + self.by_hash.capacity() * size_of::<u32>()
            + self.by_frame.bytes()
            + size_of::<Merged>()
    }

    /// Enters a frame, open to sharers. A frame that is there gets the new hash and is open again:
    /// its number was given to another one.
    ///
    /// # Panics
    /// If the frame's number takes more than 31 bits, which no machine hands out.
    pub fn insert(&mut self, hash: u64, frame: FrameId) {
        assert!(frame.0 < FULL, "frames are numbered below 2^31");
        let entry = Entry {
            hash,
            frame: frame.0,
            next_of_hash: NONE,
        };
        if let Some(at) = self.find(frame) {
            self.unlink(at);
            self.entries[place(at)] = entry;
            self.link(at);
            return;
        }
        if self.entries.len() == self.entries.capacity() {
            let room = (self.entries.len() / 4 * 5).max(LEAST_CAPACITY) - self.entries.len();
            self.entries.reserve_exact(room);
            self.before.reserve_exact(room);
        }
        if self.entries.len() == self.by_hash.len() {
            self.add_head();
        }
        let number = index(self.entries.len());
        self.by_frame.insert(frame, number);
        self.before.push(NONE);
        let next_of_hash = put_first(&mut self.by_hash, &mut self.before, hash, number);
        self.entries.push(Entry {
            next_of_hash,
            ..entry
        });
    }

    /// The frames of this hash that are open to sharers, the newest first. All must be tried: a
    /// hash says less than the contents.
    pub fn candidates(&self, hash: u64) -> impl Iterator<Item = FrameId> + '_ {
        let first = self
            .head_of_hash(hash)
            .map_or(NONE, |head| self.by_hash[head]);
        self.chain(first)
            .filter_map(move |entry| entry.open_to(hash))
    }

    /// For each of `hashes` that has [`Merged::candidates`] calls `found` with its place among them
    /// and the first, the cache misses overlapped.
    pub fn newest_batch(&self, hashes: &[u64], mut found: impl FnMut(usize, FrameId)) {
        const TOGETHER: usize = 16;
        let mut number = 0;
        for together in hashes.chunks(TOGETHER) {
            let mut first = [NONE; TOGETHER];
            for (first, &hash) in first.iter_mut().zip(together) {
                *first = self
                    .head_of_hash(hash)
                    .map_or(NONE, |head| self.by_hash[head]);
            }
            let touched = first
                .iter()
                .filter(|&&first| first != NONE)
                .fold(0, |sum, &first| sum ^ self.entries[place(first)].hash);
            std::hint::black_box(touched);
            for (&first, &hash) in first.iter().zip(together) {
                if let Some(frame) = self.chain(first).find_map(|entry| entry.open_to(hash)) {
                    found(number, frame);
                }
                number += 1;
            }
        }
    }

    /// Whether the frame is there and takes sharers.
    #[must_use]
    pub fn is_open(&self, frame: FrameId) -> bool {
        self.find(frame)
            .is_some_and(|number| !self.entries[place(number)].is_full())
    }

    /// The frame's hash, if it is there.
    #[must_use]
    pub fn hash_of(&self, frame: FrameId) -> Option<u64> {
        self.find(frame)
            .map(|number| self.entries[place(number)].hash)
    }

    /// Takes the frame out; says whether it was there.
    pub fn remove(&mut self, frame: FrameId) -> bool {
        let Some(number) = self.by_frame.remove(frame) else {
            return false;
        };
        self.unlink(number);
        self.entries.swap_remove(place(number));
        self.before.swap_remove(place(number));
        if let Some(moved) = self.entries.get(place(number)) {
            self.by_frame.insert(moved.frame(), number);
            self.tie(number);
        }
        true
    }

    /// The frame takes no more sharers: it is no candidate until [`Merged::mark_open`]. Says
    /// whether it is there.
    pub fn mark_full(&mut self, frame: FrameId) -> bool {
        self.mark(frame, true)
    }

    /// The frame lost sharers and takes new ones. Says whether it is there.
    pub fn mark_open(&mut self, frame: FrameId) -> bool {
        self.mark(frame, false)
    }

    /// Adds `difference` to the frame's hash, modulo 2^64; says whether it is there. With the hash
    /// of the lines `a..b` this takes it from strength `a` to `b`, with its negative back.
    pub fn shift(&mut self, frame: FrameId, difference: u64) -> bool {
        let Some(number) = self.find(frame) else {
            return false;
        };
        self.unlink(number);
        let entry = &mut self.entries[place(number)];
        entry.hash = entry.hash.wrapping_add(difference);
        self.link(number);
        true
    }

    fn mark(&mut self, frame: FrameId, full: bool) -> bool {
        let found = self.find(frame);
        if let Some(number) = found
            && self.entries[place(number)].is_full() != full
        {
            self.unlink(number);
            self.entries[place(number)].frame = frame.0 | if full { FULL } else { 0 };
            self.link(number);
        }
        found.is_some()
    }

    fn find(&self, frame: FrameId) -> Option<u32> {
        self.by_frame.get(frame).copied()
    }

    fn chain(&self, first: u32) -> impl Iterator<Item = &Entry> {
        let mut number = first;
        std::iter::from_fn(move || {
            let entry = (number != NONE).then(|| &self.entries[place(number)])?;
            number = entry.next_of_hash;
            Some(entry)
        })
    }

    fn head_of_hash(&self, hash: u64) -> Option<usize> {
        slot(mix(hash), self.by_hash.len())
    }

    /// Puts an entry in front of its chain, unless it is full.
    fn link(&mut self, number: u32) {
        let entry = self.entries[place(number)];
        if entry.is_full() {
            return;
        }
        self.entries[place(number)].next_of_hash =
            put_first(&mut self.by_hash, &mut self.before, entry.hash, number);
    }

    /// Takes an entry out of its chain, unless it is full and in none.
    fn unlink(&mut self, number: u32) {
        let entry = self.entries[place(number)];
        if entry.is_full() {
            return;
        }
        let (before, next) = (self.before[place(number)], entry.next_of_hash);
        self.point(before, entry.hash, next);
        if next != NONE {
            self.before[place(next)] = before;
        }
    }

    /// An entry was moved to `number`: its neighbours in the chain are told.
    fn tie(&mut self, number: u32) {
        let entry = self.entries[place(number)];
        if entry.is_full() {
            return;
        }
        self.point(self.before[place(number)], entry.hash, number);
        if entry.next_of_hash != NONE {
            self.before[place(entry.next_of_hash)] = number;
        }
    }

    /// `next` follows the entry `before` in the chain of `hash`, or begins it.
    fn point(&mut self, before: u32, hash: u64, next: u32) {
        if before == NONE {
            let head = self.head_of_hash(hash).expect("there is room");
            self.by_hash[head] = next;
        } else {
            self.entries[place(before)].next_of_hash = next;
        }
    }

    /// One more chain, which takes the entries that belong to it from the chain that had them.
    fn add_head(&mut self) {
        let number = self.by_hash.len();
        if number == 0 {
            self.by_hash = vec![NONE; LEAST_CAPACITY];
            return;
        }
        if number == self.by_hash.capacity() {
            self.by_hash.reserve_exact(number / 4);
        }
        let parent = number - (number + 1).next_power_of_two() / 2;
        let mut next = std::mem::replace(&mut self.by_hash[parent], NONE);
        self.by_hash.push(NONE);
        // The last of either chain so far: both keep their order.
        let mut last = [NONE; 2];
        while next != NONE {
            let entry = &mut self.entries[place(next)];
            let (this, hash) = (next, entry.hash);
            next = std::mem::replace(&mut entry.next_of_hash, NONE);
            let head = self.head_of_hash(hash).expect("there are heads");
            let last = &mut last[usize::from(head == number)];
            self.before[place(this)] = *last;
            self.point(*last, hash, this);
            *last = this;
        }
    }
}

/// Entry `number`, of this hash, is the first of its chain now; returns the one behind it. There
/// must be heads.
#[inline]
fn put_first(by_hash: &mut [u32], before: &mut [u32], hash: u64, number: u32) -> u32 {
    let head = slot(mix(hash), by_hash.len()).expect("there is room");
    let next = std::mem::replace(&mut by_hash[head], number);
    before[place(number)] = NONE;
    if next != NONE {
        before[place(next)] = number;
    }
    next
}

/// Where in the array of entries entry `number` is.
fn place(number: u32) -> usize {
    number as usize
}

fn index(place: usize) -> u32 {
    u32::try_from(place).expect("growth is bounded by the numbers of frames")
}

/// One of so many slots by the low bits of `mixed`, none of none. With one slot more, only the hashes
/// of one slot change theirs, to the new one.
#[expect(
    clippy::cast_possible_truncation,
    reason = "more bits than there are slots are left"
)]
fn slot(mixed: u64, slots: usize) -> Option<usize> {
    if slots == 0 {
        return None;
    }
    let width = slots.next_power_of_two();
    let wide = mixed as usize & (width - 1);
    Some(if wide < slots {
        wide
    } else {
        wide & (width / 2 - 1)
    })
}

#[cfg(test)]
mod tests;
