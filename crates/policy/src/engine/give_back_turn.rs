//! Frames with one mapping are given back.
//!
//! # Approach
//! [`crate::lookup::giving_back`] decides when. A *sweep* passes over the spaces by id, and in each
//! over the stretches of its regions that begin with a page believed to be merged. Where a process
//! holds its locks, or its cgroup or node has no memory for copies, the sweep goes on with the next
//! space: a call for each if there is no memory at all. The governor's share alone pays for it.
//!
//! A *false match* leaves a page alone in a new frame: the other pages of its set turned out to be
//! different. The engine treats such a page as if it had not been merged, and gives it back before
//! any other command. If that fails, the page is found merged when it is read again.
//!
//! A machine does not name the pages that it gives back. They count as merged until they are read.
//! As many broken pages of a region as were given back do not count as written: the number is
//! right, but a page that was written can take the place of one that was given back, which then
//! counts as written later.
//!
//! A page that was given back is looked up like any other when it is read again. It does not meet
//! the frame that it had: no page joins a frame with one mapping until a listing has freed it.
//! After a false match the page or its partner stays indexed, and they can meet again if the
//! strength is fixed and pages of such a hash are not read in full ([`super::full_read_turn`]).

use super::Engine;
use super::turn::{Action, Turn};
use crate::command::{
    Command, FoldKind, FoldOutcome, FrameId, Nanos, Observation, PAGE_SIZE, Reason, SpaceId, Status,
};
use crate::ids::RegionId;
use crate::merge::queue::{ROOM, WaitingPage};

/// Pages of one command: a few milliseconds, if all of them are given back.
const STRETCH_PAGES: u32 = 2048;

impl Engine {
    /// The next call of the sweep under way, if there is one that is not through.
    pub(super) fn sweep_singles(&mut self) -> Option<Action> {
        let from = self.lookup.giving_back().sweep_at()?;
        let Some((region, space, (start, end))) = self.next_stretch(from) else {
            self.lookup.end_sweep(self.clock.now());
            return None;
        };
        self.lookup.giving_back().sweep_from((space, start));
        let command = Command::GiveBack { space, start, end };
        Some(Turn::GiveBack(region).requests(command))
    }

    /// The first stretch with merged pages, from an address of a space on.
    fn next_stretch(
        &self,
        (first, address): (SpaceId, u64),
    ) -> Option<(RegionId, SpaceId, (u64, u64))> {
        self.spaces.from(first).find_map(|space| {
            let from = if space.id() == first { address } else { 0 };
            let regions = space.regions();
            let behind = regions.partition_point(|&id| self.regions[id].end() <= from);
            regions[behind..].iter().find_map(|&id| {
                let stretch = self.regions[id].merged_stretch(from, STRETCH_PAGES)?;
                Some((id, space.id(), stretch))
            })
        })
    }

    /// The answer for a stretch of the sweep.
    pub(super) fn on_given_back(&mut self, region: RegionId, answer: &Observation) {
        let now = self.clock.now();
        let &Observation::GivenBack {
            next,
            pages,
            stopped,
        } = answer
        else {
            // There was no memory for the call itself.
            self.lookup.end_sweep(now);
            return;
        };
        self.lookup.given_back(pages);
        self.regions[region].given_back(pages);
        let Some((space, start)) = self.lookup.giving_back().sweep_at() else {
            return;
        };
        if next > start && !stopped {
            self.lookup.giving_back().sweep_from((space, next));
            return;
        }
        let others = SpaceId(space.0.saturating_add(1));
        self.lookup.giving_back().sweep_from((others, 0));
    }

    /// The call that gives back a page of a false match, if there is one.
    pub(super) fn undo_false_match(&mut self) -> Option<Action> {
        let (space, start) = self.lookup.giving_back().next_false_match()?;
        let end = start + PAGE_SIZE;
        Some(Turn::Undo.requests(Command::GiveBack { space, start, end }))
    }

    /// That page was given back, or it was not possible.
    pub(super) fn on_undone(&mut self, answer: &Observation, cost: Nanos) {
        if let &Observation::GivenBack { pages, .. } = answer {
            self.lookup.given_back(pages);
            self.lookup.expect_freed(pages, self.clock.now());
        }
        self.hash.matched_falsely(0, cost);
        self.batch_worked(cost);
    }

    /// Finds the pages of a batch that are alone in a new frame, because all other pages of their
    /// set differ or are gone; they are to be given back. Replaces their outcomes by that of a page
    /// that no other page of its set joined.
    pub(super) fn find_false_matches(
        &mut self,
        waiting: &[WaitingPage],
        outcomes: &mut [FoldOutcome],
    ) {
        // The last page of each set that was merged, and the entries that share its frame or may do
        // so later. A page can be in a batch twice.
        let (mut last, mut sharing) = ([None; ROOM], [0_u16; ROOM]);
        for (page, outcome) in waiting.iter().zip(&*outcomes) {
            if let FoldKind::Set(set) = page.entry.kind
                && outcome.status == Status::Merged
            {
                last[usize::from(set)] = Some((outcome.frame, page.place));
            }
        }
        for (at, page) in waiting.iter().enumerate() {
            if let FoldKind::Set(set) = page.entry.kind
                && let Some((frame, place)) = last[usize::from(set)]
            {
                let shares = outcomes.get(at).is_none_or(|outcome| match outcome.status {
                    Status::Merged => outcome.frame == frame,
                    Status::Already => outcome.frame == frame && page.place != place,
                    status => matches!(status, Status::Busy | Status::Untried),
                });
                sharing[usize::from(set)] += u16::from(shares);
            }
        }
        for (page, outcome) in waiting.iter().zip(outcomes) {
            if let FoldKind::Set(set) = page.entry.kind
                && outcome.status == Status::Merged
                && last[usize::from(set)] == Some((outcome.frame, page.place))
                && sharing[usize::from(set)] == 1
            {
                let (space, address) = (page.entry.space, page.entry.address);
                self.lookup.giving_back().matched_falsely(space, address);
                let frame = FrameId(outcome.frame);
                self.lookup.frame_made_in_vain(frame, space);
                *outcome = FoldOutcome {
                    status: Status::Differed,
                    reason: Reason::Alone,
                    frame: 0,
                };
            }
        }
    }
}
