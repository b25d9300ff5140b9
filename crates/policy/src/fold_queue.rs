//! Pages that are to be merged, gathered into batches the module likes.
//!
//! # Problem
//! A call costs as much as a dozen merges, and a page alone under its page-table lock costs nearly
//! twice what it costs among neighbours. But what waits too long has changed meanwhile.
//!
//! # Approach
//! At most [`ROOM`] pages wait. Pages of one hash that have no frame yet are a *set*; further
//! ones join it, so that all are merged in one call. A batch is sorted by (space, address), with
//! the *seniors* in front: the page of each set that was seen longest ago and becomes the frame.
//! A set is never torn apart.
//!
//! # Units
//! Pages.
//!
//! # Source
//! UKSM §5.3; `UKSM_IOC_FOLD` of the contract.

use crate::command::{FoldBatch, FoldEntry, FoldKind, FrameId, SpaceId};
use crate::hash::mix;
use crate::index::Place;
use crate::number;

/// Pages of one batch.
pub(crate) const ROOM: usize = 512;
/// Slots of the table that finds a set by its hash: at most half full.
const SLOTS: usize = 2 * ROOM;

/// A page that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) place: Place,
    pub(crate) entry: FoldEntry,
    /// Its set's frame is made of it.
    pub(crate) senior: bool,
    /// How it was counted as evidence.
    pub(crate) sure: bool,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct FoldQueue {
    /// Pages of which frames are made, and the others. Kept apart because each comes nearly
    /// sorted, which makes sorting cheap.
    seniors: Vec<Waiting>,
    others: Vec<Waiting>,
    sets: u16,
    /// Hash and set of each slot of the table; a slot is empty if its set is `u16::MAX`.
    hash_in: Box<[u64; SLOTS]>,
    set_in: Box<[u16; SLOTS]>,
}

impl FoldQueue {
    /// An empty queue.
    pub(crate) fn new() -> FoldQueue {
        FoldQueue {
            seniors: Vec::with_capacity(ROOM / 2),
            others: Vec::with_capacity(ROOM),
            sets: 0,
            hash_in: Box::new([0; SLOTS]),
            set_in: Box::new([u16::MAX; SLOTS]),
        }
    }

    /// Pages that wait.
    pub(crate) fn len(&self) -> usize {
        self.seniors.len() + self.others.len()
    }

    /// Pages that still have room.
    pub(crate) fn room(&self) -> usize {
        ROOM - self.len()
    }

    /// The page is to be merged with a frame.
    pub(crate) fn push_frame(
        &mut self,
        place: Place,
        space: SpaceId,
        address: u64,
        hash: u64,
        frame: FrameId,
    ) {
        self.push(
            place,
            space,
            address,
            hash,
            FoldKind::Frame(frame),
            false,
            true,
        );
    }

    /// The page is to be merged with the zero page.
    pub(crate) fn push_zero(&mut self, place: Place, space: SpaceId, address: u64, hash: u64) {
        self.push(place, space, address, hash, FoldKind::Zero, false, true);
    }

    /// The set that waits for pages of this hash.
    pub(crate) fn set_of(&self, hash: u64) -> Option<u16> {
        let set = self.set_in[self.slot(hash)];
        (set != u16::MAX).then_some(set)
    }

    /// Opens a set with its senior; follow with at least one [`FoldQueue::push_junior`].
    pub(crate) fn push_senior(
        &mut self,
        place: Place,
        space: SpaceId,
        address: u64,
        hash: u64,
    ) -> u16 {
        let set = self.sets;
        let slot = self.slot(hash);
        assert!(
            self.set_in[slot] == u16::MAX,
            "a set for hash {hash:#x} waits already"
        );
        self.hash_in[slot] = hash;
        self.set_in[slot] = set;
        self.sets += 1;
        self.push(place, space, address, hash, FoldKind::Set(set), true, false);
        set
    }

