//! The merged pages of a region, their fate, and the waits of the region.

use std::ops::Range;

use super::Region;
use super::cow::{Cow, Permission, Ruling, UNTRIED};
use super::merge_record::MergeRecord;
use super::merged_pages::MergedPages;
use super::walk::{Permutations, Walk};
use super::write_watch::{USUAL_V_COW, WATCHED_PAGES, WriteWatch, telling};
use crate::clock::Moment;
use crate::command::{Nanos, PAGE_SIZE};
use crate::convert;

/// The pages to read in a look at a region that was written.
#[derive(Debug)]
pub(crate) enum Look {
    /// No page: it is no longer looked at.
    Nothing,
    /// No page before this time.
    Later(Nanos),
    /// Watched pages, and the time of the next look.
    Watch {
        /// Their numbers.
        pages: Vec<u32>,
        /// At this time.
        next: Nanos,
    },
    /// Pages that were merged on trial.
    Trial(Vec<u32>),
    /// Merged pages, one of each block, to check whether the block is huge again. The next look
    /// follows at once.
    Merged(Vec<u32>),
}

impl Region {
    /// The record of its merged pages, allocated if need be.
    pub(super) fn merging_mut(&mut self) -> &mut MergeRecord {
        self.merging.get_or_insert_default()
    }

    /// It is on the ladder: its waits before that are over.
    pub(super) fn waits_no_more(&mut self) {
        if self
            .merging
            .as_ref()
            .is_some_and(|merging| merging.is_empty())
        {
            self.merging = None;
        }
    }

    pub(crate) fn merged_pages(&self) -> Option<&MergedPages> {
        self.merging.as_ref()?.pages.as_ref()
    }

    /// Pages believed to be merged.
    pub(crate) fn merged_now(&self) -> u32 {
        self.merged_pages().map_or(0, MergedPages::len)
    }

    /// Whether the page is believed to be merged.
    pub(crate) fn is_merged(&self, page: u32) -> bool {
        self.merged_pages().is_some_and(|merged| merged.has(page))
    }

    /// From the first merged page on that is not below an address: at most `most` pages, as
    /// addresses.
    pub(crate) fn merged_stretch(&self, from: u64, most: u32) -> Option<(u64, u64)> {
        let first = convert::narrow(from.saturating_sub(self.start).div_ceil(PAGE_SIZE));
        let page = self.merged_pages()?.first_of(first..self.pages)?;
        let end = self.pages.min(page.saturating_add(most));
        Some((self.address(page), self.address(end)))
    }

    /// `pages` of its merged pages were given back; it is not known which.
    pub(crate) fn given_back(&mut self, pages: u64) {
        let merged = self.merged_now();
        if let Some(merging) = &mut self.merging {
            let pages = u32::try_from(pages).unwrap_or(u32::MAX);
            merging.given_back = merging.given_back.saturating_add(pages).min(merged);
        }
    }

    /// A merged page was found broken: whether that is because it was given back. Each page that
    /// was given back counts once.
    pub(crate) fn was_given_back(&mut self) -> bool {
        let Some(merging) = self.merging.as_mut().filter(|m| m.given_back > 0) else {
            return false;
        };
        merging.given_back -= 1;
        true
    }

    /// Records whether the page is merged, as seen `now`; returns whether that changed.
    pub(super) fn set_merged(&mut self, page: u32, is_merged: bool, now: Nanos) -> bool {
        if is_merged {
            let pages = self.pages;
            let merged = &mut self.merging_mut().pages;
            let merged = merged.get_or_insert_with(|| MergedPages::new(pages));
            return merged.add(page, now);
        }
        let merged = self
            .merging
            .as_mut()
            .and_then(|merging| merging.pages.as_mut());
        merged.is_some_and(|merged| merged.remove(page))
    }

    /// Pages merged in it so far.
    pub(super) fn merges(&self) -> u64 {
        self.merging.as_ref().map_or(0, |merging| merging.merges)
    }

    /// A page was pinned when it was sampled.
    pub(crate) fn count_pinned(&mut self) {
        self.merging_mut().busy += 1;
    }

    /// A page was busy when it was to be merged.
    pub(crate) fn count_busy(&mut self) {
        self.count_pinned();
        self.count_failed();
    }

