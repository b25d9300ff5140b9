//! Counts of files that pay, by direction: reads from the file, or writes to it.
//!
//! # Problem
//! A backup reads a disk from end to end, a database writes pages without a copy: each fills new
//! memory all the time, so that no block of memory is ever judged ([`super::block_yield`]), and no
//! other process has the same. While there are more hints than time to follow, these take the place
//! of those that pay.
//!
//! # Approach
//! For each file, known by its size as for [`super::file_page`], and each direction, the followed
//! and the merged pages are counted in a table that forgets: two origins of one slot replace each
//! other. The counts are used only while there are too many hints ([`super::file_sampling`]): the
//! first reader of a file pays when a second one reads it. And no origin is worse off than another
//! that yields no more: large disks that are read in different orders have few equal pages at
//! first.
//!
//! Without it: of pages that two guests read beside a backup under quiet 65 % are shared instead of
//! 68.
//!
//! # Source
//! XLH §5.2: its mixed benchmark lost as much by hints that did not pay as it gained by others.

use super::yield_count::YieldCount;
use crate::command::{FilePlace, HintSource};
use crate::mix::mix;

/// Slots of the table.
const SLOTS: u16 = 1 << 10;

/// A file and a direction, or neither: the slot of its counts, and the tag that distinguishes it
/// from others of that slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Origin {
    slot: u16,
    /// 0 if there is none.
    tag: u16,
}

impl Origin {
    /// The origin of I/O at this place.
    pub(super) fn new(place: FilePlace, source: HintSource) -> Origin {
        let direction = match source {
            HintSource::Read => 1,
            HintSource::Write => 2,
        };
        let key = mix(mix(place.file_size) ^ direction);
        let [a, b, c, d, ..] = key.to_le_bytes();
        Origin {
            slot: u16::from_le_bytes([a, b]) % SLOTS,
            tag: u16::from_le_bytes([c, d]).max(1),
        }
    }

    /// The origin of I/O without a known file.
    pub(super) const UNKNOWN: Origin = Origin { slot: 0, tag: 0 };
}

/// The counts of one origin.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    tag: u16,
    count: YieldCount,
}

/// The counts of origins.
#[derive(Debug, Default)]
pub(super) struct FileYields {
    slots: Box<[Slot]>,
    all: YieldCount,
}

impl FileYields {
    /// Memory used, in bytes: none before the first.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Whether hints of this origin pay, or no worse than others, or nothing is known of it.
    pub(super) fn pays(&self, origin: Origin) -> bool {
        let slot = self.slots.get(usize::from(origin.slot));
        let slot = slot.filter(|slot| slot.tag == origin.tag);
        slot.is_none_or(|slot| slot.count.pays() || !slot.count.is_below(self.all))
    }

    /// `pages` of this origin are followed.
    pub(super) fn tried(&mut self, origin: Origin, pages: u64) {
        if origin == Origin::UNKNOWN {
            return;
        }
        if self.slots.is_empty() {
            self.slots = vec![Slot::default(); usize::from(SLOTS)].into();
        }
        let slot = &mut self.slots[usize::from(origin.slot)];
        if slot.tag != origin.tag {
            *slot = Slot {
                tag: origin.tag,
                ..Slot::default()
            };
        }
        slot.count.tried(pages);
        self.all.tried(pages);
    }

    /// A page of this origin was merged.
    pub(super) fn paid(&mut self, origin: Origin) {
        if let Some(count) = self.find(origin) {
            count.paid();
            self.all.paid();
        }
    }

    /// A merged page of this origin has been overwritten.
    pub(super) fn broken(&mut self, origin: Origin) {
        if let Some(count) = self.find(origin) {
            count.broken();
            self.all.broken();
        }
    }

    fn find(&mut self, origin: Origin) -> Option<&mut YieldCount> {
        let slot = self.slots.get_mut(usize::from(origin.slot));
        let slot = slot.filter(|slot| origin.tag != 0 && slot.tag == origin.tag);
        slot.map(|slot| &mut slot.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(file_size: u64, source: HintSource) -> Origin {
        let place = FilePlace {
            file_size,
            offset: 0,
        };
        Origin::new(place, source)
    }

    #[test]
    fn files_and_directions_are_judged_each_by_what_it_yields() {
        let mut yields = FileYields::default();
        let (read, written) = (origin(9, HintSource::Read), origin(9, HintSource::Write));
        let other = origin(10, HintSource::Read);
        assert_eq!((yields.bytes(), yields.pays(read)), (0, true));
        for at in [read, written, other] {
            yields.tried(at, 4000);
            assert!(yields.pays(at), "not known yet");
            yields.tried(at, 200);
        }
        (0..70).for_each(|_| yields.paid(written));
        let pay = |yields: &FileYields| [read, written, other].map(|at| yields.pays(at));
        assert_eq!(pay(&yields), [false, true, false]);
        (0..10).for_each(|_| yields.broken(written));
        assert_eq!(pay(&yields), [false, true, false], "more than the others");
        (0..70).for_each(|_| yields.paid(read));
        assert_eq!(pay(&yields), [true, true, false]);
        (0..60).for_each(|_| yields.broken(written));
        assert_eq!(pay(&yields), [true, false, false]);
    }

    #[test]
    fn what_is_of_no_file_is_not_counted_and_a_new_one_takes_the_slot_of_an_old_one() {
        let mut yields = FileYields::default();
        yields.tried(Origin::UNKNOWN, 1 << 20);
        yields.paid(Origin::UNKNOWN);
        assert!(yields.pays(Origin::UNKNOWN));
        let old = origin(1, HintSource::Read);
        yields.tried(old, 5000);
        assert!(yields.pays(old), "none pays more");
        let good = origin(2, HintSource::Read);
        yields.tried(good, 5000);
        yields.paid(good);
        assert!(!yields.pays(old) && yields.pays(good));
        let new = Origin {
            tag: old.tag ^ 2,
            ..old
        };
        assert!(yields.pays(new));
        yields.tried(new, 1);
        assert!(yields.pays(new) && yields.pays(old));
    }
}
