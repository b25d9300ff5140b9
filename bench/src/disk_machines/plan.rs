//! The requests of a machine to its disk, and their times: the misses of its page cache.

use std::collections::VecDeque;
use std::time::Duration;

use super::cache::Cache;
use super::{Machine, accesses};

/// Time from a write to a file to the request that brings it to the disk: the kernel writes back
/// every five seconds.
const WRITTEN_BACK_AFTER: Duration = Duration::from_secs(5);

/// An action on pages of a page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The disk is read into them.
    Load,
    /// A program of the machine writes them: no request.
    Store,
    /// They are written to the disk.
    WriteBack,
}

/// Neighbouring blocks, which are in or come into these pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// The time since the start.
    pub at: Duration,
    /// The action.
    pub action: Action,
    /// The first block.
    pub first: u64,
    /// Pages by offset in the page cache, one for each block.
    pub pages: Vec<usize>,
}

impl Step {
    /// Blocks and their pages.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u64, usize)> {
        (self.first..).zip(self.pages.iter().copied())
    }
}

/// All actions of a machine on its page cache, in the order of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan(pub Vec<Step>);

impl Plan {
    /// Plans a machine: always the same.
    pub(crate) fn of(machine: &Machine) -> Plan {
        let mut cache = Cache::of(machine);
        let mut steps = Vec::new();
        let mut written: VecDeque<(Duration, u64, usize)> = VecDeque::new();
        for access in accesses::of(machine) {
            while let Some(&(at, first, count)) = written.front().filter(|due| due.0 <= access.at) {
                written.pop_front();
                let page_of = |block| cache.page_of(block);
                add(&mut steps, at, Action::WriteBack, first, count, page_of);
            }
            let (at, first, count) = (access.at, access.first, access.pages);
            if access.writes {
                // A written block stays where it is, or comes to another page.
                let mut page_of = |block| {
                    cache.use_block(block);
                    cache.page_of(block)
                };
                add(&mut steps, at, Action::Store, first, count, &mut page_of);
                written.push_back((at + WRITTEN_BACK_AFTER, first, count));
            } else {
                let missing = |block| cache.use_block(block);
                add(&mut steps, at, Action::Load, first, count, missing);
            }
        }
        Plan(steps)
    }
}

/// Adds steps for those of some blocks that have a page, one for each run of them.
fn add(
    steps: &mut Vec<Step>,
    at: Duration,
    action: Action,
    first: u64,
    count: usize,
    mut page_of: impl FnMut(u64) -> Option<usize>,
) {
    let mut open: Option<Step> = None;
    for block in (first..).take(count) {
        match (page_of(block), &mut open) {
            (Some(page), Some(step)) => step.pages.push(page),
            (Some(page), None) => {
                let (first, pages) = (block, vec![page]);
                open = Some(Step {
                    at,
                    action,
                    first,
                    pages,
                });
            }
            (None, _) => steps.extend(open.take()),
        }
    }
    steps.extend(open);
}
