//! A table of buckets that grows by one bucket at a time: linear hashing with partial expansions.
//!
//! # Problem
//! The table must grow with the memory that is followed. A table that is replaced by a larger one
//! forgets what it held, or moves it all in one step, and takes nearly twice the memory until it
//! has. Entries do not know their hash: they keep the few bits that their place does not tell.
//!
//! # Approach
//! The buckets form 2^level *groups* of `width` buckets, 4 to 7. The first `level` bits of a hash
//! choose the group, the next eight the bucket in it, in proportion. One step adds one bucket to
//! one group, and spreads the entries of that group over its buckets; groups are extended in order,
//! so a counter (`split`) tells which were. When all groups have one more, `width` is one more. A
//! group of eight is two groups of four of the next level, whose buckets need not be moved. So the
//! table grows by a fifth of its size or less in one pass, no bucket has more than 1.25 times the
//! load of another, and a step touches at most [`MOST_IN_STEP`] buckets.
//!
//! Buckets are numbered in the order in which they are added, which makes memory contiguous:
//! *segments* of 2^level buckets, one for each pass, are allocated when a pass begins. They come
//! zeroed from the allocator, so memory is taken as buckets are used, and none is ever moved.
//!
//! A *tag* is what an entry keeps of the hash: the bits behind those of the group, less what the
//! bucket tells. When the level rises, the group tells one bit more and the tag has room for one at
//! its end, which is not known for entries that are there. A 1 behind the last known bit marks
//! where that is; it moves up by one place with each level. An entry that is seen again gets a full
//! tag. Where too few bits are left to choose the bucket, the entry is forgotten: then the table has
//! grown at least 256 times since the page was last seen.
//!
//! # Units
//! Buckets have [`WAYS`] words and begin at a cache line.
//!
//! # Source
//! W. Litwin, "Linear hashing", VLDB 1980; P.-Å. Larson, "Linear hashing with partial expansions",
//! VLDB 1980.

use super::entry::{Entry, Layout};

/// Entries in a bucket: a cache line.
pub const WAYS: usize = 8;
/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: usize = 64;

/// Buckets of a group in the smallest table.
const LEAST_WIDTH: usize = 4;
/// A group of so many buckets is two groups of the next level.
const FULL_WIDTH: usize = 2 * LEAST_WIDTH;
/// Most buckets that one step reads or writes.
pub(super) const MOST_IN_STEP: usize = FULL_WIDTH;

/// Bits of a hash that choose the bucket in its group.
const FINE_BITS: u32 = 8;
/// Those of them that the bucket does not tell: a bucket has at most a quarter of their values.
const OFFSET_BITS: u32 = FINE_BITS - 2;

/// By width and bucket in the group: the first value of the fine bits that falls there.
const FIRST: [[u64; FULL_WIDTH]; FULL_WIDTH + 1] = {
    let mut first = [[0; FULL_WIDTH]; FULL_WIDTH + 1];
    let mut width = LEAST_WIDTH;
    while width <= FULL_WIDTH {
        let mut at = 0;
        while at < width {
            first[width][at] = ((at << FINE_BITS) as u64).div_ceil(width as u64);
            at += 1;
        }
        width += 1;
    }
    first
};

/// A bucket, and what an entry in it keeps of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Address {
    pub(super) bucket: usize,
    pub(super) tag: u64,
}

/// A group as its entries see it.
#[derive(Debug, Clone, Copy)]
struct Group {
    level: u32,
    number: usize,
    width: usize,
}

impl Group {
    /// Its bucket `at`, by number in the table.
    fn bucket(self, at: usize) -> usize {
        // The last four were added on this level. The first four of a group were the last four of
        // the first of its parents of which it was the second half; those of group 0 were always
        // there. No branch depends on the hash here but that.
        let above = match at >= LEAST_WIDTH {
            true => 0,
            false if self.number == 0 => return at,
            false => self.number.trailing_zeros() + 1,
        };
        ((at | LEAST_WIDTH) << (self.level - above)) + (self.number >> above)
    }

