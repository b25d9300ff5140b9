//! The progress of reading a region: the next pages, the pages found, and the end of a pass.

use std::ops::Range;

use super::blocks::Blocks;
use super::residency::Residency;
use super::sweep::{Sweep, SweepEnd};
use super::walk::{BlockWalk, Permutations};
use super::{MAX_FILLINGS, Region, State};
use crate::command::Nanos;
use crate::report::Standing;

/// A region of at most this many pages is swept even if its anchors found no page.
const SMALL_REGION_PAGES: u32 = 64;
/// Merged pages between others that a sweep reads rather than begin another run.
const MAX_BRIDGED: u32 = 4;
/// Limit of blocks of settled pages that are passed over for one that is read.
const MAX_PASSED: u32 = 4096;
/// A region that grew is assumed to be filled when its anchors were read this many times since.
const CALM_FILLINGS: u8 = 4;

/// A check reads one page in this many, within the two bounds.
const CHECKED_DIVISOR: u32 = 8;
const MIN_CHECKED: u32 = 2;
const MAX_CHECKED: u32 = 16;

impl Region {
    /// The next page in scattered order.
    pub(crate) fn next_page(&mut self, permutations: &Permutations) -> u32 {
        self.walk.next_page(self.pages, permutations)
    }

    /// The next of its anchors, if some are left.
    pub(crate) fn next_anchor(&mut self, permutations: &Permutations) -> Option<u32> {
        self.walk.next_anchor(self.pages, permutations)
    }

    /// The next block to sweep, and whether it is the last of the sweep. Blocks whose pages are all
    /// settled count as read, except for the last.
    pub(crate) fn next_block(&mut self, permutations: &Permutations, now: Nanos) -> (u32, bool) {
        let blocks = self.blocks();
        if self.sweep().blocks() == 0 {
            self.begin_sweep(now);
        }
        let mut passed = 0;
        loop {
            let known = self.blocks_mut();
            let block = known.walk.next(blocks, permutations);
            let is_last = known.sweep.next(blocks);
            let (first, pages) = self.block_pages(block);
            let known = self.blocks_mut();
            if is_last || passed == MAX_PASSED || !known.settled.has_all(first..first + pages) {
                if let Some(huge) = &mut known.huge {
                    huge.begin(block);
                }
                return (block, is_last);
            }
            passed += 1;
            self.pass_over(pages);
        }
    }

    fn begin_sweep(&mut self, now: Nanos) {
        let is_for_holes = self.grew && !self.rewrites.is_due();
        let fills_holes = self.level == 0 && self.was_swept && is_for_holes;
        self.grew = false;
        if self.cow().strikes() == 0 {
            self.watch_no_more();
        }
        let merges = self.merges();
        let is_judged = self.rewrites.begin();
        let known = self.blocks_mut();
        known.merges_before = is_judged.then_some(merges);
        if !fills_holes {
            known.settled.begin_sweep(now);
        }
    }

    /// The answer of a sweep is processed from now on. `may_settle` says whether pages that are
    /// taken in are merged, or will be.
    pub(crate) fn begin_answer(&mut self, may_settle: bool, now: Nanos) {
        // A region of one block has none to pass over.
        if self.blocks() > 1 {
            self.blocks_mut().settled.begin(may_settle, now);
        }
    }

    /// These pages of its sweep were taken in: merged already, or candidates that may be merged.
    pub(crate) fn took(&mut self, pages: Range<u32>) {
        let all = self.pages;
        if let Some(known) = &mut self.blocks {
            known.settled.took(pages, all);
        }
    }

    /// The pages of a block that its sweep is to read: at least its first and its last one, and
    /// those that are neither settled nor merged, or were last known to be merged before `since`.
    /// The others count as read.
    pub(crate) fn next_runs(&mut self, block: u32, since: Nanos) -> Vec<(u32, u32)> {
        let (first, count) = self.block_pages(block);
        let runs = self.unsettled_runs(first, count, self.unmerged_runs(first, count, since));
        let read: u32 = runs.iter().map(|&(_, pages)| pages).sum();
        if read < count {
            self.pass_over(count - read);
        }
        runs
    }

    /// A sweep passes over `pages` pages, which are in memory.
    fn pass_over(&mut self, pages: u32) {
        self.swept(pages);
        self.blocks_mut().settled.passed(pages);
    }

