//! Frames by the hash of all their lines.
//!
//! # Problem
//! Frames of one partial hash and other contents hide each other: of hundreds only a few are tried
//! for a page.
//!
//! # Approach
//! Of the frames of hashes that collide ([`crate::merge::collisions`]) the full hash is known,
//! beside the partial one: either the machine hashed the lines that are missing, or a page was
//! merged with the frame that had been read in full. It holds as long as the frame does, whatever
//! the strength. A full hash is no other's partial one, so who asks for the frames of a hash is
//! told of both.
//!
//! # Source
//! UKSM §6.2.

use super::merged::Merged;
use crate::command::FrameId;

/// Frames known by their full hash, if there are any.
#[derive(Debug, Default)]
pub(super) struct InFull(Option<Merged>);

impl InFull {
    /// The frame has this hash, and takes sharers or not.
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

    /// Bytes that they take.
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Merged::bytes)
    }

    /// Whether the full hash of the frame is known.
    pub(super) fn has(&self, frame: FrameId) -> bool {
        let known = self.0.as_ref();
        known.is_some_and(|known| known.hash_of(frame).is_some())
    }
}
