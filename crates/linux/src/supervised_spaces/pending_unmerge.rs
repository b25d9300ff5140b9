//! Spaces whose merged pages must be broken, because their sharers are in different groups.
//!
//! # Problem
//! Groups share no memory. A process that leaves a group shares pages with it, and a process that
//! was forked in one group and moved to another brings such pages along. Breaking copies pages,
//! which takes time and memory, and a process can have terabytes.
//!
//! # Approach
//! A space that left stays attached, so that no other group can attach it, until its pages have
//! been broken; then it is detached. If a space can hold frames of another domain, or SAMPLE found
//! some in it, these are broken. Both happen in stretches, a few for each process list, and in
//! passes that are repeated until one finds nothing from end to end: a process may move its memory
//! meanwhile. Where memory is short, or a process holds its own locks, breaking is tried again
//! later. A space whose process has ended has no pages left to break.
//!
//! # Source
//! design.md §5; `UKSM_IOC_BREAK` of the contract.

use std::collections::BTreeMap;

use uksm_policy::command::{Nanos, SpaceId};

use crate::clock;
use crate::domain::{BreakChoice, Domain};
use crate::lock_waits::LockWaits;
use crate::unmerge::{BreakProgress, break_range};
use crate::{mapping_lists, module};

/// Maximum number of bytes broken at once: some milliseconds of copying.
const MAX_BROKEN_BYTES: u64 = 8 << 20;

/// Time until the next try where memory was short.
const SHORTAGE_RETRY_INTERVAL_NS: Nanos = 1_000_000_000;

/// Maximum number of passes over a process that keeps moving its memory.
const MAX_PASSES: u32 = 8;

/// A space whose breaking is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnmergeEnd {
    /// It has left, and shares nothing.
    Left(SpaceId),
    /// It holds no frames of another domain.
    Clean(SpaceId),
}

/// A space whose pages are being broken.
#[derive(Debug)]
struct PendingUnmerge {
    pid: u32,
    choice: BreakChoice,
    /// It is leaving, and is detached at the end.
    is_leaving: bool,
    /// The remaining ranges of this pass, the last first.
    ranges: Vec<(u64, u64)>,
    /// Pages broken in this pass.
    pages: u64,
    passes: u32,
    /// The earliest time of the next stretch.
    due: Nanos,
}

/// The spaces whose pages are being broken, by id.
#[derive(Debug, Default)]
pub(super) struct PendingUnmerges {
    spaces: BTreeMap<SpaceId, PendingUnmerge>,
    /// The space that had the last turn.
    last: Option<SpaceId>,
    /// Pages broken since the start.
    pages: u64,
    /// Spaces whose processes hold their own locks.
    locked: LockWaits<SpaceId>,
}

impl PendingUnmerges {
    /// A process leaves with its space.
    pub(super) fn leave(&mut self, space: SpaceId, pid: u32) {
        self.add(space, pid, BreakChoice::Own, true);
    }

    /// A space holds or can hold frames of another domain.
    pub(super) fn has_foreign(&mut self, space: SpaceId, pid: u32) {
        if !self.spaces.contains_key(&space) {
            self.add(space, pid, BreakChoice::Foreign, false);
        }
    }

    fn add(&mut self, space: SpaceId, pid: u32, choice: BreakChoice, is_leaving: bool) {
        let fresh = PendingUnmerge {
            pid,
            choice,
            is_leaving,
            ranges: Vec::new(),
            pages: 0,
            passes: 0,
            due: 0,
        };
        self.spaces.insert(space, fresh);
    }

    /// A space is gone.
    pub(super) fn forget(&mut self, space: SpaceId) {
        self.spaces.remove(&space);
        self.locked.clear(space);
    }

    /// The processes that hold their own locks, with the duration.
    pub(super) fn locked(&self) -> impl Iterator<Item = (u32, Nanos)> + '_ {
        let pid = |space: &SpaceId| Some(self.spaces.get(space)?.pid);
        self.locked
            .long()
            .filter_map(move |(space, time)| Some((pid(&space)?, time)))
    }

    /// Number of calls that gave up on processes holding their own locks.
    pub(super) fn given_up(&self) -> u64 {
        self.locked.given_up()
    }

    /// Pages broken since the start.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Time of the next stretch, if there is one.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.spaces.values().map(|space| space.due).min()
    }

    /// Breaks one stretch of the next space that is due; returns the space after its last stretch.
    ///
    /// # Errors
    /// The module fails.
    pub(super) fn break_next(
        &mut self,
        domain: &mut impl Domain,
    ) -> module::Result<Option<UnmergeEnd>> {
        let now = clock::now();
        let last = self.last;
        let is_due = |(_, space): &(&SpaceId, &PendingUnmerge)| space.due <= now;
        let later = self.spaces.iter().filter(is_due);
        let next = later
            .clone()
            .find(|(id, _)| last.is_none_or(|last| **id > last))
            .or_else(|| later.clone().next())
            .map(|(&id, _)| id);
        self.last = next;
        let Some(id) = next else {
            return Ok(None);
        };
        let Some(space) = self.spaces.get_mut(&id) else {
            return Ok(None);
        };
        let broken = space.stretch(id, domain)?;
        self.pages += broken.pages;
        if broken.locked {
            if self.locked.is_due(id, 0) {
                tracing::warn!(
                    "process {}: holds the lock of its own mappings, so it still shares pages \
                     with a group that it is not in; retrying",
                    space.pid
                );
            }
            space.due = self.locked.gave_up(id, clock::now());
            return Ok(None);
        }
        self.locked.clear(id);
        if broken.stopped {
            if space.due == 0 {
                tracing::warn!(
                    "process {}: no memory to copy the pages that it shares with a group that it \
                     is not in; retrying",
                    space.pid
                );
            }
            space.due = now + SHORTAGE_RETRY_INTERVAL_NS;
            return Ok(None);
        }
        if !space.ranges.is_empty() {
            return Ok(None);
        }
        space.passes += 1;
        if std::mem::take(&mut space.pages) > 0 && space.passes < MAX_PASSES {
            return Ok(None);
        }
        let ended = self.spaces.remove(&id);
        Ok(ended.map(|space| match space.is_leaving {
            true => UnmergeEnd::Left(id),
            false => UnmergeEnd::Clean(id),
        }))
    }
}

impl PendingUnmerge {
    /// Breaks the next stretch; begins a pass if there is none.
    fn stretch(&mut self, id: SpaceId, domain: &mut impl Domain) -> module::Result<BreakProgress> {
        let mut range = BreakProgress::default();
        if self.ranges.is_empty() {
            // An ended process has no mappings.
            self.ranges = match mapping_lists::breakable(domain, id) {
                Err(error) if error.is_short() => {
                    range.stopped = true;
                    return Ok(range);
                }
                Err(error) if error.is_locked() => {
                    range.locked = true;
                    return Ok(range);
                }
                ranges => ranges?.unwrap_or_default(),
            };
            self.ranges.reverse();
        }
        if let Some((start, end)) = self.ranges.pop() {
            let stretch = end.min(start.saturating_add(MAX_BROKEN_BYTES));
            range = break_range(domain, id, (start, stretch), self.choice)?;
            self.pages += range.pages;
            let rest = if range.is_left() { start } else { stretch };
            if rest < end {
                self.ranges.push((rest, end));
            }
        }
        Ok(range)
    }
}
