//! The line hash: a partial page hash that can be strengthened and weakened (UKSM §6.2).
//!
//! # Problem
//! Most pages differ in almost every cache line, so that one line distinguishes them; a few kinds
//! of pages differ in one line only. The effort should follow the content, and a hash taken with
//! one effort should become a hash of another at the cost of the difference.
//!
//! # Approach
//! UKSM hashes single words of the page in a random order. Every one of those words costs a cache
//! miss, so this hash takes whole 64-byte lines, in a random order. The lines' hashes are keyed
//! by position and *summed*: a line is added or taken away by adding or subtracting its hash, and
//! the lines of one page load in parallel, because none waits for the one before. A line's
//! hash multiplies its words, masked by secret keys, to 128 bits and folds the halves.
//!
//! The module computes the same function; `interface/uksm_ioctl.h` defines it and
//! `interface/hash_vectors.txt` holds values both are tested against. The simulator and the
//! known hash of the zero page need it on this side.
//!
//! # Units
//! Strength counts lines of [`LINE_SIZE`] bytes, 0 to 64. Hashes are sums modulo 2^64.
//!
//! # Source
//! UKSM §6.2; multiply-and-fold as in wyhash.

use crate::command::{Lines, PAGE_LINES};
use crate::mix::{SplitMix64, fold};

/// Bytes in a line, the unit of strength.
pub const LINE_SIZE: usize = 64;

const PAGE_BYTES: usize = 4096;
const LINES: usize = PAGE_LINES as usize;
const WORDS: usize = LINE_SIZE / 8;

/// Lines that are loaded together: more than a core can have outstanding, few enough to stay in its
/// first cache. Measured on cold pages, 16 and 64 lines take 0.5 and 0.7 of the time.
const LINES_IN_FLIGHT: usize = 16;

const FINAL_FACTOR: u64 = 0x9FB2_1C65_1E98_DF25;

const _: () = assert!(LINES * LINE_SIZE == PAGE_BYTES);

/// The line hash of one seed: its keys, the order of its lines, and its hashes of the zero page.
#[derive(Debug, Clone)]
pub struct LineHash {
    word_key: [u64; WORDS],
    line_key: [u64; LINES],
    /// Place of a line in the page, by its rank in the permutation. Below 64.
    order: [u8; LINES],
    /// Hash of the zero page by strength.
    zero: [u64; LINES + 1],
}

impl LineHash {
    /// The hash whose constants come from `seed`, the domain's `hash_seed`.
    #[must_use]
    pub fn new(seed: u64) -> LineHash {
        let mut random = SplitMix64::new(seed);
        let word_key = std::array::from_fn(|_| random.next_u64());
        let line_key = std::array::from_fn(|_| random.next_u64());
        let mut order = [0; LINES];
        for (place, rank) in order.iter_mut().zip(0u8..) {
            *place = rank;
        }
        for i in (1..LINES).rev() {
            let j = random.below(i as u64 + 1);
            order.swap(i, usize::try_from(j).expect("below 64"));
        }
        let mut hash = LineHash {
            word_key,
            line_key,
            order,
            zero: [0; LINES + 1],
        };
        let mut sum = 0u64;
        for (rank, place) in order.into_iter().enumerate() {
            sum = sum.wrapping_add(hash.line(usize::from(place), &[0; LINE_SIZE]));
            hash.zero[rank + 1] = sum;
        }
        hash
    }

    /// Sum of the hashes of the lines `lines.from..lines.to` of the permutation.
    ///
    /// The hash of strength `b` is that of strength `a` plus `page(a..b)`; the other way round,
    /// minus it. Costs a cache miss a line, overlapped.
    ///
    /// # Panics
    /// If `lines` is not a range within `0..64`.
    #[must_use]
    pub fn page(&self, page: &[u8; PAGE_BYTES], lines: Lines) -> u64 {
        let (contents, _) = page.as_chunks::<LINE_SIZE>();
        let mut sum = 0u64;
        for places in
            self.order[usize::from(lines.from)..usize::from(lines.to)].chunks(LINES_IN_FLIGHT)
        {
            if places.len() > 1 {
                // The work on a line is longer than a core looks ahead, so without this hardly two
                // misses would overlap.
                let first_bytes = places.iter().map(|&place| contents[usize::from(place)][0]);
                std::hint::black_box(first_bytes.fold(0, |all, byte| all ^ byte));
            }
            for &place in places {
                let place = usize::from(place);
                sum = sum.wrapping_add(self.line(place, &contents[place]));
            }
        }
        sum
    }

    /// Hash of the zero page at `strength`, without reading anything.
    ///
    /// # Panics
    /// If `strength` is above 64.
    #[must_use]
    pub fn zero(&self, strength: u16) -> u64 {
        self.zero[usize::from(strength)]
    }

    /// Places of the page's lines in the order in which they are hashed.
    #[must_use]
    pub fn order(&self) -> &[u8] {
        &self.order
    }

