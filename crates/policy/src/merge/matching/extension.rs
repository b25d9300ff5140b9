//! A match is extended: the neighbours of two equal pages are proposed as equal, too.
//!
//! # Problem
//! Equal pages of real memory come in runs: files read by two guests, heaps of two like processes. An
//! index that is smaller than the memory holds one page of a run or another, so that the rest of the
//! run is not met.
//!
//! # Approach
//! Blocks are read in order. Once a page has met its twin, the page after it is proposed as the twin
//! of the page after the twin, without being looked up; the module compares. And the pages before it,
//! which met nothing, are proposed backwards. How far depends on how many pages have one entry. A trail that is met again in the index goes on for as
//! long again as it has come, so that a long run costs few lookups and a chance match a few compares.
//! This is done only when the index has no room for all pages: else a page that met nothing has no
//! twin. Deduplication of files extends matches in this way.
//!
//! # Units
//! A proposal that fails costs a comparison that ends at the first difference.

use std::collections::VecDeque;

use super::{Candidate, Matching, Partner};
use crate::convert;
use crate::lookup::Place;
use crate::merge::queue::Counted;
use crate::region::cow::Permission;

/// So many entries of the index are to be missed in a run until a trail ends.
const MISSES: u32 = 4;
/// Most pages that are proposed after a chance match, and before it.
const MOST_GUESSES: u32 = 256;

/// Where the pages of an answer follow their twins.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// The last candidate.
    last: Option<Place>,
    /// Its twin, or what was proposed as that.
    twin: Option<Place>,
    /// Pages from the first match to the last one.
    length: u32,
    /// Pages proposed since the last match.
    guesses: u32,
    /// Candidates right before the next one that met nothing, at most `reach`.
    unmatched: VecDeque<Candidate>,
    /// So many pages are proposed after a match, and before it, whatever else is known.
    reach: u32,
}

impl Trail {
    /// The next candidate is this one: the trail ends if it is not the neighbour of the last.
    fn go_to(&mut self, place: Place) {
        let is_next = self
            .last
            .is_some_and(|last| last.region == place.region && last.page + 1 == place.page);
        if !is_next {
            self.end();
            self.unmatched.clear();
        }
        self.last = Some(place);
    }

    fn end(&mut self) {
        self.twin = None;
        self.length = 0;
        self.guesses = 0;
    }

    /// The candidate met `twin`. One that is not where it was expected begins another trail.
    fn meet(&mut self, twin: Place) {
        if self.twin.and_then(after) == Some(twin) {
            self.length += self.guesses + 1;
        } else {
            self.length = 1;
        }
        self.guesses = 0;
        self.twin = Some(twin);
    }

    /// The twin that is to be proposed for a candidate that met nothing.
    fn guess(&self) -> Option<Place> {
        let is_worth_it = self.guesses < self.length.max(self.reach);
        self.twin.filter(|_| is_worth_it).and_then(after)
    }

    fn note_unmatched(&mut self, candidate: Candidate) {
        if self.unmatched.len() >= convert::index(self.reach) {
            self.unmatched.pop_front();
        }
        self.unmatched.push_back(candidate);
    }
}

/// The page after this one.
fn after(place: Place) -> Option<Place> {
    let page = place.page.checked_add(1)?;
    Some(Place { page, ..place })
}

/// The page before this one.
fn before(place: Place) -> Option<Place> {
    let page = place.page.checked_sub(1)?;
    Some(Place { page, ..place })
}

impl Matching<'_> {
    /// Takes in what a candidate met, in the order of the answer, and proposes its neighbours.
    pub(super) fn extend(&mut self, candidate: Candidate, partner: Option<Partner>) {
        let mut trail = std::mem::take(&mut self.finds.trail);
        trail.reach = (MISSES * self.lookup.pages_per_entry()).min(MOST_GUESSES);
        trail.go_to(candidate.place);
        match partner {
            Some(Partner::Page(twin)) => {
                let mut at = Some(twin);
                while let Some(unmatched) = trail.unmatched.pop_back() {
                    at = at.and_then(before);
                    if !at.is_some_and(|twin| self.propose(unmatched, twin)) {
                        break;
                    }
                }
                trail.unmatched.clear();
                trail.meet(twin);
            }
            // The twin was merged before, or both are empty: the run may go on behind them.
            Some(Partner::Frame(_) | Partner::Zero) => {
                trail.unmatched.clear();
                trail.twin = trail.twin.and_then(after);
            }
            None => match trail.guess() {
                Some(twin) if self.propose(candidate, twin) => {
                    trail.twin = Some(twin);
                    trail.guesses += 1;
                }
                _ => {
                    trail.end();
                    trail.note_unmatched(candidate);
                }
            },
        }
        self.finds.trail = trail;
    }

    /// Queues a candidate to be merged with a page that may be equal, if there is one and it may
    /// be merged. Says whether it waits now.
    fn propose(&mut self, candidate: Candidate, twin: Place) -> bool {
        let place = candidate.place;
        let is_there = self
            .regions
            .find_ranked(twin.region, twin.page)
            .is_some_and(|region| !region.is_merged(twin.page));
        // The rest of the piece needs its room.
        let is_room = self.merge.room() > super::PIECE_ROOM;
        if !is_there || !is_room || twin == place || candidate.huge {
            return false;
        }
        let may_merge = |at| self.permission(at) == Permission::Open && !self.is_waiting(at);
        if !may_merge(place) || !may_merge(twin) || !self.may_split(twin) {
            return false;
        }
        if self.merge.queue().set_of(candidate.hash).is_some() {
            return false;
        }
        let before = self.merge.len();
        let page = self.queued_page(place, candidate.hash, Counted::Guess);
        self.join_page(&page, twin, Counted::Guess);
        self.merge.len() > before
    }
}
