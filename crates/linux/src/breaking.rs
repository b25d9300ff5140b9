//! Unmerges: gives each merged page of a range, or of whole processes, its own copy again.
//!
//! # Problem
//! Every copy takes memory, which may run out. It also takes time: a process can have terabytes.
//!
//! # Approach
//! The work is cut into stretches, so that a caller that is watched can show a sign of life between
//! two of them. Where memory runs out, the work stops and says so.
//!
//! # Source
//! `UKSM_IOC_BREAK` of the contract.

use std::collections::BTreeSet;

use rustix::io::Errno;
use uksm_policy::command::SpaceId;

use crate::domain::{Domain, Whose};
use crate::{mappings, module};

/// Most bytes of a process between two signs of life: a fifth of a second of copying.
const BREAK_STRETCH: u64 = 256 << 20;

/// What unmerging whole processes did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BreakUp {
    /// Processes looked at.
    pub processes: u64,
    /// Pages that got their own copy.
    pub pages: u64,
    /// Processes in which memory did not suffice for all copies.
    pub stopped: u64,
}

/// How far a BREAK came.
pub(crate) struct Range {
    pub(crate) pages: u64,
    pub(crate) stopped: bool,
}

/// Breaks these frames in `start..end` as far as memory allows.
///
/// # Errors
/// The module fails.
pub(crate) fn break_range(
    domain: &mut impl Domain,
    space: SpaceId,
    (mut start, end): (u64, u64),
    whose: Whose,
) -> module::Result<Range> {
    let mut range = Range {
        pages: 0,
        stopped: false,
    };
    while start < end && !range.stopped {
        let broken = match domain.break_range(space, start, end, whose) {
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

/// Breaks all private memory of these spaces, and calls `alive` for each stretch of it.
///
/// # Errors
/// The module fails.
pub fn break_up(
    domain: &mut impl Domain,
    spaces: &[SpaceId],
    alive: &mut dyn FnMut(),
) -> module::Result<BreakUp> {
    let mut done = BreakUp::default();
    let mut seen = BTreeSet::new();
    for &space in spaces {
        done.processes += 1;
        if seen.insert(space) {
            let broken = break_space(domain, space, alive)?;
            done.pages += broken.pages;
            done.stopped += u64::from(broken.stopped);
        }
    }
    Ok(done)
}

/// Breaks all of a process's private memory, and calls `alive` for each stretch of it.
///
/// # Errors
/// The module fails.
fn break_space(
    domain: &mut impl Domain,
    space: SpaceId,
    alive: &mut dyn FnMut(),
) -> module::Result<Range> {
    let mut sum = Range {
        pages: 0,
        stopped: false,
    };
    let ranges = match mappings::breakable(domain, space) {
        Err(error) if error.is_short() => {
            sum.stopped = true;
            return Ok(sum);
        }
        // It has been detached meanwhile.
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(sum),
        ranges => ranges?.unwrap_or_default(),
    };
    for (mut start, end) in ranges {
        while start < end {
            alive();
            let stretch = end.min(start.saturating_add(BREAK_STRETCH));
            let range = break_range(domain, space, (start, stretch), Whose::Own)?;
            sum.pages += range.pages;
            sum.stopped |= range.stopped;
            start = stretch;
        }
    }
    Ok(sum)
}
