//! Times at which regions are due.
//!
//! # Problem
//! Where thousands of processes come at once, every one of their regions waits for an event at a
//! time of its own.
//!
//! # Approach
//! A sorted set of times with regions, of which the first is taken when its time has come. The
//! region's own state decides whether it is still due. Regions that wait in the order of their
//! arrival are noted in the same way.
//!
//! # Units
//! 12 bytes a note, and twice as many in a set that is filled in the order of its times.

use std::collections::BTreeSet;

use crate::command::Nanos;
use crate::convert;
use crate::ids::RegionId;

/// A region, with a time or the number of its arrival. As one number of 64 bits that would take 16
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    high: u32,
    low: u32,
    id: RegionId,
}

impl Note {
    /// The note of a region with this time or number.
    pub(super) fn new(number: u64, id: RegionId) -> Note {
        Note {
            high: convert::narrow(number >> 32),
            low: convert::narrow(number & u64::from(u32::MAX)),
            id,
        }
    }

    /// The time or number.
    pub(super) fn number(self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }

    /// The region.
    pub(super) fn id(self) -> RegionId {
        self.id
    }

    /// All of it in 96 bits, in the order of its parts: one comparison instead of three.
    fn key(self) -> u128 {
        u128::from(self.number()) << 32 | u128::from(self.id.0)
    }
}

impl Ord for Note {
    fn cmp(&self, other: &Note) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Note {
    fn partial_cmp(&self, other: &Note) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Waiting regions, by time or number.
#[derive(Debug, Default)]
pub(super) struct Calendar(BTreeSet<Note>);

impl Calendar {
    /// The region waits for this time.
    pub(super) fn insert(&mut self, due: Nanos, id: RegionId) {
        self.0.insert(Note::new(due, id));
    }

    /// The first time in the calendar.
    pub(super) fn first_due(&self) -> Option<Nanos> {
        Some(self.0.first()?.number())
    }

    /// Takes the first region, if its time has come.
    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<(Nanos, RegionId)> {
        let is_due = self.first_due()? <= now;
        let note = is_due.then(|| self.0.pop_first())??;
        Some((note.number(), note.id()))
    }

    /// The last region.
    pub(super) fn last(&self) -> Option<RegionId> {
        Some(self.0.last()?.id())
    }

    /// Removes the last region.
    pub(super) fn drop_last(&mut self) {
        self.0.pop_last();
    }

    /// All regions, by time.
    pub(super) fn ids(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.0.iter().map(|note| note.id())
    }

    /// Whether no region waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of waiting regions.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<(u64, RegionId)> for Calendar {
    fn from_iter<T: IntoIterator<Item = (u64, RegionId)>>(waiting: T) -> Calendar {
        let notes = waiting
            .into_iter()
            .map(|(number, id)| Note::new(number, id));
        Calendar(notes.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_come_in_the_order_of_their_times_and_then_of_their_ids() {
        let mut calendar = Calendar::default();
        let times = [
            (1 << 32, 1),
            ((1 << 32) - 1, 2),
            (7, 4),
            (7, 3),
            (u64::MAX, 5),
        ];
        for (due, number) in times {
            calendar.insert(due, RegionId(number));
        }
        assert_eq!(calendar.last(), Some(RegionId(5)));
        let ids: Vec<u32> = calendar.ids().map(|id| id.0).collect();
        assert_eq!(ids, [3, 4, 2, 1, 5]);
        assert_eq!(calendar.pop_due(6), None);
        assert_eq!(calendar.pop_due(7), Some((7, RegionId(3))));
        assert_eq!(size_of::<Note>(), 12);
    }
}
