//! Seeded page contents: a workload writes them, and must still find them afterwards.
//!
//! Problem: an experiment needs pages that are equal or distinct by plan, the same ones on every
//! run, and a check that no byte changed without a second copy in memory. Approach: a page's words
//! are a mixing function of (seed, family, number, word). Two pages are equal exactly if seed,
//! family and number are; the check recomputes them.

pub(crate) use uksm_policy::mix::mix;

/// Bytes in a page.
pub(crate) const PAGE: usize = 4096;
/// Words in a page.
pub(crate) const WORDS: usize = PAGE / 8;
/// Words in a cache line.
const LINE_WORDS: usize = 8;

/// The increment of splitmix64 (Steele, Lea, Flood 2014): odd, so multiples never collide.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The key of one page's contents.
#[must_use]
pub(crate) fn key(seed: u64, family: u64, number: u64) -> u64 {
    mix(mix(mix(seed).wrapping_add(family)).wrapping_add(number.wrapping_mul(STEP)))
}

/// Word `index` of the page with this key. One multiplication: filling memory must not dominate
/// an emulated run.
#[inline]
fn word(key: u64, index: u64) -> u64 {
    let z = key.wrapping_add(index.wrapping_mul(STEP));
    (z ^ (z >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// Writes the contents with this key into a page.
///
/// # Panics
/// If `page` is not one page long.
pub(crate) fn fill(page: &mut [u64], key: u64) {
    assert_eq!(page.len(), WORDS);
    for (index, slot) in (0_u64..).zip(page.iter_mut()) {
        *slot = word(key, index);
    }
}

/// The same, but with zeros in these lines, given as bits.
///
/// # Panics
/// If `page` is not one page long.
pub(crate) fn fill_but(page: &mut [u64], key: u64, zero_lines: u64) {
    fill(page, key);
    for (line, words) in page.chunks_exact_mut(LINE_WORDS).enumerate() {
        if zero_lines >> line & 1 == 1 {
            words.fill(0);
        }
    }
}

/// Whether a page holds the contents of [`fill_but`].
///
/// # Panics
/// If `page` is not one page long.
#[must_use]
pub(crate) fn holds_but(page: &[u64], key: u64, zero_lines: u64) -> bool {
    assert_eq!(page.len(), WORDS);
    let mut lines = (0_u64..)
        .step_by(LINE_WORDS)
        .zip(page.chunks_exact(LINE_WORDS));
    lines.all(|(first, words)| {
        if zero_lines >> (first / LINE_WORDS as u64) & 1 == 1 {
            words.iter().all(|&found| found == 0)
        } else {
            (first..)
                .zip(words)
                .all(|(index, &found)| found == word(key, index))
        }
    })
}

/// Writes a page equal to the one with key `common` but for one line, which is that of the page
/// with key `own`.
///
/// # Panics
/// If `page` is not one page long, or has no such line.
pub(crate) fn fill_similar(page: &mut [u64], common: u64, own: u64, line: usize) {
    fill(page, common);
    let first = line * LINE_WORDS;
    for (index, slot) in (first as u64..).zip(&mut page[first..first + LINE_WORDS]) {
        *slot = word(own, index);
    }
}

/// Whether a page holds the contents of [`fill_similar`].
///
/// # Panics
/// If `page` is not one page long.
#[must_use]
pub(crate) fn holds_similar(page: &[u64], common: u64, own: u64, line: usize) -> bool {
    assert_eq!(page.len(), WORDS);
    page.iter().enumerate().all(|(index, &found)| {
        let key = if index / LINE_WORDS == line {
            own
        } else {
            common
        };
        found == word(key, index as u64)
    })
}

/// Whether a page holds the contents with this key.
///
/// # Panics
/// If `page` is not one page long.
#[must_use]
pub(crate) fn holds(page: &[u64], key: u64) -> bool {
    holds_but(page, key, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn page(seed: u64, family: u64, number: u64) -> Vec<u64> {
        let mut words = vec![0; WORDS];
        fill(&mut words, key(seed, family, number));
        words
    }

    #[test]
    fn pages_are_equal_exactly_if_seed_family_and_number_are() {
        let mut seen = HashSet::new();
        for seed in 0..4 {
            for family in 0..4 {
                for number in 0..64 {
                    assert!(seen.insert(page(seed, family, number)));
                    assert!(!seen.insert(page(seed, family, number)));
                }
            }
        }
    }

    #[test]
    fn lines_that_are_to_be_zeros_are() {
        let key = key(1, 2, 3);
        let mut words = vec![1; WORDS];
        fill_but(&mut words, key, !(1 << 5));
        assert!(words[..5 * LINE_WORDS].iter().all(|&word| word == 0));
        assert_eq!(words[5 * LINE_WORDS], page(1, 2, 3)[5 * LINE_WORDS]);
        assert!(holds_but(&words, key, !(1 << 5)) && !holds_but(&words, key, 0));
        words[0] = 1;
        assert!(!holds_but(&words, key, !(1 << 5)));
    }

    #[test]
    fn similar_pages_differ_in_one_line() {
        let (common, own) = (key(1, 2, 0), key(1, 2, 3));
        let mut words = vec![0; WORDS];
        fill_similar(&mut words, common, own, 63);
        let differ = words.iter().zip(page(1, 2, 0)).enumerate();
        let mut differ = differ.filter(|(_, (a, b))| *a != b).map(|(index, _)| index);
        assert!(differ.clone().count() > 0 && differ.all(|index| index / LINE_WORDS == 63));
        assert!(holds_similar(&words, common, own, 63));
        assert!(!holds_similar(&words, common, own, 62) && !holds(&words, common));
    }

    #[test]
    fn one_flipped_bit_is_found() {
        for position in [0, 1, 255, WORDS - 1] {
            let mut words = page(1, 2, 3);
            assert!(holds(&words, key(1, 2, 3)));
            words[position] ^= 1 << 17;
            assert!(!holds(&words, key(1, 2, 3)));
        }
    }
}
