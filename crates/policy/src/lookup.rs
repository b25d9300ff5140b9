//! Where equal pages meet: the frames, by the hash of their contents, and the unmerged pages.
//!
//! Two indexes, as UKSM has two trees (UKSM §5.3), because their contents live differently. A
//! frame never changes: [`Merged`] is exact and grows with what is saved. An unmerged page may
//! have changed since it was sampled: [`Unmerged`] is a guess that forgets, of bounded size. Both
//! only suggest; the module compares.
//!
//! [`Lookup`] is both, with what is known of the frames ([`frames`]). Whatever is heard of a frame
//! passes through it, so the index and the counts agree.

pub(crate) mod frame_table;
pub(crate) mod frames;
mod in_full;
pub mod merged;
mod patrol;
mod sharers;
pub mod unmerged;

use std::collections::BTreeMap;

use crate::accounts::budget::CpuBudget;
use crate::command::{Command, Frame, FrameId, Lines, Nanos, SpaceId};
use crate::params::{Contents, Params, SECOND};
use crate::report::{FrameReport, IndexMemory};
use frames::Frames;
use in_full::InFull;
pub use merged::Merged;
use patrol::Patrol;
use sharers::Sharers;
pub use unmerged::{Layout, Match, Place, Query, Unmerged};

/// A listing that is due waits no longer until the engine is awake for anything else.
const MAX_WAIT: Nanos = 3600 * SECOND;
/// Bytes the index of unmerged pages begins with; it grows as pages are entered.
const FIRST_INDEX: usize = 1 << 16;

/// The frames and the unmerged pages of one domain.
#[derive(Debug)]
pub(crate) struct Lookup {
    unmerged: Unmerged,
    merged: Merged,
    in_full: InFull,
    frames: Frames,
    /// Frames without room for sharers, and how many they had.
    full: BTreeMap<FrameId, u32>,
    /// Who maps which frame, where no space may map one twice.
    sharers: Option<Sharers>,
    /// Entries that a hash can have, for pages that wait until enough spaces hold their contents.
    rungs: u32,
    /// Most mappings that a frame takes.
    most_sharers: u32,
    /// Most bytes of the index of unmerged pages.
    most_bytes: usize,
    /// The share for freeing frames that nothing maps.
    reap: CpuBudget,
    /// When that also checks what frames hold.
    patrol: Patrol,
}

impl Lookup {
    /// Nothing is known; hashes are of `strength`.
    pub(crate) fn new(params: &Params, strength: u16) -> Lookup {
        let (page_bits, region_bits) = params.place_bits();
        let layout = Layout::new(page_bits, region_bits);
        let mut unmerged = Unmerged::with_bytes(FIRST_INDEX, layout);
        unmerged.set_era(strength);
        Lookup {
            unmerged,
            merged: Merged::new(),
            in_full: InFull::default(),
            frames: Frames::new(),
            full: BTreeMap::new(),
            sharers: (params.merge == Contents::Between).then(Sharers::default),
            rungs: params.spaces_needed().saturating_sub(1).max(1),
            most_sharers: params.max_sharers,
            most_bytes: params.index_bytes.unwrap_or(usize::MAX),
            reap: CpuBudget::new(params.bottom_cpu / 4.0, params.sleep),
            patrol: Patrol::every(params.patrol),
        }
    }

    /// Hashes are of this strength from now on.
    pub(crate) fn set_strength(&mut self, strength: u16) {
        self.unmerged.set_era(strength);
    }

    /// The index of unmerged pages.
    pub(crate) fn unmerged(&mut self) -> &mut Unmerged {
        &mut self.unmerged
    }

    /// Forgets that an unmerged page has this hash.
    pub(crate) fn forget_unmerged(&mut self, hash: u64, place: Place) {
        for rung in 0..self.rungs {
            self.unmerged.remove_rung(hash, rung, place);
        }
    }

    /// Entries that a hash can have among the unmerged pages.
    pub(crate) fn rungs(&self) -> u32 {
        self.rungs
    }

