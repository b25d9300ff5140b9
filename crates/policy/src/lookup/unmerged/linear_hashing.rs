//! A table of buckets that grows by one bucket at a time: linear hashing with partial expansions.
//!
//! # Problem
//! The table must grow with the memory that is followed. A table that is replaced by a larger one
//! forgets its entries, or moves them all in one step, and takes nearly twice the memory until
//! then. Entries do not know their hash: they keep the few bits that do not follow from their
//! place.
//!
//! # Approach
//! The buckets form 2^level *groups* of `width` buckets, 4 to 7. The first `level` bits of a hash
//! choose the group; the five after them and two that never change, the *quarter*, choose the
//! bucket in it ([`BUCKET`]). One step adds one bucket to one group, and moves a share of the
//! group's entries there; groups are extended in order, so a counter (`split`) separates those that
//! were. When all groups have one bucket more, `width` grows by one. A group of eight is two groups
//! of four of the next level, whose buckets need not be moved. So the table grows by a quarter of
//! its size or less in one pass, no bucket has more than 1.25 times the load of another, a step
//! touches at most eight buckets, and while the table doubles, six of seven entries are moved,
//! once. A step back removes the last bucket, with the same bounds.
//!
//! Buckets are numbered in the order in which they are added, which makes memory contiguous:
//! *segments* of 2^level buckets, one for each pass, are allocated when a pass begins. They come
//! zeroed from the allocator, so memory is taken as buckets are used, and none is ever moved.
//!
//! A *tag* is the part of the hash that an entry keeps: the quarter, and the bits behind those of
//! the group. When the level rises, the group determines one bit more, and the tag has room for one
//! more at its end, which is unknown for existing entries. A 1 behind the last known bit marks its
//! position; it moves up by one place with each level. When the level falls, the tag gets the
//! group's last bit back. An entry that is seen again gets a full tag. Where too few bits are left
//! to choose the bucket, the entry is forgotten: the table has grown to at least 128 times its size
//! since the page was last seen.
//!
//! # Units
//! Buckets have [`WAYS`] words and begin at a cache line.
//!
//! # Source
//! W. Litwin, "Linear hashing", VLDB 1980; P.-Å. Larson, "Linear hashing with partial expansions",
//! VLDB 1980.

use super::entry::{Entry, KNOWN_BITS, Layout};

/// Entries in a bucket: a cache line.
pub const WAYS: usize = 8;
/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: usize = 64;

/// Buckets of a group in the smallest table.
const MIN_WIDTH: usize = 4;
/// A group of this many buckets is two groups of the next level.
const FULL_WIDTH: usize = 2 * MIN_WIDTH;
/// Bits behind those of the group that choose the bucket in it.
const FINE_BITS: u32 = 5;
/// Bits of the quarter, which choose the bucket on every level.
const QUARTER_BITS: u32 = 2;
/// Their position in a hash: above the bits that decide whether it is kept.
const QUARTER_SHIFT: u32 = 16;
/// All bits that choose the bucket in the group: the first bits of a tag.
const CHOICE_BITS: u32 = QUARTER_BITS + FINE_BITS;
const _: () = assert!(CHOICE_BITS == KNOWN_BITS);
const CHOICES: usize = 1 << CHOICE_BITS;

/// The bucket in the group, by width of the group, and by quarter and fine bits of a hash.
///
/// A group of four has one bucket for each quarter. So has the second half of a group of eight,
/// which the first fine bit chooses. In between, entries of the second half have left their bucket
/// in such numbers that all buckets are equally full, and are in their final bucket of the second
/// half if it exists.
const BUCKET: [[u8; CHOICES]; FULL_WIDTH + 1] = {
    const HALF: usize = 1 << (FINE_BITS - 1);
    // The number of sixteenths of the second half that stay in a group of this width.
    const STAY: [usize; FULL_WIDTH + 1] = [0, 0, 0, 0, HALF, 10, 5, 2, 0];
    let mut table = [[0; CHOICES]; FULL_WIDTH + 1];
    let mut width = MIN_WIDTH;
    while width <= FULL_WIDTH {
        let mut choice = 0;
        while choice < CHOICES {
            let quarter = choice >> FINE_BITS;
            let fine = choice & (2 * HALF - 1);
            let added = width - MIN_WIDTH;
            let at = if fine < HALF || fine - HALF < STAY[width] {
                quarter
            } else if quarter < added {
                MIN_WIDTH + quarter
            } else if added == 2 {
                MIN_WIDTH + quarter % 2
            } else {
                MIN_WIDTH + fine % added
            };
            #[expect(clippy::cast_possible_truncation, reason = "below 8")]
            let at = at as u8;
            table[width][choice] = at;
            choice += 1;
        }
        width += 1;
    }
    table
};

