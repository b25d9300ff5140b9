//! Checks of swept regions: whether their contents are still the same.
//!
//! # Problem
//! A swept region is known until it is written. A program that starts, loads or computes writes
//! memory in place, which changes no size and makes no event; the bottom level's samples, one a
//! round of a small region, show that only after many rounds.
//!
//! # Approach
//! Some pages of a region are read again a while after its sweep, and then at intervals that
//! double, until nothing has changed for a minute or so; and when its space grows or shrinks, or
//! hints of it were lost. The region judges the results (`region/rewrite_detector.rs`), and is
//! swept again if enough has changed. In place of its next check it is swept again if many of its
//! pages were busy. Checks are few pages each, are done when nothing is new, and together take at
//! most a part of the bottom level's share, which has less for its own samples then. Nothing else
//! would have woken the daemon for a check, so it pays for a wake, too: where the share is small,
//! as that of one of hundreds of groups, one wake reads all regions that are due meanwhile.
//!
//! # Source
//! design: a ladder that conserves work. In-kernel KSM reads all pages again and again instead.

use super::sampling::{MAX_RUNS, Purpose, Selection, Sources, push_page};
use super::{Ladder, MAX_IN_STEP};
use crate::accounts::payer::Payer;
use crate::clock::Moment;
use crate::command::Nanos;
use crate::ids::RegionId;
use crate::region::Regions;

/// The choice of regions ends when there is room for fewer runs than this.
const MIN_RUNS: usize = 256;

impl Ladder {
    /// The region was swept or checked: enters its next check, if it has one.
    pub(crate) fn check_later(&mut self, id: RegionId, regions: &mut Regions, now: Nanos) {
        if let Some(due) = regions[id].next_check(now) {
            self.checks.insert(due, id);
        }
    }

    /// The region's space has changed: the region is checked now, unless it was a moment ago.
    pub(crate) fn check_soon(&mut self, id: RegionId, regions: &mut Regions, now: Nanos) {
        if let Some(due) = regions[id].hasten_check(now) {
            self.checks.insert(due, id);
        }
    }

    /// The time at which the next check is due and may be paid for.
    pub(super) fn checks_due_at(&self, now: Nanos) -> Option<Nanos> {
        let due = self.checks.first_due()?;
        Some(due.max(self.checking.ready_at(now)))
    }

    /// The pages of a call that checks due regions.
    pub(super) fn select_checks(
        &mut self,
        from: &mut Sources<'_>,
        at: Moment<'_>,
    ) -> Option<Selection> {
        if !self.checking.is_ready(at.now) {
            return None;
        }
        let mut selection = Selection::new(0, Payer::Spare);
        for _ in 0..MAX_IN_STEP {
            let room = MAX_RUNS - selection.picks.len();
            if room < MIN_RUNS {
                break;
            }
            let Some((due, id)) = self.checks.pop_due(at.now) else {
                break;
            };
            let is_here = from.regions.find_ranked(id, 0).is_some();
            if !is_here || !from.regions[id].is_check_due(due) {
                continue;
            }
            if from.regions[id].try_busy_again() {
                self.sweep_again(id);
                continue;
            }
            let pages = from.regions[id].begin_check(at.now);
            for _ in 0..pages {
                let page = from.regions[id].next_page(&self.permutations);
                push_page(&mut selection.picks, from, id, page, Purpose::Page);
            }
            self.check_later(id, from.regions, at.now);
        }
        let selection = selection.finish()?;
        let cost = self.expected_cost(selection.picks.len()) + self.waking;
        self.checking.charge(at.now, cost);
        self.levels[0].budget().owe(at.now, cost);
        Some(selection)
    }
}
