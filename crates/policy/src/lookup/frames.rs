//! The frames of the domain: their sharers, and when to list them.
//!
//! # Problem
//! Only the machine knows how many mappings a frame has and whether it can be freed. Listing all
//! frames must cost next to nothing while nothing happens, and a worker that starts in a domain
//! full of frames must learn them before it makes others of the same contents.
//!
//! # Approach
//! A listing passes over all frames in pieces of [`PIECE`], freeing those without mappings: at the
//! start, to learn; then at intervals that double while nothing is freed, at a share of the bottom
//! level's time. Where a sixteenth of the frames may be gone, as after the end of a large process,
//! the listing does not wait for its share. Between listings, outcomes of merges are counted. For
//! each frame its maker is kept, the space whose page became the frame, to distinguish pages merged
//! within a process from those merged across processes.
//!
//! Frames that had one mapping in a listing are marked, and those that have still only one in a
//! listing that began at least [`STAY`] later are *lasting* singles (`giving_back.rs`).
//!
//! A frame has a limit of mappings. A page that is sent to a full frame cannot be merged with it,
//! so room is *reserved* for a page when it begins to wait, and released with its outcome.
//!
//! The machine frees frames by itself when memory is short, and reuses their ids. So every report
//! about an id replaces the earlier ones. A piece of a listing has all frames of its range of ids,
//! in order, so it also shows which frames are gone.
//!
//! # Units
//! Mappings; nanoseconds. Eight bytes a frame, and a quarter.

use crate::command::{Frame, FrameId, Nanos, SpaceId};
use crate::lookup::frame_table::FrameTable;
use crate::params::{MAX_SHARERS, SECOND};
use crate::report::FrameReport;

/// Frames listed at a time: a few milliseconds.
pub(crate) const PIECE: u32 = 2048;
const FIRST_INTERVAL: Nanos = 4 * SECOND;
const LAST_INTERVAL: Nanos = 256 * SECOND;
/// A listing does not wait where one frame in this number may be gone: listing as many takes about
/// as long as merging a page.
const GONE_DIVISOR: u64 = 16;
/// Time for which a frame has one mapping before it counts as a lasting single: others may join it
/// soon.
pub(crate) const STAY: Nanos = 30 * SECOND;
/// Bit of [`FrameRecord::reserved`]: a listing has marked the frame as a single.
const SINGLE: u16 = 1 << 15;

#[derive(Debug, Clone, Copy, Default)]
struct FrameRecord {
    /// The space whose page became the frame, 0 if that happened before the engine began.
    maker: u32,
    sharers: u16,
    /// Pages that wait to be merged with it; a batch holds at most 512. And [`SINGLE`].
    reserved: u16,
}

impl FrameRecord {
    fn reserved(self) -> u16 {
        self.reserved & !SINGLE
    }
}

const _: () = assert!(size_of::<FrameRecord>() == 8 && MAX_SHARERS < 1 << u16::BITS);

/// Frames with one mapping, as far as known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Singles {
    /// All frames.
    pub(crate) frames: u64,
    /// Those with one mapping.
    pub(crate) now: u64,
    /// Those that have had one mapping for [`STAY`].
    pub(crate) lasting: u64,
}

/// The known frames.
#[derive(Debug, Clone)]
pub(crate) struct Frames {
    known: FrameTable<FrameRecord>,
    sharers: u64,
    unshared: u64,
    freed: u64,
    cursor: u32,
    interval: Nanos,
    due: Nanos,
    freed_before: u64,
    /// Mappings seen to go that no complete listing covers yet, and those of them that went before
    /// the listing under way.
    gone: u64,
    gone_before: u64,
    /// When the last listing that marks singles began, whether the last listing does, and the
    /// lasting singles that it met.
    marked_at: Option<Nanos>,
    marks: bool,
    lasting: u64,
    /// Frames by node of the last complete listing, and of the one under way.
    by_node: Vec<u64>,
    listed_by_node: Vec<u64>,
}

impl Frames {
    /// No frames; a first listing is due at once.
    pub(crate) fn new() -> Frames {
        Frames {
            known: FrameTable::default(),
            sharers: 0,
            unshared: 0,
            freed: 0,
            cursor: 0,
            interval: FIRST_INTERVAL,
            due: 0,
            freed_before: 0,
            gone: 0,
            gone_before: 0,
            marked_at: None,
            marks: false,
            lasting: 0,
            by_node: vec![],
            listed_by_node: vec![],
        }
    }

