//! The spaces that map each frame, where no two pages of a space may map the same frame.
//!
//! # Problem
//! Neither the kernel nor the module keeps a list of the mappings of a frame: for each page that
//! joins a frame, the whole process would have to be searched.
//!
//! # Approach
//! There is a pair of frame and space for each page that was merged with the frame, or waits for
//! that, since the frame was made, and for each page that was seen to map it, as children of a fork
//! do. If a waiting page is not merged, its pair is removed, but not the pair of a page that maps
//! the frame by now: the machine frees frames by itself, and an id can name another frame, made in
//! the same call that the page waited for. The list of a frame whose making was not seen is
//! incomplete, so it takes no sharers (see [`super::Lookup::learn_frames`]). A pair stays until the
//! frame is gone: a page that was written, and has the same contents again, meets others and makes
//! another frame with them.
//!
//! # Units
//! About 16 bytes for each page that is merged, and nothing with other policies.

use std::collections::BTreeMap;

use crate::command::{FrameId, SpaceId};

/// Approximate bytes of a pair in a tree.
const PAIR_BYTES: usize = 16;

/// The relation of a page of the space to the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pair {
    Waits,
    Maps,
}

/// The pairs.
#[derive(Debug, Default)]
pub(super) struct Sharers {
    pairs: BTreeMap<(FrameId, SpaceId), Pair>,
}

impl Sharers {
    /// Whether a page of the space maps the frame, or may.
    pub(super) fn has(&self, frame: FrameId, space: SpaceId) -> bool {
        self.pairs.contains_key(&(frame, space))
    }

    /// Records that a page of the space maps the frame.
    pub(super) fn add(&mut self, frame: FrameId, space: SpaceId) {
        self.pairs.insert((frame, space), Pair::Maps);
    }

    /// Records that a page of the space waits to map the frame.
    pub(super) fn waits(&mut self, frame: FrameId, space: SpaceId) {
        self.pairs.entry((frame, space)).or_insert(Pair::Waits);
    }

    /// Removes the pair of a page that waited and was not merged.
    pub(super) fn gave_up(&mut self, frame: FrameId, space: SpaceId) {
        let pair = (frame, space);
        if self.pairs.get(&pair) == Some(&Pair::Waits) {
            self.pairs.remove(&pair);
        }
    }

    /// The frame is gone.
    pub(super) fn forget(&mut self, frame: FrameId) {
        let of_frame = (frame, SpaceId(0))..=(frame, SpaceId(u32::MAX));
        let gone: Vec<_> = self.pairs.range(of_frame).map(|(pair, _)| *pair).collect();
        for pair in gone {
            self.pairs.remove(&pair);
        }
    }

    /// Bytes they take.
    pub(super) fn bytes(&self) -> usize {
        self.pairs.len() * PAIR_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_is_gone_takes_its_pairs_along_and_no_others() {
        let mut sharers = Sharers::default();
        for frame in 1..4 {
            for space in 1..4 {
                sharers.waits(FrameId(frame), SpaceId(space));
            }
        }
        sharers.forget(FrameId(2));
        sharers.gave_up(FrameId(3), SpaceId(1));
        assert!(!sharers.has(FrameId(2), SpaceId(3)));
        assert!(sharers.has(FrameId(1), SpaceId(3)) && sharers.has(FrameId(3), SpaceId(2)));
        assert!(!sharers.has(FrameId(3), SpaceId(1)));
        assert_eq!(sharers.bytes(), 5 * PAIR_BYTES);
    }

    #[test]
    fn a_page_that_gives_up_leaves_the_pair_of_one_that_maps() {
        let mut sharers = Sharers::default();
        let (frame, space) = (FrameId(1), SpaceId(1));
        sharers.waits(frame, space);
        sharers.forget(frame);
        sharers.add(frame, space);
        sharers.gave_up(frame, space);
        assert!(sharers.has(frame, space));
    }
}