    /// Unmerged pages that are indexed.
    pub(crate) fn indexed(&self) -> u64 {
        self.unmerged.len()
    }

    /// Of so many unmerged pages one is entered in their index, which has no room for more: 1 if it
    /// has room for all.
    pub(crate) fn pages_per_entry(&self) -> u32 {
        self.unmerged.pages_per_entry()
    }

    /// Whether the index of unmerged pages has no room for all of them.
    pub(crate) fn is_crowded(&self) -> bool {
        self.pages_per_entry() > 1
    }

    /// What the indexes take.
    pub(crate) fn report_memory(&self) -> IndexMemory {
        IndexMemory {
            index_bytes: (self.unmerged.bytes()
                + self.merged.bytes()
                + self.in_full.bytes()
                + self.frames.bytes()
                + self.sharers.as_ref().map_or(0, Sharers::bytes)) as u64,
            index_entries: self.unmerged.len(),
        }
    }

    /// So many pages may be indexed as unmerged ones: the index may grow to hold them, up to its
    /// bound. Growth itself is left to the lookups that enter pages.
    pub(crate) fn fit_index(&mut self, pages: u64) {
        self.unmerged.fit(pages, self.most_bytes);
    }

    /// Whether no frame is known by its hash.
    pub(crate) fn has_no_frame(&self) -> bool {
        self.merged.is_empty()
    }

    /// For each of `hashes` that open frames have calls `found` with its place among them and the
    /// newest of those.
    pub(crate) fn newest_frames(&self, hashes: &[u64], found: impl FnMut(usize, FrameId)) {
        if !self.merged.is_empty() {
            self.merged.newest_batch(hashes, found);
        }
    }

