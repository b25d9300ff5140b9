//! When the table grows and shrinks, and how.
//!
//! # Problem
//! The table must follow the number of pages that may be entered, without long steps.
//!
//! # Approach
//! A large table changes by single buckets, a few after each call. A small table is rebuilt where
//! it may become much larger at once, which is cheaper for each entry. While memory is being
//! filled, the bound rises a little with each batch: then a small table grows by single buckets,
//! too. Each time it has grown by 1/16, entries of the overflow are put in again; otherwise the
//! overflow would fill up, since the table stays as full as allowed all the while, and its oldest
//! entries would be forgotten.
//!
//! # Units
//! Buckets of 64 bytes.

use super::UnmergedIndex;
use super::entry::Entry;
use super::linear_hashing::{KnownPart, MovedEntry, Table};

/// A table of at most this many buckets, 256 KiB, does not shrink.
const MAX_KEPT_BUCKETS: usize = MAX_REBUILT_BUCKETS / 4;

/// Limit of steps of growth after one call: more than a batch of entries needs, so that the table
/// catches up with a bound that has risen, and some ten microseconds.
pub(super) const MAX_STEPS: usize = 32;

/// A crowded table of at most this many buckets, 1 MiB, is rebuilt with [`GROWTH_FACTOR`] times as
/// many: that takes some milliseconds, a fifth of the time of growth by single buckets.
pub(super) const MAX_REBUILT_BUCKETS: usize = 1 << 14;
const GROWTH_FACTOR: usize = 4;
/// It is rebuilt only if its bound is at least this many times its size. While memory is being
/// filled, the bound rises a little with each batch, and a rebuild for each of them cost more than
/// all else.
const MIN_GROWTH_FACTOR: usize = 2;

/// A table of at most this many buckets, 4 MiB, is rebuilt when it is [`GROWTH_FACTOR`] times too
/// large: that takes some milliseconds, a tenth of the time of shrinking by single buckets, each of
/// which visits all buckets of a group.
pub(super) const MAX_REBUILT_SMALLER_BUCKETS: usize = 1 << 16;

impl UnmergedIndex {
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

    /// Puts the entries of the overflow in again: there may be room in their buckets now.
    fn empty_overflow(&mut self, round: u32) {
        self.emptied_at = self.table.buckets();
        let beside = self.overflow.take_all();
        self.put_all(beside.entries(), round);
    }

    /// Rebuilds the table with this many buckets.
    fn make_anew(&mut self, buckets: usize, round: u32) {
        let old = std::mem::replace(&mut self.table, Table::new(buckets, self.layout));
        let beside = self.overflow.take_all();
        self.emptied_at = buckets;
        self.put_all(old.entries().chain(beside.entries()), round);
    }

    /// Puts entries in again, with the known part of their hashes.
    fn put_all(&mut self, entries: impl Iterator<Item = (Entry, KnownPart)>, round: u32) {
        for (entry, known) in entries {
            self.entries[usize::from(entry.era())] -= 1;
            if let Some(to) = self.table.address_of_part(known) {
                let entry = entry.with_tag(to.tag, self.layout);
                self.put_in(entry, to.bucket, known.hash, round);
            }
        }
    }

    /// Adds or removes a bucket.
    pub(super) fn change_by_bucket(
        &mut self,
        change: fn(&mut Table, &mut Vec<MovedEntry>) -> u64,
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

    /// Whether more than two fifths of the entries are taken, and the table may grow. A table that
    /// grew at two thirds would forget a sixth of the entered pages, because newcomers would find
    /// their buckets full that often.
    pub(super) fn is_crowded(&self) -> bool {
        let held = self.len().saturating_sub(self.overflow.len() as u64);
        held * 5 > self.slots() as u64 * 2 && self.table.buckets() < self.most_buckets
    }

    /// Whether it is more than twice as large as the pages that may be entered need, or four times
    /// if it is small. Then it is nearly empty, or holds entries of pages that are gone.
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