    /// The pages that sweeps have passed over since the last call: they showed no partner.
    pub(crate) fn take_passed(&mut self) -> u32 {
        self.blocks
            .as_mut()
            .map_or(0, |known| known.settled.take_passed())
    }

    /// The unsettled parts of these runs, and the first and the last page of `count` from `first`
    /// on.
    fn unsettled_runs(&self, first: u32, count: u32, runs: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
        let settled = self.blocks.as_ref().map(|known| &known.settled);
        let Some(settled) = settled.filter(|settled| !settled.has_none()) else {
            return runs;
        };
        let mut unsettled = vec![(first, 1)];
        for (from, pages) in runs {
            settled.for_each_unsettled(from..from + pages, |pages| {
                append(&mut unsettled, pages, 0);
            });
        }
        append(&mut unsettled, first + count - 1..first + count, 0);
        unsettled
    }

    /// Runs that cover all of the `count` pages from `first` on that are not merged, or were last
    /// known to be merged before `since`, and the first and the last page.
    pub(crate) fn unmerged_runs(&self, first: u32, count: u32, since: Nanos) -> Vec<(u32, u32)> {
        let Some(merged) = self.merged_pages() else {
            return vec![(first, count)];
        };
        let end = first + count;
        let mut runs = vec![(first, 1)];
        merged.for_each_unmerged(first..end, since, |pages| {
            append(&mut runs, pages, MAX_BRIDGED);
        });
        append(&mut runs, end - 1..end, MAX_BRIDGED);
        runs
    }

    /// Blocks that its sweep has still to read.
    pub(crate) fn blocks_left(&self) -> u32 {
        self.blocks() - self.sweep().blocks()
    }

    /// Whether its sweep costs hardly more than its anchors.
    pub(crate) fn is_small(&self) -> bool {
        self.pages <= SMALL_REGION_PAGES
    }

    /// Whether it is to be swept without evidence of duplicates: it was not swept in this era, more
    /// of it is in memory now, or it was rewritten.
    pub(crate) fn is_sweep_due(&self) -> bool {
        let resident = self.resident();
        let is_due = match self.met() {
            None => resident > 0 || self.is_small(),
            // A guess of its residency is no reason to read all again.
            Some(met) => {
                self.residency.seen_of(self.pages) > met + self.pages / 16
                    || (self.grew && self.fillings >= CALM_FILLINGS)
                    || self.rewrites.is_due()
            }
        };
        is_due || self.is_first_sweep_under_way()
    }

    /// A page of it was sampled outside of sweeps and hints. `is_changed` says whether its contents
    /// changed since the sweep, as far as the index shows.
    pub(crate) fn sampled_again(&mut self, is_changed: bool, now: Nanos) {
        if self.is_at_rest() {
            self.rewrites.sampled(is_changed, self.swept_at, now);
        }
    }

    /// A page of it was merged outside of its sweep, though the sweep had merged all duplicates.
    pub(crate) fn merged_again(&mut self, now: Nanos) {
        if self.is_at_rest() {
            self.rewrites.merged(self.swept_at, now);
        }
    }

    /// Whether it was swept, and is not being swept.
    fn is_at_rest(&self) -> bool {
        self.is_known() && !self.sweep().is_over() && self.sweep().blocks() == 0
    }

    /// Whether samples show that it was written: it was swept, and no level above reads it anyway.
    fn is_known(&self) -> bool {
        self.level == 0 && self.was_swept
    }

    /// It was swept, or a check of it has begun. Returns the time of the next check, if any.
    pub(crate) fn next_check(&mut self, now: Nanos) -> Option<Nanos> {
        if !self.is_known() {
            return None;
        }
        self.rewrites.next_check(now)
    }

    /// Something in its space has changed. Returns the time of the next check, if it is sooner than
    /// before.
    pub(crate) fn hasten_check(&mut self, now: Nanos) -> Option<Nanos> {
        if !self.is_known() {
            return None;
        }
        self.rewrites.hasten(now)
    }

    /// It may have been written: earlier checks that showed no change do not count.
    pub(crate) fn expect_writes(&mut self) {
        self.rewrites.expect_writes();
    }

    /// True once if it was written and may not be swept again yet: it is to be watched until the
    /// writes end.
    pub(crate) fn begins_to_await_calm(&mut self) -> bool {
        self.rewrites.begins_to_await_calm()
    }

    /// Whether it is to be checked once more.
    pub(crate) fn is_doubted(&self) -> bool {
        self.is_at_rest() && self.rewrites.is_doubted()
    }

