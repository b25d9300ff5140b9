//! Blocks that the kernel made huge again after pages of them were merged with the zero page.
//!
//! # Problem
//! khugepaged makes a huge page of a range of small pages. A page that maps the zero page counts as
//! one that is not there, and up to `max_ptes_none` pages of a range may be missing: 511 of 512 by
//! default. So khugepaged undoes merges with the zero page, and each split that follows is undone,
//! too. It makes no huge page of a range that has a frame in it.
//!
//! # Approach
//! A page that is believed to be merged, and is found in a huge page and full of zeros, shows that
//! no page of its block is merged any more. From then on zeros are no reason to split that block,
//! for [`FIRST_WAIT`] rounds at first and four times as long each time after. The block starts anew
//! if the zeros had lasted for as long as the first wait: a huge page that is made hours later is
//! worth another split. The time at which the merges were undone is unknown: the middle between the
//! last look that found them merged and now is taken.
//!
//! One page is evidence for a whole block, so the other blocks of the region are checked by one
//! page each, at most once a round ([`Collapses::next_check`]).
//!
//! A large folio of less than 2 MiB looks the same, if the process gave up merged pages and touched
//! the range again. Then pages that are still merged are believed to be unmerged, until they are
//! next read.
//!
//! # Units
//! Nanoseconds; rounds. About 40 bytes a block that was made huge again; nothing for others.

use std::collections::BTreeMap;

use crate::command::Nanos;

/// Rounds for which zeros are no reason to split a block that was made huge again once.
const FIRST_WAIT: u64 = 64;
/// The longest wait is [`FIRST_WAIT`] times four to the power of this number.
const MAX_TIMES: u8 = 5;

/// The state of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Collapse {
    /// Number of times in a row that it was made huge again too soon.
    times: u8,
    /// Zeros are no reason to split it before this.
    until: Nanos,
    /// When zeros of it were merged again, and when a page of it was last seen to be merged.
    merged: Option<(Nanos, Nanos)>,
}

/// The state of the blocks of one region.
#[derive(Debug, Clone, Default)]
pub(super) struct Collapses {
    blocks: BTreeMap<u32, Collapse>,
    /// The next block to be checked by one page, while the blocks of the region are checked.
    cursor: Option<u32>,
    checked_at: Option<Nanos>,
}

impl Collapses {
    /// Zeros of the block were merged, and the kernel has made the block huge again.
    pub(super) fn found(&mut self, block: u32, now: Nanos, round: Nanos) {
        let first = round * FIRST_WAIT;
        let known = self.blocks.entry(block).or_insert(Collapse {
            times: 0,
            until: 0,
            merged: None,
        });
        let lasted = known.merged.take().map_or(0, |(since, seen)| {
            let middle = seen + now.saturating_sub(seen) / 2;
            middle.saturating_sub(since)
        });
        if lasted >= first {
            (known.times, known.until) = (0, now);
            return;
        }
        known.until = now + (first << (2 * known.times));
        known.times = (known.times + 1).min(MAX_TIMES);
    }

    /// A page of the block was merged with the zero page.
    pub(super) fn merged(&mut self, block: u32, now: Nanos) {
        if let Some(known) = self.blocks.get_mut(&block) {
            let (_, seen) = known.merged.get_or_insert((now, now));
            *seen = now;
        }
    }

    /// A page of the block was seen to be merged.
    pub(super) fn lasted(&mut self, block: u32, now: Nanos) {
        if let Some((_, seen)) = self
            .blocks
            .get_mut(&block)
            .and_then(|known| known.merged.as_mut())
        {
            *seen = now;
        }
    }

    /// Until when zeros are no reason to split the block, if that time is in the future.
    pub(super) fn waits_until(&self, block: u32, now: Nanos) -> Option<Nanos> {
        let until = self.blocks.get(&block)?.until;
        (now < until).then_some(until)
    }

