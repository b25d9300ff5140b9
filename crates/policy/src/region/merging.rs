//! Which pages of a region are merged, and what becomes of them.

use std::ops::Range;

use super::Region;
use super::cow::{Cow, Permission};
use super::merged_pages::MergedPages;
use super::walk::{Permutations, Walk};
use super::watch::{USUAL_V_COW, WATCHED_PAGES, telling};
use crate::clock::Moment;
use crate::command::Nanos;
use crate::convert;

/// What is read of a region that is looked at because it was written.
#[derive(Debug)]
pub(crate) enum Look {
    /// It is no longer looked at.
    Nothing,
    /// Nothing before this time.
    Later(Nanos),
    /// Pages that are watched; when they are looked at next.
    Watch {
        /// Their numbers.
        pages: Vec<u32>,
        /// At this time.
        next: Nanos,
    },
    /// Pages that were merged on trial.
    Trial(Vec<u32>),
}

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

    /// A page of it was merged; whether it is to be looked at, as the first on trial.
    pub(crate) fn count_merge(&mut self, page: u32, now: Nanos, is_cow_on: bool) -> bool {
        self.merges += 1;
        is_cow_on && self.cow.merged(page, self.pages, now)
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
                let since = known_at.max(self.cow.opened_at());
                let age = convert::ratio(now.saturating_sub(since), round);
                self.cow.lasted(count, age, v_cow);
            }
            pages.start += count;
        }
    }

    /// A page was read: if it was believed to be merged, that tells how fast such pages are broken.
    /// Whether it is to be looked at again, as the first page that is on trial again.
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
        } else if known_at < self.cow.opened_at() {
            // When it was broken is not known: it may have been before that.
            return false;
        }
        let age = convert::ratio(now.saturating_sub(known_at), round);
        self.cow.check(broken, age, v_cow);
        // Where few can be tried, the same ones are read again until there is a verdict.
        is_trial && !broken && self.cow.merged(page, self.pages, now)
    }

    /// How fast its merged pages are broken.
    pub(crate) fn cow(&self) -> &Cow {
        &self.cow
    }

    /// Whether the page can be merged on trial.
    pub(crate) fn trial_has_room(&self, page: u32) -> bool {
        self.cow.trial_has_room(page, self.pages)
    }

    /// It is time to look at it: what is read.
    pub(crate) fn look(&mut self, permutations: &Permutations, at: Moment<'_>) -> Look {
        let v_cow = at.params.v_cow;
        let power = match self.permission(v_cow, at.now) {
            Permission::Closed if self.cow.may_end_early() => self.cow.strikes().saturating_sub(2),
            Permission::Closed => return Look::Nothing,
            Permission::Trial => return self.look_at_trial(at),
            Permission::Open => match self.rewritten.awaits_calm() {
                Some(power) => power,
                None => return Look::Nothing,
            },
        };
        // It may be listed more than once.
        if self.watch.as_ref().is_some_and(|watch| watch.waits(at.now)) {
            return Look::Nothing;
        }
        let pages = Walk::first_pages(self.pages, WATCHED_PAGES, permutations);
        let count = convert::narrow(pages.len() as u64);
        let wait = telling(count, v_cow.unwrap_or(USUAL_V_COW), at.round) << power;
        let next = at.now + wait;
        self.watch.get_or_insert_default().look(&pages, next);
        Look::Watch { pages, next }
    }

    fn look_at_trial(&mut self, at: Moment<'_>) -> Look {
        let v_cow = at.params.v_cow.unwrap_or(USUAL_V_COW);
        match self.cow.trial_due_at(v_cow, at.round, self.met.is_some()) {
            None => Look::Nothing,
            // If more pages come, it is sooner.
            Some(due) if due > at.now => Look::Later(due.min(at.now + at.round / 2)),
            Some(_) => Look::Trial(self.cow.take_trial(self.met.is_some())),
        }
    }

    /// A page that is watched holds this.
    pub(crate) fn saw(&mut self, page: u32, content: u64) {
        if let Some(watch) = &mut self.watch {
            watch.saw(page, content);
        }
    }

    /// If a look at it has shown no writes: it is to be read again, and if it was left alone it may be tried
    /// from now on. Whether that is so.
    pub(crate) fn ends_ban(&mut self, v_cow: Option<f64>, now: Nanos) -> bool {
        let Some(is_calm) = self.watch.as_mut().and_then(|watch| watch.take_calm()) else {
            return false;
        };
        match self.permission(v_cow, now) {
            Permission::Closed => self.cow.watched(is_calm, now),
            Permission::Trial => false,
            Permission::Open => {
                if is_calm {
                    self.rewritten.calmed();
                }
                false
            }
        }
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
