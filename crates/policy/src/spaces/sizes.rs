//! Which spaces changed: how large they were, and when to ask again.
//!
//! # Problem
//! Nobody tells when a process unmaps memory, and that memory appears is told of large changes
//! only, and not on every machine. To list the mappings of thousands of spaces again and again
//! would cost more than all merging.
//!
//! # Approach
//! The number and the size of a space's mappings cost a fraction of a microsecond. They are asked
//! for in *slices* of at most 1,024 spaces, neighbours by slot. The interval of a slice falls back
//! when something changes in it, and doubles again when nothing has for a while. A space that came
//! is asked for at once, so that its first size is older than its first mapping list, and no change
//! falls between the two; one that is told to have grown is, too, and if it has, its slice is asked
//! for again soon. Slices that are due take turns with those: where spaces come or grow all the
//! time, no other goes unseen.
//!
//! # Units
//! Slices become due at multiples of the shortest interval, in calm of sixteen of them, a round:
//! those that are due together share a wake-up, with the process list of a machine that is told.

use std::collections::BTreeSet;

use crate::command::{Nanos, SpaceSize};
use crate::convert;
use crate::ids::SpaceSlot;
use crate::params::SECOND;
use crate::room;

/// For so many of the shortest intervals after a change a slice is asked for at each: what comes
/// and goes is not missed.
const ATTENTIVE: u64 = 8;

/// So many of the shortest intervals are between two times at which what is calm is due.
const CALM: u64 = 16;

/// Between two questions about what is calm and watched by somebody else, should that have missed
/// something.
pub(crate) const WATCHED: Nanos = 3600 * SECOND;

/// Spaces in a slice, and at most in a call: some hundred microseconds.
pub(crate) const SLICE: usize = 1024;

/// What a measured size says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was never measured before.
    Unknown,
    /// Mappings are as many and as large as before.
    Same,
    /// They are not.
    Changed,
}

/// Mappings and pages of a space.
type Size = (u64, u64);

/// Spaces that are asked for together.
#[derive(Debug, Clone, Copy)]
struct Slice {
    due: Nanos,
    interval: Nanos,
    /// Whether something in it changed when it was last asked for, as far as answered.
    is_changed: bool,
    /// When something in it changed last.
    changed: Nanos,
}

/// The sizes of all spaces.
#[derive(Debug)]
pub(crate) struct Sizes {
    shortest: Nanos,
    longest: Nanos,
    /// Spaces in use, with what is known of them.
    known: Vec<Option<Option<Size>>>,
    slices: Vec<Slice>,
    /// Asked for at once: never measured, or told to have grown.
    soon: BTreeSet<SpaceSlot>,
    /// The spaces that are asked for, and the slice that they are.
    asked: Vec<SpaceSlot>,
    asked_slice: Option<usize>,
    /// Whether no slice was asked for since some were at once.
    is_slices_turn: bool,
    /// Somebody else tells which spaces have another size.
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

    /// Whether somebody else tells which spaces have another size: then what is calm is hardly
    /// asked for.
    pub(crate) fn are_watched(&mut self, are_watched: bool) {
        self.are_watched = are_watched;
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.known.capacity() * size_of::<Option<Option<Size>>>()
    }

    /// A space came into this slot.
    pub(crate) fn add(&mut self, slot: SpaceSlot, now: Nanos) {
        while slot.index() >= self.known.len() {
            room::push(&mut self.known, None);
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

    /// The space in this slot is asked for at once.
    pub(crate) fn ask_soon(&mut self, slot: SpaceSlot) {
        self.soon.insert(slot);
    }

    /// The space in this slot went.
    pub(crate) fn remove(&mut self, slot: SpaceSlot) {
        self.known[slot.index()] = None;
        self.soon.remove(&slot);
        let slice = slot.index() / SLICE;
        if self.in_slice(slice).next().is_none() {
            self.slices[slice].due = Nanos::MAX;
        }
    }

    /// When some are to be asked for.
    pub(crate) fn due_at(&self) -> Nanos {
        if !self.soon.is_empty() {
            return 0;
        }
        let due = self.slices.iter().map(|slice| slice.due);
        due.min().unwrap_or(Nanos::MAX)
    }

    /// Whether what is due next is a slice in which nothing has changed for long.
    pub(crate) fn is_calm(&self) -> bool {
        let first = self.slices.iter().min_by_key(|slice| slice.due);
        self.soon.is_empty() && first.is_none_or(|slice| slice.interval >= self.longest)
    }

    /// Chooses who is asked for: by turns those that came or have grown, and the slice that has
    /// been due for longest.
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

    /// Who is asked for.
    pub(crate) fn asked(&self) -> &[SpaceSlot] {
        &self.asked
    }

    /// A space has this size. One that is gone stays as it was.
    pub(crate) fn measured(&mut self, slot: SpaceSlot, size: &SpaceSize) -> Verdict {
        self.soon.remove(&slot);
        if size.gone {
            return Verdict::Same;
        }
        let now = (size.mappings, size.pages);
        let known = self.known[slot.index()].as_mut().expect("it was asked for");
        let verdict = match known.replace(now) {
            None => Verdict::Unknown,
            Some(before) if before == now => Verdict::Same,
            Some(_) => Verdict::Changed,
        };
        if verdict == Verdict::Changed {
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
        slice.interval = if now - slice.changed < ATTENTIVE * self.shortest {
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

    /// Of spaces that were not asked for with their slice some have changed: that may go on.
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

    /// When something is due about this interval from now, so that what is calm is due together.
    pub(crate) fn due_after(&self, now: Nanos, interval: Nanos) -> Nanos {
        if interval < self.longest {
            return self.tick(now + interval);
        }
        let calm = CALM * self.shortest;
        (now / calm + 1) * calm
    }

    /// When something that somebody else watches is due, about [`WATCHED`] from now: with the first
    /// slice, so that both take one wake.
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