/// The position of a bucket: the segment, and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Bucket {
    segment: usize,
    at: usize,
}

impl Bucket {
    /// The bucket that is added as number `number`, from 0.
    pub(super) fn numbered(number: usize) -> Bucket {
        if number < MIN_WIDTH {
            let segment = 0;
            return Bucket {
                segment,
                at: number,
            };
        }
        let level = number.ilog2() - MIN_WIDTH.ilog2();
        Bucket {
            segment: first_segment(level) + (number >> level) - MIN_WIDTH,
            at: number & ((1 << level) - 1),
        }
    }
}

/// The first of the segments whose buckets were added on this level.
#[inline]
fn first_segment(level: u32) -> usize {
    1 + MIN_WIDTH * level as usize
}

/// The known part of the hash of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownPart {
    /// The known bits, which include the quarter.
    pub(super) hash: u64,
    /// The number of first bits that are known.
    pub(super) bits: u32,
}

/// A bucket, and the tag of an entry in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Address {
    pub(super) bucket: Bucket,
    pub(super) tag: u64,
}

/// The common shape of groups that were extended equally often.
#[derive(Debug, Clone, Copy)]
struct Shape {
    level: u32,
    width: usize,
    /// 1 if they are still halves of groups of the level before, as their entries see it.
    half: u32,
}

/// The shape of the groups of a table that are not yet extended to `width` and one more, and of
/// those that are.
fn shapes(level: u32, width: usize) -> [Shape; 2] {
    let shape = |width, half| Shape {
        level: level - half,
        width,
        half,
    };
    let before = if width == MIN_WIDTH && level > 0 {
        shape(FULL_WIDTH, 1)
    } else {
        shape(width, 0)
    };
    [before, shape(width + 1, 0)]
}

/// A group as its entries see it.
#[derive(Debug, Clone, Copy)]
struct Group {
    level: u32,
    number: usize,
    width: usize,
}

impl Group {
    /// Its bucket `at`.
    #[inline]
    fn bucket(self, at: usize) -> Bucket {
        // The last four were added on this level. The first four of a group were the last four of
        // the first of its parents of which it was the second half; those of group 0 were always
        // there. No other branch here depends on the hash.
        let above = match at >= MIN_WIDTH {
            true => 0,
            false if self.number == 0 => return Bucket { segment: 0, at },
            false => self.number.trailing_zeros() + 1,
        };
        Bucket {
            segment: first_segment(self.level - above) + at % MIN_WIDTH,
            at: self.number >> above,
        }
    }

    /// The bucket in the group for an entry whose tag begins with these bits.
    #[inline]
    fn place(self, choice: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "seven bits are left")]
        let at = BUCKET[self.width][choice as usize % CHOICES];
        usize::from(at)
    }
}

/// The least hash that belongs to a group of this level.
fn first_hash(number: usize, level: u32) -> u64 {
    (number as u64) << 1 << (63 - level)
}

/// Gives an entry the tag of the next level, on which the group determines one bit more. The entry
/// is removed if too little of its hash is known to choose a bucket then.
fn raise(way: &mut u64, layout: Layout, moved: &mut Vec<MovedEntry>) {
    let entry = Entry(*way);
    if entry.is_none() {
        return;
    }
    let tag_bits = layout.tag_bits();
    let tag = entry.tag(layout);
    let behind = (1 << (tag_bits + 1 - QUARTER_BITS)) - 1;
    let next = (tag & !behind) | (tag << 1 & behind);
    if next & behind != 0 && next.trailing_zeros() <= tag_bits - CHOICE_BITS {
        *way = entry.with_tag(next, layout).0;
    } else {
        moved.push((entry, None));
        *way = 0;
    }
}

