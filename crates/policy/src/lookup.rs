//! Where equal pages meet: the frames, by the hash of their contents, and the unmerged pages.
//!
//! There are two indexes, as UKSM has two trees (UKSM §5.3), because their contents age
//! differently. A frame never changes: [`MergedIndex`] is exact and grows with the savings. An
//! unmerged page may have changed since it was sampled: [`UnmergedIndex`] is a guess that forgets,
//! of bounded size. Both only suggest; the module compares.
//!
//! `Lookup` holds both, and the state of the frames (`frames`). All reports about frames pass
//! through it, so the index and the counts agree.

pub(crate) mod frame_table;
pub(crate) mod frames;
mod full_hash_index;
pub(crate) mod giving_back;
pub mod merged;
mod patrol;
mod sharers;
pub mod unmerged;
mod write_count;

use std::collections::BTreeMap;

use crate::accounts::budget::CpuBudget;
use crate::accounts::payer::Payer;
use crate::command::{Command, Frame, FrameId, Lines, Nanos, SpaceId};
use crate::params::{Contents, Params, SECOND};
use crate::report::{FrameReport, IndexMemory};
use frames::Frames;
use full_hash_index::FullHashIndex;
use giving_back::GivingBack;
pub use merged::MergedIndex;
use patrol::Patrol;
use sharers::Sharers;
pub use unmerged::{Layout, Match, Query, RegionPage, UnmergedIndex};
use write_count::WriteCount;

/// The longest time for which a due listing waits for the engine to be awake.
const MAX_WAIT: Nanos = 3600 * SECOND;
/// Initial bytes of the index of unmerged pages; it grows as pages are entered.
const FIRST_INDEX: usize = 1 << 16;

/// The frames and the unmerged pages of one domain.
#[derive(Debug)]
pub(crate) struct Lookup {
    unmerged: UnmergedIndex,
    merged: MergedIndex,
    in_full: FullHashIndex,
    frames: Frames,
    /// Frames without room for more sharers, and their number of sharers when they became full.
    full: BTreeMap<FrameId, u32>,
    /// The spaces that map each frame, where no space may map a frame twice.
    sharers: Option<Sharers>,
    /// Entries that a hash can have, for pages that wait until enough spaces hold their contents.
    rungs: u32,
    /// Limit of mappings of a frame.
    most_sharers: u32,
    /// Limit of bytes of the index of unmerged pages.
    most_bytes: usize,
    /// The budget for freeing frames without mappings.
    reap: CpuBudget,
    /// The schedule of passes that also check the contents of frames.
    patrol: Patrol,
    /// The schedule of sweeps for frames with one mapping.
    giving_back: GivingBack,
    /// Merged pages that processes wrote.
    writes: WriteCount,
}

impl Lookup {
    /// Empty indexes for hashes of `strength`.
    pub(crate) fn new(params: &Params, strength: u16) -> Lookup {
        let (page_bits, region_bits) = params.place_bits();
        let layout = Layout::new(page_bits, region_bits);
        let mut unmerged = UnmergedIndex::with_bytes(FIRST_INDEX, layout);
        unmerged.set_era(strength);
        Lookup {
            unmerged,
            merged: MergedIndex::new(),
            in_full: FullHashIndex::default(),
            frames: Frames::new(),
            full: BTreeMap::new(),
            sharers: (params.merge == Contents::Between).then(Sharers::default),
            rungs: params.spaces_needed().saturating_sub(1).max(1),
            most_sharers: params.max_sharers,
            most_bytes: params.index_bytes.unwrap_or(usize::MAX),
            reap: CpuBudget::new(params.bottom_cpu / 4.0, params.sleep),
            patrol: Patrol::every(params.patrol),
            giving_back: GivingBack::default(),
            writes: WriteCount::default(),
        }
    }

    /// Hashes are of this strength from now on.
    pub(crate) fn set_strength(&mut self, strength: u16) {
        self.unmerged.set_era(strength);
    }

    /// The index of unmerged pages.
    pub(crate) fn unmerged(&mut self) -> &mut UnmergedIndex {
        &mut self.unmerged
    }

