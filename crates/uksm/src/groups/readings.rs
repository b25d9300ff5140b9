//! What each group shows of itself, read by the supervisor from the group's domain: once a second, for who divides something by it.
//!
//! # Problem
//! What a group saves decides about other groups' and members' memory, and its worker should neither be woken for it each second, nor be
//! able to say whatever it likes.
//!
//! # Approach
//! The supervisor has the domain's file. What is saved now takes two counts that cost time in proportion to
//! what is there: mappings of frames ([`frames`]), and pages by process ([`spaces`]). Both are done a piece at a time, and each
//! piece is repaid by a pause, so that all groups together take a fixed share of a core however large they are. Of a
//! small group both are done anew in each turn. A group of which a process holds its own locks, so that the module waits a
//! tenth of a second for it, is counted by process again after [`LOCKED_PAUSE`] times the number of groups. Zero pages that were read and never merged look like merged ones; there
//! are never more of those than the module has ever zeroed.
//!
//! # Units
//! Pages, [`Nanos`] of processor time.

use std::collections::BTreeMap;

use uksm_linux::module::{self, Info};
use uksm_linux::{clock, domain::Domain as _};
use uksm_policy::command::{Lines, Nanos};

use super::supervisor::Supervisor;
use super::upkeep::Upkeep;
use frames::Frames;
pub(super) use spaces::Process;
use spaces::Spaces;

mod frames;
mod spaces;

/// All groups together, each of the two counts takes at most one part in so many of a core.
const PART: Nanos = 500;
/// Most time of one turn that goes into pages by process.
const STRETCH: Nanos = 5_000_000;

/// After a call that has waited for a process: all groups together wait one part in thirty of the time.
const LOCKED_PAUSE: Nanos = 3_000_000_000;

/// What a group shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Reading {
    /// Pages that merging saves now: mappings of frames less frames, and pages of zeros.
    pub(super) saved_pages: u64,
    /// What of the saved pages each process made.
    pub(super) by_process: BTreeMap<u32, u64>,
}

/// What is counted of one group.
#[derive(Debug, Default)]
pub(super) struct Readings {
    frames: Frames,
    frames_due: Nanos,
    spaces: Spaces,
    spaces_due: Nanos,
    /// As it was read last; none while there is no domain, or its module does not answer.
    pub(super) last: Option<Reading>,
}

impl Supervisor<'_> {
    /// Reads groups that are wanted anew; what was read is in [`Readings::last`] of each.
    pub(super) fn read(&mut self, is_wanted: impl Fn(&Upkeep) -> bool) {
        let wanted = self.workers.iter().filter(|worker| is_wanted(worker));
        let groups = Nanos::try_from(wanted.count()).unwrap_or(Nanos::MAX);
        for worker in self.workers.iter_mut().filter(|worker| is_wanted(worker)) {
            let read = worker.read(groups);
            worker.readings.last = read.unwrap_or_else(|error| {
                tracing::debug!("group {}: it is not read: {error}", worker.plan.name);
                None
            });
        }
    }
}

impl Upkeep {
    fn read(&mut self, groups: Nanos) -> module::Result<Option<Reading>> {
        let Some(domain) = &mut self.domain else {
            return Ok(None);
        };
        let info = domain.info()?;
        let own = &mut self.readings;
        if clock::now() >= own.frames_due {
            let begun = clock::thread_cpu();
            own.frames.count(|cursor, most| {
                domain.frames(cursor, most, Lines { from: 0, to: 0 }, false)
            })?;
            own.frames_due = repaid(begun, groups);
        }
        if clock::now() >= own.spaces_due {
            let begun = clock::thread_cpu();
            let here: Vec<_> = self.handover.here().collect();
            let is_time = || clock::thread_cpu().saturating_sub(begun) < STRETCH;
            let has_waited = own.spaces.count(&here, is_time, |space, start, end| {
                domain.count(space, start, end)
            })?;
            own.spaces_due = repaid(begun, groups);
            if has_waited {
                let due = clock::now().saturating_add(LOCKED_PAUSE.saturating_mul(groups));
                own.spaces_due = own.spaces_due.max(due);
            }
        }
        let processes = self.handover.processes();
        Ok(Some(own.reading(&info, &processes.collect::<Vec<_>>())))
    }
}

/// When work that began then has taken its share.
fn repaid(begun: Nanos, groups: Nanos) -> Nanos {
    let cost = clock::thread_cpu().saturating_sub(begun);
    clock::now().saturating_add(cost.saturating_mul(PART).saturating_mul(groups))
}

impl Readings {
    /// What was counted comes to, for these processes.
    fn reading(&self, info: &Info, processes: &[Process]) -> Reading {
        let by_frames = self.frames.saved();
        let zeros = self.spaces.zeros().min(info.zeroed);
        Reading {
            saved_pages: by_frames + zeros,
            by_process: self.spaces.by_process(processes, by_frames, zeros),
        }
    }
}
