//! Unmerges: gives each merged page of a range, or of whole processes, its own copy again.
//!
//! # Problem
//! Every copy takes memory, which may run out. It also takes time: a process can have terabytes.
//!
//! # Approach
//! The work is cut into stretches, so that a caller with a watchdog can report between two of them.
//! Where memory runs out, the work stops and reports it. Processes that hold their own locks are
//! tried once more when all others are done.
//!
//! # Source
//! `UKSM_IOC_BREAK` of the contract.

use std::collections::BTreeSet;

use rustix::io::Errno;
use uksm_policy::command::SpaceId;

use crate::domain::{BreakChoice, Domain};
use crate::{mapping_lists, module};

/// Maximum number of bytes of a process between two calls of `alive`: a fifth of a second of
/// copying.
const MAX_STRETCH_BYTES: u64 = 256 << 20;

/// Maximum number of calls for one range: each continues to its end, unless a signal or the
/// target's locks prevent it.
const MAX_CALLS: u32 = 32;

/// The result of unmerging whole processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnmergeSummary {
    /// Number of processes.
    pub processes: u64,
    /// Pages that got their own copy.
    pub pages: u64,
    /// Processes without enough memory for all copies.
    pub stopped: u64,
    /// Processes that held their own locks all the time.
    pub locked: u64,
}

impl std::ops::AddAssign for UnmergeSummary {
    fn add_assign(&mut self, other: UnmergeSummary) {
        self.processes += other.processes;
        self.pages += other.pages;
        self.stopped += other.stopped;
        self.locked += other.locked;
    }
}

/// The progress of a BREAK.
#[derive(Debug, Default)]
pub(crate) struct BreakProgress {
    pub(crate) pages: u64,
    /// Pages remain because memory is short.
    pub(crate) stopped: bool,
    /// Pages remain because the target held its locks.
    pub(crate) locked: bool,
}

impl BreakProgress {
    /// Whether pages remain.
    pub(crate) fn is_left(&self) -> bool {
        self.stopped || self.locked
    }
}

/// Breaks these frames in `start..end` as far as memory and the target's locks allow.
///
/// # Errors
/// The module fails.
pub(crate) fn break_range(
    domain: &mut impl Domain,
    space: SpaceId,
    (mut start, end): (u64, u64),
    choice: BreakChoice,
) -> module::Result<BreakProgress> {
    let mut range = BreakProgress::default();
    for _ in 0..MAX_CALLS {
        if start >= end || range.is_left() {
            return Ok(range);
        }
        let broken = match domain.break_range(space, start, end, choice) {
            Err(error) if error.is_short() => {
                range.stopped = true;
                return Ok(range);
            }
            Err(error) if error.is_locked() => {
                range.locked = true;
                return Ok(range);
            }
            answer => answer?,
        };
        range.pages += broken.pages;
        // Without progress the rest cannot be broken now: a signal, or a process that is gone.
        range.stopped = broken.stopped || broken.next <= start;
        start = broken.next;
    }
    range.locked |= start < end && !range.stopped;
    Ok(range)
}

/// Breaks all private memory of these spaces, and calls `alive` for each stretch of it.
///
/// # Errors
/// The module fails.
pub fn unmerge_spaces(
    domain: &mut impl Domain,
    spaces: &[SpaceId],
    alive: &mut dyn FnMut(),
) -> module::Result<UnmergeSummary> {
    let mut done = UnmergeSummary::default();
    let mut seen = BTreeSet::new();
    let mut locked = Vec::new();
    for &space in spaces {
        done.processes += 1;
        if seen.insert(space) {
            let broken = break_space(domain, space, alive)?;
            done.pages += broken.pages;
            done.stopped += u64::from(broken.stopped);
            if broken.locked {
                locked.push(space);
            }
        }
    }
    for space in locked {
        alive();
        let broken = break_space(domain, space, alive)?;
        done.pages += broken.pages;
        done.stopped += u64::from(broken.stopped);
        done.locked += u64::from(broken.locked);
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
) -> module::Result<BreakProgress> {
    let mut sum = BreakProgress::default();
    let ranges = match mapping_lists::breakable(domain, space) {
        Err(error) if error.is_short() => {
            sum.stopped = true;
            return Ok(sum);
        }
        Err(error) if error.is_locked() => {
            sum.locked = true;
            return Ok(sum);
        }
        // The space was detached meanwhile.
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(sum),
        ranges => ranges?.unwrap_or_default(),
    };
    for (mut start, end) in ranges {
        while start < end {
            alive();
            let stretch = end.min(start.saturating_add(MAX_STRETCH_BYTES));
            let range = break_range(domain, space, (start, stretch), BreakChoice::Own)?;
            sum.pages += range.pages;
            sum.stopped |= range.stopped;
            sum.locked |= range.locked;
            // Each remaining stretch would wait for these locks again.
            if range.locked {
                return Ok(sum);
            }
            start = stretch;
        }
    }
    Ok(sum)
}
