//! The index of unmerged pages: fixed memory, lossy, forgetting.
//!
//! # Problem
//! A sampled page should meet a page of equal hash that was sampled before, on a host of any size,
//! within fixed memory and at constant cost. What the index knows is stale from the moment it is
//! written: pages change, regions die. A tree over such pages is wrong about its own order (XLH
//! §4.4), and keeping every page costs memory that deduplication was to save.
//!
//! # Approach
//! A table of 64-byte buckets of [`WAYS`] entries: an operation touches one cache line. An entry
//! keeps a tag of the hash, where the page was, the round, and the *era*. A newcomer takes an
//! empty entry, else one of another era, else the oldest. There is no deletion but by
//! replacement and by [`Unmerged::remove`], so the engine must be ready for a place that is gone.
//!
//! The era is the strength the hash was taken with. Entries of another era do not match and are
//! the first to be replaced, but they live until then: a control that tries another strength and
//! returns finds its entries.
//!
//! A page that finds a partner is not entered: the partner stands for both until the engine
//! merges them, or finds the partner changed and calls [`Unmerged::replace`].
//!
//! # Units
//! Rounds count modulo 2^16; an entry 65536 rounds old looks fresh again, which costs one wrong
//! suggestion. 16 bytes an entry. A tag is 40 bits beside the choice of the bucket, so two hashes
//! are confused once in 2^40 lookups for each entry of a bucket.
//!
//! # Source
//! UKSM §5.3 (`Tr_us`); XLH §4.4; a constant-size table that forgets as in bees.

use crate::hash::mix;
use crate::ids::RegionId;

/// Entries in a bucket: a cache line.
pub const WAYS: usize = 4;

const ENTRY_WORDS: usize = 2;
const BUCKET_WORDS: usize = WAYS * ENTRY_WORDS;
const BUCKET_BYTES: usize = BUCKET_WORDS * 8;

/// Lookups whose buckets are loaded together: enough to overlap every miss a core can have
/// outstanding, few enough that all stay in its first cache.
const TOGETHER: usize = 16;

const TAG_BITS: u32 = 40;
const ERA_SHIFT: u32 = TAG_BITS;
const ROUND_SHIFT: u32 = TAG_BITS + 8;

/// Where a page was when it was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The region. Its id may be given again: then the suggestion is wrong, and costs a check.
    pub region: RegionId,
    /// The page in the region.
    pub page: u32,
}

impl Place {
    fn word(self) -> u64 {
        u64::from(self.region.0) << 32 | u64::from(self.page)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the halves are what was stored"
    )]
    fn from_word(word: u64) -> Place {
        Place {
            region: RegionId((word >> 32) as u32),
            page: word as u32,
        }
    }
}

/// What a page met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Another page of equal hash. The page looked up was not entered.
    Partner {
        /// Where the other page was.
        place: Place,
        /// Rounds since it was last seen there.
        age: u16,
    },
    /// Its own entry, which is fresh again.
    Refreshed,
    /// Nothing; it was entered, if need be over another entry, which is forgotten.
    Inserted,
}

/// One page of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Its hash at the strength of the era.
    pub hash: u64,
    /// Where it is.
    pub place: Place,
}

/// The index.
pub struct Unmerged {
    /// The buckets, from word `skip` on, where a cache line begins. Comes zeroed from the
    /// allocator, so memory is taken as entries are.
    words: Box<[u64]>,
    skip: usize,
    buckets: usize,
    era: u8,
    /// Entries by era.
    entries: Box<[u64; 256]>,
}

impl std::fmt::Debug for Unmerged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unmerged")
            .field("era", &self.era)
            .field("entries", &self.len())
            .finish()
    }
}

/// An entry, taken apart. Its first word is 0 if there is none.
#[derive(Clone, Copy)]
struct Label(u64);

impl Label {
    fn new(tag: u64, era: u8, round: u16) -> Label {
        Label(tag | u64::from(era) << ERA_SHIFT | u64::from(round) << ROUND_SHIFT)
    }