    /// The open frames of this hash, which is one of the strength in use or of all lines.
    fn candidates(&self, hash: u64) -> impl Iterator<Item = FrameId> + '_ {
        let partly = self.merged.candidates(hash);
        partly.chain(self.in_full.candidates(hash))
    }

    /// The open frames of a hash of the strength in use, the newest first.
    pub(crate) fn frames_of(&self, hash: u64) -> impl Iterator<Item = FrameId> + '_ {
        self.merged.candidates(hash)
    }

    /// Where the unmerged page of this hash is that waits on this rung, if one does.
    pub(crate) fn find_unmerged(&self, hash: u64, rung: u32, round: u32) -> Option<Place> {
        let (place, _) = self.unmerged.find_on_rung(hash, rung, round)?;
        Some(place)
    }

    /// The newest open frame of this hash.
    pub(crate) fn newest_frame(&self, hash: u64) -> Option<FrameId> {
        self.candidates(hash).next()
    }

    /// The open frame of this hash that comes after the one that was `tried`, among the first
    /// `most`. A frame that is full or gone is no candidate any more.
    pub(crate) fn frame_after(&self, tried: FrameId, hash: u64, most: usize) -> Option<FrameId> {
        let is_open = self.merged.is_open(tried);
        self.candidates(hash)
            .take(most)
            .skip_while(|&frame| is_open && frame != tried)
            .nth(usize::from(is_open))
    }

    /// Whether a page of the space may join the frame, as far as it matters who maps it.
    pub(crate) fn may_join(&self, frame: FrameId, space: SpaceId) -> bool {
        let sharers = self.sharers.as_ref();
        sharers.is_none_or(|sharers| !sharers.has(frame, space))
    }

    /// Reserves room in a frame for one page of a space; false if there is none.
    pub(crate) fn reserve_room(&mut self, frame: FrameId, space: SpaceId) -> bool {
        if !self.may_join(frame, space) {
            return false;
        }
        let is_room = self.frames.reserve(frame, self.most_sharers);
        if self.frames.sharers_of(frame) >= self.most_sharers {
            self.close(frame);
        }
        if is_room && let Some(sharers) = &mut self.sharers {
            sharers.waits(frame, space);
        }
        is_room
    }

    /// The outcome of a page of a space for which room was reserved is there: whether it maps the
    /// frame now.
    pub(crate) fn release_room(&mut self, frame: FrameId, space: SpaceId, does_map: bool) {
        self.frames.release(frame);
        if !does_map && let Some(sharers) = &mut self.sharers {
            sharers.gave_up(frame, space);
        }
    }

    /// Whether it matters who maps a frame.
    pub(crate) fn are_sharers_known(&self) -> bool {
        self.sharers.is_some()
    }

    /// A page of the space was merged with a frame, which is a new one if it is the `first`. What
    /// is tried next must know of all pages of a batch.
    pub(crate) fn sharer_merged(&mut self, frame: FrameId, space: SpaceId, is_first: bool) {
        if is_first {
            self.forget_sharers(frame);
        }
        self.note_sharer(frame, space);
    }

    /// A page of the space maps the frame.
    fn note_sharer(&mut self, frame: FrameId, space: SpaceId) {
        if let Some(sharers) = &mut self.sharers {
            sharers.add(frame, space);
        }
    }

    /// The frame is gone, or an id names another one.
    fn forget_sharers(&mut self, frame: FrameId) {
        if let Some(sharers) = &mut self.sharers {
            sharers.forget(frame);
        }
    }

    /// A page of `space` became a frame.
    pub(crate) fn frame_made(&mut self, frame: FrameId, hash: u64, space: SpaceId) {
        self.full.remove(&frame);
        self.in_full.forget(frame);
        self.frames.made(frame, space);
        self.merged.insert(hash, frame);
    }

    /// A page of `space` was merged with a frame; whether a page of the same space made it.
    pub(crate) fn frame_shared(&mut self, frame: FrameId, space: SpaceId) -> bool {
        let (is_own, sharers) = self.frames.shared(frame, space);
        if sharers >= self.most_sharers {
            self.close(frame);
        }
        is_own
    }

    /// The frame takes no more sharers until some of those that it has are gone.
    pub(crate) fn close(&mut self, frame: FrameId) {
        self.merged.mark_full(frame);
        self.in_full.set_open(frame, false);
        self.full.insert(frame, self.frames.sharers_of(frame));
    }

    /// A page of the space was seen to map a frame of these contents. An id known for other
    /// contents names another frame by now. One that is known by no hash was listed, so its counts
    /// are right; but who maps it is not known.
    pub(crate) fn saw_frame(&mut self, frame: FrameId, hash: u64, space: SpaceId) {
        match self.merged.hash_of(frame) {
            Some(known) if known == hash => return self.note_sharer(frame, space),
            Some(_) => self.forget_frame(frame),
            None => {}
        }
        if self.sharers.is_none() {
            self.merged.insert(hash, frame);
        }
    }

    /// The frame is no longer there, or can no longer be used.
    pub(crate) fn forget_frame(&mut self, frame: FrameId) {
        self.merged.remove(frame);
        self.in_full.forget(frame);
        self.forget_sharers(frame);
        self.frames.forget(frame);
        self.full.remove(&frame);
    }

    /// So many mappings of frames are gone: frames may be free.
    pub(crate) fn expect_freed(&mut self, mappings: u32, now: Nanos) {
        self.frames.expect_freed(mappings, now);
    }

    /// Frames known by their mappings.
    pub(crate) fn frames(&self) -> usize {
        self.frames.len()
    }

    /// The counts of frames.
    pub(crate) fn report_frames(&self) -> FrameReport {
        FrameReport {
            checked: self.patrol.checked(),
            ..self.frames.report()
        }
    }

    /// Frames that were there before this engine, or are there still, have these hashes. They take
    /// no sharers where it matters who maps them.
    pub(crate) fn learn_frames(&mut self, frames: &[Frame]) {
        if self.sharers.is_some() {
            return;
        }
        for frame in frames {
            if frame.sharers == 0 {
                continue;
            }
            self.merged.insert(frame.hash, frame.frame);
            if frame.sharers >= self.most_sharers {
                self.merged.mark_full(frame.frame);
                self.full.insert(frame.frame, frame.sharers);
            }
        }
    }

    /// A piece of a listing came back, which freed frames without mappings: all frames from one
    /// cursor to the next.
    pub(crate) fn frames_listed(&mut self, frames: &[Frame], cursors: (u32, u32), now: Nanos) {
        self.patrol.begins(now);
        for frame in frames {
            // A full frame opens again when an eighth of its sharers is gone.
            if let Some(&most) = self.full.get(&frame.frame)
                && u64::from(frame.sharers) * 8 < u64::from(most) * 7
            {
                self.full.remove(&frame.frame);
                self.merged.mark_open(frame.frame);
                self.in_full.set_open(frame.frame, true);
            }
        }
        let (merged, full) = (&mut self.merged, &mut self.full);
        let in_full = &mut self.in_full;
        let sharers = &mut self.sharers;
        self.frames.listed(frames, cursors, now, |frame| {
            merged.remove(frame);
            in_full.forget(frame);
            full.remove(&frame);
            if let Some(sharers) = sharers {
                sharers.forget(frame);
            }
        });
    }

    /// All lines of the frame have this hash.
    pub(crate) fn know_in_full(&mut self, frame: FrameId, hash: u64) {
        if !self.in_full.has(frame) && self.merged.hash_of(frame).is_some() {
            let is_open = self.merged.is_open(frame);
            self.in_full.know(frame, hash, is_open);
        }
    }

    /// The lines of the frame that are missing in its partial hash have this one.
    pub(crate) fn learn_rest(&mut self, frame: FrameId, rest: u64) {
        if let Some(partial) = self.merged.hash_of(frame) {
            self.know_in_full(frame, partial.wrapping_add(rest));
        }
    }

    /// The open frames of this partial hash of which the full one is not known.
    pub(crate) fn not_known_in_full(&self, hash: u64) -> impl Iterator<Item = FrameId> + '_ {
        let candidates = self.merged.candidates(hash);
        candidates.filter(|&frame| !self.in_full.has(frame))
    }

    /// Adds this difference, modulo 2^64, to the hash by which a frame is known.
    pub(crate) fn shift_hash(&mut self, frame: FrameId, difference: u64) {
        self.merged.shift(frame, difference);
    }
}

