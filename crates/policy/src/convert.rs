//! Conversions between counts, times and fractions, each with the reason why it is safe.
//!
//! A silent truncation in a budget is a bug that stays unnoticed. Every lossy conversion of the
//! policy is here and saturates.

use crate::command::Nanos;

/// A count or time as a fraction; exact below 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "a relative error of 2^-53 does not matter here"
)]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

/// A time; negative and undefined values become 0, values that are too large the largest time.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates"
)]
pub(crate) fn nanos(value: f64) -> Nanos {
    value as u64
}

/// A time in seconds.
pub(crate) fn seconds(time: Nanos) -> f64 {
    ratio(time, crate::command::SECOND)
}

/// A count, in the same way.
pub(crate) fn count(value: f64) -> u64 {
    nanos(value)
}

/// A time as the difference of two.
pub(crate) fn signed(time: Nanos) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// A number that must fit in 32 bits; larger ones saturate.
pub(crate) fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// An index for a slice; on every machine that runs this, `usize` holds 32 bits.
pub(crate) fn index(value: u32) -> usize {
    value as usize
}

/// The index of the word of a number in a set of bits, and its bit in the word.
pub(crate) fn word_and_bit(number: u32) -> (usize, u64) {
    (index(number / u64::BITS), 1 << (number % u64::BITS))
}

/// `part ÷ whole`, 0 of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        float(part) / float(whole)
    }
}

/// The high half of a product: `a · b ÷ 2^64`, which is below `b`.
pub(crate) fn high_product(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// Processor time of this thread for the fastest of `tries` runs of `work`: the figure that a test
/// of growth compares, on a machine that is busy with other things.
#[cfg(test)]
pub(crate) fn fastest(tries: u32, mut work: impl FnMut()) -> Nanos {
    use rustix::time::{ClockId, clock_gettime};
    let clock = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
    };
    let time = |_| {
        let begun = clock();
        work();
        clock() - begun
    };
    (0..tries).map(time).min().expect("at least one try")
}
