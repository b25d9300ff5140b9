//! An entry of the index of unmerged pages: 64 bits.
//!
//! # Problem
//! The index takes more memory than all else in the policy, so each bit of an entry counts. An
//! entry must hold the place of a page, its hash, the strength of the hash, and its age.
//!
//! # Approach
//! From the highest bits to the lowest:
//!
//! - 6 bits: the era: strength 1 to 64, less one.
//! - the rest, 15 or more: the tag, see [`super::linear_hashing`], and a 1 behind its last known
//!   bit.
//! - 4 bits: the age: the round in which the page was last seen, in fours, modulo 16.
//! - `region_bits`: the region.
//! - `page_bits`: the page in it.
//!
//! The number of bits of a place follows from the parameters: a page of a region of `region_bytes`,
//! and a region of `max_regions`. By default that is 14 + 20 bits, which leaves a tag of 19 bits.
//! Era and tag are the highest bits, so that one comparison shows whether both are equal as far as
//! the tag is known.
//!
//! A word of 0 is no entry: the 1 behind the tag is in each.
//!
//! # Units
//! Ages are rounds, in steps of [`AGE_STEP`]. An entry 64 rounds old looks fresh: it may then
//! outlive a younger one.

use crate::ids::{MAX_PLACE_BITS, RegionId};

const ERA_BITS: u32 = 6;
const AGE_BITS: u32 = 4;
/// Number of first bits of the tag that are known for each entry.
pub(super) const KNOWN_BITS: u32 = 7;
const MAX_AGE: u64 = (1 << AGE_BITS) - 1;

/// Rounds in which the age of an entry grows by one step.
pub(super) const AGE_STEP: u16 = 4;

/// The place of a page when it was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RegionPage {
    /// The region. Its id may be reused: then the suggestion is wrong, and costs a check.
    pub region: RegionId,
    /// The page in the region.
    pub page: u32,
}

/// The division of the bits of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    page_bits: u32,
    place_bits: u32,
}

impl Layout {
    /// The layout for places of this many bits.
    ///
    /// # Panics
    /// If they are more than [`MAX_PLACE_BITS`]; parameters are checked for that.
    #[must_use]
    pub fn new(page_bits: u32, region_bits: u32) -> Layout {
        let place_bits = page_bits + region_bits;
        assert!(
            place_bits <= MAX_PLACE_BITS,
            "{page_bits} bits for a page and {region_bits} for a region are too many"
        );
        Layout {
            page_bits,
            place_bits,
        }
    }

    /// Bits of a hash in an entry, beside those that follow from its bucket.
    pub(super) fn tag_bits(self) -> u32 {
        64 - ERA_BITS - 1 - AGE_BITS - self.place_bits
    }

    /// The lowest bit of era and tag.
    fn label_shift(self) -> u32 {
        self.place_bits + AGE_BITS
    }

    /// An entry. `tag` has its 1 behind it; `era` is below 64.
    pub(super) fn entry(self, tag: u64, era: u8, round: u32, place: RegionPage) -> Entry {
        let label = u64::from(era) << (self.tag_bits() + 1) | tag;
        let age = u64::from(round / u32::from(AGE_STEP)) & MAX_AGE;
        Entry(label << self.label_shift() | age << self.place_bits | self.pack(place))
    }

    fn pack(self, place: RegionPage) -> u64 {
        let packed = u64::from(place.region.0) << self.page_bits | u64::from(place.page);
        assert!(
            packed >> self.place_bits == 0 && u64::from(place.page) >> self.page_bits == 0,
            "{place:?} is beyond what the parameters allow"
        );
        packed
    }
}

/// An entry, or none if it is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u64);

impl Entry {
    pub(super) const NONE: Entry = Entry(0);

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether era and tag are those of `wanted`, whose tag is known in full. Unknown bits of this
    /// entry's tag match any.
    #[inline]
    pub(super) fn matches(self, wanted: Entry, layout: Layout) -> bool {
        // The bits that every entry knows differ in nearly all other entries of the bucket.
        if (self.0 ^ wanted.0) >> (64 - ERA_BITS - KNOWN_BITS) != 0 {
            return false;
        }
        let label = self.0 >> layout.label_shift();
        let differing = label ^ (wanted.0 >> layout.label_shift());
        // The lowest 1 is the one behind the known bits; there is none if this is no entry.
        let end = label & label.wrapping_neg();
        differing < end << 1
    }

    /// Whether it names the same place.
    pub(super) fn is_at_place_of(self, other: Entry, layout: Layout) -> bool {
        (self.0 ^ other.0) << (64 - layout.place_bits) == 0
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the bits were put in as numbers of these types"
    )]
    pub(super) fn place(self, layout: Layout) -> RegionPage {
        let packed = self.0 & ((1 << layout.place_bits) - 1);
        RegionPage {
            region: RegionId((packed >> layout.page_bits) as u32),
            page: (packed & ((1 << layout.page_bits) - 1)) as u32,
        }
    }

    pub(super) fn era(self) -> u8 {
        (self.0 >> (64 - ERA_BITS)) as u8
    }

    /// The tag, with the 1 behind it.
    pub(super) fn tag(self, layout: Layout) -> u64 {
        (self.0 << ERA_BITS) >> (ERA_BITS + layout.label_shift())
    }

    /// The first `bits` bits of the tag.
    #[inline]
    pub(super) fn first_of_tag(self, bits: u32) -> u64 {
        (self.0 << ERA_BITS) >> (64 - bits)
    }

    /// The same with another tag.
    pub(super) fn with_tag(self, tag: u64, layout: Layout) -> Entry {
        let old = self.tag(layout);
        Entry(self.0 ^ (old ^ tag) << layout.label_shift())
    }

    /// Steps of age since the page was last seen.
    pub(super) fn age(self, round: u32, layout: Layout) -> u16 {
        let seen = self.0 >> layout.place_bits;
        (u64::from(round / u32::from(AGE_STEP)).wrapping_sub(seen) & MAX_AGE) as u16
    }

    /// Its rank for replacement, highest first: entries of another era, then by age.
    pub(super) fn rank(self, era: u8, round: u32, layout: Layout) -> u16 {
        u16::from(self.era() != era) << AGE_BITS | self.age(round, layout)
    }
}
