//! Gives merged pages of ranges, and of whole processes, their own copies again.
//!
//! # Problem
//! Breaking takes memory for every copy, which may run out, and long: a process can have terabytes.
//!
//! # Approach
//! Stretch by stretch, so that whoever waits can show a sign of life. Where memory runs out it
//! stops and says so.
//!
//! # Units
//! Bytes, half-open ranges; pages.
//!
//! # Source
//! `UKSM_IOC_BREAK` of the contract.

use uksm_policy::command::SpaceId;

use crate::domain::Domain;
use crate::{maps, module, proc};

/// Most of a range that is broken up in one call, in bytes: a fifth of a second of copying.
const BREAK_STRETCH: u64 = 256 << 20;

/// How far a BREAK came.
pub(crate) struct Range {
    pub(crate) pages: u64,
    pub(crate) stopped: bool,
}

/// Breaks `start..end` as far as memory allows.
///
/// # Errors
/// The module fails.
pub(crate) fn break_range(
    domain: &mut impl Domain,
    space: SpaceId,
    mut start: u64,
    end: u64,
) -> module::Result<Range> {
    let mut range = Range {
        pages: 0,
        stopped: false,
    };
    while start < end && !range.stopped {
        let broken = match domain.break_range(space, start, end) {
            Err(error) if error.is_short() => {
                range.stopped = true;
                break;
            }
            answer => answer?,
        };
        range.pages += broken.pages;
        // Without progress the rest cannot be had now: a signal, or a process that is gone.
        range.stopped = broken.stopped || broken.next <= start;
        start = broken.next;
    }
    Ok(range)
}

/// Breaks all of a process's private memory, and calls `alive` for each stretch of it.
///
/// # Errors
/// The module fails.
pub(crate) fn break_space(
    domain: &mut impl Domain,
    proc: &proc::Proc,
    (pid, space): (u32, SpaceId),
    alive: &mut dyn FnMut(),
) -> module::Result<Range> {
    let mut text = Vec::new();
    let mut sum = Range {
        pages: 0,
        stopped: false,
    };
    if proc.maps(pid, &mut text).is_err() {
        return Ok(sum);
    }
    for (mut start, end) in maps::breakable(&text) {
        while start < end {
            alive();
            let stretch = end.min(start.saturating_add(BREAK_STRETCH));
            let range = break_range(domain, space, start, stretch)?;
            sum.pages += range.pages;
            sum.stopped |= range.stopped;
            start = stretch;
        }
    }
    Ok(sum)
}
