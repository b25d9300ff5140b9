//! Values of parameters as text: shares, times, sizes and numbers.
//!
//! Each is printed so that reading the text gives the value back.

use crate::command::Nanos;

/// Reads `10%` or `0.1`.
pub(super) fn parse_share(text: &str) -> Option<f64> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse::<f64>().ok()?,
    };
    value.is_finite().then_some(value)
}

/// Reads `20ms`, `1.5s`, `300us`, `7ns` or `0`.
pub(super) fn parse_duration(text: &str) -> Option<Nanos> {
    if text == "0" {
        return Some(0);
    }
    let units = [
        ("ns", 1.0),
        ("us", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("min", 60e9),
        ("h", 3600e9),
    ];
    let (number, scale) = units.iter().find_map(|&(suffix, scale)| {
        let number = text.strip_suffix(suffix)?.trim().parse::<f64>().ok()?;
        Some((number, scale))
    })?;
    whole(number * scale)
}

/// Reads `64MiB`, `1GiB`, `4096`.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let units = [
        ("KiB", 1u64 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("", 1),
    ];
    units.iter().find_map(|&(suffix, scale)| {
        let number = text.strip_suffix(suffix)?.trim().parse::<u64>().ok()?;
        number.checked_mul(scale)
    })
}

/// Prints a share from 0 to 1: `10%`.
pub(super) fn percent(share: f64) -> String {
    // Nine digits are far below any bound and hide the error of binary fractions.
    let digits = format!("{:.9}", share * 100.0);
    format!("{}%", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// Prints a time in the largest unit that divides it: `20ms`.
pub(super) fn duration(time: Nanos) -> String {
    match time {
        0 => "0s".to_owned(),
        t if t.is_multiple_of(3_600_000_000_000) => format!("{}h", t / 3_600_000_000_000),
        t if t.is_multiple_of(1_000_000_000) => format!("{}s", t / 1_000_000_000),
        t if t.is_multiple_of(1_000_000) => format!("{}ms", t / 1_000_000),
        t if t.is_multiple_of(1_000) => format!("{}us", t / 1_000),
        t => format!("{t}ns"),
    }
}

/// Prints a number of bytes in the largest unit that divides it: `64MiB`.
pub(super) fn size(bytes: u64) -> String {
    for (shift, suffix) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Prints a bound: `256`, `2^52` or `2^64-1`.
pub(super) fn count(number: u64) -> String {
    match number {
        u64::MAX => "2^64-1".to_owned(),
        n if n > u64::from(u32::MAX) && n.is_power_of_two() => format!("2^{}", n.ilog2()),
        n => n.to_string(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked before"
)]
fn whole(value: f64) -> Option<u64> {
    (value.is_finite() && (0.0..9e18).contains(&value)).then(|| value.round() as u64)
}
