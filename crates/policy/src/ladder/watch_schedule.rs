//! Looks at regions because they were written: watched until that ends, or on trial.
//!
//! # Problem
//! Decisions about such a region need a few of its pages at a certain time. Where many programs
//! start, there are thousands of such regions at once, and the bottom level's share is small.
//!
//! # Approach
//! A calendar of looks; the region chooses the pages of each
//! ([`Region::look`](crate::region::Region::look)). The bottom level adds those that are due to its
//! own calls; unused time of all levels pays for more of them, up to a share of its own.
//!
//! # Source
//! UKSM §5.2.

use super::Ladder;
use super::sampling::{MAX_RUNS, Pick, Purpose, Selection, Sources, push_page};
use crate::accounts::payer::Payer;
use crate::clock::Moment;
use crate::command::{Nanos, Run};
use crate::ids::RegionId;
use crate::region::{Look, WATCHED_PAGES};

/// Number of regions with pages in a call in unused time.
const IN_SPARE_TURN: usize = MAX_RUNS / WATCHED_PAGES as usize;

impl Ladder {
    /// The region is looked at from `from` on.
    pub(crate) fn look_at(&mut self, id: RegionId, from: Nanos) {
        self.watched.insert(from, id);
    }

    /// The time at which the next look is due and may be paid for from unused time.
    pub(super) fn looks_due_at(&self, now: Nanos) -> Option<Nanos> {
        let due = self.watched.first_due()?;
        Some(due.max(self.looking.ready_at(now)))
    }

    /// The pages of a call in unused time that looks at due regions.
    pub(super) fn select_watched(
        &mut self,
        from: &mut Sources<'_>,
        at: Moment<'_>,
    ) -> Option<Selection> {
        if !self.looking.is_ready(at.now) {
            return None;
        }
        let mut selection = Selection::new(0, Payer::Spare);
        self.pick_watched(&mut selection.picks, IN_SPARE_TURN, from, at);
        let selection = selection.finish()?;
        let cost = self.expected_cost(selection.picks.len());
        self.looking.charge(at.now, cost);
        Some(selection)
    }

    /// Adds pages of at most `most` regions whose look is due.
    pub(super) fn pick_watched(
        &mut self,
        picks: &mut Vec<(Run, Pick)>,
        most: usize,
        from: &mut Sources<'_>,
        at: Moment<'_>,
    ) {
        for _ in 0..most {
            let Some((_, id)) = self.watched.pop_due(at.now) else {
                break;
            };
            if from.regions.find_ranked(id, 0).is_none() {
                continue;
            }
            let look = from.regions[id].look(&self.permutations, at);
            let (pages, purpose) = match look {
                Look::Nothing => continue,
                Look::Later(later) => {
                    self.watched.insert(later, id);
                    continue;
                }
                Look::Watch { pages, next } => {
                    self.watched.insert(next, id);
                    (pages, Purpose::Watch)
                }
                Look::Merged(pages) => {
                    self.watched.insert(at.now, id);
                    (pages, Purpose::Merged)
                }
                Look::Trial(pages) => {
                    // If these pages decide nothing, a sweep looks for others.
                    self.sweep_again(id);
                    (pages, Purpose::Trial)
                }
            };
            let end = from.regions[id].pages();
            for page in pages.into_iter().filter(|&page| page < end) {
                push_page(picks, from, id, page, purpose);
            }
        }
    }
}
