//! The contenders: UKSM's word hash with its reverse, and `SuperFastHash`.

use crate::PageBytes;
use uksm_policy::command::{Lines, PAGE_LINES};
use uksm_policy::hash::LineHash;
use uksm_policy::mix::SplitMix64;

/// Words of 32 bits in a page: the highest strength of the word hash.
pub(crate) const WORDS: usize = 1024;

const SHIFT_LEFT: u32 = 19;
const SHIFT_RIGHT: u32 = 16;

/// The hash of UKSM Figure 5: words of the page in a random order, each stirred into the hash of
/// those before it.
pub(crate) struct WordHash {
    order: [u16; WORDS],
}

impl WordHash {
    /// The order that belongs to `seed`.
    pub(crate) fn new(seed: u64) -> WordHash {
        let mut random = SplitMix64::new(seed);
        let mut order = [0; WORDS];
        for (place, rank) in order.iter_mut().zip(0u16..) {
            *place = rank;
        }
        for i in (1..WORDS).rev() {
            let j = random.below(i as u64 + 1);
            order.swap(i, usize::try_from(j).expect("below 1024"));
        }
        WordHash { order }
    }

    /// Goes from the hash of `from` words to that of `to`, up or down.
    pub(crate) fn step(&self, page: &PageBytes, hash: u32, from: usize, to: usize) -> u32 {
        if from <= to {
            self.order[from..to].iter().fold(hash, |hash, &place| {
                let hash = hash.wrapping_add(word(page, place));
                let hash = hash.wrapping_add(hash << SHIFT_LEFT);
                hash ^ (hash >> SHIFT_RIGHT)
            })
        } else {
            self.order[to..from]
                .iter()
                .rev()
                .fold(hash, |hash, &place| {
                    without_add(without_xor(hash)).wrapping_sub(word(page, place))
                })
        }
    }

    /// The hash of `strength` words.
    pub(crate) fn page(&self, page: &PageBytes, strength: usize) -> u32 {
        self.step(page, 0, 0, strength)
    }
}

fn word(page: &PageBytes, place: u16) -> u32 {
    u32::from_le_bytes(page.as_chunks::<4>().0[usize::from(place)])
}

/// Undoes `n ^= n >> SHIFT_RIGHT` (Figure 7).
fn without_xor(hash: u32) -> u32 {
    let (mut result, mut shifted) = (hash, hash >> SHIFT_RIGHT);
    while shifted != 0 {
        result ^= shifted;
        shifted >>= SHIFT_RIGHT;
    }
    result
}

/// Undoes `n += n << SHIFT_LEFT` (Figure 7).
fn without_add(hash: u32) -> u32 {
    let (mut result, mut shifted) = (hash, hash << SHIFT_LEFT);
    let mut subtract = true;
    while shifted != 0 {
        result = if subtract {
            result.wrapping_sub(shifted)
        } else {
            result.wrapping_add(shifted)
        };
        subtract = !subtract;
        shifted <<= SHIFT_LEFT;
    }
    result
}

/// `SuperFastHash` by Paul Hsieh, of a whole page (which leaves no tail).
pub(crate) fn super_fast_hash(page: &PageBytes) -> u32 {
    let half = |bytes: [u8; 2]| u32::from(u16::from_le_bytes(bytes));
    let mut hash = 4096u32;
    for &[a, b, c, d] in page.as_chunks::<4>().0 {
        hash = hash.wrapping_add(half([a, b]));
        hash = (hash << 16) ^ (half([c, d]) << 11) ^ hash;
        hash = hash.wrapping_add(hash >> 11);
    }
    hash ^= hash << 3;
    hash = hash.wrapping_add(hash >> 5);
    hash ^= hash << 4;
    hash = hash.wrapping_add(hash >> 17);
    hash ^= hash << 25;
    hash.wrapping_add(hash >> 6)
}

/// The line hash of the first `strength` lines.
pub(crate) fn lines(hash: &LineHash, page: &PageBytes, strength: u16) -> u64 {
    hash.page(
        page,
        Lines {
            from: 0,
            to: strength,
        },
    )
}

/// Panics if a contender is wrong: what a wrong one measures is worth nothing.
pub(crate) fn check() {
    let mut page = [0; 4096];
    let mut random = SplitMix64::new(1);
    for word in page.as_chunks_mut::<8>().0 {
        *word = random.next_u64().to_le_bytes();
    }
    let words = WordHash::new(2);
    let direct: Vec<u32> = (0..=WORDS)
        .map(|strength| words.page(&page, strength))
        .collect();
    for (from, to) in [
        (0, WORDS),
        (WORDS, 0),
        (17, 900),
        (900, 17),
        (5, 4),
        (1023, 1024),
    ] {
        let stepped = words.step(&page, direct[from], from, to);
        assert_eq!(
            stepped, direct[to],
            "the word hash from {from} to {to} words"
        );
    }
    // The definition, written out once more for two words.
    let by_hand = [0, 1].iter().fold(0u32, |mut hash, &i| {
        hash = hash.wrapping_add(word(&page, words.order[i]));
        hash = hash.wrapping_mul((1 << 19) + 1);
        hash ^ (hash >> 16)
    });
    assert_eq!(words.page(&page, 2), by_hand);
    let mut other = page;
    other[4095] ^= 1;
    assert_ne!(super_fast_hash(&page), super_fast_hash(&other));
    assert_eq!(
        lines(&LineHash::new(3), &[0; 4096], PAGE_LINES),
        LineHash::new(3).zero(64)
    );
}
