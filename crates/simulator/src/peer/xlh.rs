//! KSM advised by I/O, as it was published: XLH.
//!
//! # Problem
//! The use of hints in this project should be seen next to that of the paper with the idea: it
//! passes them to ksmd, which inserts them in its trees.
//!
//! # Approach
//! Pending hints are kept page by page in a bounded circular stack: the newest is taken first, and
//! overwrites the oldest when the stack is full (§4.2). Wake-ups of ksmd are hint spurts and scan
//! spurts in turn, `hint_runs` to `scan_runs` (§4.3). A hint spurt examines hinted pages until the
//! pages of a wake-up are used up; if hints run out before, the scan goes on, so the rate is KSM's.
//! A hinted page is searched for among frames, then its checksum is taken, and it is searched for
//! in the unstable tree regardless of the checksum; without an equal page it stays there (§4.3,
//! §5.4). The paper marks pages that came into the tree by a hint read-only: a write to one is a
//! fault, and removes it, before it can mislead searches (§4.4). That is the default;
//! [`Entered::Writable`] leaves them as they are.
//!
//! The tree is a real one ([`super::tree`]). The rest is ksmd of Linux 3.4, for which XLH was
//! written, and which did not change in this up to 6.1: frames are searched before checksums are
//! compared, and smart scan leaves out no page, unless the settings differ.
//!
//! The costs are those of KSM's steps. Storing and taking hints, marking pages read-only, and the
//! faults of guests that write to them cost nothing here: that is in favour of XLH.
//!
//! # Source
//! XLH (ATC'13) §4.2 to §4.4, Tables 1 and 2.

use uksm_policy::command::{Nanos, PAGE_SIZE, PageState, SpaceId};

use super::ksm::{Ksm, KsmSettings};
use super::tree::Reachability;
use crate::memory::PageAddress;
use crate::memory::Slot;
use crate::world::{Deduplicator, Turn};
use crate::{Host, KsmCosts};

/// Limit of the hinted pages examined in one turn: the host must not change unseen for longer.
const TURN_PAGES: u64 = 100;

/// Treatment of a hinted page without an equal one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// It is inserted in the unstable tree, read-only: a write removes it.
    ReadOnly,
    /// It is inserted, and may change.
    Writable,
}

/// Settings of XLH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XlhSettings {
    /// Settings of ksmd: the pages of a wake-up, and the time between two.
    pub ksm: KsmSettings,
    /// Hint spurts, for each `scan_runs` of the scan.
    pub hint_runs: u32,
    /// Scan spurts, for each `hint_runs` of hints.
    pub scan_runs: u32,
    /// Pages that the stack of hints holds.
    pub stack: usize,
    /// Treatment of hinted pages in the unstable tree.
    pub entered: Entered,
}

/// The pending hints: a circular stack.
#[derive(Debug)]
struct Stack {
    pages: Vec<PageAddress>,
    /// Index of the next hint.
    top: usize,
    waiting: usize,
    overwritten: u64,
}

impl Stack {
    fn new(room: usize) -> Stack {
        Stack {
            pages: vec![(SpaceId(0), 0); room],
            top: 0,
            waiting: 0,
            overwritten: 0,
        }
    }

    fn push(&mut self, page: PageAddress) {
        self.pages[self.top] = page;
        self.top = (self.top + 1) % self.pages.len();
        if self.waiting < self.pages.len() {
            self.waiting += 1;
        } else {
            self.overwritten += 1;
        }
    }

    fn pop(&mut self) -> Option<PageAddress> {
        self.waiting = self.waiting.checked_sub(1)?;
        self.top = (self.top + self.pages.len() - 1) % self.pages.len();
        Some(self.pages[self.top])
    }
}

/// XLH on a simulated host.
#[derive(Debug)]
pub struct Xlh {
    ksm: Ksm,
    settings: XlhSettings,
    stack: Stack,
    /// Spurts begun, modulo those of hints and scans together: hint spurts come first.
    spurt: u32,
    hinted: u64,
    faults: u64,
}

