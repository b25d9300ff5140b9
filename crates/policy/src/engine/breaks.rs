//! The ranges that are to be unmerged by request.

use std::collections::VecDeque;

use crate::command::{Command, PAGE_SIZE, SpaceId};
use crate::report::BreakReport;

/// One past the last page of user space, with page tables of four levels.
const USER_END: u64 = (1 << 47) - PAGE_SIZE;

/// A range of one space.
#[derive(Debug, Clone, Copy)]
struct Break {
    space: SpaceId,
    start: u64,
    end: u64,
}

/// The ranges that wait, and what came of those before.
#[derive(Debug, Default)]
pub(super) struct Breaks {
    queue: VecDeque<Break>,
    counts: BreakReport,
}

impl Breaks {
    /// A space is to be unmerged: first these ranges, in which pages are known to be merged, then
    /// the rest in one call, in which holes cost nothing.
    pub(super) fn request(&mut self, space: SpaceId, known: Vec<(u64, u64)>) {
        let whole = [(0, USER_END)];
        let ranges = known.into_iter().chain(whole);
        self.queue
            .extend(ranges.map(|(start, end)| Break { space, start, end }));
    }

    /// The space is gone.
    pub(super) fn forget(&mut self, space: SpaceId) {
        self.queue.retain(|other| other.space != space);
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next range.
    pub(super) fn command(&self) -> Option<Command> {
        let &Break { space, start, end } = self.queue.front()?;
        Some(Command::Break { space, start, end })
    }

    /// The range that was asked for is done: so many pages were unmerged. If it stopped early, more
    /// would need memory that is not there, and the rest of the space stays merged.
    ///
    /// # Panics
    /// If none was asked for.
    pub(super) fn done(&mut self, pages: u64, stopped: bool) {
        self.counts.pages += pages;
        let done = self.queue.pop_front().expect("a break was under way");
        if stopped {
            self.forget(done.space);
            self.counts.stopped += 1;
        }
    }

    /// The counts.
    pub(super) fn report(&self) -> BreakReport {
        self.counts
    }
}
