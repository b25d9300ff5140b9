//! The worth of hints by place: memory without merged pages is followed less.
//!
//! # Problem
//! A program that reads through a buffer of its own fills the same pages all the time, and their
//! contents are gone before they can be compared. Its hints cost as much as those of a guest's page
//! cache.
//!
//! # Approach
//! For each 2 MiB block of a space, the followed and the merged pages are counted in a table that
//! forgets: two blocks of one slot replace each other. A block that does not pay
//! ([`YieldCount::pays`]) has one in [`FOLLOWED_DIVISOR`] of its hints followed, so that it can
//! become better. Every merge in a block counts, also that of a partner: the pages that a first
//! guest reads are merged only when a second one has read them.
//!
//! Without it: hints of one process that are never worth anything take 3.7 s of CPU instead of 1.8.

use super::yield_count::YieldCount;
use crate::command::{Nanos, SpaceId};
use crate::convert;
use crate::mix::mix;
use crate::params::MILLISECOND;

/// Slots of the table.
const SLOTS: usize = 1 << 12;
/// Pages of a block, as a power of two.
const BLOCK_SHIFT: u32 = 9;
/// Least time between two full reads of a block in a huge page, in milliseconds.
const MIN_SWEEP_INTERVAL_MS: u32 = 500;
/// The order of two times is known if they are less than this apart, a day.
const MAX_ORDERED_MS: u32 = 86_400_000;
/// One hint in this number is still followed.
const FOLLOWED_DIVISOR: u16 = 8;

/// The counts of a block.
#[derive(Debug, Clone, Copy, Default)]
struct BlockRecord {
    /// Its key, shortened.
    tag: u32,
    count: YieldCount,
    /// Hints passed over in a row.
    passed: u16,
    /// The last time when all of it was read for a hint, in milliseconds, wrapping; 0 for never.
    swept: u32,
}

/// The counts of blocks.
#[derive(Debug)]
pub(super) struct BlockYields {
    blocks: Box<[BlockRecord]>,
}

impl BlockYields {
    pub(super) fn new() -> BlockYields {
        BlockYields {
            blocks: Box::default(),
        }
    }

    /// Memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.blocks)
    }

    /// Whether a hint for this page is to be followed.
    pub(super) fn is_worth(&mut self, space: SpaceId, page: u64) -> bool {
        let Some(block) = self.find(space, page) else {
            return true;
        };
        if block.count.pays() {
            return true;
        }
        block.passed = (block.passed + 1) % FOLLOWED_DIVISOR;
        block.passed == 0
    }

    /// `pages` pages of the block of this page are followed.
    pub(super) fn tried(&mut self, space: SpaceId, page: u64, pages: u64) {
        if self.blocks.is_empty() {
            self.blocks = vec![BlockRecord::default(); SLOTS].into();
        }
        let (slot, tag) = key(space, page);
        let block = &mut self.blocks[slot];
        if block.tag != tag {
            *block = BlockRecord {
                tag,
                ..BlockRecord::default()
            };
        }
        block.count.tried(pages);
    }

    /// A page was merged.
    pub(super) fn paid(&mut self, space: SpaceId, page: u64) {
        if let Some(block) = self.find(space, page) {
            block.count.paid();
        }
    }

    /// A merged page has been overwritten.
    pub(super) fn broken(&mut self, space: SpaceId, page: u64) {
        if let Some(block) = self.find(space, page) {
            block.count.broken();
        }
    }

    /// Whether all of the block was read after this time.
    pub(super) fn was_swept_since(&mut self, space: SpaceId, page: u64, then: Nanos) -> bool {
        let then = milliseconds(then);
        self.find(space, page).is_some_and(|block| {
            block.swept != 0 && block.swept.wrapping_sub(then.wrapping_add(1)) < MAX_ORDERED_MS
        })
    }

    /// Whether all of the block may be read now; if so, notes the read.
    pub(super) fn may_sweep(&mut self, space: SpaceId, page: u64, now: Nanos) -> bool {
        self.tried(space, page, 0);
        let Some(block) = self.find(space, page) else {
            return true;
        };
        let now = milliseconds(now);
        let is_due = block.swept == 0 || now.wrapping_sub(block.swept) >= MIN_SWEEP_INTERVAL_MS;
        if is_due {
            block.swept = now.max(1);
        }
        is_due
    }

    fn find(&mut self, space: SpaceId, page: u64) -> Option<&mut BlockRecord> {
        if self.blocks.is_empty() {
            return None;
        }
        let (slot, tag) = key(space, page);
        self.blocks.get_mut(slot).filter(|block| block.tag == tag)
    }
}

/// A time in milliseconds, wrapping.
fn milliseconds(time: Nanos) -> u32 {
    convert::narrow((time / MILLISECOND) & u64::from(u32::MAX))
}

/// The slot of a page's block, and its tag.
fn key(space: SpaceId, page: u64) -> (usize, u32) {
    let key = mix(page >> BLOCK_SHIFT ^ u64::from(space.0) << 40);
    let slot = convert::index(convert::narrow(key >> 32)) % SLOTS;
    // 0 marks an unused slot.
    (slot, convert::narrow(key & u64::from(u32::MAX)) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: SpaceId = SpaceId(3);

    fn followed(yields: &mut BlockYields, page: u64) -> usize {
        (0..800).filter(|_| yields.is_worth(SPACE, page)).count()
    }

    #[test]
    fn a_block_that_does_not_pay_is_followed_one_time_in_eight() {
        let mut yields = BlockYields::new();
        assert_eq!(followed(&mut yields, 700), 800);
        yields.tried(SPACE, 700, 4095);
        assert_eq!(followed(&mut yields, 700), 800);
        yields.tried(SPACE, 700, 1);
        assert_eq!(followed(&mut yields, 700), 100);
        assert_eq!(followed(&mut yields, 2000), 800, "another block");
    }

    #[test]
    fn what_pays_again_is_followed_again() {
        let mut yields = BlockYields::new();
        yields.tried(SPACE, 0, 8000);
        (0..125).for_each(|page| yields.paid(SPACE, page));
        assert_eq!(followed(&mut yields, 0), 800);
    }

    #[test]
    fn a_block_is_swept_twice_a_second_and_what_was_hinted_before_is_read_then() {
        const MS: Nanos = MILLISECOND;
        let mut yields = BlockYields::new();
        assert!(!yields.was_swept_since(SPACE, 5, 0));
        assert!(yields.may_sweep(SPACE, 5, 1000 * MS));
        assert!(yields.was_swept_since(SPACE, 7, 999 * MS));
        assert!(!yields.was_swept_since(SPACE, 7, 1000 * MS));
        assert!(!yields.may_sweep(SPACE, 7, 1499 * MS));
        assert!(yields.may_sweep(SPACE, 7, 1500 * MS));
        assert!(yields.was_swept_since(SPACE, 5, 1200 * MS));
        assert!(!yields.was_swept_since(SPACE, 512, 1200 * MS));
    }

    #[test]
    fn counts_are_halved_and_never_overflow() {
        let mut yields = BlockYields::new();
        for _ in 0..100_000 {
            yields.tried(SPACE, 5, 512);
            yields.paid(SPACE, 5);
        }
        yields.tried(SPACE, 5, u64::MAX);
        assert!(yields.is_worth(SPACE, 5) || !yields.is_worth(SPACE, 5));
    }
}
