//! The queue of pages to merge, in batches that cost the module least.
//!
//! # Problem
//! A call costs as much as a dozen merges, and a page alone under its page-table lock costs nearly
//! twice as much as among neighbours. But pages that wait too long change meanwhile.
//!
//! # Approach
//! At most [`ROOM`] pages wait. Pages of one hash that have no frame yet are a *set*; further ones
//! join it, so that all are merged in one call. A batch is sorted by (space, address), with the
//! *firsts* in front: the page of each set that was seen longest ago and becomes the frame. A set
//! is never split.
//!
//! # Source
//! UKSM §5.3; `UKSM_IOC_FOLD` of the contract.

use crate::accounts::payer::Payer;
use crate::command::{FoldBatch, FoldEntry, FoldKind, FrameId, SpaceId};
use crate::convert;
use crate::ids::Ticket;
use crate::lookup::RegionPage;
use crate::mix::mix;

/// Pages of one batch.
pub(crate) const ROOM: usize = 512;
/// Slots of the table that finds a set by its hash: at most half full.
const SLOTS: usize = 2 * ROOM;

/// A page that is to be merged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuedPage {
    pub(crate) place: RegionPage,
    pub(crate) space: SpaceId,
    pub(crate) address: u64,
    /// The hash by which it is looked up.
    pub(crate) hash: u64,
    /// Its hash at the strength in use, which the module checks: the same, unless it was read in
    /// full.
    pub(crate) partial: u64,
    /// Its payer.
    pub(crate) payer: Payer,
    /// Frames with which it was tried, and that had other contents or were full.
    pub(crate) failed_frames: u8,
    /// Sets in which it met pages of other contents.
    pub(crate) failed_sets: u8,
    /// The kind of hit as which it was counted for its region.
    pub(crate) counted: HitKind,
    /// The hint for which it was read, if any.
    pub(crate) ticket: Option<Ticket>,
}

/// The kind of hit as which a page was counted, see [`crate::region::duplication`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HitKind {
    /// Not at all.
    Not,
    /// Not at all: it was proposed as the neighbour of a match.
    Guess,
    /// Not at all: it was read, and not looked up, because its neighbours met their twins.
    Extended,
    /// Not at all: it was not read, but its place in a file held this before.
    Expected,
    /// As a match with an indexed page.
    Met,
    /// As a match with contents that are known to have partners.
    Sure,
}

impl HitKind {
    /// Whether it was proposed without a matching hash: a difference is no evidence about hash or
    /// region.
    pub(crate) fn is_proposed(self) -> bool {
        matches!(self, HitKind::Guess | HitKind::Extended | HitKind::Expected)
    }
}

/// A page that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingPage {
    pub(crate) place: RegionPage,
    pub(crate) entry: FoldEntry,
    /// The hash by which it was looked up: that of the entry, unless it was read in full.
    pub(crate) hash: u64,
    pub(crate) payer: Payer,
    pub(crate) failed_frames: u8,
    pub(crate) failed_sets: u8,
    pub(crate) counted: HitKind,
    pub(crate) ticket: Option<Ticket>,
    /// Whether it becomes the frame of its set.
    pub(crate) is_first: bool,
    /// The first of its set; itself if it is in none.
    pub(crate) first: RegionPage,
}

impl WaitingPage {
    /// Whether it was read in full, because its hash collides.
    pub(crate) fn is_read_in_full(&self) -> bool {
        self.hash != self.entry.hash
    }

    /// The page, to wait again.
    pub(crate) fn queued_page(&self) -> QueuedPage {
        QueuedPage {
            place: self.place,
            space: self.entry.space,
            address: self.entry.address,
            hash: self.hash,
            partial: self.entry.hash,
            payer: self.payer,
            failed_frames: self.failed_frames,
            failed_sets: self.failed_sets,
            counted: self.counted,
            ticket: self.ticket,
        }
    }
}

/// The queue.
#[derive(Debug)]
pub(crate) struct MergeQueue {
    /// Pages that become frames, by set, and the others. They are separate because each list is
    /// nearly sorted, which makes sorting cheap.
    firsts: Vec<WaitingPage>,
    others: Vec<WaitingPage>,
    /// The page that joined each set last.
    joined: Vec<RegionPage>,
    sets: u16,
    /// Hash and set of each slot of the table; a slot is empty if its set is `u16::MAX`.
    hash_in: Box<[u64; SLOTS]>,
    set_in: Box<[u16; SLOTS]>,
}

