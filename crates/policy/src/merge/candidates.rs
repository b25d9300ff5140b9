//! Candidates of the answer that is being processed, and the partners that they met.

use super::twin_run::TwinRun;
use crate::command::FrameId;
use crate::ids::{RegionId, Ticket};
use crate::lookup::{Match, Query, RegionPage};

/// A sampled page that may have partners.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// Where it is.
    pub(crate) place: RegionPage,
    /// Its hash.
    pub(crate) hash: u64,
    /// It is part of a huge page.
    pub(crate) huge: bool,
    /// Its whole block is read.
    pub(crate) in_block: bool,
    /// The hint for which it was read, if any.
    pub(crate) ticket: Option<Ticket>,
}

/// The partner that a candidate met.
#[derive(Debug, Clone, Copy)]
pub(super) enum Partner {
    /// The zero page.
    Zero,
    /// A frame.
    Frame(FrameId),
    /// Another unmerged page.
    Page(RegionPage),
}

/// A candidate that met a partner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Find {
    pub(super) place: RegionPage,
    pub(super) hash: u64,
    pub(super) partner: Partner,
    pub(super) ticket: Option<Ticket>,
}

/// The finds in the answer that is being processed.
#[derive(Debug, Default)]
pub(crate) struct Finds {
    /// Finds in huge pages of the block that is being processed.
    pub(super) in_huge: Vec<Find>,
    /// Regions whose estimates changed.
    touched: Vec<RegionId>,
    /// Where the pages follow their twins.
    pub(super) twin_run: TwinRun<Candidate>,
    /// Buffers that are used again.
    pub(super) hashes: Vec<u64>,
    pub(super) queries: Vec<Query>,
    pub(super) frames: Vec<Option<FrameId>>,
    pub(super) matches: Vec<Match>,
}

impl Finds {
    /// Prepares for another answer.
    pub(crate) fn clear(&mut self) {
        self.touched.clear();
        self.in_huge.clear();
        self.twin_run = TwinRun::default();
    }

    /// The estimates of a region changed; often called many times for the same one.
    pub(crate) fn touch(&mut self, region: RegionId) {
        if self.touched.last() != Some(&region) {
            self.touched.push(region);
        }
    }

    /// The regions whose estimates changed, each once.
    pub(crate) fn take_touched(&mut self) -> Vec<RegionId> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Whether finds in huge pages wait.
    pub(crate) fn has_huge(&self) -> bool {
        !self.in_huge.is_empty()
    }
}
