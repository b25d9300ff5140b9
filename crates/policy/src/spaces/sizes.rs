//! Which spaces changed: their last known sizes, and when to measure them again.
//!
//! # Problem
//! No event reports that a process unmaps memory. Growth is reported for large changes only, and
//! not on every machine. Listing the mappings of thousands of spaces again and again would cost
//! more than all merging.
//!
//! # Approach
//! Reading the number and the size of a space's mappings costs a fraction of a microsecond. Spaces
//! are measured in *slices* of at most 1,024 spaces, neighbours by slot. The interval of a slice
//! falls to the shortest one when something in it changes, and doubles again after a while without
//! changes. A new space is measured at once, so that its first size is older than its first mapping
//! list, and no change falls between the two. A space that is reported to have grown is measured at
//! once, too; if it has, its slice is measured again soon. Slices that are due take turns with such
//! single spaces: steady arrivals and growth do not starve them.
//!
//! # Units
//! Slices become due at multiples of the shortest interval, calm ones at multiples of 16 of them, a
//! round. Slices that are due together share a wake-up with each other, and with the process list
//! of a machine that receives events.

use std::collections::BTreeSet;

use crate::command::{Nanos, SpaceSize};
use crate::convert;
use crate::frugal_vec;
use crate::ids::SpaceSlot;
use crate::params::SECOND;

/// Number of shortest intervals after a change in which a slice is measured at each one:
/// short-lived memory is not missed.
const ATTENTIVE_INTERVALS: u64 = 8;

/// Number of shortest intervals between two times at which calm slices are due.
const CALM_INTERVALS: u64 = 16;

/// Time between two measurements of a calm slice that the machine watches, in case the machine
/// missed a change.
pub(crate) const WATCHED: Nanos = 3600 * SECOND;

/// Spaces in a slice, and the limit of spaces in a call: some hundred microseconds.
pub(crate) const SLICE: usize = 1024;

/// The meaning of a measured size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeChange {
    /// It was never measured before.
    Unknown,
    /// Number and size of its mappings are as before.
    Same,
    /// Number or size of its mappings changed.
    Changed,
}

/// Mappings and pages of a space.
type SpaceExtent = (u64, u64);

/// Spaces that are measured together.
#[derive(Debug, Clone, Copy)]
struct Slice {
    due: Nanos,
    interval: Nanos,
    /// Whether something in it had changed at its last measurement, as far as answered.
    is_changed: bool,
    /// Time of the last change in it.
    changed: Nanos,
}

/// The sizes of all spaces.
#[derive(Debug)]
pub(crate) struct Sizes {
    shortest: Nanos,
    longest: Nanos,
    /// By slot: none if the slot is not in use, else the last size, if known.
    known: Vec<Option<Option<SpaceExtent>>>,
    slices: Vec<Slice>,
    /// Spaces to measure at once: never measured, or reported to have grown.
    soon: BTreeSet<SpaceSlot>,
    /// The spaces being measured, and their slice if they are one.
    asked: Vec<SpaceSlot>,
    asked_slice: Option<usize>,
    /// Whether single spaces were measured last, so that a slice is next.
    is_slices_turn: bool,
    /// Whether the machine reports spaces whose size changed.
    are_watched: bool,
}

impl Sizes {
    /// No space.
    pub(crate) fn new(shortest: Nanos, longest: Nanos) -> Sizes {
        Sizes {
            shortest,
            longest,
            known: vec![],
            slices: vec![],
            soon: BTreeSet::new(),
            asked: vec![],
            asked_slice: None,
            is_slices_turn: false,
            are_watched: false,
        }
    }

    /// Sets whether the machine reports spaces whose size changed: calm slices are hardly measured
    /// then.
    pub(crate) fn are_watched(&mut self, are_watched: bool) {
        self.are_watched = are_watched;
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.known.capacity() * size_of::<Option<Option<SpaceExtent>>>()
    }

    /// A space came into this slot.
    pub(crate) fn add(&mut self, slot: SpaceSlot, now: Nanos) {
        while slot.index() >= self.known.len() {
            frugal_vec::push(&mut self.known, None);
        }
        self.known[slot.index()] = Some(None);
        self.soon.insert(slot);
        let number = slot.index() / SLICE;
        let due = self.tick(now + self.shortest);
        if number == self.slices.len() {
            self.slices.push(Slice {
                due,
                interval: self.shortest,
                is_changed: false,
                changed: now,
            });
        }
        let slice = &mut self.slices[number];
        slice.interval = self.shortest;
        slice.changed = now;
        slice.due = slice.due.min(due);
    }

    /// The space in this slot is measured as soon as possible.
    pub(crate) fn ask_soon(&mut self, slot: SpaceSlot) {
        self.soon.insert(slot);
    }

    /// The space in this slot is gone.
    pub(crate) fn remove(&mut self, slot: SpaceSlot) {
        self.known[slot.index()] = None;
        self.soon.remove(&slot);
        let slice = slot.index() / SLICE;
        if self.in_slice(slice).next().is_none() {
            self.slices[slice].due = Nanos::MAX;
        }
    }

