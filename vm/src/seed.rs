//! The seed of everything random in a run.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

/// The given seed, or a new one. The caller prints it, so that the run can be repeated.
///
/// # Errors
/// The clock is set before 1970.
pub fn or_new(given: Option<u64>) -> Result<u64> {
    match given {
        Some(seed) => Ok(seed),
        None => Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs()),
    }
}