    /// Pages that were busy when tried.
    pub(crate) fn busy(&self) -> u64 {
        self.merging.as_ref().map_or(0, |merging| merging.busy)
    }

    /// A page of it was merged. Returns whether it is the first on trial, so that a look is to be
    /// scheduled.
    pub(crate) fn count_merge(&mut self, page: u32, now: Nanos, is_cow_on: bool) -> bool {
        let pages = self.pages;
        let merging = self.merging_mut();
        merging.merges += 1;
        is_cow_on && merging.cow.merged(page, pages, now)
    }

    /// All of these pages, which are believed to be merged, were found merged `now`. With `v_cow`
    /// this is evidence of how fast merged pages are broken, in rounds of `round`.
    pub(crate) fn lasted(
        &mut self,
        mut pages: Range<u32>,
        now: Nanos,
        round: Nanos,
        v_cow: Option<f64>,
    ) {
        let Some(merging) = &mut self.merging else {
            return;
        };
        let Some(merged) = &mut merging.pages else {
            return;
        };
        while !pages.is_empty() {
            let (count, known_at) = merged.seen_again(pages.clone(), now);
            if let Some(v_cow) = v_cow {
                let since = known_at.max(merging.cow.opened_at());
                let age = convert::ratio(now.saturating_sub(since), round);
                merging.cow.lasted(count, age, v_cow);
            }
            pages.start += count;
        }
    }

    /// A page was read: if it was believed to be merged, this is evidence of how fast such pages
    /// are broken. Returns whether it is the first page on trial again, so that a look is to be
    /// scheduled.
    pub(crate) fn check_merged(
        &mut self,
        page: u32,
        broken: bool,
        is_trial: bool,
        now: Nanos,
        round: Nanos,
        v_cow: f64,
    ) -> bool {
        let Some(merging) = &mut self.merging else {
            return false;
        };
        let Some(merged) = merging.pages.as_ref().filter(|merged| merged.has(page)) else {
            return false;
        };
        let cow = &mut merging.cow;
        let mut known_at = merged.known_at(page);
        if is_trial {
            known_at = cow.trial_known_at().unwrap_or(known_at);
        } else if known_at < cow.opened_at() {
            // The time of the break is unknown: it may have been before the opening.
            return false;
        }
        let age = convert::ratio(now.saturating_sub(known_at), round);
        cow.check(broken, age, v_cow);
        // Where few can be tried, the same ones are read again until there is a verdict.
        is_trial && !broken && cow.merged(page, self.pages, now)
    }

    /// How fast its merged pages are broken.
    pub(crate) fn cow(&self) -> &Cow {
        self.merging
            .as_ref()
            .map_or(&UNTRIED, |merging| &merging.cow)
    }

    /// Whether the page can be merged on trial.
    pub(crate) fn trial_has_room(&self, page: u32) -> bool {
        self.cow().trial_has_room(page, self.pages)
    }

    /// It is time for a look: the pages to read.
    pub(crate) fn look(&mut self, permutations: &Permutations, at: Moment<'_>) -> Look {
        if let Some(pages) = self.pages_of_blocks(at.now) {
            return Look::Merged(pages);
        }
        let v_cow = at.params.v_cow;
        let power = match self.permission(v_cow, at.now) {
            Permission::Closed if self.cow().may_end_early() => {
                self.cow().strikes().saturating_sub(2)
            }
            Permission::Closed => return Look::Nothing,
            Permission::Trial => return self.look_at_trial(at),
            Permission::Open => match self.rewrites.awaits_calm() {
                Some(power) => power,
                None => return Look::Nothing,
            },
        };
        // It may be listed more than once.
        if self.watch().is_some_and(|watch| watch.waits(at.now)) {
            return Look::Nothing;
        }
        let pages = Walk::first_pages(self.pages, WATCHED_PAGES, permutations);
        let count = convert::narrow(pages.len() as u64);
        let wait = telling(count, v_cow.unwrap_or(USUAL_V_COW), at.round) << power;
        let next = at.now + wait;
        let watch = self.merging_mut().watch.get_or_insert_default();
        watch.look(&pages, next);
        Look::Watch { pages, next }
    }

