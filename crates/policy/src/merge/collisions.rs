//! Pages whose contents the hash in use does not distinguish: they are read in full.
//!
//! # Problem
//! Pages that are mostly zeros, or begin alike, have one partial hash and many contents. A page of
//! such a hash is compared with the one page that the index has of it, and with a few frames; its
//! twin is likely not among them. So comparisons are in vain, and merges are lost until a stronger
//! hash is tried, for which all memory would have to be read again because of some pages.
//!
//! # Approach
//! When a page is given up, its hash is marked as one that *collides*. Pages of such a hash are not
//! compared any more. They are gathered, read in full, some hundred in a call, and looked up by
//! their full hash. The frames of that hash are hashed in full once, from the missing lines that
//! the machine hashes (`lookup/full_hash_index.rs`). Each strength has its own collisions.
//!
//! The published UKSM orders pages of one hash in a second tree, by their full hash. Here the two
//! existing indexes serve for both: a full hash never equals the partial hash of other contents.
//!
//! # Units
//! At most [`MAX_HASHES`] hashes and [`MAX_WAITING`] pages, 32 bytes each; further ones are treated
//! as before.
//!
//! # Source
//! UKSM §6.2 (the full hash of a page from its partial one).

use std::collections::{BTreeSet, VecDeque};

use crate::accounts::payer::Payer;
use crate::command::{FrameId, Page};
use crate::convert;
use crate::ids::RegionId;
use crate::lookup::RegionPage;
use crate::mix::mix;

/// Hashes that are known to collide.
const MAX_HASHES: usize = 1 << 14;
/// Pages that wait to be read in full.
const MAX_WAITING: usize = 1 << 14;
/// Pages that are worth a call while there is other work.
const WORTH_A_CALL: usize = 256;
/// Limit of frames that one call hashes, with neighbouring ids.
const MAX_FRAMES: u32 = 64;
/// Bits of the filter, which rules most hashes out.
const FILTER: usize = 1 << 14;

/// The finder of a page pays for reading it in full. Pages that the bottom level finds in calm must
/// not cost more than that level may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Finder {
    /// The bottom level.
    Bottom,
    /// Any other: it is the last step of merging, which the top level pays.
    #[default]
    Other,
}

impl Finder {
    /// All of them.
    pub(crate) const ALL: [Finder; 2] = [Finder::Bottom, Finder::Other];

    /// The finder, by the payer of the sample that found the page.
    pub(crate) fn of(payer: Payer) -> Finder {
        match payer {
            Payer::Level(0) => Finder::Bottom,
            _ => Finder::Other,
        }
    }
}

/// A page that is read in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CollidingPage {
    /// Where it is.
    pub(crate) place: RegionPage,
    /// Its hash at the strength in use.
    pub(crate) partial: u64,
}

/// The hashes that collide, and the pages that are read because of them.
#[derive(Debug, Default)]
pub(crate) struct Collisions {
    hashes: BTreeSet<u64>,
    /// One bit is set for each hash; empty without hashes.
    filter: Vec<u64>,
    /// By [`Finder`].
    waiting: [VecDeque<CollidingPage>; Finder::ALL.len()],
    /// Their places.
    places: BTreeSet<RegionPage>,
    /// The pages that were asked for, the answer, and the index of its next page.
    reading: Vec<CollidingPage>,
    finder: Finder,
    pages: Vec<Page>,
    next: usize,
    /// Frames that are to be hashed in full.
    frames: BTreeSet<FrameId>,
    /// Pages read in full so far.
    read: u64,
}

impl Collisions {
    /// A page of this hash was given up. Returns whether it is the first one.
    pub(crate) fn collides(&mut self, hash: u64) -> bool {
        if self.hashes.len() >= MAX_HASHES || !self.hashes.insert(hash) {
            return false;
        }
        self.filter.resize(FILTER / 64, 0);
        let (word, bit) = bit_of(hash);
        self.filter[word] |= bit;
        true
    }

    /// Whether pages of this hash are to be read in full.
    #[inline]
    pub(crate) fn has(&self, hash: u64) -> bool {
        if self.filter.is_empty() {
            return false;
        }
        let (word, bit) = bit_of(hash);
        self.filter[word] & bit != 0 && self.hashes.contains(&hash)
    }