impl Xlh {
    /// ksmd before its first scan, and no hint.
    ///
    /// # Panics
    /// If there are neither hint nor scan spurts, or the stack has no room.
    #[must_use]
    pub fn new(settings: XlhSettings, costs: KsmCosts) -> Xlh {
        assert!(settings.hint_runs + settings.scan_runs > 0, "no spurts");
        assert!(settings.stack > 0, "no room for hints");
        Xlh {
            ksm: Ksm::new(settings.ksm, costs).on_a_tree().frames_first(),
            settings,
            stack: Stack::new(settings.stack),
            spurt: 0,
            hinted: 0,
            faults: 0,
        }
    }

    /// ksmd.
    #[must_use]
    pub fn ksm(&self) -> &Ksm {
        &self.ksm
    }

    /// Hinted pages that were examined.
    #[must_use]
    pub fn hinted(&self) -> u64 {
        self.hinted
    }

    /// Hinted pages that were overwritten in the stack.
    #[must_use]
    pub fn overwritten(&self) -> u64 {
        self.stack.overwritten
    }

    /// Write faults of read-only pages.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// Pages that could be found in the unstable tree at the ends of all scans so far.
    #[must_use]
    pub fn reachability(&self) -> Reachability {
        self.ksm.reachability()
    }

    /// Memory of ksmd, and of the stack at 8 bytes a hint (§5.3).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ksm.bytes() + 8 * self.stack.pages.len() as u64
    }

    /// Receives hints of I/O, and write faults.
    fn listen(&mut self, host: &mut Host) {
        for place in host.take_faults() {
            self.faults += 1;
            self.ksm.forget(place);
        }
        if self.settings.hint_runs == 0 {
            return;
        }
        for hint in host.drain_hints() {
            let first = hint.start / PAGE_SIZE;
            let end = hint.start.saturating_add(hint.length).div_ceil(PAGE_SIZE);
            for page in first..end {
                self.stack.push((hint.space, page * PAGE_SIZE));
            }
        }
    }

    /// Examines hinted pages; returns the cost.
    fn follow(&mut self, host: &mut Host) -> Nanos {
        let mut cost = 0;
        for _ in 0..TURN_PAGES.min(*self.ksm.batch()) {
            let Some(page) = self.stack.pop() else {
                break;
            };
            *self.ksm.batch() -= 1;
            self.hinted += 1;
            cost += self.ksm.look_at_hinted(host, page);
            let is_entered = |slot: Slot| slot.state == PageState::Anon;
            if self.settings.entered == Entered::ReadOnly && host.look(page).is_some_and(is_entered)
            {
                host.guard(page);
            }
        }
        cost
    }
}

impl Deduplicator for Xlh {
    fn turn(&mut self, host: &mut Host, now: Nanos) -> Turn {
        self.listen(host);
        if host.mapping_behind((SpaceId(0), 0)).is_none() {
            return self.ksm.idle(now);
        }
        let is_of_hints = self.spurt < self.settings.hint_runs;
        let cost = if is_of_hints && self.stack.waiting > 0 {
            self.follow(host)
        } else {
            self.ksm.go_on(host, now)
        };
        if *self.ksm.batch() == 0 {
            self.spurt = (self.spurt + 1) % (self.settings.hint_runs + self.settings.scan_runs);
        }
        self.ksm.rest(now, cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_hint_is_taken_first_and_the_oldest_are_overwritten() {
        let mut stack = Stack::new(3);
        for page in 1..=5 {
            stack.push((SpaceId(1), page));
        }
        let taken: Vec<u64> = std::iter::from_fn(|| stack.pop())
            .map(|(_, page)| page)
            .collect();
        assert_eq!((taken, stack.overwritten), (vec![5, 4, 3], 2));
        stack.push((SpaceId(1), 6));
        assert_eq!(stack.pop(), Some((SpaceId(1), 6)));
        assert_eq!(stack.pop(), None);
    }
}
