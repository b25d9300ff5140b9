//! Detects memory that is rewritten in place, by samples, since its size does not change.
//!
//! # Problem
//! Results of a computation, or file data that a guest reads into its existing cache, change no
//! size and cause no event. The region was read in full before, so only thin samples would show its
//! new contents, by meeting equal pages: seldom where those lie at other offsets. Meanwhile nearly
//! all of the governor's share is unused.
//!
//! # Approach
//! A sampled page of a swept region is indexed with its contents, is still merged, or has changed
//! since. When an eighth of some samples have changed, the region is read again in full in spare
//! time, like new memory. If that finds little, the next wait is four times as long, up to
//! [`MAX_WAITS`]; a region that is rewritten all the time, as a buffer is, costs next to nothing.
//! It is watched meanwhile (`write_watch.rs`), and read again when no page of it seems to be
//! written any more. While nothing is rewritten, this costs nothing.
//!
//! Samples are those of the bottom level, and those of *checks* of a few pages: soon after the
//! sweep, then each time after twice as long, up to [`MAX_CALM`] times
//! (`ladder/rewrite_checks.rs`). Equal pages replace each other in the index, so that some always
//! seem to be changed: if fewer than half of the samples changed, a check must confirm it.
//!
//! A sweep that met many busy pages, as while the kernel moves them, is repeated after the same
//! waits: they are as good as unread.
//!
//! Without merges as evidence: 84 % of what I/O rewrites in page caches is shared over a minute
//! without hints, instead of 89.
//!
//! # Source
//! UKSM §5.3 (shares are bounds); design: a ladder that conserves work.

use crate::command::Nanos;
use crate::params::SECOND;

/// Samples of a verdict, for samples of the bottom level.
const VERDICT_SAMPLES: u8 = 16;
/// The shortest time after a sweep; the longest is 4^MAX_WAITS times as long, some 8 minutes.
const FIRST_WAIT: Nanos = 2 * SECOND;
const MAX_WAITS: u8 = 4;
/// One page in this many must be merged for the wait to return to the shortest.
const MIN_YIELD_DIVISOR: u64 = 64;
/// Merged samples of swept memory that are evidence like changed samples: their new contents
/// existed elsewhere before.
const MIN_MERGED_SAMPLES: u8 = 2;
/// Checks in a row without a change, after which no more are scheduled. They take two minutes.
const MAX_CALM: u8 = 6;
/// After this many checks in a row without a change, or more, a change of the space's size causes
/// another check no sooner than 2^this times [`FIRST_WAIT`] after the last.
const MAX_CALM_DOUBLINGS: u8 = 3;

/// Whether a region is to be read again when it is calm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Await {
    #[default]
    Nothing,
    /// It is, and is not watched yet.
    Calm,
    /// It is, and it is watched.
    Watched,
}

/// Evidence of samples about a region.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RewriteDetector {
    sampled: u8,
    changed: u8,
    /// Pages merged since its sweep that were sampled alone.
    merged: u8,
    /// Samples of the check that is under way, 0 for none.
    awaited: u8,
    /// Some samples were changed: the next check, or the one under way, decides.
    is_doubted: bool,
    /// Rereadings in a row that found little.
    waits: u8,
    /// Checks in a row without a change.
    calm: u8,
    /// A part of its pages could not be merged when it was swept: it is swept again.
    was_busy: bool,
    /// It is to be read again.
    is_due: bool,
    /// It was written, and is not to be read again before the writes end, or for long.
    awaits_calm: Await,
    /// When it was checked or swept last.
    checked_at: Nanos,
    /// When it is checked next, 0 for never.
    check_at: Nanos,
}

impl RewriteDetector {
    /// A known page was sampled, and had changed or not. The region's last sweep ended at
    /// `swept_at`.
    pub(super) fn sampled(&mut self, is_changed: bool, swept_at: Nanos, now: Nanos) {
        if self.is_doubted && self.awaited == 0 {
            return;
        }
        self.sampled += 1;
        self.changed += u8::from(is_changed);
        let is_check = self.awaited > 0;
        let judged = if is_check {
            self.awaited
        } else {
            VERDICT_SAMPLES
        };
        if self.sampled < judged {
            return;
        }
        self.awaited = 0;
        let is_rewritten = 8 * u32::from(self.changed) >= u32::from(self.sampled);
        let is_doubtful = 2 * self.changed < self.sampled;
        if is_rewritten && is_doubtful && !self.is_doubted {
            // It is checked once more, and both are judged together.
            (self.is_doubted, self.calm) = (true, 0);
            return;
        }
        (self.sampled, self.changed, self.is_doubted) = (0, 0, false);
        if is_rewritten {
            self.calm = 0;
            self.expect_changes(swept_at, now);
        } else if is_check {
            self.calm = (self.calm + 1).min(MAX_CALM);
        }
    }

