//! The domain of the kernel module as the machine uses it. Tests implement it themselves.

use std::os::fd::BorrowedFd;

use uksm_policy::command::{FoldBatch, FoldOutcome, FrameId, Lines, Page, Run, SpaceId, SpaceSize};

use crate::module::{
    AttachAnswer, BreakAnswer, CountAnswer, FramesAnswer, Info, MappingsAnswer, Result, raw,
};

/// Which frames a BREAK breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakChoice {
    /// Frames of this domain, and frames that no domain owns any more.
    Own,
    /// Frames of other domains, which a fork has left in the space.
    Foreign,
    /// Of [`BreakChoice::Own`] those that nothing else maps: they save nothing.
    Single,
}

/// The verbs of the contract that the machine uses; see [`Device`](crate::module::Device) for each.
#[expect(missing_docs, reason = "documented at `Device`")]
#[expect(clippy::missing_errors_doc, reason = "documented at `Device`")]
pub trait Domain {
    fn info(&self) -> Result<Info>;
    fn attach(&mut self, pidfd: BorrowedFd<'_>) -> Result<AttachAnswer>;
    fn detach(&mut self, space: SpaceId) -> Result<()>;
    fn sample(&mut self, runs: &[Run], lines: Lines, pages: &mut Vec<Page>) -> Result<()>;
    fn fold(&mut self, batch: &FoldBatch) -> Result<Vec<FoldOutcome>>;
    fn break_range(
        &mut self,
        space: SpaceId,
        start: u64,
        end: u64,
        choice: BreakChoice,
    ) -> Result<BreakAnswer>;
    fn count(&mut self, space: SpaceId, start: u64, end: u64) -> Result<CountAnswer>;
    fn frames(&mut self, cursor: u32, count: u32, lines: Lines, reap: bool)
    -> Result<FramesAnswer>;
    fn changed_frames(&mut self, cursor: u32, count: u32) -> Result<Vec<FrameId>>;
    fn retire(&mut self, frame: FrameId) -> Result<()>;
    fn sizes(&mut self, spaces: &[SpaceId]) -> Result<Vec<SpaceSize>>;
    fn mappings(
        &mut self,
        space: SpaceId,
        start: u64,
        mappings: &mut Vec<raw::uksm_mapping>,
    ) -> Result<MappingsAnswer>;
}