    /// Queues the page to be read in full, if its hash collides.
    pub(crate) fn wait(&mut self, page: CollidingPage, finder: Finder) {
        let is_room = self.places.len() < MAX_WAITING;
        if is_room && self.has(page.partial) && self.places.insert(page.place) {
            self.waiting[finder as usize].push_back(page);
        }
    }

    /// Queues the frames of a colliding hash: they are hashed in full before pages of the hash are
    /// read.
    pub(crate) fn want_frames(&mut self, frames: impl Iterator<Item = FrameId>) {
        self.frames.extend(frames);
    }

    /// Whether pages of a finder wait and nothing is under way: enough to be worth a call, or any
    /// number if there is no other work.
    pub(crate) fn waits(&self, finder: Finder, is_anything_else: bool) -> bool {
        let least = if is_anything_else { WORTH_A_CALL } else { 1 };
        self.reading.is_empty() && self.waiting[finder as usize].len() >= least
    }

    /// The next frames to be hashed in full: the first, and the number of ids that they extend
    /// over.
    pub(crate) fn next_frames(&self) -> Option<(FrameId, u32)> {
        let first = *self.frames.first()?;
        let last = self
            .frames
            .range(first..FrameId(first.0.saturating_add(MAX_FRAMES)))
            .next_back()?;
        Some((first, last.0 - first.0 + 1))
    }

    /// The answer for these ids came. Returns the wanted frames among them.
    pub(crate) fn take_frames(&mut self, first: FrameId, ids: u32) -> BTreeSet<FrameId> {
        let behind = self.frames.split_off(&FrameId(first.0 + ids));
        std::mem::replace(&mut self.frames, behind)
    }

    /// Takes at most `most` waiting pages of a finder.
    pub(crate) fn take(&mut self, finder: Finder, most: usize) -> Vec<CollidingPage> {
        let waiting = &mut self.waiting[finder as usize];
        let most = most.min(waiting.len());
        let taken: Vec<CollidingPage> = waiting.drain(..most).collect();
        for page in &taken {
            self.places.remove(&page.place);
        }
        taken
    }

    /// Records that these pages of a finder are being read, in this order.
    pub(crate) fn read(&mut self, finder: Finder, pages: Vec<CollidingPage>) {
        self.reading = pages;
        self.finder = finder;
    }

    /// The pages being read, each a run of one.
    pub(crate) fn reading(&self) -> impl Iterator<Item = (RegionId, u32)> + '_ {
        self.reading.iter().map(|page| (page.place.region, 1))
    }

    /// The finder of the pages being read.
    pub(crate) fn finder(&self) -> Finder {
        self.finder
    }

    /// The pages came back: all, or the first of them.
    pub(crate) fn receive(&mut self, pages: Vec<Page>) {
        self.read += pages.len() as u64;
        self.pages = pages;
        self.next = 0;
        if self.pages.is_empty() {
            self.reading.clear();
        }
    }

    /// Whether pages that were read wait to be looked up.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.pages.is_empty()
    }

    /// The next page that was read; none at the end, where the answer is forgotten.
    pub(crate) fn next(&mut self) -> Option<(CollidingPage, Page)> {
        let next = self.reading.get(self.next).zip(self.pages.get(self.next));
        let next = next.map(|(&page, &read)| (page, read));
        self.next += 1;
        if next.is_none() {
            self.reading.clear();
            self.pages.clear();
        }
        next
    }

    /// Pages read in full so far.
    pub(crate) fn pages_read(&self) -> u64 {
        self.read
    }

    /// The strength of hashes changed: forgets all but the count.
    pub(crate) fn forget(&mut self) {
        *self = Collisions {
            read: self.read,
            ..Collisions::default()
        };
    }
}

/// Word and bit of a hash in the filter.
fn bit_of(hash: u64) -> (usize, u64) {
    let bit = convert::index(convert::narrow(mix(hash) >> 32)) % FILTER;
    (bit / 64, 1 << (bit % 64))
}

#[cfg(test)]
mod tests;
