//! The strength of the hash, and the frames that follow it.
//!
//! # Problem
//! A change of strength makes everything indexed worthless, and costs a look at every frame. In
//! the middle of a sweep it would hide the partners already passed.
//!
//! # Approach
//! The control hears of samples only when what they and vain comparisons cost outweighs what a
//! change would, and while the higher levels work, or nothing has risen for long and matches are
//! false: so detection is not torn between eras. In calm, anchors are looked at again at once. A
//! change happens between answers, with nothing waiting to be merged. Frames shift their hash by the
//! lines added or taken away. Sweeps under way start over, and when the control settles on another
//! strength all anchors are looked at again.
//!
//! # Units
//! Strength in lines, costs in nanoseconds.
//!
//! # Source
//! UKSM §6.1, §6.2.

use super::{Engine, Turn, era};
use crate::command::{Command, Frame, FrameId, Lines, Nanos};
use crate::convert;
use crate::lookup::Unmerged;
use crate::lookup::frames::PIECE;

/// Sampling must have cost this many times what a change of strength costs.
const WORTH: f64 = 4.0;

/// Room in the index for a page: an entry and half of one.
const BYTES_PER_PAGE: usize = 24;

/// A pass over all frames for their hashes.
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
    /// Add these lines' hash.
    Add,
    /// Take it away.
    Subtract,
}

impl Rehash {
    /// Learns the frames there are.
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
}

impl Engine {
    /// Changes the strength if that is due; gives the next command that needs.
    pub(super) fn tune(&mut self) -> Option<Command> {
        if self.listing.is_none() && self.queue.len() == 0 {
            self.adapt();
        }
        let listing = self.listing?;
        Some(Command::Frames {
            cursor: listing.cursor,
            count: PIECE,
            lines: listing.lines,
            reap: listing.sense == Sense::Learn,
        })
    }

    /// Whether the control can judge what it tries: what waits to be merged holds it up.
    pub(super) fn has_window(&self) -> bool {
        self.merged_now > 0
            && self.control.as_ref().is_some_and(|control| {
                control.is_searching() && self.tally.samples >= control.samples_wanted()
            })
    }

    fn adapt(&mut self) {
        let Some(control) = &mut self.control else {
            return;
        };
        let change = convert::float(self.frames.len() as u64) * self.frame_cost;
        let cost = self.tally.sampling + self.tally.false_cost;
        if self.tally.samples == 0 || convert::float(cost) < WORTH * change {
            return;
        }
        let strength = control.observe(std::mem::take(&mut self.tally));
        let is_settled = !control.is_searching();
        if strength != self.strength {
            self.change_strength(strength);
            if !is_settled && self.levels[1..].iter().all(|level| level.len() == 0) {
                self.reindex_anchors();
            }
        }
        if is_settled && strength != self.settled {
            self.settled = strength;
            self.reindex_anchors();
        }
    }

    /// What was indexed is worthless: all anchors are looked at again.
    fn reindex_anchors(&mut self) {
        self.newcomers.clear();
        let slots: Vec<u32> = self.discovery.all().collect();
        for slot in slots {
            for &number in &self.discovery.space(slot).regions {
                self.regions[number].new_era();
                self.newcomers.push_back(number);
            }
        }
    }

    /// Lets the index grow with the memory that is followed, up to its bound. An index of the size
    /// of the host would cost a small group memory, a page fault for most entries, and a TLB miss
    /// for most lookups. What it held is sampled again; growth is mostly before the first sample.
    pub(super) fn fit_index(&mut self) {
        let wanted = usize::try_from(self.regions.pages())
            .unwrap_or(usize::MAX)
            .saturating_mul(BYTES_PER_PAGE)
            .checked_next_power_of_two()
            .unwrap_or(usize::MAX)
            .min(self.params.index_bytes);
        if wanted < self.unmerged.bytes() / 2 * 3 {
            return;
        }
        let held_any = !self.unmerged.is_empty();
        self.unmerged = Unmerged::with_bytes(wanted);
        self.unmerged.set_era(era(self.strength));
        if held_any {
            self.reindex_anchors();
        }
    }