    /// Forgets that an unmerged page has this hash.
    pub(crate) fn forget_unmerged(&mut self, hash: u64, place: RegionPage) {
        for rung in 0..self.rungs {
            self.unmerged.remove_rung(hash, rung, place);
        }
    }

    /// Number of entries that a hash can have among the unmerged pages.
    pub(crate) fn rungs(&self) -> u32 {
        self.rungs
    }

    /// Number of indexed unmerged pages.
    pub(crate) fn indexed(&self) -> u64 {
        self.unmerged.len()
    }

    /// Unmerged pages per page that is entered in their index: 1 if the index has room for all.
    pub(crate) fn pages_per_entry(&self) -> u32 {
        self.unmerged.pages_per_entry()
    }

    /// Whether the index of unmerged pages has no room for all of them.
    pub(crate) fn is_crowded(&self) -> bool {
        self.pages_per_entry() > 1
    }

    /// The memory of the indexes.
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

    /// Sets the number of unmerged pages that may be indexed, up to the bound of the index.
    pub(crate) fn fit_index(&mut self, pages: u64) {
        self.unmerged.fit(pages, self.most_bytes);
    }

    /// Whether no frame is known by its hash.
    pub(crate) fn has_no_frame(&self) -> bool {
        self.merged.is_empty()
    }

    /// For each of `hashes` that has open frames, calls `found` with its index in `hashes` and the
    /// newest of these frames.
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

    /// The place of the unmerged page of this hash that waits on this rung, if any.
    pub(crate) fn find_unmerged(&self, hash: u64, rung: u32, round: u32) -> Option<RegionPage> {
        let (place, _) = self.unmerged.find_on_rung(hash, rung, round)?;
        Some(place)
    }

    /// The newest open frame of this hash.
    pub(crate) fn newest_frame(&self, hash: u64) -> Option<FrameId> {
        self.candidates(hash).next()
    }

    /// The open frame of this hash that comes after the one that was `tried`, among the first
    /// `most`. A full or freed frame is no candidate any more.
    pub(crate) fn frame_after(&self, tried: FrameId, hash: u64, most: usize) -> Option<FrameId> {
        let is_open = self.merged.is_open(tried);
        self.candidates(hash)
            .take(most)
            .skip_while(|&frame| is_open && frame != tried)
            .nth(usize::from(is_open))
    }

    /// Whether a page of the space may join the frame, given the spaces that map it already.
    pub(crate) fn may_join(&self, frame: FrameId, space: SpaceId) -> bool {
        let sharers = self.sharers.as_ref();
        sharers.is_none_or(|sharers| !sharers.has(frame, space))
    }

