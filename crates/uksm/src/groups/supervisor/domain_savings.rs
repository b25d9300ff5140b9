//! The savings of each group, which the supervisor reads from the group's domain: once a second,
//! for redistribution.
//!
//! # Problem
//! The savings of a group decide about memory of other groups and of members. Its worker should not
//! be woken for them each second, and may not be trusted with them.
//!
//! # Approach
//! The supervisor has the domain's file. Savings take two counts whose cost is in proportion to the
//! memory: mappings of frames ([`frames`]), and pages by process ([`spaces`]). Both are done in
//! pieces, and each piece is repaid by a pause, so that all groups together take a fixed share of a
//! core however large they are. For a small group both are complete in each turn. If a process of a
//! group holds its own locks, the module waits a tenth of a second for it; then that group is
//! counted by process again after [`LOCKED_PAUSE_NS`] times the number of groups. Zero pages that
//! were read and never merged look like merged ones; they are never counted beyond the number of
//! pages that the module has zeroed.
//!
//! # Units
//! Pages, [`Nanos`] of processor time.

use std::collections::BTreeMap;

use frames::FrameCounts;
pub(super) use spaces::DomainProcess;
use spaces::SpaceCounts;
use uksm_linux::module::Info;
use uksm_policy::command::Nanos;

mod frames;
mod spaces;

/// Each of the two counts takes at most 1/`SHARE_DIVISOR` of a core for all groups together.
pub(super) const SHARE_DIVISOR: Nanos = 500;
/// Maximum processor time in one turn for pages by process.
pub(super) const MAX_TURN_NS: Nanos = 5_000_000;
/// Maximum processor time of a turn that is repaid. A hypervisor that stops the machine within a
/// turn makes it look longer; repaid in full, that would keep lent memory away for minutes.
pub(super) const MAX_REPAID_NS: Nanos = 4 * MAX_TURN_NS;

/// Pause after a call that has waited for a process: all groups together wait one thirtieth of the
/// time.
pub(super) const LOCKED_PAUSE_NS: Nanos = 3_000_000_000;

/// The savings of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Savings {
    /// Pages that merging saves now: mappings of frames less frames, and pages of zeros.
    pub(super) saved_pages: u64,
    /// The part of the saved pages that each process contributed.
    pub(super) by_process: BTreeMap<u32, u64>,
    /// Pages that were given back or broken so far.
    pub(super) broken_pages: u64,
}

/// The counts of one group.
#[derive(Debug, Default)]
pub(super) struct DomainSavings {
    pub(super) frames: FrameCounts,
    pub(super) frames_due: Nanos,
    pub(super) spaces: SpaceCounts,
    pub(super) spaces_due: Nanos,
    /// The last result; none while there is no domain, or its module does not answer.
    pub(super) last: Option<Savings>,
}

impl DomainSavings {
    /// The savings by these counts, for these processes.
    pub(super) fn reading(&self, info: &Info, processes: &[DomainProcess]) -> Savings {
        let by_frames = self.frames.saved();
        let zeros = self.spaces.zeros().min(info.zeroed);
        Savings {
            saved_pages: by_frames + zeros,
            by_process: self.spaces.by_process(processes, by_frames, zeros),
            broken_pages: info.broken,
        }
    }
}