    /// When the next measurement is due.
    pub(crate) fn due_at(&self) -> Nanos {
        if !self.soon.is_empty() {
            return 0;
        }
        let due = self.slices.iter().map(|slice| slice.due);
        due.min().unwrap_or(Nanos::MAX)
    }

    /// Whether the next slice that is due has not changed for long.
    pub(crate) fn is_calm(&self) -> bool {
        let first = self.slices.iter().min_by_key(|slice| slice.due);
        self.soon.is_empty() && first.is_none_or(|slice| slice.interval >= self.longest)
    }

    /// Chooses the spaces to measure: in turns those that are new or have grown, and the slice that
    /// has been due for longest.
    pub(crate) fn choose(&mut self, now: Nanos) {
        let due = (0..self.slices.len()).filter(|&slice| self.slices[slice].due <= now);
        let slice = due.min_by_key(|&slice| self.slices[slice].due);
        let is_slices_turn = std::mem::take(&mut self.is_slices_turn);
        self.asked_slice = slice.filter(|_| is_slices_turn || self.soon.is_empty());
        self.asked = match self.asked_slice {
            Some(slice) => self.in_slice(slice).collect(),
            None => self.soon.iter().copied().take(SLICE).collect(),
        };
        self.is_slices_turn = self.asked_slice.is_none();
    }

    /// The spaces being measured.
    pub(crate) fn asked(&self) -> &[SpaceSlot] {
        &self.asked
    }

    /// A space has this size. The known size of a space that is gone stays.
    pub(crate) fn measured(&mut self, slot: SpaceSlot, size: &SpaceSize) -> SizeChange {
        self.soon.remove(&slot);
        if size.gone {
            return SizeChange::Same;
        }
        let now = (size.mappings, size.pages);
        let known = self.known[slot.index()].as_mut().expect("it was asked for");
        let verdict = match known.replace(now) {
            None => SizeChange::Unknown,
            Some(before) if before == now => SizeChange::Same,
            Some(_) => SizeChange::Changed,
        };
        if verdict == SizeChange::Changed {
            self.slices[slot.index() / SLICE].is_changed = true;
        }
        verdict
    }

    /// The space in this slot has clearly more or fewer pages than before.
    pub(crate) fn resized(&mut self, slot: SpaceSlot) {
        self.slices[slot.index() / SLICE].is_changed = true;
    }

    /// All answers were worked through.
    pub(crate) fn finish(&mut self, now: Nanos) {
        let Some(number) = self.asked_slice.take() else {
            return self.attend(now);
        };
        let slice = &mut self.slices[number];
        if std::mem::take(&mut slice.is_changed) {
            slice.changed = now;
        }
        slice.interval = if now - slice.changed < ATTENTIVE_INTERVALS * self.shortest {
            self.shortest
        } else {
            (slice.interval * 2).min(self.longest)
        };
        let interval = slice.interval;
        self.slices[number].due = if self.are_watched && interval >= self.longest {
            now + WATCHED
        } else {
            self.due_after(now, interval)
        };
    }

    /// Slices of single spaces that changed are measured soon again: the change may go on.
    fn attend(&mut self, now: Nanos) {
        let due = self.tick(now + self.shortest);
        for slot in &self.asked {
            let slice = &mut self.slices[slot.index() / SLICE];
            if std::mem::take(&mut slice.is_changed) {
                slice.changed = now;
                slice.interval = self.shortest;
                slice.due = slice.due.min(due);
            }
        }
    }

    /// When something is due that has this interval, rounded so that calm slices are due together.
    pub(crate) fn due_after(&self, now: Nanos, interval: Nanos) -> Nanos {
        if interval < self.longest {
            return self.tick(now + interval);
        }
        let calm = CALM_INTERVALS * self.shortest;
        (now / calm + 1) * calm
    }

    /// When the process list is due on a machine that watches spaces, about [`WATCHED`] from now:
    /// with the first slice, so that both take one wake-up.
    pub(crate) fn watched_after(&self, now: Nanos) -> Nanos {
        let slice = self.due_at().max(now);
        let is_soon = slice < now + WATCHED / 2;
        let due = if is_soon { slice + WATCHED } else { slice };
        due.min(now + 2 * WATCHED)
    }

    /// The spaces of a slice.
    fn in_slice(&self, slice: usize) -> impl Iterator<Item = SpaceSlot> {
        let from = slice * SLICE;
        let to = self.known.len().min(from + SLICE);
        (from..to)
            .filter(|&slot| self.known[slot].is_some())
            .map(|slot| SpaceSlot(convert::narrow(slot as u64)))
    }

    /// The multiple of the shortest interval at this time, or the next one.
    fn tick(&self, at: Nanos) -> Nanos {
        at.div_ceil(self.shortest) * self.shortest
    }
}
