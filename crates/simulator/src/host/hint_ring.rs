//! The hints of one domain that wait for its engine.

use std::collections::{BTreeMap, BTreeSet};

use uksm_policy::command::{Hint, SpaceId};

/// Size of the ring of a domain, in hints.
const RING_HINTS: usize = 1 << 14;
/// A space may have hints pending up to this many times the free room, as in `bpf/`.
const PART_OF_FREE: usize = 2;

/// The pending hints of one domain.
#[derive(Debug, Clone, Default)]
pub(super) struct HintRing {
    pub(super) hints: Vec<Hint>,
    /// Pending hints of each space.
    waiting: BTreeMap<SpaceId, usize>,
    pub(super) lost: u64,
    pub(super) lost_of: BTreeSet<SpaceId>,
    pub(super) grown: BTreeSet<SpaceId>,
}

impl HintRing {
    pub(super) fn has_room(&self, space: SpaceId) -> bool {
        let waiting = self.waiting.get(&space).copied().unwrap_or(0);
        let free = RING_HINTS - self.hints.len();
        free > 0 && waiting < PART_OF_FREE * free
    }

    pub(super) fn push(&mut self, hint: Hint) {
        *self.waiting.entry(hint.space).or_default() += 1;
        self.hints.push(hint);
    }

    pub(super) fn lose(&mut self, space: SpaceId) {
        self.lost += 1;
        self.lost_of.insert(space);
    }

    /// The oldest hints, at most `most`.
    pub(super) fn take(&mut self, most: usize) -> Vec<Hint> {
        let count = self.hints.len().min(most);
        let taken: Vec<Hint> = self.hints.drain(..count).collect();
        for hint in &taken {
            *self.waiting.entry(hint.space).or_default() -= 1;
        }
        self.waiting.retain(|_, &mut waiting| waiting > 0);
        taken
    }
}
