//! Merging at random: right candidates, wrong ones, with every flag, all the time.
//!
//! # Problem
//! Under stress a merger must send what the module has to cope with, not what a sensible policy
//! would send, and still merge most of what can be merged.
//!
//! # Approach
//! It samples whole processes, groups pages by hash, folds groups as sets or into the frame known
//! for the hash, mixes in random pages with random frames, breaks random ranges and reaps.

use std::collections::BTreeMap;

use uksm_policy::command::{
    FoldBatch, FoldEntry, FoldKind, FrameId, Lines, Page, PageState, SpaceId, Status,
};

use super::contents::Random;
use super::domain::{Domain, Tally, address, entry};

/// A merger of one domain.
pub struct Merger {
    /// Its domain.
    pub domain: Domain,
    /// All outcomes so far.
    pub tally: Tally,
    frames: BTreeMap<u64, FrameId>,
    random: Random,
    pages: usize,
}

impl Merger {
    /// A merger of processes of `pages` pages each.
    #[must_use]
    pub fn new(domain: Domain, pages: usize, seed: u64) -> Merger {
        let random = Random::new(seed);
        Merger {
            domain,
            tally: Tally::default(),
            frames: BTreeMap::new(),
            random,
            pages,
        }
    }

    /// One round over all spaces.
    pub fn round(&mut self, spaces: &[SpaceId]) {
        let lines = [1, 8, 64][self.random.page(3)];
        self.frames = self
            .domain
            .frames(Lines { from: 0, to: lines }, self.random.chance(1, 4))
            .into_iter()
            .filter(|frame| frame.sharers > 0)
            .map(|frame| (frame.hash, frame.frame))
            .collect();
        let mut entries = Vec::new();
        let mut sets: BTreeMap<u64, u16> = BTreeMap::new();
        for &space in spaces {
            let sampled = self
                .domain
                .sample(space, 0..self.pages, Lines { from: 0, to: lines });
            for (at, page) in sampled.iter().enumerate() {
                if let Some(kind) = self.candidate(page, &mut sets) {
                    entries.push(FoldEntry {
                        hash: page.hash,
                        ..entry(space, at, kind)
                    });
                }
            }
        }
        for batch in entries.chunks(1 + self.random.page(512)) {
            self.fold(batch.to_vec(), lines);
        }
        if self.random.chance(1, 8) && !spaces.is_empty() {
            let space = spaces[self.random.page(spaces.len())];
            self.break_some(space);
        }
    }

    /// How to fold a sampled page, if at all: mostly right, sometimes wrong.
    fn candidate(&mut self, page: &Page, sets: &mut BTreeMap<u64, u16>) -> Option<FoldKind> {
        if self.random.chance(1, 40) {
            return Some(match self.random.below(3) {
                0 => FoldKind::Zero,
                1 => FoldKind::Set(u16::try_from(self.random.below(512)).expect("a set")),
                _ => {
                    let some = self.random.page(self.frames.len().max(1));
                    FoldKind::Frame(*self.frames.values().nth(some).unwrap_or(&FrameId(1)))
                }
            });
        }
        if !matches!(page.state, PageState::Anon | PageState::Orphan) {
            return None;
        }
        if let Some(&frame) = self.frames.get(&page.hash) {
            return Some(FoldKind::Frame(frame));
        }
        let next = u16::try_from(sets.len() % 512).expect("a set");
        Some(FoldKind::Set(*sets.entry(page.hash).or_insert(next)))
    }

    fn fold(&mut self, entries: Vec<FoldEntry>, lines: u16) {
        let batch = FoldBatch {
            entries,
            lines: if self.random.chance(1, 2) { lines } else { 0 },
            split: self.random.chance(3, 4),
            locked: self.random.chance(1, 2),
            drain: self.random.chance(1, 8),
        };
        let outcomes = self
            .domain
            .device
            .fold(&batch)
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(
            outcomes
                .iter()
                .all(|outcome| outcome.status != Status::Untried),
            "{outcomes:?}"
        );
        self.tally.add(&outcomes);
    }

    fn break_some(&mut self, space: SpaceId) {
        let first = self.random.page(self.pages);
        let last = (first + self.random.page(64)).min(self.pages);
        let broken = self
            .domain
            .device
            .break_range(space, address(first), address(last));
        let _stopped_is_fine = broken.unwrap_or_else(|error| panic!("{error}"));
    }
}
