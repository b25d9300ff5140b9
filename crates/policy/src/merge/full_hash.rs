//! Pages that were read in full look for partners, by their full hash.
//!
//! # Problem
//! See [`super::collisions`]: the partial hash of such a page stands for many contents.
//!
//! # Approach
//! Lookups are those of every page: a set that waits, then frames, then unmerged pages, where the
//! page is entered if it is the first. It was counted as sampled before, and its merge is expected,
//! because the hash covers all lines. The module checks the partial hash, which costs less and
//! shows as well whether the page was written meanwhile.

use super::collisions::CollidingPage;
use super::matching::Matching;
use super::queue::{HitKind, QueuedPage};
use crate::lookup::Match;
use crate::region::duplication::Scale;

impl Matching<'_> {
    /// Looks up a page that was read and has this hash. Returns whether it waits to be merged.
    pub(crate) fn look_up_in_full(
        &mut self,
        page: CollidingPage,
        hash: u64,
        scale: &Scale,
    ) -> bool {
        let CollidingPage { place, partial } = page;
        if !self.is_unmerged(place) || !self.may_merge(place) {
            return false;
        }
        let before = self.merge.len();
        let queued = QueuedPage {
            partial,
            ..self.queued_page(place, hash, HitKind::Sure, None)
        };
        let set = self.merge.queue().set_of(hash);
        let frame = self.lookup.newest_frame(hash);
        if let Some(set) = set {
            self.join_set(&queued, set);
        } else if frame.is_none() || !self.join_frame(&queued, frame) {
            self.meet_in_full(&queued);
        }
        let waits = self.merge.len() > before;
        if waits {
            self.regions[place.region].duplication_mut().sure(scale);
        }
        waits
    }

    /// No set waits for the page and no frame has room: it meets another page, or is entered.
    fn meet_in_full(&mut self, page: &QueuedPage) {
        if self.is_limited() {
            return self.join_enough(page, HitKind::Sure);
        }
        let QueuedPage { place, hash, .. } = *page;
        let round = self.at.round_number;
        let Match::Partner { place: twin, .. } = self.lookup.unmerged().look_up(hash, place, round)
        else {
            return;
        };
        let Some(twin) = self.valid_partner(hash, place, twin) else {
            return;
        };
        if self.may_be_first(twin) && self.may_split(twin) {
            self.join_page(page, twin, HitKind::Sure);
        } else {
            self.replace(hash, twin, place);
        }
    }
}