    /// The page joins a set. `sure` if it is not the one whose meeting opened the set.
    pub(crate) fn push_junior(
        &mut self,
        place: Place,
        space: SpaceId,
        address: u64,
        hash: u64,
        set: u16,
        sure: bool,
    ) {
        self.push(place, space, address, hash, FoldKind::Set(set), false, sure);
    }

    /// Takes all pages: the batch, and what is known of each entry, in its order.
    pub(crate) fn take(&mut self) -> (FoldBatch, Vec<Waiting>) {
        for part in [&mut self.seniors, &mut self.others] {
            part.sort_by_key(|page| (page.entry.space, page.entry.address));
        }
        let mut waiting = Vec::with_capacity(self.len());
        waiting.append(&mut self.seniors);
        waiting.append(&mut self.others);
        if self.sets > 0 {
            self.set_in.fill(u16::MAX);
            self.sets = 0;
        }
        let entries = waiting.iter().map(|page| page.entry).collect();
        (
            FoldBatch {
                entries,
                ..FoldBatch::default()
            },
            waiting,
        )
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one entry")]
    fn push(
        &mut self,
        place: Place,
        space: SpaceId,
        address: u64,
        hash: u64,
        kind: FoldKind,
        senior: bool,
        sure: bool,
    ) {
        assert!(self.len() < ROOM, "fold queue overrun");
        let entry = FoldEntry {
            address,
            hash,
            space,
            kind,
        };
        let part = if senior {
            &mut self.seniors
        } else {
            &mut self.others
        };
        part.push(Waiting {
            place,
            entry,
            senior,
            sure,
        });
    }

    /// The slot of a hash, or the empty one it would take.
    fn slot(&self, hash: u64) -> usize {
        let mut slot = number::index(number::narrow(mix(hash) >> 32)) % SLOTS;
        while self.set_in[slot] != u16::MAX && self.hash_in[slot] != hash {
            slot = (slot + 1) % SLOTS;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: SpaceId = SpaceId(1);

    fn place(page: u32) -> Place {
        Place { region: 0, page }
    }

    #[test]
    fn a_third_page_joins_the_set_of_its_hash() {
        let mut queue = FoldQueue::new();
        let set = queue.push_senior(place(0), SPACE, 0, 7);
        queue.push_junior(place(1), SPACE, 4096, 7, set, false);
        assert_eq!(queue.set_of(7), Some(set));
        assert_eq!(queue.set_of(8), None);
        queue.push_junior(place(2), SPACE, 8192, 7, set, true);
        let (batch, _) = queue.take();
        assert!(
            batch
                .entries
                .iter()
                .all(|entry| entry.kind == FoldKind::Set(set))
        );
        assert_eq!(batch.entries.len(), 3);
        assert_eq!((queue.len(), queue.set_of(7)), (0, None));
    }

    #[test]
    fn seniors_come_first_and_neighbours_side_by_side() {
        let mut queue = FoldQueue::new();
        for page in (0..100u32).rev() {
            let address = u64::from(page) * 4096;
            let set = queue.push_senior(place(page), SpaceId(2), address, u64::from(page));
            queue.push_junior(
                place(page),
                SpaceId(1),
                address,
                u64::from(page),
                set,
                false,
            );
        }
        queue.push_frame(place(500), SpaceId(1), 500 * 4096, 9, FrameId(4));
        let (batch, waiting) = queue.take();
        assert!(waiting[..100].iter().all(|page| page.senior));
        for part in [&batch.entries[..100], &batch.entries[100..]] {
            assert!(part.is_sorted_by_key(|entry| (entry.space, entry.address)));
        }
    }

    #[test]
    fn a_full_queue_of_sets_keeps_them_apart() {
        let mut queue = FoldQueue::new();
        for hash in 0..256u64 {
            let set = queue.push_senior(place(0), SPACE, hash << 12, hash);
            queue.push_junior(place(1), SPACE, (hash + 256) << 12, hash, set, false);
        }
        assert_eq!(queue.room(), 0);
        for hash in 0..256u64 {
            assert_eq!(queue.set_of(hash).map(u64::from), Some(hash));
        }
    }
}
