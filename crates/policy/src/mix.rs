//! Arithmetic on 64-bit words: a generator of numbers, and functions that spread bits.
//!
//! The results depend on their arguments only, so a seed replays a run. Source: splitmix64 by
//! Steele, Lea and Flood (OOPSLA'14).

/// The generator of all constants: small, seedable with any value, the same everywhere.
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator in state `seed`.
    #[must_use]
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64 { state: seed }
    }

    /// The next value.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// The next value, brought to `0..bound` by its high bits. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        halves(self.next_u64(), bound).0
    }
}

/// The finisher of splitmix64: a bijection of 64 bits in which every input bit moves every
/// output bit. Indexes use it to spread sums of line hashes.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// High and low half of the 128-bit product.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves are what is asked for"
)]
fn halves(a: u64, b: u64) -> (u64, u64) {
    let product = u128::from(a) * u128::from(b);
    ((product >> 64) as u64, product as u64)
}

/// Both halves of the 128-bit product in one word.
#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let (high, low) = halves(a, b);
    high ^ low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_gives_the_published_sequence() {
        let mut random = SplitMix64::new(1_234_567);
        let got: Vec<u64> = (0..5).map(|_| random.next_u64()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(got, published);
    }
}