impl MergeQueue {
    /// An empty queue.
    pub(crate) fn new() -> MergeQueue {
        MergeQueue {
            firsts: Vec::with_capacity(ROOM / 2),
            others: Vec::with_capacity(ROOM),
            joined: Vec::with_capacity(ROOM / 2),
            sets: 0,
            hash_in: Box::new([0; SLOTS]),
            set_in: Box::new([u16::MAX; SLOTS]),
        }
    }

    /// Pages that wait.
    pub(crate) fn len(&self) -> usize {
        self.firsts.len() + self.others.len()
    }

    /// Number of pages that can still be queued.
    pub(crate) fn room(&self) -> usize {
        ROOM - self.len()
    }

    /// Queues a page to be merged with a frame.
    pub(crate) fn push_frame(&mut self, page: &QueuedPage, frame: FrameId) {
        self.push(page, FoldKind::Frame(frame), page.place, false);
    }

    /// Queues a page to be merged with the zero page.
    pub(crate) fn push_zero(&mut self, page: &QueuedPage) {
        self.push(page, FoldKind::Zero, page.place, false);
    }

    /// The set that waits for pages of this hash.
    pub(crate) fn set_of(&self, hash: u64) -> Option<u16> {
        let set = self.set_in[self.slot(hash)];
        (set != u16::MAX).then_some(set)
    }

    /// Opens a set with its first page; follow with at least one [`MergeQueue::join_set`].
    pub(crate) fn open_set(&mut self, page: &QueuedPage) -> u16 {
        let set = self.sets;
        let slot = self.slot(page.hash);
        assert!(
            self.set_in[slot] == u16::MAX,
            "a set for hash {:#x} waits already",
            page.hash
        );
        self.hash_in[slot] = page.hash;
        self.set_in[slot] = set;
        self.sets += 1;
        self.joined.push(page.place);
        self.push(page, FoldKind::Set(set), page.place, true);
        set
    }

    /// The page joins a set, unless it was the last to do so. It is not indexed, so it comes again
    /// if it is read again; and if its partner turned out to have other contents, it would be
    /// merged with itself.
    pub(crate) fn join_set(&mut self, page: &QueuedPage, set: u16) {
        let last = &mut self.joined[usize::from(set)];
        if std::mem::replace(last, page.place) == page.place {
            return;
        }
        let first = self.firsts[usize::from(set)].place;
        self.push(page, FoldKind::Set(set), first, false);
    }

    /// The first page of a set.
    pub(crate) fn first_of(&self, set: u16) -> RegionPage {
        self.firsts[usize::from(set)].place
    }

    /// Whether a page of the space is in the set.
    pub(crate) fn has_space(&self, set: u16, space: SpaceId) -> bool {
        let is_in =
            |page: &WaitingPage| page.entry.kind == FoldKind::Set(set) && page.entry.space == space;
        self.firsts[usize::from(set)].entry.space == space || self.others.iter().any(is_in)
    }

