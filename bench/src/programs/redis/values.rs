//! Seeded values, and the number inserted at once.

/// Values inserted in one go.
pub(super) const PIPELINE: usize = 512;

/// A seeded value.
pub(super) fn value(seed: u64, number: u64, bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(bytes);
    let mut words = [0; crate::contents::WORDS];
    for part in 0..bytes.div_ceil(crate::contents::PAGE) as u64 {
        let key = crate::contents::key(seed, u64::MAX - part, number);
        crate::contents::fill(&mut words, key);
        let more = words.iter().flat_map(|word| word.to_le_bytes());
        value.extend(more.take(bytes - value.len()));
    }
    value
}
