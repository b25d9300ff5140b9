//! The index of unmerged pages: lossy, forgetting, in proportion to the followed memory.
//!
//! # Problem
//! A sampled page should meet a page of equal hash that was sampled before, on a host of any size,
//! within a small part of its memory and at constant cost. Entries are stale from the moment they
//! are written: pages change, regions die. A tree over such pages is wrong about its own order (XLH
//! §4.4), and keeping every page costs memory that deduplication should save.
//!
//! # Approach
//! A table of buckets of one cache line, each with [`WAYS`] entries of 64 bits (`entry`), so an
//! operation touches one cache line. A newcomer takes an empty entry, else one of another era, else
//! the oldest, which goes to the `overflow`, a twelfth of the room; while that is not empty, a
//! lookup touches a line of it, too. Entries are deleted only by replacement and by
//! [`UnmergedIndex::remove`], so the engine must be ready for a place that is gone.
//!
//! The table grows, without forgetting, whenever two fifths of it are taken, up to a bound that
//! follows the number of pages that may be entered, and shrinks when the bound falls (`resize`,
//! `linear_hashing`). No step waits for long, and memory that is not sampled costs nothing here.
//!
//! Where the bound does not allow an entry for each page, only pages whose hash is below a
//! threshold are *kept*. The hash decides, so the same contents are kept wherever they are, and two
//! equal pages that are kept meet as surely as in a table with room for all. A table that took
//! every page would forget the first half of a region while the second is read, and two large
//! clones that are read in turn would not meet at all. All hashes are looked up: entries made
//! before the threshold fell are found until their room is needed.
//!
//! The era is the strength the hash was taken with. Entries of another era do not match and are
//! the first to be replaced, but they live until then: a control that tries another strength and
//! returns finds its entries.
//!
//! A page that finds a partner is not entered: the partner stands for both until the engine
//! merges them, or finds the partner changed and calls [`UnmergedIndex::replace`].
//!
//! # Units
//! 8 bytes an entry, [`BYTES_PER_PAGE`] for a page. A tag has 19 bits by default, and at least 14,
//! beside those that follow from the bucket. A hash that is not there matches an entry of its
//! bucket once in 12,000 lookups by default, and in 400 at worst; as often again for each doubling
//! of the table, because old entries know less of their hash. Such a match costs a comparison: the
//! module finds that the partner's hash differs (reason STALE), so this does not count as two
//! contents of one hash.
//!
//! # Source
//! UKSM §5.3 (`Tr_us`); XLH §4.4; a constant-size table that forgets as in bees; content-defined
//! sampling as in sparse indexing (Lillibridge et al., FAST'09).

mod entry;
mod linear_hashing;
mod overflow;
mod resize;

use crate::mix::mix;
use entry::Entry;
pub use entry::{Layout, RegionPage};
pub use linear_hashing::WAYS;
use linear_hashing::{Address, BUCKET_BYTES, Bucket, MovedEntry, Table};
use overflow::Overflow;

/// Room in the index for a page that may be entered: one and a half entries.
pub const BYTES_PER_PAGE: u64 = 12;

/// Lookups whose buckets are loaded together: enough to overlap every miss a core can have
/// outstanding, few enough that all stay in its first cache.
const LOOKUPS_IN_FLIGHT: usize = 16;

/// One bucket in this many is for entries that have no room in their own.
const OVERFLOW: usize = 12;
/// The threshold below which hashes are kept, if all of them are.
const ALL: u32 = 1 << 16;

/// The result of looking up a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Another page of equal hash. The page looked up was not entered.
    Partner {
        /// The place of the other page when it was sampled.
        place: RegionPage,
        /// Rounds since it was last seen there, in steps of four, modulo 64.
        age: u16,
    },
    /// Its own entry, which is fresh again.
    Refreshed,
    /// No match; the page was entered, if need be over another entry, which is forgotten.
    Inserted,
    /// No match; the page was not entered, because its hash is not kept.
    LeftOut,
}

/// One page of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Its hash at the strength of the era.
    pub hash: u64,
    /// Where it is.
    pub place: RegionPage,
}

/// The index.
pub struct UnmergedIndex {
    table: Table,
    overflow: Overflow,
    /// Buckets of the table when the overflow was last emptied into it.
    emptied_at: usize,
    layout: Layout,
    /// The era, less one.
    era: u8,
    /// Entries by era, less one.
    entries: Box<[u64; 64]>,
    /// Limit of buckets of the table.
    most_buckets: usize,
    /// Mixed hashes whose low 16 bits are below are kept.
    kept: u32,
    /// A buffer that is used again.
    moved: Vec<MovedEntry>,
}

