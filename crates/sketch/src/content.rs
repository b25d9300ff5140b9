//! The content of a page, as a sketch knows it.
//!
//! # Problem
//! A process can make collisions with a known hash, and a list of hashes discloses the contents of
//! a process to its finder.
//!
//! # Approach
//! XXH3 of the whole page with a salt that is drawn anew for each run and stored nowhere. Hashes of
//! two runs cannot be compared. Pages of zeros are distinguished: they need no partner and no
//! group.
//!
//! # Source
//! xxHash's XXH3, 64 bits. With 2^24 pages two different contents have one hash with a probability
//! of 2^-17.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// A page's hash; uniform over all 64 bits.
pub type Hash = u64;

/// The salt of the hashes of one run.
#[derive(Clone, Copy)]
pub struct Salt(u64);

/// The content of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Zeros only.
    Zero,
    /// Anything else.
    Hashed(Hash),
}

impl Salt {
    /// A salt from a number that cannot be guessed.
    #[must_use]
    pub fn new(random: u64) -> Salt {
        Salt(random)
    }

    /// The content of a page.
    #[must_use]
    pub fn content(self, page: &[u8]) -> Content {
        if page == ZEROS {
            Content::Zero
        } else {
            Content::Hashed(xxh3_64_with_seed(page, self.0))
        }
    }

    /// A pseudorandom number from others, for choices that contents must not steer.
    #[must_use]
    pub fn mix(self, numbers: [u64; 2]) -> u64 {
        let mut bytes = [0; 16];
        let (first, second) = bytes.split_at_mut(8);
        first.copy_from_slice(&numbers[0].to_le_bytes());
        second.copy_from_slice(&numbers[1].to_le_bytes());
        xxh3_64_with_seed(&bytes, self.0)
    }
}

impl std::fmt::Debug for Salt {
    /// Hides the number.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_zeros_is_told_by_all_its_bytes() {
        let mut page = ZEROS;
        assert_eq!(Salt::new(1).content(&page), Content::Zero);
        page[PAGE_BYTES - 1] = 1;
        assert!(matches!(Salt::new(1).content(&page), Content::Hashed(_)));
    }

    #[test]
    fn hashes_of_two_salts_have_nothing_in_common() {
        let page = |number: u16| {
            let mut page = ZEROS;
            page[..2].copy_from_slice(&number.to_le_bytes());
            page
        };
        let hashes = |salt: u64| -> std::collections::BTreeSet<Hash> {
            let contents = (1..=1000).map(|number| Salt::new(salt).content(&page(number)));
            contents
                .filter_map(|content| match content {
                    Content::Hashed(hash) => Some(hash),
                    Content::Zero => None,
                })
                .collect()
        };
        let (one, other) = (hashes(1), hashes(2));
        assert_eq!((one.len(), &one), (1000, &hashes(1)));
        assert!(one.is_disjoint(&other));
    }
}