    /// Whether it is checked at this time.
    pub(crate) fn is_check_due(&self, due: Nanos) -> bool {
        self.is_at_rest() && self.rewrites.is_check_due(due)
    }

    /// Whether it is swept again instead of being checked, because a part of its pages was busy.
    pub(crate) fn try_busy_again(&mut self) -> bool {
        self.rewrites.try_busy_again()
    }

    /// Begins a check; returns its number of pages.
    pub(crate) fn begin_check(&mut self, now: Nanos) -> u8 {
        let samples = (self.pages / CHECKED_DIVISOR).clamp(MIN_CHECKED, MAX_CHECKED);
        let samples = u8::try_from(samples.min(self.pages)).expect("at most MAX_CHECKED");
        self.rewrites.begin_check(samples, now);
        samples
    }

    /// Whether it is to be swept because it was written anew.
    pub(crate) fn is_rewritten(&self) -> bool {
        self.rewrites.is_due()
    }

    /// Whether it is being swept on the bottom level, where only first sweeps take place.
    pub(crate) fn is_first_sweep_under_way(&self) -> bool {
        self.level == 0 && self.sweep().blocks() > 0
    }

    /// Whether it was read in full in this era.
    pub(crate) fn was_swept(&self) -> bool {
        self.was_swept
    }

    /// Pages met by its last full sweep in this era; none if there was none.
    fn met(&self) -> Option<u32> {
        self.was_swept.then_some(self.met)
    }

    /// A new era: index entries of the region no longer count.
    pub(crate) fn new_era(&mut self) {
        self.walk.restart_anchors();
        self.restart_sweep();
        self.expect_anything();
        self.forget_failed_promotions();
    }

    /// Earlier readings no longer count: it is to be swept.
    fn expect_anything(&mut self) {
        self.was_swept = false;
        self.forget_settled();
    }

    /// Pages merged on trial have held: all of it may be merged.
    pub(crate) fn open(&mut self) {
        self.watch_no_more();
        self.expect_anything();
    }

    /// Its ban is over: it is read like a new region, and merged on trial.
    pub(crate) fn try_again(&mut self) {
        self.expect_anything();
        self.walk.restart_anchors();
    }

    /// Reads the anchors again, and restarts the estimate of residency.
    fn anchor_again(&mut self) {
        self.fillings += 1;
        self.walk.restart_anchors();
        self.residency = Residency::default();
    }

    /// Its space has grown: its anchors are read again if it has holes, and no anchors are waiting.
    /// Returns whether they are.
    pub(crate) fn expect_growth(&mut self) -> bool {
        self.grew = true;
        let waits = self.walk.has_anchors_left(self.pages);
        let has_holes = self.residency.has_any_hole() || self.met_holes();
        let may_fill = self.state == State::Ranked && has_holes && !waits;
        if may_fill {
            self.fillings = 0;
            self.anchor_again();
            self.forget_failed_promotions();
        }
        may_fill
    }

    /// Its space became smaller: no block need be full any more.
    pub(crate) fn expect_holes(&mut self) {
        self.forget_settled();
    }

    /// Whether its last sweep met fewer pages than it has.
    fn met_holes(&self) -> bool {
        self.met().is_some_and(|met| met < self.pages)
    }

    /// Its anchors have been read. Returns when they are read again, if they may be: after
    /// `shortest` at first and twice as long each time.
    pub(crate) fn await_filling(&mut self, now: Nanos, shortest: Nanos) -> Option<Nanos> {
        if self.fillings >= MAX_FILLINGS {
            return None;
        }
        self.filling = now + (shortest << self.fillings);
        Some(self.filling)
    }

    /// The time `due` has come. Returns none if the region did not wait for it; else whether there
    /// are holes, for which its anchors are read again.
    pub(crate) fn is_filling_due(&mut self, due: Nanos) -> Option<bool> {
        if self.filling != due {
            return None;
        }
        self.filling = 0;
        // Anchors are few: only the last sweep, and growth of the space, are evidence of small
        // holes.
        let is_unfilled = self.residency.has_holes() || (self.grew && self.met_holes());
        if is_unfilled {
            self.anchor_again();
        }
        Some(is_unfilled)
    }

    /// `samples` samples found a page here.
    pub(crate) fn found(&mut self, samples: u32) {
        self.residency.found(samples);
    }