    fn change_strength(&mut self, strength: u16) {
        let (from, to) = (self.strength.min(strength), self.strength.max(strength));
        let sense = if strength > self.strength {
            Sense::Add
        } else {
            Sense::Subtract
        };
        if !self.merged.is_empty() {
            self.listing = Some(Rehash {
                lines: Lines { from, to },
                sense,
                cursor: 0,
            });
        }
        self.strength = strength;
        self.strength_changes += 1;
        self.unmerged.set_era(era(strength));
        for level in 1..self.levels.len() {
            let members: Vec<u32> = self.levels[level].members().collect();
            for number in members {
                self.regions[number].sweep.blocks = 0;
            }
            self.levels[level].restart();
            self.quotas[level] = None;
        }
    }

    pub(super) fn on_listing(&mut self, frames: &[Frame], cursor: u32, cost: Nanos) {
        let sense = self.listing.expect("a listing was under way").sense;
        for frame in frames {
            match sense {
                Sense::Learn if frame.sharers > 0 => {
                    self.merged.insert(frame.hash, frame.frame);
                    if frame.sharers >= self.params.max_sharers {
                        self.close(frame.frame, frame.sharers);
                    }
                }
                Sense::Learn => {
                    self.merged.remove(frame.frame);
                }
                Sense::Add => {
                    self.merged.shift(frame.frame, frame.hash);
                }
                Sense::Subtract => {
                    self.merged.shift(frame.frame, frame.hash.wrapping_neg());
                }
            }
        }
        if !frames.is_empty() {
            // A short listing tells what a call costs, not what a frame does.
            let count = convert::float(frames.len() as u64);
            self.frame_cost +=
                (convert::float(cost) / count - self.frame_cost) * count / (count + 2000.0);
        }
        self.listing = (cursor != 0)
            .then_some(self.listing)
            .flatten()
            .map(|listing| Rehash { cursor, ..listing });
        if sense == Sense::Learn {
            self.frames.listed(frames, cursor, self.now, |_| {});
        }
    }

    /// The frame has so many sharers, and takes no more until some of them are gone.
    pub(super) fn close(&mut self, frame: FrameId, sharers: u32) {
        self.merged.mark_full(frame);
        self.full.insert(frame, sharers);
    }

    /// A page was seen to map a frame of these contents. A number known for others names another
    /// frame by now.
    pub(super) fn saw_frame(&mut self, frame: FrameId, hash: u64) {
        if self.merged.hash_of(frame) != Some(hash) {
            self.forget_frame(frame);
            self.merged.insert(hash, frame);
        }
    }

    /// The frame is no longer there, or can no longer be used.
    pub(super) fn forget_frame(&mut self, frame: FrameId) {
        self.merged.remove(frame);
        self.frames.forget(frame);
        self.full.remove(&frame);
    }

    pub(super) fn list_frames(&mut self) -> Command {
        Command::Frames {
            cursor: self.frames.cursor,
            count: PIECE,
            lines: Lines { from: 0, to: 0 },
            reap: true,
        }
    }

    pub(super) fn on_reaped(&mut self, frames: &[Frame], cursor: u32) {
        debug_assert!(self.turn == Turn::Reap);
        for frame in frames {
            // A full frame opens again when an eighth of its sharers is gone.
            if let Some(&most) = self.full.get(&frame.frame)
                && u64::from(frame.sharers) * 8 < u64::from(most) * 7
            {
                self.full.remove(&frame.frame);
                self.merged.mark_open(frame.frame);
            }
        }
        let (merged, full) = (&mut self.merged, &mut self.full);
        self.frames.listed(frames, cursor, self.now, |frame| {
            merged.remove(frame);
            full.remove(&frame);
        });
    }
}