    /// Reserves room in a frame for one page of a space; false if there is none, or if the frame's
    /// only page is about to be given back.
    pub(crate) fn reserve_room(&mut self, frame: FrameId, space: SpaceId) -> bool {
        let is_leaving = self.giving_back.is_open() && self.frames.sharers_of(frame) == 1;
        if is_leaving || !self.may_join(frame, space) {
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

    /// Ends the reservation for a page of a space; `does_map` says whether it maps the frame now.
    pub(crate) fn release_room(&mut self, frame: FrameId, space: SpaceId, does_map: bool) {
        self.frames.release(frame);
        if !does_map && let Some(sharers) = &mut self.sharers {
            sharers.gave_up(frame, space);
        }
    }

    /// Whether the spaces that map each frame are recorded.
    pub(crate) fn are_sharers_known(&self) -> bool {
        self.sharers.is_some()
    }

    /// A page of the space was merged with a frame, which is new if `is_first`. All pages of a
    /// batch must be recorded before the next try.
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

    /// The frame is gone, or its id names another frame.
    fn forget_sharers(&mut self, frame: FrameId) {
        if let Some(sharers) = &mut self.sharers {
            sharers.forget(frame);
        }
    }

    /// A page of `space` became a frame.
    pub(crate) fn frame_made(&mut self, frame: FrameId, hash: u64, space: SpaceId) {
        self.full.remove(&frame);
        self.in_full.forget(frame);
        self.writes.recount(self.frames.made(frame, space), 0);
        self.merged.insert(hash, frame);
    }

    /// A page of `space` became a frame, and is about to be given back: no page is to join it. An
    /// earlier frame of this id is gone.
    pub(crate) fn frame_made_in_vain(&mut self, frame: FrameId, space: SpaceId) {
        self.forget_frame(frame);
        self.frames.made(frame, space);
    }

    /// A page of `space` was merged with a frame. Returns whether a page of the same space had
    /// become the frame.
    pub(crate) fn frame_shared(&mut self, frame: FrameId, space: SpaceId) -> bool {
        let (is_own, sharers) = self.frames.shared(frame, space);
        if sharers >= self.most_sharers {
            self.close(frame);
        }
        is_own
    }

    /// Closes the frame to new sharers until some of its sharers are gone.
    pub(crate) fn close(&mut self, frame: FrameId) {
        self.merged.mark_full(frame);
        self.in_full.set_open(frame, false);
        self.full.insert(frame, self.frames.sharers_of(frame));
    }

    /// A page of the space was seen to map a frame of these contents. An id known for other
    /// contents names another frame by now. A frame without a known hash was listed, so its counts
    /// are right, but the spaces that map it are unknown.
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
        self.writes.recount(self.frames.forget(frame), 0);
        self.full.remove(&frame);
    }

    /// `mappings` mappings of frames are gone: some frames may be unused.
    pub(crate) fn expect_freed(&mut self, mappings: u64, now: Nanos) {
        self.frames.expect_freed(mappings, now);
    }

    /// The count of written pages.
    pub(crate) fn writes(&mut self) -> &mut WriteCount {
        &mut self.writes
    }

    /// Pages that were merged, and that their processes wrote or unmapped since.
    pub(crate) fn written(&self) -> u64 {
        self.writes.written()
    }

    /// Number of frames whose mappings are counted.
    pub(crate) fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Frames on each node of memory, from node 0, by the last complete listing.
    pub(crate) fn frames_by_node(&self) -> &[u64] {
        self.frames.by_node()
    }

    /// The counts of frames.
    pub(crate) fn report_frames(&self) -> FrameReport {
        FrameReport {
            checked: self.patrol.checked(),
            given_back: self.giving_back.pages(),
            ..self.frames.report()
        }
    }

    /// Learns the hashes of existing frames, which may be older than this engine. They take no
    /// sharers where the spaces that map a frame are recorded.
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

    /// A piece of a listing, which freed frames without mappings, came back: all frames from one
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
        let (in_full, sharers) = (&mut self.in_full, &mut self.sharers);
        let before = self.frames.mappings();
        self.frames.listed(frames, cursors, now, |frame| {
            merged.remove(frame);
            in_full.forget(frame);
            full.remove(&frame);
            if let Some(sharers) = sharers {
                sharers.forget(frame);
            }
        });
        self.writes.listed(before, self.frames.mappings(), cursors);
        if self.frames.cursor() == 0 {
            self.giving_back.listed(self.frames.singles(), now);
        }
    }

    /// Learns the hash of all lines of the frame.
    pub(crate) fn know_in_full(&mut self, frame: FrameId, hash: u64) {
        if !self.in_full.has(frame) && self.merged.hash_of(frame).is_some() {
            let is_open = self.merged.is_open(frame);
            self.in_full.know(frame, hash, is_open);
        }
    }

    /// Learns the hash of those lines of the frame that its partial hash does not cover.
    pub(crate) fn learn_rest(&mut self, frame: FrameId, rest: u64) {
        if let Some(partial) = self.merged.hash_of(frame) {
            self.know_in_full(frame, partial.wrapping_add(rest));
        }
    }

    /// The open frames of this partial hash whose full hash is not known.
    pub(crate) fn not_known_in_full(&self, hash: u64) -> impl Iterator<Item = FrameId> + '_ {
        let candidates = self.merged.candidates(hash);
        candidates.filter(|&frame| !self.in_full.has(frame))
    }

    /// Adds this difference, modulo 2^64, to the known hash of a frame.
    pub(crate) fn shift_hash(&mut self, frame: FrameId, difference: u64) {
        self.merged.shift(frame, difference);
    }
}

/// Giving back frames with one mapping.
impl Lookup {
    /// The schedule.
    pub(crate) fn giving_back(&mut self) -> &mut GivingBack {
        &mut self.giving_back
    }

