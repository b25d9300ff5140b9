//! A pass over all frames for their hashes: to learn them at the start, and to follow a change of
//! strength. Frames without mappings are freed on the way, so they are hashed only once.
//!
//! The contents of a frame never change, so its hash at another strength is its hash plus or minus
//! that of the lines in between (UKSM §6.2).

use crate::command::{Command, Frame, Lines, Nanos};
use crate::lookup::Lookup;
use crate::lookup::frames::PIECE;

/// The pass and its position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rehash {
    lines: Lines,
    sense: Sense,
    cursor: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sense {
    /// Enter frames that are not known.
    Learn,
    /// Add the hash of these lines.
    Add,
    /// Subtract it.
    Subtract,
}

impl Rehash {
    /// Learns the existing frames, at this strength.
    pub(super) fn learn(strength: u16) -> Rehash {
        Rehash {
            lines: Lines {
                from: 0,
                to: strength,
            },
            sense: Sense::Learn,
            cursor: 0,
        }
    }

    /// Shifts the hashes of all frames from one strength to another.
    pub(super) fn shift(before: u16, after: u16) -> Rehash {
        Rehash {
            lines: Lines {
                from: before.min(after),
                to: before.max(after),
            },
            sense: if after > before {
                Sense::Add
            } else {
                Sense::Subtract
            },
            cursor: 0,
        }
    }

    /// The next piece.
    pub(super) fn command(&self) -> Command {
        Command::Frames {
            cursor: self.cursor,
            count: PIECE,
            lines: self.lines,
            reap: true,
            check: false,
        }
    }

    /// Takes in a piece and returns the rest of the pass.
    pub(super) fn take_in(
        self,
        lookup: &mut Lookup,
        frames: &[Frame],
        cursor: u32,
        now: Nanos,
    ) -> Option<Rehash> {
        match self.sense {
            Sense::Learn => lookup.learn_frames(frames),
            Sense::Add => {
                for frame in frames {
                    lookup.shift_hash(frame.frame, frame.hash);
                }
            }
            Sense::Subtract => {
                for frame in frames {
                    lookup.shift_hash(frame.frame, frame.hash.wrapping_neg());
                }
            }
        }
        lookup.frames_listed(frames, (self.cursor, cursor), now);
        (cursor != 0).then_some(Rehash { cursor, ..self })
    }
}