    /// Takes all pages: the batch, and the waiting page of each entry, in its order. With
    /// `frames_first`, no page becomes a frame before all pages that wait for one were tried: an id
    /// that was freed meanwhile cannot name a frame that the same call made.
    pub(crate) fn take(&mut self, frames_first: bool) -> (FoldBatch, Vec<WaitingPage>) {
        let is_of_set = |page: &WaitingPage| matches!(page.entry.kind, FoldKind::Set(_));
        let by_address = |page: &WaitingPage| (page.entry.space, page.entry.address);
        let mut waiting = Vec::with_capacity(self.len());
        if frames_first {
            waiting.extend(self.others.extract_if(.., |page| !is_of_set(page)));
            waiting.sort_by_key(by_address);
        }
        for part in [&mut self.firsts, &mut self.others] {
            part.sort_by_key(by_address);
        }
        waiting.append(&mut self.firsts);
        waiting.append(&mut self.others);
        if self.sets > 0 {
            self.set_in.fill(u16::MAX);
            self.joined.clear();
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

    #[inline]
    fn push(&mut self, page: &QueuedPage, kind: FoldKind, first: RegionPage, is_first: bool) {
        assert!(self.len() < ROOM, "merge queue overrun");

        let part = if is_first {
            &mut self.firsts
        } else {
            &mut self.others
        };
        part.push(WaitingPage {
            place: page.place,
            entry: FoldEntry {
                address: page.address,
                hash: page.partial,
                space: page.space,
                kind,
            },
            hash: page.hash,
            payer: page.payer,
            failed_frames: page.failed_frames,
            failed_sets: page.failed_sets,
            counted: page.counted,
            ticket: page.ticket,
            is_first,
            first,
        });
    }

    /// The slot of a hash, or the empty one it would take.
    fn slot(&self, hash: u64) -> usize {
        let mut slot = convert::index(convert::narrow(mix(hash) >> 32)) % SLOTS;
        while self.set_in[slot] != u16::MAX && self.hash_in[slot] != hash {
            slot = (slot + 1) % SLOTS;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RegionId;

    const SPACE: SpaceId = SpaceId(1);

    fn page_of(page: u32, space: SpaceId, hash: u64) -> QueuedPage {
        QueuedPage {
            place: RegionPage {
                region: RegionId(0),
                page,
            },
            space,
            address: u64::from(page) * 4096,
            hash,
            partial: hash,
            payer: Payer::Level(0),
            failed_frames: 0,
            failed_sets: 0,
            counted: HitKind::Met,
            ticket: None,
        }
    }

    #[test]
    fn a_third_page_joins_the_set_of_its_hash() {
        let mut queue = MergeQueue::new();
        let set = queue.open_set(&page_of(0, SPACE, 7));
        queue.join_set(&page_of(1, SPACE, 7), set);
        assert_eq!(queue.set_of(7), Some(set));
        assert_eq!(queue.set_of(8), None);
        queue.join_set(&page_of(2, SPACE, 7), set);
        let (batch, _) = queue.take(false);
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
    fn a_page_that_is_read_twice_joins_its_set_once() {
        let mut queue = MergeQueue::new();
        let set = queue.open_set(&page_of(0, SPACE, 7));
        queue.join_set(&page_of(1, SPACE, 7), set);
        queue.join_set(&page_of(1, SPACE, 7), set);
        assert_eq!(queue.len(), 2);
        queue.join_set(&page_of(2, SPACE, 7), set);
        assert_eq!(queue.len(), 3);
    }

    #[test]
    fn the_first_of_each_set_come_in_front_and_neighbours_side_by_side() {
        let mut queue = MergeQueue::new();
        for page in (0..100u32).rev() {
            let hash = u64::from(page);
            let set = queue.open_set(&page_of(page, SpaceId(2), hash));
            queue.join_set(&page_of(page + 100, SpaceId(1), hash), set);
        }
        queue.push_frame(&page_of(500, SpaceId(1), 9), FrameId(4));
        let (batch, waiting) = queue.take(false);
        assert!(waiting[..100].iter().all(|page| page.is_first));
        for part in [&batch.entries[..100], &batch.entries[100..]] {
            assert!(part.is_sorted_by_key(|entry| (entry.space, entry.address)));
        }
    }

    #[test]
    fn pages_of_frames_come_before_those_that_become_some_where_that_matters() {
        let mut queue = MergeQueue::new();
        let set = queue.open_set(&page_of(0, SPACE, 7));
        queue.join_set(&page_of(1, SpaceId(2), 7), set);
        queue.push_frame(&page_of(500, SpaceId(3), 9), FrameId(4));
        queue.push_zero(&page_of(2, SpaceId(2), 8));
        let (_, waiting) = queue.take(true);
        let pages: Vec<u32> = waiting.iter().map(|page| page.place.page).collect();
        assert_eq!(pages, [2, 500, 0, 1]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_full_queue_of_sets_keeps_them_apart() {
        let mut queue = MergeQueue::new();
        for hash in 0..256u32 {
            let set = queue.open_set(&page_of(hash, SPACE, hash.into()));
            queue.join_set(&page_of(hash + 256, SPACE, hash.into()), set);
        }
        assert_eq!(queue.room(), 0);
        for hash in 0..256u64 {
            assert_eq!(queue.set_of(hash).map(u64::from), Some(hash));
        }
    }
}