    /// When the next piece of a listing is due.
    pub(crate) fn due(&self) -> Nanos {
        self.due
    }

    /// Where the listing continues, 0 if none is under way.
    pub(crate) fn cursor(&self) -> u32 {
        self.cursor
    }

    /// Whether enough mappings have gone for a listing not to wait.
    pub(crate) fn is_listing_worthwhile(&self) -> bool {
        self.gone > 0 && self.gone * GONE_DIVISOR >= self.known.len() as u64
    }

    /// Number of frames.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Mappings of all of them.
    pub(crate) fn mappings(&self) -> u64 {
        self.sharers
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.known.bytes()
    }

    /// A page of `space` became the frame. Earlier knowledge of its id concerned another frame:
    /// returns the mappings of that one.
    pub(crate) fn made(&mut self, frame: FrameId, space: SpaceId) -> u64 {
        let known = FrameRecord {
            maker: space.0,
            sharers: 1,
            reserved: 0,
        };
        let before = self
            .known
            .insert(frame, known)
            .map_or(0, |known| known.sharers);
        self.count(before.into(), 1);
        before.into()
    }

    /// A page was merged with the frame; returns whether its maker is `space`, and its mappings.
    pub(crate) fn shared(&mut self, frame: FrameId, space: SpaceId) -> (bool, u32) {
        let Some(known) = self.known.get_mut(frame) else {
            self.set(frame, 1);
            return (false, 1);
        };
        let before = known.sharers;
        known.sharers = before.saturating_add(1);
        known.reserved &= !SINGLE;
        let (maker, sharers) = (known.maker, known.sharers.into());
        self.count(before.into(), sharers);
        (maker == space.0, sharers)
    }

    /// Reserves room in the frame for one page, if it has fewer than `most` mappings and
    /// reservations; returns whether it has room. An unknown frame is assumed to have room.
    pub(crate) fn reserve(&mut self, frame: FrameId, most: u32) -> bool {
        let Some(known) = self.known.get_mut(frame) else {
            return true;
        };
        let is_room = u32::from(known.sharers) + u32::from(known.reserved()) < most;
        known.reserved += u16::from(is_room);
        is_room
    }

    /// Ends the reservation for one page.
    pub(crate) fn release(&mut self, frame: FrameId) {
        if let Some(known) = self.known.get_mut(frame) {
            known.reserved -= u16::from(known.reserved() > 0);
        }
    }

    /// Mappings of a frame, as far as known.
    pub(crate) fn sharers_of(&self, frame: FrameId) -> u32 {
        self.known
            .get(frame)
            .map_or(0, |known| known.sharers.into())
    }

    /// `mappings` mappings of frames are gone: the next listing may free frames.
    pub(crate) fn expect_freed(&mut self, mappings: u64, now: Nanos) {
        self.gone += mappings;
        if self.interval > FIRST_INTERVAL {
            self.interval = FIRST_INTERVAL;
            self.due = self.due.min(now + FIRST_INTERVAL);
        }
    }

    /// The frame is no longer there; returns the mappings that it had.
    pub(crate) fn forget(&mut self, frame: FrameId) -> u64 {
        let known = self.known.remove(frame);
        let sharers = known.map_or(0, |known| known.sharers);
        self.count(sharers.into(), 0);
        sharers.into()
    }

    /// A piece of a listing came back: all frames whose numbers are at least `from` and below `to`,
    /// in order; a `to` of 0 is the end. Calls `gone` for those that were freed.
    pub(crate) fn listed(
        &mut self,
        frames: &[Frame],
        (from, to): (u32, u32),
        now: Nanos,
        mut gone: impl FnMut(FrameId),
    ) {
        if from == 0 {
            self.gone_before = self.gone;
            self.marks = self.marked_at.is_none_or(|at| now >= at + STAY);
            self.lasting = 0;
            self.listed_by_node.clear();
            if self.marks {
                self.marked_at = Some(now);
            }
        }
        let mut listed = frames.iter().map(|frame| frame.frame).peekable();
        let missed = |frame: &FrameId| {
            while listed.next_if(|listed| listed < frame).is_some() {}
            listed.next_if_eq(frame).is_none()
        };
        // A frame that is missing in the piece was freed by the machine.
        let last = to.wrapping_sub(1);
        let known = self.known.range(from..=last).map(|(frame, _)| frame);
        let missed: Vec<FrameId> = known.filter(missed).collect();
        for frame in missed {
            self.forget(frame);
            gone(frame);
        }
        for frame in frames {
            if frame.sharers == 0 {
                self.freed += 1;
                self.forget(frame.frame);
                gone(frame.frame);
            } else {
                self.set(frame.frame, frame.sharers);
                frame.count_on_node(&mut self.listed_by_node);
            }
        }
        self.cursor = to;
        if to != 0 {
            self.due = now;
            return;
        }
        self.interval = if self.freed > self.freed_before {
            FIRST_INTERVAL
        } else {
            (self.interval * 2).min(LAST_INTERVAL)
        };
        self.gone -= std::mem::take(&mut self.gone_before);
        self.by_node = std::mem::take(&mut self.listed_by_node);
        self.freed_before = self.freed;
        self.due = now + self.interval;
    }