    fn look_at_trial(&mut self, at: Moment<'_>) -> Look {
        let v_cow = at.params.v_cow.unwrap_or(USUAL_V_COW);
        let was_swept = self.was_swept;
        match self.cow().trial_due_at(v_cow, at.round, was_swept) {
            None => Look::Nothing,
            // If more pages are tried, the look is sooner.
            Some(due) if due > at.now => Look::Later(due.min(at.now + at.round / 2)),
            Some(_) => Look::Trial(self.merging_mut().cow.take_trial(was_swept)),
        }
    }

    fn watch(&self) -> Option<&WriteWatch> {
        self.merging.as_ref()?.watch.as_deref()
    }

    fn watch_mut(&mut self) -> Option<&mut WriteWatch> {
        self.merging.as_mut()?.watch.as_deref_mut()
    }

    /// Ends watching.
    pub(super) fn watch_no_more(&mut self) {
        if let Some(merging) = &mut self.merging {
            merging.watch = None;
        }
    }

    /// A watched page was read, with this hash.
    pub(crate) fn saw(&mut self, page: u32, content: u64) {
        if let Some(watch) = self.watch_mut() {
            watch.saw(page, content);
        }
    }

    /// If a look at it has shown no writes, it is to be read again, and if it was left alone, it
    /// may be tried from now on. Returns whether its ban ends.
    pub(crate) fn ends_ban(&mut self, v_cow: Option<f64>, now: Nanos) -> bool {
        let Some(is_calm) = self.watch_mut().and_then(WriteWatch::take_calm) else {
            return false;
        };
        match self.permission(v_cow, now) {
            Permission::Closed => self.merging_mut().cow.watched(is_calm, now),
            Permission::Trial => false,
            Permission::Open => {
                if is_calm {
                    self.rewrites.calmed();
                }
                false
            }
        }
    }

    /// Access to the evidence about its merged pages, for tests.
    #[cfg(test)]
    pub(crate) fn cow_mut(&mut self) -> &mut Cow {
        &mut self.merging_mut().cow
    }

    /// Decides whether it is left alone from now on, because its merged pages are broken, or
    /// opened.
    pub(crate) fn rule(&mut self, at: Moment<'_>) -> Ruling {
        let merging = self.merging.as_mut();
        merging.map_or(Ruling::Nothing, |merging| {
            merging.cow.decide(at.params.v_cow, at.now, at.round)
        })
    }

    /// How merges in it are to be treated, if the COW filter is on.
    pub(crate) fn permission(&self, v_cow: Option<f64>, now: Nanos) -> Permission {
        match v_cow {
            None => Permission::Open,
            Some(_) => self.cow().permission(now),
        }
    }

    /// Whether its last promotion gained enough, or was long enough ago; starts to count for the
    /// next.
    pub(crate) fn may_promote(&mut self, v_dup: f64, now: Nanos, round: Nanos) -> bool {
        let worth = v_dup / 4.0 * f64::from(self.resident().max(1));
        let merging = self.merging_mut();
        let may = (merging.backoff).may_promote(merging.merges, worth, now, round);
        if !may {
            self.duplication.reset();
        }
        may
    }

    /// Whether it was busy and is to be left alone for now.
    pub(crate) fn is_waiting(&self, now: Nanos) -> bool {
        let merging = self.merging.as_ref();
        merging.is_some_and(|merging| merging.backoff.is_waiting(now))
    }

    /// The end of its current or last wait because much of it was busy.
    pub(crate) fn busy_until(&self) -> Option<Nanos> {
        self.merging.as_ref()?.backoff.busy_until()
    }

    /// Its sweep is over; `was_busy` if it met many busy pages.
    pub(super) fn set_busy(&mut self, was_busy: bool) {
        if was_busy || self.merging.is_some() {
            self.merging_mut().backoff.set_busy(was_busy);
        }
    }

    /// Forgets failed promotions: there is reason to expect partners now.
    pub(super) fn forget_failed_promotions(&mut self) {
        if let Some(merging) = &mut self.merging {
            merging.backoff.forget_failed_promotions();
        }
    }

    /// Its last promotion came before it was filled.
    pub(super) fn excuse_promotion(&mut self) {
        if let Some(merging) = &mut self.merging {
            merging.backoff.excuse_promotion();
        }
    }
}