impl std::fmt::Debug for UnmergedIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnmergedIndex")
            .field("era", &(self.era + 1))
            .field("entries", &self.len())
            .finish()
    }
}

impl UnmergedIndex {
    /// An index of `bytes` bytes, rounded down to whole buckets, and at least four of them. It
    /// begins in era 1.
    #[must_use]
    pub fn with_bytes(bytes: usize, layout: Layout) -> UnmergedIndex {
        let table = Table::new(bytes / BUCKET_BYTES, layout);
        UnmergedIndex {
            most_buckets: table.buckets(),
            table,
            overflow: Overflow::new(layout),
            emptied_at: 0,
            layout,
            era: 0,
            entries: Box::new([0; 64]),
            kept: ALL,
            moved: vec![],
        }
    }

    /// From now on `pages` pages may be entered: the table may grow to hold them, within
    /// `most_bytes`. If that is too little, the threshold falls until the pages of the kept hashes
    /// fit.
    pub fn fit(&mut self, pages: u64, most_bytes: usize) {
        let wanted = pages.saturating_mul(BYTES_PER_PAGE);
        let most = wanted.min(most_bytes as u64);
        let buckets = usize::try_from(most).map_or(usize::MAX, |most| most / BUCKET_BYTES);
        let overflow = buckets / OVERFLOW;
        self.most_buckets = buckets - overflow;
        self.overflow.set_bound(overflow, &mut self.entries);
        let fitting = (u128::from(ALL) * u128::from(most)).checked_div(u128::from(wanted));
        let fitting = fitting.map_or(ALL, |fitting| u32::try_from(fitting).unwrap_or(ALL));
        // Newly kept hashes have to be sampled again, so the threshold does not rise often.
        if fitting < self.kept || fitting == ALL || fitting > self.kept / 4 * 5 {
            self.kept = fitting;
        }
    }

