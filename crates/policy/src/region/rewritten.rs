//! Memory that is written anew in place: samples tell, since its size does not.
//!
//! # Problem
//! What a program computes, or a guest reads into the cache that it has, changes no size and makes no
//! event. All of it was read once, so that only thin samples would show that it holds something else, by
//! meeting equal pages: seldom where those lie at other offsets. Meanwhile nearly all of the governor's
//! share is left.
//!
//! # Approach
//! A sampled page of a region that was swept is in the index as it is, or was changed since. When an eighth
//! of some samples were, the region is read again in full from what others leave, like what is new. If that
//! finds little, the next time is four times as far, up to [`MOST_WAITS`]; a region that is rewritten all the
//! time, as a buffer is, costs next to nothing. While nothing is rewritten, this costs nothing.
//!
//! # Source
//! UKSM §5.3 (shares are bounds); design: a ladder that conserves work.

use crate::command::Nanos;
use crate::params::SECOND;

/// Samples that are judged together.
const JUDGED: u8 = 16;
/// After a sweep at least so long passes, and 4^MOST_WAITS times as long at most: some 8 minutes.
const WAIT: Nanos = 2 * SECOND;
const MOST_WAITS: u8 = 4;
/// One page of so many must be merged for the next time to be as soon.
const WORTH_ONE_OF: u64 = 64;

/// What samples tell of a region.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rewritten {
    sampled: u8,
    changed: u8,
    /// Times in a row that little was found.
    waits: u8,
    /// It is to be read again.
    is_due: bool,
    /// It is being read again, or was.
    is_judged: bool,
    /// Pages merged before.
    merges: u32,
}

impl Rewritten {
    /// A page that was indexed was sampled: it holds something else now, or not. Its last sweep ended at
    /// `swept_at`.
    pub(super) fn sampled(&mut self, is_changed: bool, swept_at: Nanos, now: Nanos) {
        self.sampled += 1;
        self.changed += u8::from(is_changed);
        if self.sampled < JUDGED {
            return;
        }
        let is_rewritten = 8 * self.changed >= self.sampled;
        (self.sampled, self.changed) = (0, 0);
        let due = swept_at.saturating_add(WAIT << (2 * self.waits));
        self.is_due |= is_rewritten && now >= due;
    }

    /// Whether it is to be read again.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// A sweep begins; so many pages were merged until now.
    pub(super) fn begin(&mut self, merges: u64) {
        self.is_judged = std::mem::take(&mut self.is_due);
        self.merges = short(merges);
    }

    /// A sweep of so many pages has ended.
    pub(super) fn end(&mut self, merges: u64, pages: u32) {
        if !std::mem::take(&mut self.is_judged) {
            return;
        }
        let found = u64::from(short(merges).wrapping_sub(self.merges));
        self.waits = if found * WORTH_ONE_OF >= u64::from(pages) {
            0
        } else {
            (self.waits + 1).min(MOST_WAITS)
        };
    }
}

/// The low half of a count, for differences.
fn short(count: u64) -> u32 {
    crate::convert::narrow(count & 0xFFFF_FFFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many samples, of which each `nth` was changed; whether it is due then.
    fn sample(rewritten: &mut Rewritten, nth: u8, swept_at: Nanos, now: Nanos) -> bool {
        for at in 0..JUDGED {
            rewritten.sampled(at % nth == 0, swept_at, now);
        }
        rewritten.is_due()
    }

    #[test]
    fn it_is_read_again_when_an_eighth_of_its_samples_were_changed_and_not_at_once() {
        let mut rewritten = Rewritten::default();
        assert!(!sample(&mut rewritten, 16, 0, 9 * SECOND), "one of 16");
        assert!(!sample(&mut rewritten, 8, 8 * SECOND, 9 * SECOND), "soon");
        assert!(sample(&mut rewritten, 8, 7 * SECOND, 9 * SECOND));
        assert!(rewritten.is_due());
        rewritten.begin(0);
        assert!(!rewritten.is_due());
    }

    #[test]
    fn where_little_is_found_the_next_time_is_four_times_as_far() {
        let mut rewritten = Rewritten::default();
        let mut now = 100 * SECOND;
        let mut reads = 0;
        let mut swept_at = 0;
        // An hour in which it is rewritten all the time.
        while now < 3700 * SECOND {
            now += SECOND;
            if sample(&mut rewritten, 1, swept_at, now) {
                rewritten.begin(0);
                rewritten.end(5, 1000);
                swept_at = now;
                reads += 1;
            }
        }
        assert!((9..=11).contains(&reads), "{reads}");
        assert!(sample(&mut rewritten, 1, swept_at, now + 512 * SECOND));
        rewritten.begin(100);
        rewritten.end(200, 1000);
        assert!(!sample(&mut rewritten, 1, now, now + SECOND));
        assert!(sample(&mut rewritten, 1, now, now + 2 * SECOND), "it paid");
    }
}
