//! The contents of simulated pages, and their hashes.
//!
//! # Problem
//! Hashes must behave as line hashes do, without bytes: they are sums over lines, equal for equal
//! pages, and a weak one confuses similar pages. A host has tens of millions of pages.
//!
//! # Approach
//! A content is a number of 64 bits, and the hash over its first `k` lines is a function of that
//! number and `k`, so that the hash of any range of lines is a difference of two. Contents of one
//! *family* are equal in the first lines of the permutation; the number of these lines is part of
//! the content.

use uksm_policy::command::{Lines, PAGE_LINES};
use uksm_policy::hash::LineHash;
use uksm_policy::mix::mix;

/// The family of the zero page.
const ZEROS: u64 = (1 << FAMILY_BITS) - 1;

/// The highest bit marks a content of a family; below it stand the number of equal lines, the
/// family, and the id within it.
const IS_SIMILAR: u64 = 1 << 63;
const ALIKE_SHIFT: u32 = 56;
const ALIKE_BITS: u32 = 7;
const FAMILY_SHIFT: u32 = 40;
const FAMILY_BITS: u32 = 16;

/// Odd, so that no two nodes add the same.
const NODE_KEY: u64 = 0x9E37_79B9_7F4A_7C15;

/// The contents of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content(u64);

impl Content {
    /// All zeros.
    pub const ZERO: Content = Content(0);

    /// Contents that differ from others in every line.
    ///
    /// # Panics
    /// If `id` is 0 or above 2^63.
    #[must_use]
    pub fn new(id: u64) -> Content {
        assert!(id != 0, "0 is the zero page");
        assert!(id & IS_SIMILAR == 0, "{id:#x} is too large");
        Content(id)
    }

    /// Contents that differ from the family's others only beyond the first `alike` lines. With 64
    /// of them no strength can distinguish the contents.
    ///
    /// # Panics
    /// If `id` is 0 or above 2^40, or `family` 0 or above 2^16 - 2, or `alike` above 64.
    #[must_use]
    pub fn similar(id: u64, family: u32, alike: u16) -> Content {
        let family = u64::from(family);
        assert!(family != 0 && family < ZEROS, "family {family}");
        Content::of_family(id, family, alike)
    }

    /// Contents that have zeros in their first `alike` lines, and not in all.
    ///
    /// # Panics
    /// As [`Content::similar`].
    #[must_use]
    pub fn nearly_zero(id: u64, alike: u16) -> Content {
        Content::of_family(id, ZEROS, alike)
    }

    fn of_family(id: u64, family: u64, alike: u16) -> Content {
        assert!(id != 0 && id < 1 << FAMILY_SHIFT, "id {id:#x}");
        assert!(alike <= PAGE_LINES, "{alike} lines");
        Content(IS_SIMILAR | u64::from(alike) << ALIKE_SHIFT | family << FAMILY_SHIFT | id)
    }

    /// The number that stands for these contents.
    #[must_use]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The number of lines in which the family's contents are equal; the family.
    fn family(self) -> (u64, u64) {
        if self.0 & IS_SIMILAR == 0 {
            return (0, 0);
        }
        let alike = self.0 >> ALIKE_SHIFT & ((1 << ALIKE_BITS) - 1);
        (alike, self.0 >> FAMILY_SHIFT & ZEROS)
    }

    /// The hash of some lines, as the module would compute it.
    #[must_use]
    pub fn hash(self, lines: Lines, hash: &LineHash) -> u64 {
        self.prefix(lines.to, hash)
            .wrapping_sub(self.prefix(lines.from, hash))
    }

    /// The same on a node of memory, where pages of different nodes are kept apart: lines of zeros
    /// show no node.
    #[must_use]
    pub fn hash_on(self, node: u32, lines: Lines, hash: &LineHash) -> u64 {
        let part = |lines: u16| {
            let shown = if self.begins_with_zeros(lines) {
                0
            } else {
                lines
            };
            (u64::from(node) * u64::from(shown)).wrapping_mul(NODE_KEY)
        };
        self.hash(lines, hash)
            .wrapping_add(part(lines.to))
            .wrapping_sub(part(lines.from))
    }

    fn begins_with_zeros(self, lines: u16) -> bool {
        let (alike, family) = self.family();
        self == Content::ZERO || family == ZEROS && u64::from(lines) <= alike
    }

    fn prefix(self, lines: u16, hash: &LineHash) -> u64 {
        if lines == 0 {
            return 0;
        }
        if self.begins_with_zeros(lines) {
            return hash.zero(lines);
        }
        let (alike, family) = self.family();
        let is_alike = u64::from(lines) <= alike;
        let id = if is_alike { family << 32 } else { self.0 };
        mix(mix(id) ^ u64::from(lines) << 1 ^ u64::from(is_alike))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(content: Content, from: u16, to: u16) -> u64 {
        content.hash(Lines { from, to }, &LineHash::new(1))
    }

    #[test]
    fn hashes_add_up_over_lines() {
        for content in [Content::ZERO, Content::new(7), Content::similar(7, 1, 9)] {
            let whole = hash(content, 0, 64);
            let parts = hash(content, 0, 9).wrapping_add(hash(content, 9, 64));
            assert_eq!(whole, parts);
        }
        assert_eq!(hash(Content::ZERO, 0, 5), LineHash::new(1).zero(5));
    }

    #[test]
    fn nodes_distinguish_what_is_not_zeros_and_add_up() {
        let of = |content: Content, node, from, to| {
            content.hash_on(node, Lines { from, to }, &LineHash::new(1))
        };
        for content in [Content::new(7), Content::nearly_zero(7, 9)] {
            assert_eq!(of(content, 0, 0, 64), hash(content, 0, 64));
            assert_ne!(of(content, 1, 0, 64), of(content, 2, 0, 64));
            let sum = of(content, 1, 0, 8).wrapping_add(of(content, 1, 8, 64));
            assert_eq!(of(content, 1, 0, 64), sum);
        }
        assert_eq!(
            of(Content::nearly_zero(7, 9), 1, 0, 9),
            hash(Content::ZERO, 0, 9)
        );
        assert_eq!(of(Content::ZERO, 1, 0, 64), hash(Content::ZERO, 0, 64));
    }

    #[test]
    fn a_family_is_distinguished_by_strong_hashes_only() {
        let (a, b) = (Content::similar(1, 3, 8), Content::similar(2, 3, 8));
        assert_eq!(hash(a, 0, 8), hash(b, 0, 8));
        assert_ne!(hash(a, 0, 9), hash(b, 0, 9));
        let nearly = Content::nearly_zero(1, 8);
        assert_eq!(hash(nearly, 0, 8), hash(Content::ZERO, 0, 8));
        assert_ne!(hash(nearly, 0, 9), hash(Content::ZERO, 0, 9));
    }

    #[test]
    fn contents_alike_in_all_lines_differ_and_hash_alike_at_every_strength() {
        let (a, b) = (Content::similar(1, 3, 64), Content::similar(2, 3, 64));
        assert_ne!(a, b);
        for strength in 1..=PAGE_LINES {
            assert_eq!(hash(a, 0, strength), hash(b, 0, strength));
        }
    }
}