    /// Where a hash belongs of which these bits follow those of the group: the fine bits, further
    /// ones, and the 1 behind the last that is known.
    fn address(self, bits: u64, tag_bits: u32) -> Address {
        let behind = tag_bits + 1 - OFFSET_BITS;
        #[expect(clippy::cast_possible_truncation, reason = "eight bits are left")]
        let fine = (bits >> behind) as usize;
        let at = (fine * self.width) >> FINE_BITS;
        Address {
            bucket: self.bucket(at),
            tag: bits - (FIRST[self.width][at] << behind),
        }
    }

    /// The bits of which [`Group::address`] made this tag in bucket `at`.
    fn bits(self, at: usize, tag: u64, tag_bits: u32) -> u64 {
        tag + (FIRST[self.width][at] << (tag_bits + 1 - OFFSET_BITS))
    }
}

/// Words of which buckets are cut, from the first that begins a cache line.
struct Segment {
    words: Box<[u64]>,
    skip: usize,
}

impl Segment {
    fn new(buckets: usize) -> Segment {
        let words = vec![0u64; (buckets + 1) * WAYS - 1].into_boxed_slice();
        let skip = words.as_ptr().align_offset(BUCKET_BYTES).min(WAYS - 1);
        Segment { words, skip }
    }
}

/// The segment of a bucket, and where it is in that.
#[inline]
fn segment_of(bucket: usize) -> (usize, usize) {
    if bucket < LEAST_WIDTH {
        return (0, bucket);
    }
    let level = bucket.ilog2() - LEAST_WIDTH.ilog2();
    let segment = LEAST_WIDTH * level as usize + (bucket >> level) - LEAST_WIDTH;
    (1 + segment, bucket & ((1 << level) - 1))
}

/// Buckets of a segment.
fn buckets_of(segment: usize) -> usize {
    match segment {
        0 => LEAST_WIDTH,
        _ => 1 << ((segment - 1) / LEAST_WIDTH),
    }
}

/// What one step took out of a group, to be put in again.
pub(super) struct Taken {
    entries: [Entry; MOST_IN_STEP * WAYS],
    addresses: [Address; MOST_IN_STEP * WAYS],
    len: usize,
}

impl Taken {
    /// The entries, each with its new address, or without one if too little of its hash is known.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Entry, Option<Address>)> {
        let all = self.entries.iter().zip(&self.addresses);
        all.take(self.len)
            .map(|(&entry, &address)| (entry, (address.tag != 0).then_some(address)))
    }
}

/// The table.
pub(super) struct Table {
    level: u32,
    width: usize,
    /// Groups that have one bucket more than `width`.
    split: usize,
    layout: Layout,
    segments: Vec<Segment>,
}

impl Table {
    /// A table of so many buckets, or of the fewest there can be.
    pub(super) fn new(buckets: usize, layout: Layout) -> Table {
        let buckets = buckets.max(LEAST_WIDTH);
        let level = (buckets / LEAST_WIDTH).ilog2();
        let (last, _) = segment_of(buckets - 1);
        Table {
            level,
            width: buckets >> level,
            split: buckets & ((1 << level) - 1),
            layout,
            segments: (0..=last).map(buckets_of).map(Segment::new).collect(),
        }
    }

    /// Buckets in use.
    pub(super) fn buckets(&self) -> usize {
        (self.width << self.level) + self.split
    }

    /// Bytes they take.
    pub(super) fn bytes(&self) -> usize {
        self.buckets() * BUCKET_BYTES + self.segments.capacity() * size_of::<Segment>()
    }

    /// The group of a hash, as its entries see it: one that is not extended yet on a new level is
    /// still half of one of the level before.
    #[inline]
    fn group(&self, number: usize) -> Group {
        let is_extended = number < self.split;
        let is_new_level = self.width == LEAST_WIDTH && self.level > 0;
        let is_half = is_new_level && !is_extended;
        Group {
            level: self.level - u32::from(is_half),
            number: number >> u32::from(is_half),
            width: if is_half {
                FULL_WIDTH
            } else {
                self.width + usize::from(is_extended)
            },
        }
    }