/// Gives an entry of group `number` the tag of the level before, on which the group determines one
/// bit less.
fn lower(way: &mut u64, number: usize, layout: Layout) {
    let entry = Entry(*way);
    if entry.is_none() {
        return;
    }
    let last = layout.tag_bits() - QUARTER_BITS;
    let behind = (2 << last) - 1;
    let tag = entry.tag(layout);
    let number_bit = (number as u64 & 1) << last;
    // A full tag loses its last bit, and the mark takes its place.
    let next = (tag & !behind) | number_bit | (tag & behind) >> 1 | (tag & 1);
    *way = entry.with_tag(next, layout).0;
}

/// Words of buckets, from the first one that begins a cache line.
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

/// Buckets of a segment.
fn buckets_of(segment: usize) -> usize {
    match segment {
        0 => MIN_WIDTH,
        _ => 1 << ((segment - 1) / MIN_WIDTH),
    }
}

/// An entry that left its bucket, and its new bucket; none if too little of its hash is known.
pub(super) type MovedEntry = (Entry, Option<Bucket>);

/// The table.
pub(super) struct Table {
    level: u32,
    width: usize,
    /// Groups that have one bucket more than `width`.
    split: usize,
    shapes: [Shape; 2],
    layout: Layout,
    segments: Vec<Segment>,
}

impl Table {
    /// A table of `buckets` buckets, at least `MIN_WIDTH`.
    pub(super) fn new(buckets: usize, layout: Layout) -> Table {
        let buckets = buckets.max(MIN_WIDTH);
        let level = (buckets / MIN_WIDTH).ilog2();
        let last = Bucket::numbered(buckets - 1).segment;
        let width = buckets >> level;
        Table {
            level,
            width,
            shapes: shapes(level, width),
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
        let Shape { level, width, half } = self.shapes[usize::from(number < self.split)];
        Group {
            level,
            number: number >> half,
            width,
        }
    }

    /// The group of a hash.
    #[inline]
    fn group_of(&self, hash: u64) -> Group {
        self.group(((hash >> 1) >> (63 - self.level)) as usize)
    }

    /// The first of the buckets of group `number` in `group`, as its entries see it: half of one of
    /// the level before, or all of it.
    fn first_of(&self, group: Group, number: usize) -> usize {
        match group.level < self.level {
            true => MIN_WIDTH * (number & 1),
            false => 0,
        }
    }

    /// The address of a hash whose bits are evenly spread.
    #[inline]
    pub(super) fn address(&self, hash: u64) -> Address {
        let group = self.group_of(hash);
        let tag_bits = self.layout.tag_bits();
        let behind = tag_bits - QUARTER_BITS;
        let quarter = hash >> QUARTER_SHIFT & ((1 << QUARTER_BITS) - 1);
        let rest = hash << group.level;
        let known = quarter << behind | rest >> (64 - behind);
        let choice = quarter << FINE_BITS | rest >> (64 - FINE_BITS);
        Address {
            bucket: group.bucket(group.place(choice)),
            tag: known << 1 | 1,
        }
    }

    #[inline]
    pub(super) fn bucket(&self, bucket: Bucket) -> &[u64; WAYS] {
        let segment = &self.segments[bucket.segment];
        let words = segment.words[segment.skip + bucket.at * WAYS..].first_chunk();
        words.expect("a segment has whole buckets")
    }

    #[inline]
    pub(super) fn bucket_mut(&mut self, bucket: Bucket) -> &mut [u64; WAYS] {
        let segment = &mut self.segments[bucket.segment];
        let words = segment.words[segment.skip + bucket.at * WAYS..].first_chunk_mut();
        words.expect("a segment has whole buckets")
    }

    /// The address of a hash of which a part is known; none if that is too little to choose a
    /// bucket.
    pub(super) fn address_of_part(&self, KnownPart { hash, bits }: KnownPart) -> Option<Address> {
        let behind = self.layout.tag_bits() - QUARTER_BITS;
        let known = bits.checked_sub(self.group_of(hash).level)?;
        if known < FINE_BITS {
            return None;
        }
        let mut address = self.address(hash);
        let unknown = behind.saturating_sub(known);
        address.tag = (address.tag >> unknown | 1) << unknown;
        Some(address)
    }

    /// Each entry, with the known part of its hash.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Entry, KnownPart)> + '_ {
        (0..1 << self.level).flat_map(move |number| {
            let group = self.group(number);
            let first = self.first_of(group, number);
            let count = if group.level < self.level {
                MIN_WIDTH
            } else {
                group.width
            };
            (first..first + count).flat_map(move |at| {
                let ways = self.bucket(group.bucket(at)).iter();
                let entries = ways.map(|&way| Entry(way)).filter(|entry| !entry.is_none());
                entries.map(move |entry| (entry, self.known_of(group, entry)))
            })
        })
    }