    /// Its sweep found `pages` pages.
    pub(crate) fn swept(&mut self, pages: u32) {
        self.blocks_mut().sweep.found(pages);
        self.residency.found(pages);
    }

    /// `samples` samples found no page here that could be merged.
    pub(crate) fn missed(&mut self, samples: u32) {
        self.residency.missed(samples);
    }

    /// Pages believed to be in memory.
    pub(crate) fn resident(&self) -> u32 {
        self.residency.of(self.pages)
    }

    /// Its weight in its level's samples: its resident pages, and never 0, so that later pages are
    /// found.
    pub(crate) fn weight(&self) -> u32 {
        self.resident().max(self.pages.isqrt())
    }

    /// A page could not be merged just now.
    pub(crate) fn count_failed(&mut self) {
        self.blocks_mut().sweep.failed();
    }

    /// A page had been merged, and was found with its own copy.
    pub(crate) fn count_broken(&mut self) {
        self.blocks_mut().sweep.broken();
    }

    /// Whether all blocks of its sweep have been chosen, and it did not start over since.
    pub(crate) fn is_sweep_over(&self) -> bool {
        self.sweep().is_over()
    }

    /// The last block of its sweep has been processed.
    pub(crate) fn end_sweep(
        &mut self,
        now: Nanos,
        round: Nanos,
        v_dup: f64,
        is_cow_off: bool,
    ) -> SweepEnd {
        (self.met, self.was_swept) = (self.sweep().pages(), true);
        let merges = self.merges();
        let since = now - std::mem::replace(&mut self.swept_at, now);
        let known = self.blocks_mut();
        let found = known.merges_before.take().map(|before| merges - before);
        let busy = known.sweep.failures();
        let (end, was_busy) = known.sweep.end(since, round, v_dup, is_cow_off);
        let has_large_holes = self.sweep().has_holes(self.pages);
        self.rewrites.end(found, busy, self.pages, now);
        self.set_busy(was_busy);
        if was_busy || !self.met_holes() {
            self.forget_settled();
        } else if !has_large_holes {
            self.blocks_mut().settled.expire();
        }
        if end == SweepEnd::Again {
            self.standing = Standing::Swept;
            return end;
        }
        self.standing = if merges > 0 {
            Standing::Finished
        } else {
            Standing::Sparse
        };
        if has_large_holes || (self.grew && self.met_holes()) {
            // A first sweep is itself due to a filling: it must not restart fillings for ever.
            if self.level > 0 {
                self.fillings = 0;
            }
            if !self.grown {
                self.excuse_promotion();
            }
            return SweepEnd::Unfilled;
        }
        end
    }
}

/// The state of its blocks.
impl Region {
    /// The state of its blocks, allocated if need be.
    pub(super) fn blocks_mut(&mut self) -> &mut Blocks {
        self.blocks.get_or_insert_default()
    }

    /// The state of its sweep.
    pub(super) fn sweep(&self) -> Sweep {
        let blocks = self.blocks.as_ref();
        blocks.map_or_else(Sweep::default, |blocks| blocks.sweep)
    }

    /// Its sweep starts over.
    pub(crate) fn restart_sweep(&mut self) {
        if let Some(blocks) = &mut self.blocks {
            blocks.sweep.restart();
        }
    }

    /// Forgets its sweep, which was that of another level.
    pub(super) fn forget_sweep(&mut self) {
        if let Some(blocks) = &mut self.blocks {
            blocks.sweep.reset();
            if blocks.is_empty() {
                self.blocks = None;
            }
        }
    }

    /// All its blocks are to be read again.
    pub(super) fn forget_settled(&mut self) {
        if let Some(blocks) = &mut self.blocks {
            blocks.settled.forget();
        }
    }

    /// Its number of blocks changed.
    pub(super) fn resize_blocks(&mut self) {
        if let Some(blocks) = &mut self.blocks {
            blocks.walk = BlockWalk::default();
            blocks.sweep.restart();
            blocks.settled.forget();
            blocks.huge = None;
        }
        self.resize_collapses();
    }
}

/// Appends pages to runs of neighbours; two runs with at most `bridged` pages between them become
/// one.
fn append(runs: &mut Vec<(u32, u32)>, pages: Range<u32>, bridged: u32) {
    match runs.last_mut() {
        Some((from, count)) if *from + *count + bridged >= pages.start => {
            *count = (*count).max(pages.end - *from);
        }
        _ => runs.push((pages.start, pages.end - pages.start)),
    }
}
