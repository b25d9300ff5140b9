//! The domain of the kernel module as the machine uses it. Tests implement it themselves.

use std::os::fd::BorrowedFd;

use uksm_policy::command::{FoldBatch, FoldOutcome, FrameId, Lines, Page, Run, SpaceId, SpaceSize};

use crate::module::{Attached, Broken, Counted, Info, Listed, Listing, Result, raw};

/// The frames that a BREAK unmerges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Frames of this domain, and frames that no domain owns any more.
    Own,
    /// Frames of other domains, which a fork has left in the space.
    Foreign,
}

/// The verbs of the contract that the machine uses; see [`Device`](crate::module::Device) for each.
#[expect(missing_docs, reason = "documented at `Device`")]
#[expect(clippy::missing_errors_doc, reason = "documented at `Device`")]
pub trait Domain {
    fn info(&self) -> Result<Info>;
    fn attach(&mut self, pidfd: BorrowedFd<'_>) -> Result<Attached>;
    fn detach(&mut self, space: SpaceId) -> Result<()>;
    fn sample(&mut self, runs: &[Run], lines: Lines, pages: &mut Vec<Page>) -> Result<()>;
    fn fold(&mut self, batch: &FoldBatch) -> Result<Vec<FoldOutcome>>;
    fn break_range(&mut self, space: SpaceId, start: u64, end: u64, whose: Whose)
    -> Result<Broken>;
    fn count(&mut self, space: SpaceId, start: u64, end: u64) -> Result<Counted>;
    fn frames(&mut self, cursor: u32, count: u32, lines: Lines, reap: bool) -> Result<Listing>;
    fn changed_frames(&mut self, cursor: u32, count: u32) -> Result<Vec<FrameId>>;
    fn retire(&mut self, frame: FrameId) -> Result<()>;
    fn sizes(&mut self, spaces: &[SpaceId]) -> Result<Vec<SpaceSize>>;
    fn mappings(
        &mut self,
        space: SpaceId,
        start: u64,
        mappings: &mut Vec<raw::uksm_mapping>,
    ) -> Result<Listed>;
}
