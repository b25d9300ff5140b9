//! Which pages of a region are merged, as far as known.

use std::ops::Range;

use super::Region;
use crate::command::Nanos;
use crate::convert;
use crate::region::merged_pages::MergedPages;

impl Region {
    /// Pages believed to be merged.
    pub(crate) fn merged_now(&self) -> u32 {
        self.held.as_ref().map_or(0, MergedPages::len)
    }

    /// Whether the page is believed to be merged.
    pub(crate) fn is_merged(&self, page: u32) -> bool {
        self.held.as_ref().is_some_and(|held| held.has(page))
    }

    /// About when the page was last known to be merged, if it is believed to be.
    pub(crate) fn merged_known_at(&self, page: u32) -> Option<Nanos> {
        let held = self.held.as_ref()?;
        held.has(page).then(|| held.known_at(page))
    }

    /// Notes that the page is merged, as seen `now`, or no longer; says whether that is news.
    pub(crate) fn set_merged(&mut self, page: u32, merged: bool, now: Nanos) -> bool {
        match (&mut self.held, merged) {
            (Some(held), true) => held.add(page, now),
            (Some(held), false) => held.remove(page),
            (None, true) => self
                .held
                .insert(MergedPages::new(self.pages))
                .add(page, now),
            (None, false) => false,
        }
    }

    /// All of these pages, which are believed to be merged, were found so `now`. With `v_cow` that
    /// tells how fast merged pages are broken, in rounds of `round`.
    pub(crate) fn lasted(
        &mut self,
        mut pages: Range<u32>,
        now: Nanos,
        round: Nanos,
        v_cow: Option<f64>,
    ) {
        let Some(held) = &mut self.held else { return };
        while !pages.is_empty() {
            let (count, known_at) = held.seen_again(pages.clone(), now);
            if let Some(v_cow) = v_cow {
                let age = convert::ratio(now.saturating_sub(known_at), round);
                self.cow.lasted(count, age, v_cow);
            }
            pages.start += count;
        }
    }
}