    /// Entries it has room for now.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.table.buckets() * WAYS
    }

    /// Bytes it takes now, in total.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.bytes()
            + self.overflow.bytes()
            + size_of_val(&*self.entries)
            + size_of::<UnmergedIndex>()
    }

    /// Entries of this era.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries[usize::from(self.era)]
    }

    /// Number of pages per page that is entered, rounded up.
    #[must_use]
    pub fn pages_per_entry(&self) -> u32 {
        ALL.div_ceil(self.kept.max(1))
    }

    /// Whether there is no entry of this era.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// From now on makes and finds entries of `era`, the strength of the hashes to come. Costs
    /// nothing; entries of the old era stay until their room is needed.
    ///
    /// # Panics
    /// If it is no strength: 1 to 64.
    pub fn set_era(&mut self, era: u16) {
        let era = u8::try_from(era).ok().filter(|era| (1..=64).contains(era));
        self.era = era.expect("strengths are 1 to 64") - 1;
    }

    /// Looks for another page of this hash, and enters this one if there is none.
    pub fn look_up(&mut self, hash: u64, place: RegionPage, round: u32) -> Match {
        let mixed = mix(hash);
        let met = self.look_up_at(self.table.address(mixed), mixed, place, round);
        self.fit_table(round);
        met
    }

    /// As [`UnmergedIndex::look_up`], on a rung: a hash has several entries where pages wait until
    /// several spaces hold their contents. Rung 0 is that of `look_up`. All rungs of a hash are
    /// kept, or none.
    pub fn look_up_rung(&mut self, hash: u64, rung: u32, place: RegionPage, round: u32) -> Match {
        let mixed = on_rung(mix(hash), rung);
        let met = self.look_up_at(self.table.address(mixed), mixed, place, round);
        self.fit_table(round);
        met
    }

    /// As [`UnmergedIndex::look_up`], for a mixed hash and its address.
    #[inline]
    fn look_up_at(&mut self, to: Address, mixed: u64, place: RegionPage, round: u32) -> Match {
        let entry = self.layout.entry(to.tag, self.era, round, place);
        let ways = self.table.bucket_mut(to.bucket);
        if let Some(met) = meet(ways, entry, round, self.layout) {
            return met;
        }
        if self.overflow.may_have(mixed)
            && let Some(met) = self.look_in_overflow(mixed, place, round)
        {
            return met;
        }
        if !is_kept(mixed, self.kept) {
            return Match::LeftOut;
        }
        self.put_in(entry, to.bucket, mixed, round);
        Match::Inserted
    }

    /// Puts a new entry into its bucket, which is that of this hash. The entry that it displaces
    /// goes to the overflow.
    #[inline]
    fn put_in(&mut self, entry: Entry, bucket: Bucket, mixed: u64, round: u32) {
        if let Some(pushed) = self.put(entry, bucket, round) {
            let known = self.table.known_beside(mixed, pushed);
            let clock = (self.era, round);
            self.overflow
                .take_in(pushed, known, clock, &mut self.entries);
        }
    }

    /// As [`UnmergedIndex::look_up_at`], among the entries that had no room in their bucket.
    #[inline(never)]
    fn look_in_overflow(&mut self, mixed: u64, place: RegionPage, round: u32) -> Option<Match> {
        let to = self.overflow.address(mixed);
        let entry = self.layout.entry(to.tag, self.era, round, place);
        meet(self.overflow.ways_mut(to), entry, round, self.layout)
    }

    /// Puts a new entry into its bucket, over another one if need be. Returns the displaced entry
    /// if it is of this era: it is still counted.
    #[inline]
    fn put(&mut self, entry: Entry, bucket: Bucket, round: u32) -> Option<Entry> {
        let ways = self.table.bucket_mut(bucket);
        self.entries[usize::from(entry.era())] += 1;
        if let Some(way) = ways.iter_mut().find(|way| Entry(**way).is_none()) {
            *way = entry.0;
            return None;
        }
        self.put_over(entry, bucket, round)
    }

    /// As [`UnmergedIndex::put`], into a full bucket, which is rare.
    #[inline(never)]
    fn put_over(&mut self, entry: Entry, bucket: Bucket, round: u32) -> Option<Entry> {
        let (layout, era) = (self.layout, self.era);
        let ways = self.table.bucket_mut(bucket);
        // The tag decides among equally old ones, so that no way is favoured.
        let mut victim = (entry.tag(layout) >> 1) as usize % WAYS;
        let mut best = Entry(ways[victim]).rank(era, round, layout);
        for (number, way) in ways.iter().enumerate() {
            let rank = Entry(*way).rank(era, round, layout);
            if rank > best {
                (victim, best) = (number, rank);
            }
        }
        let forgotten = Entry(std::mem::replace(&mut ways[victim], entry.0));
        if forgotten.era() == era {
            return Some(forgotten);
        }
        self.entries[usize::from(forgotten.era())] -= 1;
        None
    }

    /// As [`UnmergedIndex::look_up`] for each page in turn, with the cache misses overlapped. The
    /// answers are appended to `matches` in the order of the queries.
    pub fn look_up_batch(&mut self, queries: &[Query], round: u32, matches: &mut Vec<Match>) {
        matches.reserve(queries.len());
        let mut addresses = [(Address::default(), 0); LOOKUPS_IN_FLIGHT];
        for together in queries.chunks(LOOKUPS_IN_FLIGHT) {
            for (address, query) in addresses.iter_mut().zip(together) {
                let mixed = mix(query.hash);
                *address = (self.table.address(mixed), mixed);
            }
            // These loads do not wait for each other; those of the lookups would. Little code is
            // between them, so that a core can overlap as many as possible.
            let mut touched = 0;
            for (address, _) in &addresses[..together.len()] {
                touched ^= self.table.bucket(address.bucket)[0];
            }
            std::hint::black_box(touched);
            for (&(address, mixed), query) in addresses.iter().zip(together) {
                matches.push(self.look_up_at(address, mixed, query.place, round));
            }
        }
        self.fit_table(round);
    }

    /// The page of this hash, if there is one: its place and the rounds since it was seen.
    #[must_use]
    pub fn find(&self, hash: u64, round: u32) -> Option<(RegionPage, u16)> {
        self.find_on_rung(hash, 0, round)
    }

    /// As [`UnmergedIndex::find`], on a rung.
    #[must_use]
    pub fn find_on_rung(&self, hash: u64, rung: u32, round: u32) -> Option<(RegionPage, u16)> {
        let layout = self.layout;
        let find = |to: Address, ways: &[u64; WAYS]| {
            // Any place and age do.
            let wanted = layout.entry(to.tag, self.era, 0, RegionPage::default());
            let mut entries = ways.iter().map(|&way| Entry(way));
            entries.find(|entry| entry.matches(wanted, layout))
        };
        let mixed = on_rung(mix(hash), rung);
        let (to, over) = (self.table.address(mixed), self.overflow.address(mixed));
        find(to, self.table.bucket(to.bucket))
            .or_else(|| find(over, self.overflow.ways(over)))
            .map(|entry| (entry.place(layout), rounds(entry.age(round, layout))))
    }

    /// Forgets the page of this hash if it is at `place`; returns whether it was.
    pub fn remove(&mut self, hash: u64, place: RegionPage) -> bool {
        self.remove_rung(hash, 0, place)
    }

    /// As [`UnmergedIndex::remove`], from a rung.
    pub fn remove_rung(&mut self, hash: u64, rung: u32, place: RegionPage) -> bool {
        let mixed = on_rung(mix(hash), rung);
        if let Some((way, _)) = self.way_mut(mixed, place) {
            *way = Entry::NONE.0;
        } else if let Some((way, _)) = self.overflow_way_mut(mixed, place) {
            *way = Entry::NONE.0;
            self.overflow.removed();
        } else {
            return false;
        }
        self.entries[usize::from(self.era)] -= 1;
        true
    }

    /// Replaces the page of this hash at `old`, which turned out to be gone, by `new`; returns
    /// whether `old` was there.
    pub fn replace(&mut self, hash: u64, old: RegionPage, new: RegionPage, round: u32) -> bool {
        self.replace_on_rung(hash, 0, old, new, round)
    }

    /// As [`UnmergedIndex::replace`], on a rung of the hash.
    pub fn replace_on_rung(
        &mut self,
        hash: u64,
        rung: u32,
        old: RegionPage,
        new: RegionPage,
        round: u32,
    ) -> bool {
        let (era, layout) = (self.era, self.layout);
        let mixed = on_rung(mix(hash), rung);
        let known = match self.way_mut(mixed, old) {
            None => self.overflow_way_mut(mixed, old),
            known => known,
        };
        let Some((way, tag)) = known else {
            return false;
        };
        *way = layout.entry(tag, era, round, new).0;
        true
    }

    /// The entry of a page of this mixed hash, and its tag in its bucket.
    fn way_mut(&mut self, mixed: u64, place: RegionPage) -> Option<(&mut u64, u64)> {
        let to = self.table.address(mixed);
        let wanted = self.layout.entry(to.tag, self.era, 0, place);
        let way = find_way(self.table.bucket_mut(to.bucket), wanted, self.layout)?;
        Some((way, to.tag))
    }

    /// As [`UnmergedIndex::way_mut`], in the overflow.
    fn overflow_way_mut(&mut self, mixed: u64, place: RegionPage) -> Option<(&mut u64, u64)> {
        if !self.overflow.may_have(mixed) {
            return None;
        }
        let to = self.overflow.address(mixed);
        let wanted = self.layout.entry(to.tag, self.era, 0, place);
        let way = find_way(self.overflow.ways_mut(to), wanted, self.layout)?;
        Some((way, to.tag))
    }
}