    /// The frames with one mapping. Only after a listing that marks are there lasting ones.
    pub(crate) fn singles(&self) -> Singles {
        Singles {
            frames: self.known.len() as u64,
            now: self.unshared,
            lasting: self.lasting,
        }
    }

    /// Frames on each node of memory, from node 0, by the last complete listing.
    pub(crate) fn by_node(&self) -> &[u64] {
        &self.by_node
    }

    /// The counts.
    pub(crate) fn report(&self) -> FrameReport {
        let frames = self.known.len() as u64;
        FrameReport {
            frames,
            sharers: self.sharers,
            unshared: self.unshared,
            freed: self.freed,
            saved: self.sharers.saturating_sub(frames),
            checked: 0,
            given_back: 0,
        }
    }

    /// Sets the sharers of a frame. The maker of a new one is unknown.
    fn set(&mut self, frame: FrameId, sharers: u32) {
        let mut known = self.known.get(frame).copied().unwrap_or_default();
        let before = known.sharers;
        known.sharers = u16::try_from(sharers).unwrap_or(u16::MAX);
        if known.sharers != 1 {
            known.reserved &= !SINGLE;
        } else if self.marks {
            self.lasting += u64::from(known.reserved & SINGLE != 0);
            known.reserved |= SINGLE;
        }
        self.known.insert(frame, known);
        self.count(before.into(), known.sharers.into());
    }