/// Freeing frames that nothing maps.
impl Lookup {
    /// The share for it, to be charged.
    pub(crate) fn reap_budget(&mut self) -> &mut CpuBudget {
        &mut self.reap
    }

    /// When the listing goes on, or begins: to free frames, or to check them.
    fn pass_due(&self) -> Nanos {
        let checks = self.patrol.due().filter(|_| self.frames.cursor() == 0);
        let due = self.frames.due();
        checks.map_or(due, |checks| due.min(checks))
    }

    /// Whether frames are to be listed now, and freed.
    pub(crate) fn is_reap_due(&mut self, now: Nanos) -> bool {
        now >= self.pass_due() && self.reap.is_ready(now)
    }

    /// Whether a listing is due from which so much memory can be expected that it need not wait for
    /// its share.
    pub(crate) fn is_reap_worthwhile(&self, now: Nanos) -> bool {
        now >= self.frames.due() && self.frames.is_listing_worthwhile()
    }

    /// When a listing wakes the engine, if there are frames. One that is due takes place when the
    /// engine is awake for anything else, as is nearly always soon enough; where hardly anything
    /// wakes it, as in one of hundreds of small groups, a listing that may find nothing would cost
    /// a wake, which is dearer than all else in it.
    pub(crate) fn reap_wakes_at(&self, now: Nanos) -> Option<Nanos> {
        let any = !self.merged.is_empty() || self.frames.cursor() != 0 || self.frames.len() > 0;
        let at = if self.frames.is_listing_worthwhile() {
            self.pass_due()
        } else if self.frames.cursor() != 0 {
            self.pass_due().max(self.reap.ready_at(now))
        } else {
            let latest = self.pass_due().saturating_add(MAX_WAIT);
            latest.max(self.reap.ready_at(now))
        };
        any.then_some(at)
    }

