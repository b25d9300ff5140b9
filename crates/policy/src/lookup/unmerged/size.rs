//! When the table grows and shrinks, and how.
//!
//! # Problem
//! The table follows the pages that may be entered, and nothing else may wait for it.
//!
//! # Approach
//! A large table changes by single buckets, a few after each call. A small one is made anew where
//! it may become much larger at once, which is cheaper for each entry. While memory is being filled
//! the bound rises a little with each batch: then a small table grows by single buckets, too. What
//! had no room in its bucket gets another chance each time it has grown by a sixteenth: otherwise,
//! since the table is as full as it may be all the while, the overflow would fill up, and what came
//! first would be forgotten.
//!
//! # Units
//! Buckets of 64 bytes.

use super::Unmerged;
use super::entry::Entry;
use super::linear_hashing::{Moved, Table};

/// A table of at most this many buckets, 256 KiB, does not shrink.
const MAX_KEPT_BUCKETS: usize = MAX_REBUILT_BUCKETS / 4;

/// Steps of growth after one call at most: more than a batch of entries asks for, so that the table
/// catches up with a bound that has risen, and some ten microseconds.
pub(super) const MAX_STEPS: usize = 32;

/// A table of at most so many buckets, which take 1 MiB, is made anew with [`GROWTH_FACTOR`] as
/// many when it is crowded: that takes some milliseconds, and a fifth of what growth by single
/// buckets would.
pub(super) const MAX_REBUILT_BUCKETS: usize = 1 << 14;
const GROWTH_FACTOR: usize = 4;
/// If it may have at least so many times as many. While memory is being filled the bound rises a
/// little with each batch, and a table that was made anew for each of them cost more than all else.
const MIN_GROWTH_FACTOR: usize = 2;

/// A table of at most so many buckets, which take 4 MiB, is made anew when it is [`GROWTH_FACTOR`]
/// too large: that takes some milliseconds, and a tenth of what shrinking by single buckets would,
/// each of which looks at all buckets of a group.
pub(super) const MAX_REBUILT_SMALLER_BUCKETS: usize = 1 << 16;

impl Unmerged {
    /// Lets the table grow by a few buckets if it is crowded, or shrink if it is much too large.
    pub(super) fn fit_table(&mut self, round: u32) {
        for _ in 0..MAX_STEPS {
            let buckets = self.table.buckets();
            if self.is_too_large() {
                if buckets <= MAX_REBUILT_SMALLER_BUCKETS {
                    return self.make_anew(self.most_buckets.max(MAX_KEPT_BUCKETS), round);
                }
                self.change_by_bucket(Table::shrink, round);
            } else if !self.is_crowded() {
                return;
            } else if buckets <= MAX_REBUILT_BUCKETS
                && buckets * MIN_GROWTH_FACTOR <= self.most_buckets
            {
                self.make_anew((buckets * GROWTH_FACTOR).min(self.most_buckets), round);
            } else {
                self.change_by_bucket(Table::grow, round);
                if buckets <= MAX_REBUILT_BUCKETS && buckets > self.emptied_at / 16 * 17 {
                    self.empty_overflow(round);
                }
            }
        }
    }

    /// What had no room in its bucket may have some now.
    fn empty_overflow(&mut self, round: u32) {
        self.emptied_at = self.table.buckets();
        let beside = self.overflow.take_all();
        self.put_all(beside.entries(), round);
    }

    /// Gives the table so many buckets at once.
    fn make_anew(&mut self, buckets: usize, round: u32) {
        let old = std::mem::replace(&mut self.table, Table::new(buckets, self.layout));
        let beside = self.overflow.take_all();
        self.emptied_at = buckets;
        self.put_all(old.entries().chain(beside.entries()), round);
    }

    /// Puts entries in again, with what is known of their hashes.
    fn put_all(&mut self, entries: impl Iterator<Item = (Entry, (u64, u32))>, round: u32) {
        for (entry, known) in entries {
            self.entries[usize::from(entry.era())] -= 1;
            if let Some(to) = self.table.address_of_part(known) {
                let entry = entry.with_tag(to.tag, self.layout);
                self.put_in(entry, to.bucket, known.0, round);
            }
        }
    }

    /// Adds a bucket, or takes one away.
    pub(super) fn change_by_bucket(
        &mut self,
        change: fn(&mut Table, &mut Vec<Moved>) -> u64,
        round: u32,
    ) {
        let mut moved = std::mem::take(&mut self.moved);
        let beside = change(&mut self.table, &mut moved);
        for (entry, to) in moved.drain(..) {
            self.entries[usize::from(entry.era())] -= 1;
            if let Some(bucket) = to {
                self.put_in(entry, bucket, beside, round);
            }
        }
        self.moved = moved;
    }

    /// Whether more than two fifths of the entries are taken, and there may be more of them. A
    /// table that grew at two thirds would forget a sixth of what is entered, because each newcomer
    /// would find its bucket full as often as the last one.
    pub(super) fn is_crowded(&self) -> bool {
        let held = self.len().saturating_sub(self.overflow.len() as u64);
        held * 5 > self.slots() as u64 * 2 && self.table.buckets() < self.most_buckets
    }

    /// Whether it takes more than twice what the pages that may be entered need, and four times if
    /// it is small. Then it is nearly empty, or holds what is not there any more.
    pub(super) fn is_too_large(&self) -> bool {
        let buckets = self.table.buckets();
        let times = if buckets <= MAX_REBUILT_SMALLER_BUCKETS {
            GROWTH_FACTOR
        } else {
            2
        };
        buckets > MAX_KEPT_BUCKETS && buckets / times > self.most_buckets
    }
}