/// The match of a page in a bucket, if any: its own entry becomes fresh again.
#[inline(always)]
fn meet(ways: &mut [u64; WAYS], entry: Entry, round: u32, layout: Layout) -> Option<Match> {
    let mut ways = ways.iter_mut();
    let way = ways.find(|way| Entry(**way).matches(entry, layout))?;
    let found = Entry(*way);
    if found.is_at_place_of(entry, layout) {
        *way = entry.0;
        return Some(Match::Refreshed);
    }
    Some(Match::Partner {
        place: found.place(layout),
        age: rounds(found.age(round, layout)),
    })
}

/// The entry of a bucket that names this place and matches.
fn find_way(ways: &mut [u64; WAYS], wanted: Entry, layout: Layout) -> Option<&mut u64> {
    ways.iter_mut().find(|way| {
        let entry = Entry(**way);
        entry.matches(wanted, layout) && entry.is_at_place_of(wanted, layout)
    })
}

/// The mixed hash of an entry on a rung. The bits that decide whether it is kept are those of the
/// hash.
fn on_rung(mixed: u64, rung: u32) -> u64 {
    match rung {
        0 => mixed,
        _ => mixed ^ (mix(rung.into()) & !u64::from(ALL - 1)),
    }
}

/// Whether a page of this mixed hash is entered, given the threshold. The bits are not those that
/// choose the bucket.
fn is_kept(mixed: u64, threshold: u32) -> bool {
    mixed & u64::from(ALL - 1) < u64::from(threshold)
}

/// Steps of age as rounds.
fn rounds(steps: u16) -> u16 {
    steps * entry::AGE_STEP
}

#[cfg(test)]
mod tests;