    #[inline]
    fn line(&self, place: usize, line: &[u8; LINE_SIZE]) -> u64 {
        let (words, _) = line.as_chunks::<8>();
        let masked = |i: usize| u64::from_le_bytes(words[i]) ^ self.word_key[i];
        let sum = fold(masked(0), masked(1))
            .wrapping_add(fold(masked(2), masked(3)))
            .wrapping_add(fold(masked(4), masked(5)))
            .wrapping_add(fold(masked(6), masked(7)));
        fold(self.line_key[place] ^ sum, FINAL_FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const VECTORS: &str = include_str!("../../../../interface/hash_vectors.txt");

    fn random_page(seed: u64) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        if seed != 0 {
            let mut random = SplitMix64::new(seed);
            for word in page.as_chunks_mut::<8>().0 {
                *word = random.next_u64().to_le_bytes();
            }
        }
        page
    }

    fn range(from: u16, to: u16) -> Lines {
        Lines { from, to }
    }

    #[test]
    fn every_vector_of_the_contract_is_reproduced() {
        let mut seen = 0;
        for (number, text) in VECTORS.lines().enumerate() {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let field: Vec<u64> = text
                .split(' ')
                .map(|field| {
                    let digits = field.strip_prefix("0x").expect("a field starts with 0x");
                    u64::from_str_radix(digits, 16).expect("a field is hexadecimal")
                })
                .collect();
            let [seed, content, from, to, expected] = field[..] else {
                panic!(
                    "hash_vectors.txt:{}: {} fields, not 5",
                    number + 1,
                    field.len()
                );
            };
            let lines = range(u16::try_from(from).unwrap(), u16::try_from(to).unwrap());
            let hash = LineHash::new(seed);
            assert_eq!(
                hash.page(&random_page(content), lines),
                expected,
                "hash_vectors.txt:{}",
                number + 1
            );
            seen += 1;
        }
        assert!(seen >= 100, "hash_vectors.txt holds {seen} vectors only");
    }

    #[test]
    fn strengthening_and_weakening_equal_the_direct_hash() {
        let hash = LineHash::new(7);
        let page = random_page(8);
        let direct: Vec<u64> = (0..=PAGE_LINES)
            .map(|to| hash.page(&page, range(0, to)))
            .collect();
        for a in 0..=PAGE_LINES {
            for b in a..=PAGE_LINES {
                let difference = hash.page(&page, range(a, b));
                let (weak, strong) = (direct[usize::from(a)], direct[usize::from(b)]);
                assert_eq!(weak.wrapping_add(difference), strong, "up from {a} to {b}");
                assert_eq!(
                    strong.wrapping_sub(difference),
                    weak,
                    "down from {b} to {a}"
                );
            }
        }
    }

    #[test]
    fn zero_table_equals_hashing_a_zero_page() {
        let hash = LineHash::new(99);
        for strength in 0..=PAGE_LINES {
            let direct = hash.page(&[0; PAGE_BYTES], range(0, strength));
            assert_eq!(hash.zero(strength), direct, "strength {strength}");
        }
    }

    #[test]
    fn order_is_a_permutation_and_depends_on_the_seed() {
        let one = LineHash::new(1);
        let mut sorted = one.order().to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..64).collect::<Vec<u8>>());
        assert_ne!(one.order(), LineHash::new(2).order());
    }

    #[test]
    fn each_line_counts_from_its_rank_on_and_not_before() {
        let hash = LineHash::new(5);
        let page = random_page(6);
        for (rank, &place) in hash.order().iter().enumerate() {
            let mut other = page;
            other[usize::from(place) * LINE_SIZE + rank] ^= 1;
            let rank = u16::try_from(rank).unwrap();
            assert_eq!(
                hash.page(&page, range(0, rank)),
                hash.page(&other, range(0, rank))
            );
            assert_ne!(
                hash.page(&page, range(0, rank + 1)),
                hash.page(&other, range(0, rank + 1))
            );
        }
    }

    #[test]
    fn every_input_bit_of_a_line_flips_every_output_bit_half_the_time() {
        // 400 pages a bit: the standard deviation of a share is 2.5 %; 15 % is six of them.
        const PAGES: u64 = 400;
        let hash = LineHash::new(11);
        let strongest = range(0, PAGE_LINES);
        let mut flips = vec![[0u64; 64]; LINE_SIZE * 8];
        for content in 1..=PAGES {
            let mut page = random_page(content);
            let before = hash.page(&page, strongest);
            let line = usize::try_from(content % 64).unwrap() * LINE_SIZE;
            for (bit, flips) in flips.iter_mut().enumerate() {
                page[line + bit / 8] ^= 1 << (bit % 8);
                let changed = before ^ hash.page(&page, strongest);
                page[line + bit / 8] ^= 1 << (bit % 8);
                for (output, count) in flips.iter_mut().enumerate() {
                    *count += (changed >> output) & 1;
                }
            }
        }
        for (input, outputs) in flips.iter().enumerate() {
            for (output, &count) in outputs.iter().enumerate() {
                let off = count.abs_diff(PAGES / 2);
                assert!(
                    off < PAGES * 15 / 100,
                    "bit {input} flips bit {output} {count} times"
                );
            }
        }
    }

    #[test]
    fn near_equal_pages_and_moved_lines_have_distinct_hashes() {
        let hash = LineHash::new(13);
        let strongest = range(0, PAGE_LINES);
        let mut seen = HashSet::from([hash.zero(PAGE_LINES)]);
        let mut page = [0; PAGE_BYTES];
        // One byte of a zero page set to each of eight values: the moved lines differ in position
        // only, which the lines' keys bring into the sum.
        for place in 0..PAGE_BYTES {
            for bit in 0..8 {
                page[place] = 1 << bit;
                assert!(
                    seen.insert(hash.page(&page, strongest)),
                    "byte {place}, bit {bit}"
                );
            }
            page[place] = 0;
        }
        // Two lines of a page exchanged.
        let page = random_page(17);
        for other in 1..64 {
            let mut moved = page;
            let (first, rest) = moved.split_at_mut(LINE_SIZE);
            first.swap_with_slice(&mut rest[(other - 1) * LINE_SIZE..other * LINE_SIZE]);
            assert!(
                seen.insert(hash.page(&moved, strongest)),
                "line 0 and {other} exchanged"
            );
        }
    }
}