    /// The number of waiting blocks, and the end of the last wait. Costs a pass over them.
    pub(super) fn waiting(&self, now: Nanos) -> (u64, Nanos) {
        let waits = self.blocks.values().filter(|known| now < known.until);
        waits.fold((0, 0), |(count, last), known| {
            (count + 1, last.max(known.until))
        })
    }

    /// The other blocks are to be checked; returns from when on.
    pub(super) fn next_check(&mut self, now: Nanos, round: Nanos) -> Nanos {
        self.cursor.get_or_insert(0);
        self.checked_at.map_or(now, |at| now.max(at + round))
    }

    /// The next block to check, if blocks are being checked.
    pub(super) fn cursor(&self) -> Option<u32> {
        self.cursor
    }

    /// Blocks were checked at `now`; `next` is the next one, or none at the end.
    pub(super) fn set_cursor(&mut self, next: Option<u32>, now: Nanos) {
        self.cursor = next;
        self.checked_at = Some(now);
    }

    /// The region has this many blocks now.
    pub(super) fn resize(&mut self, blocks: u32) {
        self.blocks.retain(|&block, _| block < blocks);
    }

    /// Bytes it takes beside itself.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * (size_of::<u32>() + size_of::<Collapse>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::SECOND;

    const ROUND: Nanos = 4 * SECOND;
    const FIRST: Nanos = ROUND * FIRST_WAIT;

    #[test]
    fn each_wait_is_four_times_as_long_up_to_a_bound() {
        let mut collapses = Collapses::default();
        let (mut now, mut waits) = (SECOND, vec![]);
        for _ in 0..8 {
            collapses.found(7, now, ROUND);
            let until = collapses.waits_until(7, now).unwrap();
            waits.push((until - now) / FIRST);
            now = until;
            assert_eq!(collapses.waits_until(7, now), None);
            collapses.merged(7, now);
            now += SECOND;
        }
        assert_eq!(waits, [1, 4, 16, 64, 256, 1024, 1024, 1024]);
        assert_eq!(collapses.waits_until(6, now), None, "another block");
    }

    #[test]
    fn zeros_that_lasted_are_worth_another_split_at_once() {
        let mut collapses = Collapses::default();
        collapses.found(0, 0, ROUND);
        collapses.merged(0, FIRST);
        collapses.lasted(0, FIRST + FIRST - 2 * SECOND);
        collapses.found(0, 2 * FIRST + 2 * SECOND, ROUND);
        assert_eq!(collapses.waits_until(0, 2 * FIRST + 2 * SECOND), None);
        assert_eq!(collapses.waiting(0).0, 1, "it was made huge at that time");
        // A merge that did not last waits as at first.
        collapses.merged(0, 3 * FIRST);
        collapses.found(0, 3 * FIRST + SECOND, ROUND);
        let until = collapses.waits_until(0, 3 * FIRST + SECOND).unwrap();
        assert_eq!(until, 4 * FIRST + SECOND);
    }

    #[test]
    fn a_page_of_another_block_says_nothing_of_how_long_zeros_lasted() {
        let mut collapses = Collapses::default();
        collapses.found(0, 0, ROUND);
        collapses.merged(0, FIRST);
        collapses.lasted(1, 3 * FIRST);
        collapses.found(0, FIRST + SECOND, ROUND);
        let until = collapses.waits_until(0, FIRST + SECOND).unwrap();
        assert_eq!(until, FIRST + SECOND + 4 * FIRST);
    }

    #[test]
    fn blocks_are_checked_once_a_round() {
        let mut collapses = Collapses::default();
        assert_eq!(collapses.next_check(SECOND, ROUND), SECOND);
        collapses.set_cursor(Some(16), SECOND);
        assert_eq!(collapses.cursor(), Some(16));
        collapses.set_cursor(None, 2 * SECOND);
        assert_eq!(collapses.next_check(3 * SECOND, ROUND), 2 * SECOND + ROUND);
        assert_eq!(collapses.cursor(), Some(0));
    }
}