    fn expect_changes(&mut self, swept_at: Nanos, now: Nanos) {
        if now >= self.due_after(swept_at) {
            self.is_due = true;
        } else if self.awaits_calm == Await::Nothing {
            self.awaits_calm = Await::Calm;
        }
    }

    /// Whether it is due to be read again, or watched for that.
    fn is_known_to_be_written(&self) -> bool {
        self.is_due || self.awaits_calm != Await::Nothing
    }

    /// Once, if it was written and may not be read again yet: it is to be watched until that ends.
    pub(super) fn begins_to_await_calm(&mut self) -> bool {
        let begins = self.awaits_calm == Await::Calm;
        if begins {
            self.awaits_calm = Await::Watched;
        }
        begins
    }

    /// Whether it is watched until it is calm. The interval of watching doubles with each rereading
    /// that found little: by this power of two.
    pub(super) fn awaits_calm(&self) -> Option<u8> {
        (self.awaits_calm == Await::Watched).then_some(self.waits.saturating_sub(1))
    }

    /// No page of it seems to be written: it is to be read again.
    pub(super) fn calmed(&mut self) {
        self.is_due |= self.awaits_calm == Await::Watched;
    }

    /// A known page was merged.
    pub(super) fn merged(&mut self, swept_at: Nanos, now: Nanos) {
        self.merged = self.merged.saturating_add(1);
        if self.merged >= MIN_MERGED_SAMPLES {
            self.calm = 0;
            self.expect_changes(swept_at, now);
        }
    }

    fn due_after(&self, swept_at: Nanos) -> Nanos {
        swept_at.saturating_add(FIRST_WAIT << (2 * self.waits))
    }

    /// Whether it is to be read again.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// A sweep begins. Returns whether it is due to changed samples, and its yield is judged.
    pub(super) fn begin(&mut self) -> bool {
        self.awaits_calm = Await::Nothing;
        std::mem::take(&mut self.is_due)
    }

    /// A sweep of `pages` pages has ended, of which `busy` could not be merged just now. `found` of
    /// them were merged, if the sweep is judged.
    pub(super) fn end(&mut self, found: Option<u64>, busy: u32, pages: u32, now: Nanos) {
        self.checked_at = now;
        (self.sampled, self.changed, self.merged) = (0, 0, 0);
        (self.awaited, self.calm, self.is_doubted) = (0, 0, false);
        let busy = u64::from(busy);
        self.was_busy = busy * MIN_YIELD_DIVISOR >= u64::from(pages);
        let Some(found) = found else {
            return;
        };
        self.waits = if found.saturating_sub(busy) * MIN_YIELD_DIVISOR >= u64::from(pages) {
            0
        } else {
            (self.waits + 1).min(MAX_WAITS)
        };
    }

    /// Whether it is to be checked once more.
    pub(super) fn is_doubted(&self) -> bool {
        self.is_doubted && self.awaited == 0
    }

    /// It was swept, or a check of it has begun: when it is checked next, if it is.
    pub(super) fn next_check(&mut self, now: Nanos) -> Option<Nanos> {
        let is_enough = self.calm >= MAX_CALM;
        self.check_at = if is_enough || self.is_known_to_be_written() {
            0
        } else if self.was_busy {
            self.due_after(now)
        } else {
            now + (FIRST_WAIT << self.calm)
        };
        (self.check_at > 0).then_some(self.check_at)
    }

    /// The size of its space has changed. Returns the time of the next check, if it is sooner than
    /// before.
    pub(super) fn hasten(&mut self, now: Nanos) -> Option<Nanos> {
        let rested = self.checked_at + (FIRST_WAIT << self.calm.min(MAX_CALM_DOUBLINGS));
        let at = rested.max(now);
        let is_sooner = self.check_at == 0 || at < self.check_at;
        if !is_sooner || self.is_known_to_be_written() {
            return None;
        }
        self.check_at = at;
        Some(at)
    }

    /// It may have been written since it was checked: it is not calm.
    pub(super) fn expect_writes(&mut self) {
        self.calm = 0;
    }

    /// Whether it is checked at this time.
    pub(super) fn is_check_due(&self, due: Nanos) -> bool {
        self.check_at == due
    }

    /// Whether it is read again instead of being checked.
    pub(super) fn try_busy_again(&mut self) -> bool {
        self.is_due |= self.was_busy;
        std::mem::take(&mut self.was_busy)
    }

