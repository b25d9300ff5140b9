//! Frames by the hash of all their lines.
//!
//! # Problem
//! Frames of equal partial hash and different contents hide each other: only a few of hundreds are
//! tried for a page.
//!
//! # Approach
//! For frames of hashes that collide ([`crate::merge::collisions`]), the full hash is kept beside
//! the partial one: either the machine hashed the missing lines, or a page that had been read in
//! full was merged with the frame. It is valid for the frame's life, at any strength. A full hash
//! never equals the partial hash of other contents, so a lookup of a hash covers both.
//!
//! # Source
//! UKSM §6.2.

use super::merged::MergedIndex;
use crate::command::FrameId;

/// Frames by their full hash, if any.
#[derive(Debug, Default)]
pub(super) struct FullHashIndex(Option<MergedIndex>);

impl FullHashIndex {
    /// Records the frame's full hash, and whether it takes sharers.
    pub(super) fn know(&mut self, frame: FrameId, hash: u64, is_open: bool) {
        let known = self.0.get_or_insert_default();
        known.insert(hash, frame);
        if !is_open {
            known.mark_full(frame);
        }
    }

    /// The open frames of a full hash.
    pub(super) fn candidates(&self, hash: u64) -> impl Iterator<Item = FrameId> + '_ {
        let known = self.0.as_ref();
        known
            .into_iter()
            .flat_map(move |known| known.candidates(hash))
    }

    /// The frame is gone, or its id names another.
    pub(super) fn forget(&mut self, frame: FrameId) {
        if let Some(known) = &mut self.0 {
            known.remove(frame);
        }
    }

    /// The frame takes more sharers, or no more.
    pub(super) fn set_open(&mut self, frame: FrameId, is_open: bool) {
        match &mut self.0 {
            Some(known) if is_open => known.mark_open(frame),
            Some(known) => known.mark_full(frame),
            None => false,
        };
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, MergedIndex::bytes)
    }

    /// Whether the full hash of the frame is known.
    pub(super) fn has(&self, frame: FrameId) -> bool {
        let known = self.0.as_ref();
        known.is_some_and(|known| known.hash_of(frame).is_some())
    }
}