    /// Where a hash belongs, whose bits are evenly spread.
    #[inline]
    pub(super) fn address(&self, hash: u64) -> Address {
        let group = self.group(((hash >> 1) >> (63 - self.level)) as usize);
        let tag_bits = self.layout.tag_bits();
        let behind = hash << group.level;
        let bits = behind >> (64 - (tag_bits + FINE_BITS - OFFSET_BITS)) << 1 | 1;
        group.address(bits, tag_bits)
    }

    #[inline]
    pub(super) fn bucket(&self, number: usize) -> &[u64; WAYS] {
        let (segment, at) = segment_of(number);
        let segment = &self.segments[segment];
        &segment.words[segment.skip..].as_chunks().0[at]
    }

    #[inline]
    pub(super) fn bucket_mut(&mut self, number: usize) -> &mut [u64; WAYS] {
        let (segment, at) = segment_of(number);
        let segment = &mut self.segments[segment];
        &mut segment.words[segment.skip..].as_chunks_mut().0[at]
    }

    /// Adds a bucket to the next group, whose entries are taken out: all must be put in again.
    pub(super) fn grow(&mut self) -> Taken {
        let tag_bits = self.layout.tag_bits();
        let number = self.split;
        let before = self.group(number);
        let first = match before.level {
            level if level < self.level => LEAST_WIDTH * (number & 1),
            _ => 0,
        };
        let (added, _) = segment_of(self.buckets());
        if added == self.segments.len() {
            self.segments.push(Segment::new(buckets_of(added)));
        }
        let after = Group {
            level: self.level,
            number,
            width: self.width + 1,
        };
        let known = ((1u64 << FINE_BITS) << (tag_bits + 1 - OFFSET_BITS)) - 1;
        let mut taken = Taken {
            entries: [Entry::NONE; MOST_IN_STEP * WAYS],
            addresses: [Address::default(); MOST_IN_STEP * WAYS],
            len: 0,
        };
        for at in first..first + self.width {
            let layout = self.layout;
            for word in std::mem::take(self.bucket_mut(before.bucket(at))) {
                let entry = Entry(word);
                if entry.is_none() {
                    continue;
                }
                let bits = before.bits(at, entry.tag(layout), tag_bits);
                // The group may tell one bit more than it did.
                let bits = bits << (after.level - before.level) & known;
                taken.entries[taken.len] = entry;
                if bits.trailing_zeros() <= tag_bits - OFFSET_BITS {
                    taken.addresses[taken.len] = after.address(bits, tag_bits);
                }
                taken.len += 1;
            }
        }
        self.advance();
        taken
    }

    fn advance(&mut self) {
        self.split += 1;
        if self.split == 1 << self.level {
            self.split = 0;
            self.width += 1;
        }
        if self.width == FULL_WIDTH {
            self.width = LEAST_WIDTH;
            self.level += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    #[test]
    fn buckets_are_chosen_evenly_at_every_size() {
        for buckets in 4..70 {
            let table = Table::new(buckets, Layout::new(14, 20));
            assert_eq!(table.buckets(), buckets);
            let mut load = vec![0u64; buckets];
            for number in 0..20_000 {
                load[table.address(mix(number + 1)).bucket] += 1;
            }
            let mean = 20_000 / buckets as u64;
            for (bucket, load) in load.into_iter().enumerate() {
                assert!(
                    load * 10 > mean * 7 && load * 10 < mean * 14,
                    "bucket {bucket} of {buckets}: {load}, {mean} on average"
                );
            }
        }
    }

    #[test]
    fn segments_follow_each_other_without_gaps() {
        let mut next = (0, 0);
        for bucket in 0..10_000 {
            assert_eq!(segment_of(bucket), next);
            next.1 += 1;
            if next.1 == buckets_of(next.0) {
                next = (next.0 + 1, 0);
            }
        }
    }

    #[test]
    fn a_table_that_grew_is_one_that_was_made_as_large() {
        let layout = Layout::new(14, 20);
        let mut grown = Table::new(4, layout);
        for buckets in 4..3000 {
            let made = Table::new(buckets, layout);
            assert_eq!(
                (grown.level, grown.width, grown.split),
                (made.level, made.width, made.split)
            );
            grown.grow();
        }
    }
}