    /// The known part of the hash of an entry in the bucket of `hash`.
    pub(super) fn known_beside(&self, hash: u64, entry: Entry) -> KnownPart {
        self.known_of(self.group_of(hash), entry)
    }

    /// The known part of the hash of an entry of a group.
    fn known_of(&self, group: Group, entry: Entry) -> KnownPart {
        let behind = self.layout.tag_bits() - QUARTER_BITS;
        let tag = entry.tag(self.layout);
        let unknown = tag.trailing_zeros();
        let quarter = tag >> (behind + 1);
        // Without the quarter, and without the 1 behind the known bits.
        let bits = (tag & (tag - 1) & ((1 << (behind + 1)) - 1)) >> 1;
        let hash = first_hash(group.number, group.level)
            | bits << (64 - group.level - behind)
            | quarter << QUARTER_SHIFT;
        KnownPart {
            hash,
            bits: group.level + behind - unknown,
        }
    }

    /// Adds a bucket to the next group. The entries that leave their bucket are appended to
    /// `moved`: all must be put in again, into this group. Returns a hash that belongs to the
    /// group.
    pub(super) fn grow(&mut self, moved: &mut Vec<MovedEntry>) -> u64 {
        let layout = self.layout;
        let number = self.split;
        let before = self.group(number);
        let is_new_level = before.level < self.level;
        let first = self.first_of(before, number);
        let added = Bucket::numbered(self.buckets()).segment;
        if added == self.segments.len() {
            self.segments.push(Segment::new(buckets_of(added)));
        }
        let after = Group {
            level: self.level,
            number,
            width: self.width + 1,
        };
        for at in 0..self.width {
            let ways = self.bucket_mut(before.bucket(first + at));
            if is_new_level {
                for way in &mut *ways {
                    raise(way, layout, moved);
                }
            }
            for way in ways.iter_mut().filter(|way| **way != 0) {
                let to = after.place(Entry(*way).first_of_tag(CHOICE_BITS));
                if to != at {
                    moved.push((Entry(*way), Some(after.bucket(to))));
                    *way = 0;
                }
            }
        }
        let hash = first_hash(number, self.level);
        self.advance();
        hash
    }

    /// Removes the last bucket, as if it had never been added. The entries that leave their bucket
    /// are appended to `moved`: all must be put in again, into the group that had it. Returns a
    /// hash that belongs to the group.
    ///
    /// # Panics
    /// If the table is the smallest there can be.
    pub(super) fn shrink(&mut self, moved: &mut Vec<MovedEntry>) -> u64 {
        let layout = self.layout;
        self.retreat();
        let number = self.split;
        let after = self.group(number);
        let is_old_level = after.level < self.level;
        let first = self.first_of(after, number);
        let before = Group {
            level: self.level,
            number,
            width: self.width + 1,
        };
        for at in 0..before.width {
            for way in self.bucket_mut(before.bucket(at)) {
                if *way == 0 {
                    continue;
                }
                if is_old_level {
                    lower(way, number, layout);
                }
                let to = after.place(Entry(*way).first_of_tag(CHOICE_BITS));
                if to != first + at || at + 1 == before.width {
                    moved.push((Entry(*way), Some(after.bucket(to))));
                    *way = 0;
                }
            }
        }
        if Bucket::numbered(self.buckets()).at == 0 {
            self.segments.pop();
        }
        first_hash(number, self.level)
    }

    /// The reverse of [`Table::advance`].
    fn retreat(&mut self) {
        if self.split == 0 {
            if self.width == MIN_WIDTH {
                assert!(self.level > 0, "the smallest table has no bucket to spare");
                self.width = FULL_WIDTH;
                self.level -= 1;
            }
            self.width -= 1;
            self.split = 1 << self.level;
        }
        self.split -= 1;
        self.shapes = shapes(self.level, self.width);
    }

    fn advance(&mut self) {
        self.split += 1;
        if self.split == 1 << self.level {
            self.split = 0;
            self.width += 1;
        }
        if self.width == FULL_WIDTH {
            self.width = MIN_WIDTH;
            self.level += 1;
        }
        self.shapes = shapes(self.level, self.width);
    }
}

#[cfg(test)]
mod tests;