    /// The sharers of a frame changed from `before` to `now`.
    fn count(&mut self, before: u32, now: u32) {
        self.sharers = self.sharers - u64::from(before) + u64::from(now);
        self.unshared = self.unshared - u64::from(before == 1) + u64::from(now == 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u32, sharers: u32) -> Frame {
        Frame {
            hash: 0,
            frame: FrameId(number),
            sharers,
            node: number % 2,
        }
    }

    #[test]
    fn saved_pages_are_sharers_less_frames() {
        let mut frames = Frames::new();
        frames.made(FrameId(1), SpaceId(7));
        assert_eq!(frames.shared(FrameId(1), SpaceId(7)), (true, 2));
        assert_eq!(frames.shared(FrameId(1), SpaceId(8)), (false, 3));
        frames.made(FrameId(2), SpaceId(7));
        let report = frames.report();
        assert_eq!(
            (report.frames, report.sharers, report.unshared, report.saved),
            (2, 4, 1, 2)
        );
    }

    #[test]
    fn no_more_room_is_reserved_than_there_is() {
        let mut frames = Frames::new();
        let one = FrameId(1);
        frames.made(one, SpaceId(7));
        for _ in 0..3 {
            assert!(frames.reserve(one, 4));
        }
        assert!(!frames.reserve(one, 4));
        // A listing that comes in between leaves the room reserved.
        frames.listed(&[frame(1, 1)], (0, 0), 0, |_| {});
        assert!(!frames.reserve(one, 4));
        frames.shared(one, SpaceId(8));
        frames.release(one);
        assert!(!frames.reserve(one, 4));
        // This one was not merged.
        frames.release(one);
        assert!(frames.reserve(one, 4) && !frames.reserve(one, 4));
    }

    #[test]
    fn an_id_given_again_is_another_frame() {
        let mut frames = Frames::new();
        frames.made(FrameId(1), SpaceId(7));
        (0..9).for_each(|_| assert!(frames.shared(FrameId(1), SpaceId(7)).0));
        frames.reserve(FrameId(1), 256);
        frames.made(FrameId(1), SpaceId(8));
        assert_eq!(frames.shared(FrameId(1), SpaceId(7)), (false, 2));
        frames.release(FrameId(1));
        assert_eq!(frames.report().sharers, 2);
    }

    #[test]
    fn a_listing_corrects_the_counts() {
        let mut frames = Frames::new();
        for number in [1, 2, 3, 300] {
            frames.made(FrameId(number), SpaceId(7));
        }
        let mut gone = vec![];
        frames.listed(&[frame(1, 5), frame(2, 0)], (0, 3), 0, |frame| {
            gone.push(frame.0);
        });
        assert_eq!((gone.clone(), frames.cursor()), (vec![2], 3));
        frames.listed(&[frame(300, 1)], (3, 301), 0, |frame| gone.push(frame.0));
        frames.listed(&[], (301, 0), 0, |frame| gone.push(frame.0));
        assert_eq!(gone, vec![2, 3]);
        let report = frames.report();
        assert_eq!((report.frames, report.sharers, report.freed), (2, 6, 1));
        frames.listed(&[], (0, 0), 0, |frame| gone.push(frame.0));
        assert_eq!((gone, frames.len()), (vec![2, 3, 1, 300], 0));
    }

    /// A listing of frames 1, 2, ... with these mappings; returns the lasting singles.
    fn lasting(frames: &mut Frames, now: Nanos, sharers: &[u32]) -> u64 {
        let listed: Vec<_> = (1..).zip(sharers).map(|(n, &s)| frame(n, s)).collect();
        frames.listed(&listed, (0, 0), now, |_| {});
        frames.singles().lasting
    }

    #[test]
    fn a_frame_with_one_mapping_in_two_listings_that_are_apart_is_a_lasting_single() {
        let mut frames = Frames::new();
        assert_eq!(lasting(&mut frames, SECOND, &[1, 1, 2]), 0);
        assert_eq!(lasting(&mut frames, STAY, &[1, 1, 1]), 0, "too soon");
        assert_eq!(lasting(&mut frames, SECOND + STAY, &[1, 1, 1]), 2);
        // The third frame was first marked by that listing.
        assert_eq!(lasting(&mut frames, SECOND + 2 * STAY, &[1, 3, 1]), 2);
        assert_eq!(lasting(&mut frames, SECOND + 3 * STAY, &[1, 1, 1]), 2);
    }

    #[test]
    fn a_single_that_is_shared_meanwhile_or_whose_id_is_given_again_does_not_last() {
        let mut frames = Frames::new();
        let [one, two] = [1, 2].map(FrameId);
        lasting(&mut frames, SECOND, &[1, 1]);
        frames.shared(one, SpaceId(7));
        frames.made(two, SpaceId(7));
        assert_eq!(lasting(&mut frames, SECOND + STAY, &[1, 1]), 0);
    }

    #[test]
    fn a_mark_takes_no_room_and_stays_when_room_is_released() {
        let mut frames = Frames::new();
        let one = FrameId(1);
        lasting(&mut frames, SECOND, &[1]);
        frames.release(one);
        assert!(frames.reserve(one, 2) && !frames.reserve(one, 2));
        frames.release(one);
        assert_eq!(lasting(&mut frames, SECOND + STAY, &[1]), 1);
    }

    #[test]
    fn frames_are_counted_by_node_when_a_listing_is_complete() {
        let mut frames = Frames::new();
        frames.listed(&[frame(1, 2), frame(2, 2), frame(3, 0)], (0, 4), 0, |_| {});
        assert!(frames.by_node().is_empty());
        frames.listed(&[frame(4, 1)], (4, 0), 0, |_| {});
        assert_eq!(frames.by_node(), [2, 1]);
        frames.listed(&[frame(4, 1)], (0, 0), 0, |_| {});
        assert_eq!(frames.by_node(), [1]);
    }

    #[test]
    fn what_was_listed_twice_is_there_once() {
        let mut frames = Frames::new();
        frames.listed(&[frame(9, 2), frame(4, 3), frame(9, 2)], (0, 0), 0, |_| {});
        let report = frames.report();
        assert_eq!((report.frames, report.sharers), (2, 5));
    }

    #[test]
    fn listings_become_rare_when_nothing_is_freed() {
        let mut frames = Frames::new();
        frames.made(FrameId(1), SpaceId(7));
        let mut now = 0;
        for _ in 0..10 {
            frames.listed(&[frame(1, 2)], (0, 0), now, |_| {});
            now = frames.due();
        }
        assert_eq!(frames.interval, LAST_INTERVAL);
        frames.expect_freed(1, now);
        assert_eq!(frames.interval, FIRST_INTERVAL);
    }
}
