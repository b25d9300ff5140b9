//! Merges that are proposed without a matching hash: neighbours of a match, and pages of files of
//! which the same place was read before.
//!
//! # Problem
//! In a crowded index, a page that met nothing may have a twin all the same (see
//! [`super::twin_run`]). And pages that two processes read from one place of a file are known to be
//! equal before they are sampled.
//!
//! # Approach
//! A proposal is queued like a match. The module compares; a wrong proposal costs a comparison, and
//! counts neither as a false match of the hash nor for a region's duplication estimate.

use super::candidates::{Candidate, Partner};
use super::matching::{Matching, PIECE_ROOM};
use super::queue::HitKind;
use crate::lookup::RegionPage;
use crate::region::duplication::Scale;

impl Matching<'_> {
    /// Records the partner of a candidate, in the order of the answer, and proposes its neighbours.
    pub(super) fn extend(&mut self, candidate: Candidate, partner: Option<Partner>) {
        let mut twin_run = std::mem::take(&mut self.finds.twin_run);
        twin_run.go_to(candidate.place, self.lookup.pages_per_entry());
        match partner {
            Some(Partner::Page(twin)) => {
                for (unmatched, twin) in twin_run.take_unmatched(twin) {
                    if !self.propose(unmatched, twin) {
                        break;
                    }
                }
                twin_run.meet(twin);
            }
            Some(Partner::Frame(_) | Partner::Zero) => twin_run.pass(),
            None => match twin_run.guess() {
                Some(twin) if self.propose(candidate, twin) => twin_run.follow(twin),
                _ => twin_run.miss(candidate),
            },
        }
        self.finds.twin_run = twin_run;
    }

    /// Queues a candidate to be merged with a page that may be equal, if there is one and it may be
    /// merged. Returns whether it waits now.
    fn propose(&mut self, candidate: Candidate, twin: RegionPage) -> bool {
        let place = candidate.place;
        // The rest of the piece needs its room.
        let is_room = self.merge.room() > PIECE_ROOM;
        if !self.is_unmerged(twin) || !is_room || twin == place || candidate.huge {
            return false;
        }
        if !self.may_merge(place) || !self.may_merge(twin) || !self.may_split(twin) {
            return false;
        }
        if self.merge.queue().set_of(candidate.hash).is_some() {
            return false;
        }
        let before = self.merge.len();
        let ticket = candidate.ticket;
        let page = self.queued_page(place, candidate.hash, HitKind::Guess, ticket);
        self.join_page(&page, twin, HitKind::Guess);
        self.merge.len() > before
    }

    /// Queues a page that was read, and not looked up: with a known frame or set of its hash, else
    /// with its presumed twin. Where a frame is known, the twin joins it when it is read: two
    /// frames of one content never meet. Returns whether it waits now.
    pub(crate) fn merge_extended(
        &mut self,
        place: RegionPage,
        hash: u64,
        twin: RegionPage,
        scale: &Scale,
    ) -> bool {
        if !self.is_unmerged(place) || !self.may_merge(place) || hash == self.zero {
            return false;
        }
        if self.merge.room() < 2 {
            return false;
        }
        let before = self.merge.len();
        let queued = self.queued_page(place, hash, HitKind::Extended, None);
        if let Some(set) = self.merge.queue().set_of(hash) {
            self.join_set(&queued, set);
        } else if !self.join_frame(&queued, self.lookup.newest_frame(hash))
            && self.is_unmerged(twin)
            && twin != place
            && self.may_merge(twin)
            && self.may_split(twin)
        {
            self.join_page(&queued, twin, HitKind::Extended);
        }
        let waits = self.merge.len() > before;
        if waits {
            let duplication = self.regions[place.region].duplication_mut();
            duplication.sampled(1, scale);
            duplication.sure(scale);
        }
        waits
    }

    /// Queues a page that was not read, but is expected to have a hash, if there is a partner of
    /// this hash. Returns whether it waits now.
    pub(crate) fn merge_expected(&mut self, candidate: &Candidate) -> bool {
        let Candidate {
            place,
            hash,
            ticket,
            ..
        } = *candidate;
        if !self.may_merge(place) || self.merge.room() < 2 {
            return false;
        }
        let page = self.queued_page(place, hash, HitKind::Expected, ticket);
        let before = self.merge.len();
        if let Some(set) = self.merge.queue().set_of(hash) {
            self.join_set(&page, set);
        } else if let Some(frame) = self.lookup.newest_frame(hash) {
            self.join_frame(&page, Some(frame));
        } else {
            // It was not read, so it cannot wait for others.
            if !self.are_two_enough() {
                return false;
            }
            let round = self.at.round_number;
            let twin = self.lookup.unmerged().find(hash, round);
            let twin = twin.map(|(twin, _)| twin).filter(|&twin| {
                let is_there = twin != place && self.is_unmerged(twin);
                is_there && self.may_be_first(twin) && self.may_split(twin)
            });
            if let Some(twin) = twin {
                self.join_page(&page, twin, HitKind::Guess);
            }
        }
        self.merge.len() > before
    }
}