    /// The machine has no room for new frames: those that save nothing are to make room.
    pub(crate) fn frames_refused(&mut self, now: Nanos) {
        self.frames.expect_freed(0, now);
        self.giving_back.frames_refused(self.frames.singles(), now);
    }

    /// Memory is short: frames that save nothing are to be found and given back soon.
    pub(crate) fn memory_is_short(&mut self, now: Nanos) {
        if !self.giving_back.is_short(now) {
            self.frames.expect_freed(0, now);
        }
        self.giving_back.memory_is_short(now);
    }

    /// `pages` pages have their own copy again.
    pub(crate) fn given_back(&mut self, pages: u64) {
        self.giving_back.given(pages);
        self.writes.explain(pages);
    }

    /// The sweep is through, or has to stop: the next listing frees the frames.
    pub(crate) fn end_sweep(&mut self, now: Nanos) {
        let pages = self.giving_back.end_sweep(now);
        self.frames.expect_freed(pages, now);
    }
}

/// Freeing frames without mappings.
impl Lookup {
    /// The budget for it, to be charged.
    pub(crate) fn reap_budget(&mut self) -> &mut CpuBudget {
        &mut self.reap
    }

    /// When the listing continues or begins, to free frames or to check them.
    fn pass_due(&self) -> Nanos {
        let checks = self.patrol.due().filter(|_| self.frames.cursor() == 0);
        let due = self.frames.due();
        checks.map_or(due, |checks| due.min(checks))
    }

    /// The payer for listing frames now; none if that has to wait for its share.
    pub(crate) fn payer(&mut self, now: Nanos) -> Option<Payer> {
        if self.giving_back.is_urgent() {
            return Some(Payer::Nobody);
        }
        self.reap.is_ready(now).then_some(Payer::Reap)
    }

    /// Whether to list and free frames now, if that is paid for.
    pub(crate) fn is_reap_due(&self, now: Nanos) -> bool {
        now >= self.pass_due()
    }

    /// Whether a listing is due that need not wait for its budget.
    pub(crate) fn is_reap_worthwhile(&self, now: Nanos) -> bool {
        now >= self.frames.due() && self.frames.is_listing_worthwhile()
    }

    /// When a listing wakes the engine, if there are frames. A due listing waits until the engine
    /// is awake for another reason: one that may free nothing would cost a wake-up, its most
    /// expensive part.
    pub(crate) fn reap_wakes_at(&self, now: Nanos) -> Option<Nanos> {
        let any = !self.merged.is_empty() || self.frames.cursor() != 0 || self.frames.len() > 0;
        let at = if self.giving_back.sweep_at().is_some() {
            now
        } else if self.giving_back.is_urgent() || self.frames.is_listing_worthwhile() {
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

    fn listed(number: u32, sharers: u32) -> Frame {
        Frame {
            hash: 0,
            frame: FrameId(number),
            sharers,
            node: 0,
        }
    }

    fn lookup() -> Lookup {
        Lookup::new(&Params::governor(Governor::Full), 8)
    }

    #[test]
    fn a_frame_that_was_listed_and_then_seen_counts_as_it_was_listed() {
        let mut lookup = lookup();
        lookup.reaped(&[listed(1, 3)], 0, 0);
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
        lookup.frame_made(one, 77, SpaceId(1));
        assert_eq!(known(&lookup), [Some(one), None], "the id is another's");
        lookup.know_in_full(one, 1077);
        lookup.shift_hash(one, 3);
        assert_eq!(lookup.newest_frame(1077), Some(one));
        lookup.reaped(&[listed(1, 0)], 0, 0);
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
        lookup.reaped(&[listed(1, 2), listed(2, 2)], 0, 0);
        let due = lookup.pass_due();
        assert_eq!(lookup.reap_wakes_at(0), Some(due + MAX_WAIT));
        assert!(lookup.is_reap_due(due), "whoever is awake lists them");
        assert_eq!(lookup.payer(due), Some(Payer::Reap));
        lookup.expect_freed(4, 0);
        let due = lookup.pass_due();
        assert_eq!(lookup.reap_wakes_at(0), Some(due));
        // A listing that has begun goes on.
        lookup.reaped(&[listed(1, 2)], 2, due);
        assert_eq!(lookup.reap_wakes_at(due), Some(due));
    }
}