    /// The next piece of the listing that frees frames without mappings.
    pub(crate) fn reap(&mut self, now: Nanos) -> Command {
        let cursor = self.frames.cursor();
        if cursor == 0 {
            self.patrol.pass_begins(now);
        }
        Command::Frames {
            cursor,
            count: self.patrol.piece(),
            lines: Lines { from: 0, to: 0 },
            reap: true,
            check: self.patrol.is_under_way(),
        }
    }

    /// A piece of that listing came back.
    pub(crate) fn reaped(&mut self, frames: &[Frame], cursor: u32, now: Nanos) {
        self.patrol.listed(frames.len(), cursor == 0, now);
        self.frames_listed(frames, (self.frames.cursor(), cursor), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Governor;

    fn lookup() -> Lookup {
        Lookup::new(&Params::governor(Governor::Full), 8)
    }

    #[test]
    fn a_frame_that_was_listed_and_then_seen_counts_as_it_was_listed() {
        let mut lookup = lookup();
        let listed = Frame {
            hash: 0,
            frame: FrameId(1),
            sharers: 3,
        };
        lookup.reaped(&[listed], 0, 0);
        lookup.saw_frame(FrameId(1), 77, SpaceId(1));
        assert_eq!(lookup.newest_frame(77), Some(FrameId(1)));
        assert_eq!(lookup.report_frames().saved, 2);
    }

    #[test]
    fn a_frame_is_known_by_both_its_hashes_whatever_the_strength_as_long_as_it_is_there() {
        let mut lookup = lookup();
        let one = FrameId(1);
        lookup.frame_made(one, 77, SpaceId(1));
        assert_eq!(lookup.not_known_in_full(77).collect::<Vec<_>>(), [one]);
        lookup.learn_rest(one, 1000);
        assert_eq!(lookup.not_known_in_full(77).count(), 0);
        let known = |lookup: &Lookup| [77, 1077].map(|hash| lookup.newest_frame(hash));
        assert_eq!(known(&lookup), [Some(one), Some(one)]);
        lookup.close(one);
        assert_eq!(known(&lookup), [None, None]);
        let few = Frame {
            hash: 0,
            frame: one,
            sharers: 0,
        };
        lookup.frame_made(one, 77, SpaceId(1));
        assert_eq!(known(&lookup), [Some(one), None], "the id is another's");
        lookup.know_in_full(one, 1077);
        lookup.shift_hash(one, 3);
        assert_eq!(lookup.newest_frame(1077), Some(one));
        lookup.reaped(&[few], 0, 0);
        assert_eq!(known(&lookup), [None, None]);
    }

    #[test]
    fn an_id_that_was_seen_with_other_contents_names_another_frame() {
        let mut lookup = lookup();
        lookup.frame_made(FrameId(1), 77, SpaceId(1));
        lookup.frame_shared(FrameId(1), SpaceId(2));
        lookup.saw_frame(FrameId(1), 78, SpaceId(1));
        assert_eq!(lookup.newest_frame(77), None);
        assert_eq!(lookup.newest_frame(78), Some(FrameId(1)));
        assert_eq!(lookup.report_frames().saved, 0);
    }

    #[test]
    fn a_listing_wakes_nobody_unless_something_may_be_freed_or_it_is_long_due() {
        let mut lookup = lookup();
        assert_eq!(lookup.reap_wakes_at(0), None, "there are no frames");
        let listed = |number| Frame {
            hash: 0,
            frame: FrameId(number),
            sharers: 2,
        };
        lookup.reaped(&[listed(1), listed(2)], 0, 0);
        let due = lookup.pass_due();
        assert_eq!(lookup.reap_wakes_at(0), Some(due + MAX_WAIT));
        assert!(lookup.is_reap_due(due), "whoever is awake lists them");
        lookup.expect_freed(4, 0);
        let due = lookup.pass_due();
        assert_eq!(lookup.reap_wakes_at(0), Some(due));
        // A listing that has begun goes on.
        lookup.reaped(&[listed(1)], 2, due);
        assert_eq!(lookup.reap_wakes_at(due), Some(due));
    }
}
