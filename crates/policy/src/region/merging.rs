//! Which pages of a region are merged, and what becomes of them.

use std::ops::Range;

use super::Region;
use super::cow::{Cow, Permission};
use super::merged_pages::MergedPages;
use crate::command::Nanos;
use crate::convert;

impl Region {
    /// Pages believed to be merged.
    pub(crate) fn merged_now(&self) -> u32 {
        self.merged.as_ref().map_or(0, MergedPages::len)
    }

    /// Whether the page is believed to be merged.
    pub(crate) fn is_merged(&self, page: u32) -> bool {
        self.merged.as_ref().is_some_and(|merged| merged.has(page))
    }

    /// Notes that the page is merged, as seen `now`, or no longer is; whether that is news.
    pub(super) fn set_merged(&mut self, page: u32, is_merged: bool, now: Nanos) -> bool {
        match (&mut self.merged, is_merged) {
            (Some(merged), true) => merged.add(page, now),
            (Some(merged), false) => merged.remove(page),
            (None, true) => {
                let pages = MergedPages::new(self.pages);
                self.merged.insert(pages).add(page, now)
            }
            (None, false) => false,
        }
    }

    /// A page of it was merged; whether that was on trial.
    pub(crate) fn count_merge(&mut self, page: u32, now: Nanos, is_cow_on: bool) -> bool {
        self.merges += 1;
        is_cow_on && self.cow.merged(page, now)
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
        let Some(merged) = &mut self.merged else {
            return;
        };
        while !pages.is_empty() {
            let (count, known_at) = merged.seen_again(pages.clone(), now);
            if let Some(v_cow) = v_cow {
                let age = convert::ratio(now.saturating_sub(known_at), round);
                self.cow.lasted(count, age, v_cow);
            }
            pages.start += count;
        }
    }

    /// A page was read: if it was believed to be merged, that tells how fast such pages are broken.
    /// Whether the page is now on trial (again).
    pub(crate) fn check_merged(
        &mut self,
        page: u32,
        broken: bool,
        is_trial: bool,
        now: Nanos,
        round: Nanos,
        v_cow: f64,
    ) -> bool {
        let Some(merged) = self.merged.as_ref().filter(|merged| merged.has(page)) else {
            return false;
        };
        let mut known_at = merged.known_at(page);
        if is_trial {
            known_at = self.cow.trial_known_at().unwrap_or(known_at);
        }
        let age = convert::ratio(now.saturating_sub(known_at), round);
        self.cow.check(broken, age, v_cow);
        // Where few can be tried, the same ones are read again until there is a verdict.
        is_trial && !broken && self.cow.merged(page, now)
    }

    /// How fast its merged pages are broken.
    pub(crate) fn cow(&self) -> &Cow {
        &self.cow
    }

    /// How its merged pages fare, to decide or to look at those on trial.
    pub(crate) fn cow_mut(&mut self) -> &mut Cow {
        &mut self.cow
    }

    /// How merges in it are to be treated, if the COW filter is on.
    pub(crate) fn permission(&self, v_cow: Option<f64>, now: Nanos) -> Permission {
        match v_cow {
            None => Permission::Open,
            Some(_) => self.cow.permission(now),
        }
    }
}
