//! What a simulated page holds, and how it hashes.
//!
//! Hashes must behave as line hashes do, without bytes: they are sums over lines, equal for equal
//! pages, and a weak one confuses similar pages. A content is an id, and the hash over its first `k`
//! lines is a function of that id and `k`, so that the hash of any range of lines is a difference of
//! two. Contents of one *family* are equal in the first lines of the permutation.

use uksm_policy::command::Lines;
use uksm_policy::hash::{LineHash, mix};

/// The family of the zero page.
const ZEROS: u32 = u32::MAX;

/// The contents of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content {
    id: u64,
    /// Pages of one family, unless 0, are equal in their first `alike` lines.
    family: u32,
    alike: u16,
}

impl Content {
    /// All zeros.
    pub const ZERO: Content = Content {
        id: 0,
        family: 0,
        alike: 0,
    };

    /// Contents that differ from others in every line.
    #[must_use]
    pub fn new(id: u64) -> Content {
        assert!(id != 0, "0 is the zero page");
        Content {
            id,
            family: 0,
            alike: 0,
        }
    }

    /// Contents that differ from the family's others only beyond the first `alike` lines.
    #[must_use]
    pub fn similar(id: u64, family: u32, alike: u16) -> Content {
        assert!(id != 0 && family != 0 && alike < 64);
        Content { id, family, alike }
    }

    /// Contents that have only zeros in their first `alike` lines, and not in all.
    #[must_use]
    pub fn nearly_zero(id: u64, alike: u16) -> Content {
        Content::similar(id, ZEROS, alike)
    }

    /// The hash of some lines, as the module would give it.
    #[must_use]
    pub fn hash(self, lines: Lines, hash: &LineHash) -> u64 {
        self.prefix(lines.to, hash)
            .wrapping_sub(self.prefix(lines.from, hash))
    }

    fn prefix(self, lines: u16, hash: &LineHash) -> u64 {
        if self.id == 0 {
            return hash.zero(lines);
        }
        if lines == 0 {
            return 0;
        }
        if lines <= self.alike && self.family == ZEROS {
            return hash.zero(lines);
        }
        let id = if lines <= self.alike {
            u64::from(self.family) << 32
        } else {
            self.id
        };
        mix(mix(id) ^ u64::from(lines) << 1 ^ u64::from(lines <= self.alike))
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
    fn a_family_is_told_apart_by_strong_hashes_only() {
        let (a, b) = (Content::similar(1, 3, 8), Content::similar(2, 3, 8));
        assert_eq!(hash(a, 0, 8), hash(b, 0, 8));
        assert_ne!(hash(a, 0, 9), hash(b, 0, 9));
        let nearly = Content::nearly_zero(1, 8);
        assert_eq!(hash(nearly, 0, 8), hash(Content::ZERO, 0, 8));
        assert_ne!(hash(nearly, 0, 9), hash(Content::ZERO, 0, 9));
    }
}