    /// Tag and era: all that must be equal for a match.
    fn key(self) -> u64 {
        self.0 & ((1 << ROUND_SHIFT) - 1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the byte at this place")]
    fn era(self) -> u8 {
        (self.0 >> ERA_SHIFT) as u8
    }

    fn age(self, round: u16) -> u16 {
        round.wrapping_sub((self.0 >> ROUND_SHIFT) as u16)
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Unmerged {
    /// An index that takes `bytes`, rounded down to whole buckets, and at least one of them.
    #[must_use]
    pub fn with_bytes(bytes: usize) -> Unmerged {
        let buckets = (bytes / BUCKET_BYTES).max(1);
        let words = vec![0u64; (buckets + 1) * BUCKET_WORDS - 1].into_boxed_slice();
        let skip = words
            .as_ptr()
            .align_offset(BUCKET_BYTES)
            .min(BUCKET_WORDS - 1);
        Unmerged {
            words,
            skip,
            buckets,
            era: 0,
            entries: Box::new([0; 256]),
        }
    }

    /// Entries it has room for.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.buckets * WAYS
    }

    /// Bytes it takes when full, all told.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.entries) + size_of::<Unmerged>()
    }

    /// Entries of this era.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries[usize::from(self.era)]
    }

    /// Whether there is no entry of this era.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// From now on makes and finds entries of `era`, the strength of the hashes to come. Costs
    /// nothing; entries of the old era stay until their room is needed.
    pub fn set_era(&mut self, era: u8) {
        self.era = era;
    }

    /// Looks for another page of this hash, and enters this one if there is none.
    pub fn look_up(&mut self, hash: u64, place: Place, round: u32) -> Match {
        self.look_up_at(self.address(hash), place, round)
    }

    /// As [`Unmerged::look_up`], for a hash of this bucket and tag.
    #[expect(clippy::cast_possible_truncation, reason = "rounds count modulo 2^16")]
    #[inline]
    fn look_up_at(&mut self, (bucket, tag): (usize, u64), place: Place, round: u32) -> Match {
        let round = round as u16;
        let era = self.era;
        let wanted = Label::new(tag, era, round);
        let (ways, _) = self.bucket_mut(bucket).as_chunks_mut::<ENTRY_WORDS>();

        if let Some(way) = ways
            .iter_mut()
            .find(|way| Label(way[0]).key() == wanted.key())
        {
            if way[1] == place.word() {
                way[0] = wanted.0;
                return Match::Refreshed;
            }
            return Match::Partner {
                place: Place::from_word(way[1]),
                age: Label(way[0]).age(round),
            };
        }
        let entry = [wanted.0, place.word()];
        if let Some(way) = ways.iter_mut().find(|way| Label(way[0]).is_empty()) {
            *way = entry;
            self.entries[usize::from(era)] += 1;
            return Match::Inserted;
        }
        // Equally old ones go by the hash, so that no way is favoured.
        let mut victim = tag as usize % WAYS;
        let mut best = rank_of(Label(ways[victim][0]), era, round);
        for (number, way) in ways.iter().enumerate() {
            let rank = rank_of(Label(way[0]), era, round);
            if rank > best {
                (victim, best) = (number, rank);
            }
        }
        let [label, _] = std::mem::replace(&mut ways[victim], entry);
        self.entries[usize::from(era)] += 1;
        self.entries[usize::from(Label(label).era())] -= 1;
        Match::Inserted
    }

    /// As [`Unmerged::look_up`] for each page in turn, with the cache misses overlapped. The answers
    /// are appended to `matches` in the order of the queries.
    pub fn look_up_batch(&mut self, queries: &[Query], round: u32, matches: &mut Vec<Match>) {
        matches.reserve(queries.len());
        let mut addresses = [(0, 0); TOGETHER];
        for together in queries.chunks(TOGETHER) {
            // These loads do not wait for each other; those of the lookups would.
            let mut touched = 0;
            for (address, query) in addresses.iter_mut().zip(together) {
                *address = self.address(query.hash);
                touched ^= self.bucket(address.0)[0];
            }
            std::hint::black_box(touched);
            for (&address, query) in addresses.iter().zip(together) {
                matches.push(self.look_up_at(address, query.place, round));
            }
        }
    }

    /// The page of this hash, if there is one: its place and the rounds since it was seen.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "rounds count modulo 2^16")]
    pub fn find(&self, hash: u64, round: u32) -> Option<(Place, u16)> {
        let round = round as u16;
        let (bucket, tag) = self.address(hash);
        let wanted = Label::new(tag, self.era, round).key();
        self.bucket(bucket)
            .as_chunks::<ENTRY_WORDS>()
            .0
            .iter()
            .find(|entry| Label(entry[0]).key() == wanted)
            .map(|entry| (Place::from_word(entry[1]), Label(entry[0]).age(round)))
    }

    /// Forgets the page of this hash if it is at `place`; says whether it was.
    pub fn remove(&mut self, hash: u64, place: Place) -> bool {
        let Some(entry) = self.entry_mut(hash, place) else {
            return false;
        };
        *entry = [0; ENTRY_WORDS];
        self.entries[usize::from(self.era)] -= 1;
        true
    }

    /// Puts `new` where the page of this hash at `old` was, which turned out to be gone; says
    /// whether it was there.
    #[expect(clippy::cast_possible_truncation, reason = "rounds count modulo 2^16")]
    pub fn replace(&mut self, hash: u64, old: Place, new: Place, round: u32) -> bool {
        let label = Label::new(self.address(hash).1, self.era, round as u16);
        let Some(entry) = self.entry_mut(hash, old) else {
            return false;
        };
        *entry = [label.0, new.word()];
        true
    }

    fn entry_mut(&mut self, hash: u64, place: Place) -> Option<&mut [u64; ENTRY_WORDS]> {
        let (bucket, tag) = self.address(hash);
        let wanted = Label::new(tag, self.era, 0).key();
        let (entries, _) = self.bucket_mut(bucket).as_chunks_mut::<ENTRY_WORDS>();
        entries
            .iter_mut()
            .find(|entry| Label(entry[0]).key() == wanted && entry[1] == place.word())
    }

    /// Bucket and tag of a hash: the high and the low bits of its mixture. A tag is never 0.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the high half is below the buckets"
    )]
    fn address(&self, hash: u64) -> (usize, u64) {
        let mixed = mix(hash);
        let bucket = ((u128::from(mixed) * self.buckets as u128) >> 64) as usize;
        (bucket, (mixed & ((1 << TAG_BITS) - 1)).max(1))
    }

    fn bucket(&self, bucket: usize) -> &[u64; BUCKET_WORDS] {
        &self.words[self.skip..].as_chunks().0[bucket]
    }

    fn bucket_mut(&mut self, bucket: usize) -> &mut [u64; BUCKET_WORDS] {
        &mut self.words[self.skip..].as_chunks_mut().0[bucket]
    }
}

/// How gladly an entry is replaced, if none is empty: one of another era first, then by age.
fn rank_of(entry: Label, era: u8, round: u16) -> u32 {
    u32::from(entry.era() != era) << 16 | u32::from(entry.age(round))
}

#[cfg(test)]
mod tests;
