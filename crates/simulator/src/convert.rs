//! Figures for people: seconds, MiB and shares.

use uksm_policy::command::Nanos;

/// A time in seconds.
pub(crate) fn seconds(time: Nanos) -> f64 {
    time as f64 / 1e9
}

/// Pages in MiB.
pub(crate) fn mib(pages: u64) -> f64 {
    pages as f64 / 256.0
}

/// `part ÷ whole`, 0 of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