    /// Begins a check of `samples` pages.
    pub(super) fn begin_check(&mut self, samples: u8, now: Nanos) {
        if !self.is_doubted {
            (self.sampled, self.changed) = (0, 0);
        }
        self.awaited = self.sampled + samples;
        self.checked_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes samples, of which each `nth` was changed, and as many of the check that follows.
    /// Returns whether the region is due then.
    fn sample(rewritten: &mut RewriteDetector, nth: u8, swept_at: Nanos, now: Nanos) -> bool {
        for at in 0..2 * VERDICT_SAMPLES {
            if rewritten.is_doubted() {
                rewritten.begin_check(VERDICT_SAMPLES, now);
            }
            rewritten.sampled(at % nth == 0, swept_at, now);
        }
        rewritten.is_due()
    }

    #[test]
    fn it_is_read_again_when_an_eighth_of_its_samples_were_changed_and_not_at_once() {
        let mut rewritten = RewriteDetector::default();
        assert!(!sample(&mut rewritten, 16, 0, 9 * SECOND), "two of 32");
        assert!(!sample(&mut rewritten, 8, 8 * SECOND, 9 * SECOND), "soon");
        assert!(sample(&mut rewritten, 8, 7 * SECOND, 9 * SECOND));
        assert!(rewritten.is_due());
        assert!(rewritten.begin());
        assert!(!rewritten.is_due());
    }

    #[test]
    fn where_little_is_found_the_next_time_is_four_times_as_far() {
        let mut rewritten = RewriteDetector::default();
        let mut now = 100 * SECOND;
        let mut reads = 0;
        let mut swept_at = 0;
        // An hour in which it is rewritten all the time.
        while now < 3700 * SECOND {
            now += SECOND;
            if sample(&mut rewritten, 1, swept_at, now) {
                rewritten.begin();
                rewritten.end(Some(5), 0, 1000, now);
                swept_at = now;
                reads += 1;
            }
        }
        assert!((9..=11).contains(&reads), "{reads}");
        assert!(sample(&mut rewritten, 1, swept_at, now + 512 * SECOND));
        rewritten.begin();
        rewritten.end(Some(100), 0, 1000, now);
        assert!(!sample(&mut rewritten, 1, now, now + SECOND));
        assert!(sample(&mut rewritten, 1, now, now + 2 * SECOND), "it paid");
    }

    /// The times of the checks of a region swept at 0, each of four samples of which `changed` are
    /// changed.
    fn checks(rewritten: &mut RewriteDetector, changed: u8) -> Vec<Nanos> {
        let mut times = vec![];
        let mut next = rewritten.next_check(0);
        while let Some(due) = next {
            assert!(rewritten.is_check_due(due) && times.len() < 100);
            rewritten.begin_check(4, due);
            times.push(due / SECOND);
            for at in 0..4 {
                rewritten.sampled(at < changed, 0, due);
            }
            next = rewritten.next_check(due);
        }
        times
    }

    #[test]
    fn what_is_calm_is_checked_ever_later_and_then_no_more() {
        let mut rewritten = RewriteDetector::default();
        assert_eq!(checks(&mut rewritten, 0), [2, 6, 14, 30, 62, 126]);
        assert!(!rewritten.is_due());
    }

    #[test]
    fn the_first_check_that_shows_a_change_has_it_read_again() {
        let mut rewritten = RewriteDetector::default();
        assert_eq!(checks(&mut rewritten, 2), [2]);
        assert!(rewritten.is_due());
    }

    #[test]
    fn a_check_that_shows_little_is_confirmed_by_another() {
        let check = |rewritten: &mut RewriteDetector, changed: u8, now: Nanos| {
            rewritten.begin_check(16, now);
            for at in 0..16 {
                rewritten.sampled(at < changed, 0, now);
            }
            (rewritten.is_doubted(), rewritten.is_due())
        };
        let mut rewritten = RewriteDetector::default();
        assert_eq!(check(&mut rewritten, 1, 10 * SECOND), (false, false));
        assert_eq!(check(&mut rewritten, 2, 11 * SECOND), (true, false));
        rewritten.sampled(true, 0, 12 * SECOND);
        assert_eq!(check(&mut rewritten, 1, 13 * SECOND), (false, false));
        assert_eq!(check(&mut rewritten, 3, 14 * SECOND), (true, false));
        assert_eq!(check(&mut rewritten, 1, 15 * SECOND), (false, true));
        rewritten.begin();
        assert_eq!(check(&mut rewritten, 8, 20 * SECOND), (false, true));
    }

    #[test]
    fn a_change_of_the_space_brings_a_check_sooner_but_not_at_once() {
        let mut rewritten = RewriteDetector::default();
        checks(&mut rewritten, 0);
        assert_eq!(rewritten.hasten(130 * SECOND), Some(142 * SECOND));
        assert_eq!(rewritten.hasten(131 * SECOND), None, "it is to come");
        rewritten.check_at = 0;
        assert_eq!(rewritten.hasten(200 * SECOND), Some(200 * SECOND));
    }
}
