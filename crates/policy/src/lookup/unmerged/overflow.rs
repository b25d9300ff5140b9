//! The table of entries that have no room in their bucket.
//!
//! # Problem
//! Where the table has reached its bound, two thirds of it are taken, and one bucket in ten is
//! full. The oldest entry of a full bucket would be forgotten: in a region that is filled little by
//! little, the pages that were read first, and their twins would not meet them.
//!
//! # Approach
//! A second table of a twelfth of the room takes the entries that are pushed out of the first, by
//! the known part of their hash; there the oldest is forgotten. While it holds few entries, a
//! filter of 4,096 bits rules most hashes out, so that an index with room to grow hardly pays for
//! it. One bucket may hold entries of several neighbouring buckets of the first table, which are
//! seldom full together.
//!
//! # Units
//! Buckets, as in the first table.
//!
//! # Source
//! An overflow area as in W. Litwin, "Linear hashing", VLDB 1980; displaced entries move on as in a
//! victim cache (N. P. Jouppi, ISCA 1990).

use super::entry::{Entry, Layout};
use super::linear_hashing::{Address, KnownPart, MovedEntry, Table, WAYS};
use crate::convert;

/// Buckets of the smallest table.
const MIN_BUCKETS: usize = 4;
/// Limit of buckets that are added after one call.
const MAX_STEPS: usize = 4;

/// The second table.
pub(super) struct Overflow {
    table: Table,
    layout: Layout,
    most_buckets: usize,
    entries: usize,
    /// One bit for each beginning of a hash of which an entry was taken in.
    filter: Box<[u64; 64]>,
    moved: Vec<MovedEntry>,
}

/// Number of first bits of a hash that choose a bit of the filter.
const FILTER_BITS: u32 = 12;

/// The word of the filter for a hash, and the bit in it.
#[inline]
fn filtered(hash: u64) -> (usize, u64) {
    let bit = hash >> (64 - FILTER_BITS);
    (convert::index(convert::narrow(bit / 64)), 1 << (bit % 64))
}

impl Overflow {
    /// An overflow without room.
    pub(super) fn new(layout: Layout) -> Overflow {
        Overflow {
            table: Table::new(0, layout),
            layout,
            most_buckets: 0,
            entries: 0,
            filter: Box::new([0; 64]),
            moved: vec![],
        }
    }

    /// Sets the limit of buckets; below [`MIN_BUCKETS`] it takes nothing in. If it is four times
    /// larger, it forgets all. Forgotten entries are subtracted from `counts`, by era.
    pub(super) fn set_bound(&mut self, buckets: usize, counts: &mut [u64; 64]) {
        self.most_buckets = buckets;
        if self.entries > 0 && self.table.buckets() / 4 > buckets {
            for (entry, _) in self.table.entries() {
                counts[usize::from(entry.era())] -= 1;
            }
            self.table = Table::new(0, self.layout);
            self.entries = 0;
            self.filter.fill(0);
        }
    }

    /// Takes all entries out; they are still counted. The new table has all its buckets at once:
    /// when the first table is rebuilt, entries come in the order of their hashes, and would all
    /// meet in the few buckets of a small one.
    pub(super) fn take_all(&mut self) -> Table {
        self.entries = 0;
        self.filter.fill(0);
        let anew = Table::new(self.most_buckets, self.layout);
        std::mem::replace(&mut self.table, anew)
    }

    /// Whether a hash may be here: a fast check, and seldom true while there are few entries.
    #[inline]
    pub(super) fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = filtered(hash);
        self.filter[word] & bit != 0
    }

    /// Entries of any era.
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// The address of a hash in this table.
    #[inline]
    pub(super) fn address(&self, mixed: u64) -> Address {
        self.table.address(mixed)
    }

    /// The bucket of an address.
    #[inline]
    pub(super) fn ways(&self, to: Address) -> &[u64; WAYS] {
        self.table.bucket(to.bucket)
    }

    /// Like [`Overflow::ways`], mutable.
    #[inline]
    pub(super) fn ways_mut(&mut self, to: Address) -> &mut [u64; WAYS] {
        self.table.bucket_mut(to.bucket)
    }

    /// An entry was taken out of its way.
    pub(super) fn removed(&mut self) {
        self.entries -= 1;
        if self.entries == 0 {
            self.filter.fill(0);
        }
    }

    /// Takes in an entry with the `known` part of its hash. The entry that is forgotten for it, or
    /// it itself if there is no room at all, is subtracted from `counts`, by era.
    pub(super) fn take_in(
        &mut self,
        entry: Entry,
        known: KnownPart,
        (era, round): (u8, u32),
        counts: &mut [u64; 64],
    ) {
        let has_room = self.most_buckets >= MIN_BUCKETS;
        let to = self.table.address_of_part(known).filter(|_| has_room);
        let Some(to) = to else {
            counts[usize::from(entry.era())] -= 1;
            return;
        };
        if known.bits >= FILTER_BITS {
            let (word, bit) = filtered(known.hash);
            self.filter[word] |= bit;
        } else {
            self.filter.fill(u64::MAX);
        }
        let entry = entry.with_tag(to.tag, self.layout);
        let layout = self.layout;
        let ways = self.table.bucket_mut(to.bucket);
        let rank = |way: &u64| match Entry(*way) {
            none if none.is_none() => u16::MAX,
            entry => entry.rank(era, round, layout),
        };
        let way = ways.iter_mut().max_by_key(|way| rank(way));
        let way = way.expect("a bucket has ways");
        let forgotten = Entry(std::mem::replace(way, entry.0));
        if forgotten.is_none() {
            self.entries += 1;
            self.grow(counts);
        } else {
            counts[usize::from(forgotten.era())] -= 1;
        }
    }

    /// Grows by a few buckets if two fifths are taken.
    fn grow(&mut self, counts: &mut [u64; 64]) {
        for _ in 0..MAX_STEPS {
            let slots = self.table.buckets() * WAYS;
            if self.entries * 5 <= slots * 2 || self.table.buckets() >= self.most_buckets {
                return;
            }
            let mut moved = std::mem::take(&mut self.moved);
            self.table.grow(&mut moved);
            for (entry, to) in moved.drain(..) {
                let free = to.and_then(|bucket| {
                    let ways = self.table.bucket_mut(bucket);
                    ways.iter_mut().find(|way| **way == 0)
                });
                match free {
                    Some(way) => *way = entry.0,
                    None => {
                        self.entries -= 1;
                        counts[usize::from(entry.era())] -= 1;
                    }
                }
            }
            self.moved = moved;
        }
    }
}
