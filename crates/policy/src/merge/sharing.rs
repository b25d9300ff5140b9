//! Limits of sharing, where not all equal pages may be merged.
//!
//! # Problem
//! A group can want that no two pages of one space map one frame (`merge = "between"`), or that
//! only contents of at least k spaces become frames (`merge_spaces = k`). Two pages that meet are
//! then not enough: they have to wait for others, in a bounded index that has one page of each
//! hash.
//!
//! # Approach
//! A hash has k - 1 entries then, its *rungs*, each for a page of another space. A page climbs past
//! the rungs of other spaces, and waits on the first free one, unless its own space is on a rung
//! already. A page that finds all rungs taken by others is the k-th: all of them are queued as one
//! set, which one call merges; the module counts the spaces again. A page whose space is on a rung
//! is not indexed, and meets others when it is read again. A page on a rung that turns out to be
//! gone, or may not be merged, is replaced by the one that met it.
//!
//! Every page that joins a set or a frame passes [`Matching::joinable_set`] or
//! `Lookup::reserve_room`, which check the spaces in it. The contents of a frame were held by
//! enough spaces when it was made.
//!
//! None of this is checked where all equal pages may be merged.

use super::candidates::{Candidate, Partner};
use super::matching::{MAX_FRAMES, Matching};
use super::queue::{HitKind, QueuedPage};
use crate::command::{FrameId, SpaceId};
use crate::lookup::{Match, RegionPage};
use crate::params::Contents;

impl Matching<'_> {
    /// Whether not all equal pages may be merged.
    pub(super) fn is_limited(&self) -> bool {
        self.spaces_needed() > 1
    }

    /// Whether two equal pages of two spaces may be merged without others.
    pub(super) fn are_two_enough(&self) -> bool {
        self.spaces_needed() <= 2
    }

    fn spaces_needed(&self) -> u32 {
        self.at.params.spaces_needed()
    }

    fn is_between(&self) -> bool {
        self.at.params.merge == Contents::Between
    }

    fn space_of(&self, place: RegionPage) -> SpaceId {
        self.spaces.id(self.regions[place.region].space())
    }

    /// The partner with which a candidate may be merged now. If there is none, it waits.
    pub(super) fn permitted(
        &mut self,
        candidate: &Candidate,
        partner: Option<Partner>,
    ) -> Option<Partner> {
        let Candidate { hash, place, .. } = *candidate;
        let space = self.space_of(place);
        match partner? {
            Partner::Zero => Some(Partner::Zero),
            Partner::Frame(first) => match self.frame_for(first, hash, space) {
                Some(frame) => Some(Partner::Frame(frame)),
                None => self.partner_page(hash, place).map(Partner::Page),
            },
            Partner::Page(_) => self.partner_page(hash, place).map(Partner::Page),
        }
    }

    /// The first frame, from `first` on, that a page of the space may join.
    fn frame_for(&self, first: FrameId, hash: u64, space: SpaceId) -> Option<FrameId> {
        let next = |tried: &FrameId| self.frame_after(*tried, hash);
        std::iter::successors(Some(first), next)
            .take(usize::from(MAX_FRAMES))
            .find(|&frame| self.lookup.may_join(frame, space))
    }

    /// One of the pages that the page may be merged with, if there are enough; else it waits.
    fn partner_page(&mut self, hash: u64, place: RegionPage) -> Option<RegionPage> {
        let space = self.space_of(place);
        if let Some(set) = self.merge.queue().set_of(hash) {
            self.joinable_set(set, space)?;
            return Some(self.merge.queue().first_of(set));
        }
        self.climb(hash, place)?.first().copied()
    }

    /// The set, if a page of this space may join it.
    pub(super) fn joinable_set(&mut self, set: u16, space: SpaceId) -> Option<u16> {
        let is_twice = self.is_between() && self.merge.queue().has_space(set, space);
        (!is_twice).then_some(set)
    }

    /// Pages of other spaces that have this hash and may be merged, if they are enough together
    /// with this one. Else it waits on a rung.
    pub(super) fn climb(&mut self, hash: u64, place: RegionPage) -> Option<Vec<RegionPage>> {
        let own = self.space_of(place);
        let round = self.at.round_number;
        let mut others: Vec<RegionPage> = vec![];
        for rung in 0..self.lookup.rungs() {
            let index = self.lookup.unmerged();
            let Match::Partner { place: other, .. } = index.look_up_rung(hash, rung, place, round)
            else {
                return None;
            };
            let is_good =
                self.is_unmerged(other) && self.may_be_first(other) && self.may_split(other);
            // Two rungs can have pages of one space, after one of them was replaced.
            let is_twice = is_good && {
                let space = self.space_of(other);
                others.iter().any(|&one| self.space_of(one) == space)
            };
            if !is_good || is_twice {
                let index = self.lookup.unmerged();
                index.replace_on_rung(hash, rung, other, place, round);
                return None;
            }
            if self.space_of(other) == own {
                return None;
            }
            others.push(other);
        }
        Some(others)
    }

    /// Queues the page with all its partners, if there are enough.
    pub(super) fn join_enough(&mut self, page: &QueuedPage, counted: HitKind) {
        if self.merge.queue().set_of(page.hash).is_some() {
            return;
        }
        let Some(others) = self.climb(page.hash, page.place) else {
            return;
        };
        self.queue_set(page, &others, counted);
    }

    /// Queues the page with another one of another space.
    pub(super) fn join_two(&mut self, page: &QueuedPage, other: RegionPage, counted: HitKind) {
        let waits = self.merge.queue().set_of(page.hash).is_some();
        if waits || self.space_of(other) == page.space {
            return;
        }
        self.queue_set(page, &[other], counted);
    }

    fn queue_set(&mut self, page: &QueuedPage, others: &[RegionPage], counted: HitKind) {
        if self.merge.room() <= others.len() {
            return;
        }
        let queued = |place: &RegionPage| QueuedPage {
            partial: page.partial,
            ..self.queued_page(*place, page.hash, counted, None)
        };
        let others: Vec<QueuedPage> = others.iter().map(queued).collect();
        let queue = self.merge.queue();
        let set = queue.open_set(&others[0]);
        for other in &others[1..] {
            queue.join_set(other, set);
        }
        queue.join_set(page, set);
    }

    /// A page was not merged because other pages of its set were gone: it waits again.
    pub(crate) fn waits_again(&mut self, hash: u64, place: RegionPage) {
        if self.is_limited() {
            self.climb(hash, place);
        } else {
            let round = self.at.round_number;
            self.lookup.unmerged().look_up(hash, place, round);
        }
    }
}
