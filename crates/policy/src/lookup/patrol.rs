//! The schedule of checks that frames still have their contents.
//!
//! # Problem
//! A flipped bit in a frame is wrong for all processes that share it. Hashing all frames takes
//! time, and is not urgent: memory that fails silently is rare.
//!
//! # Approach
//! All frames are listed now and then anyway, to free those without mappings. At intervals of hours
//! such a pass checks them, too, in pieces that take no longer than others, and within the same
//! share. Where other listings replaced that pass, as after each change of strength, the check
//! starts a pass itself.
//!
//! # Units
//! Nanoseconds.

use crate::command::Nanos;
use crate::lookup::frames::PIECE;

/// Frames checked at a time: as long as a piece that is only listed, about.
const CHECKED_FRAMES: u32 = PIECE / 16;

/// The checks.
#[derive(Debug, Clone)]
pub(super) struct Patrol {
    /// Time between two checks; 0 if there are none.
    interval: Nanos,
    /// When the next check is due, once there were frames.
    due: Option<Nanos>,
    is_under_way: bool,
    checked: u64,
}

impl Patrol {
    /// One check each `interval`; 0 for none.
    pub(super) fn every(interval: Nanos) -> Patrol {
        Patrol {
            interval,
            due: None,
            is_under_way: false,
            checked: 0,
        }
    }

    /// Schedules the first check, now that there are frames.
    pub(super) fn begins(&mut self, now: Nanos) {
        let interval = self.interval;
        self.due.get_or_insert_with(|| now.saturating_add(interval));
    }

    /// When a pass with checks is due, if any.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.due.filter(|_| self.interval > 0)
    }

    /// A pass over all frames begins now.
    pub(super) fn pass_begins(&mut self, now: Nanos) {
        self.begins(now);
        self.is_under_way = self.due().is_some_and(|due| now >= due);
    }

    /// Whether the pass under way checks the frames that it lists.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Frames to list at a time.
    pub(super) fn piece(&self) -> u32 {
        if self.is_under_way {
            CHECKED_FRAMES
        } else {
            PIECE
        }
    }

    /// A piece of `frames` frames was listed, the last one of a pass if `is_through`.
    pub(super) fn listed(&mut self, frames: usize, is_through: bool, now: Nanos) {
        if !self.is_under_way {
            return;
        }
        self.checked += frames as u64;
        if is_through {
            self.is_under_way = false;
            self.due = Some(now.saturating_add(self.interval));
        }
    }

    /// Frames checked so far.
    pub(super) fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_checks_if_the_last_one_that_did_is_an_interval_ago() {
        let mut patrol = Patrol::every(100);
        let pass = |patrol: &mut Patrol, now| {
            patrol.pass_begins(now);
            // The first piece failed for lack of memory, and is asked for again.
            patrol.pass_begins(now);
            let does = patrol.is_under_way();
            patrol.listed(10, false, now + 5);
            patrol.listed(1, true, now + 10);
            does
        };
        assert!(!pass(&mut patrol, 1000));
        assert!(!pass(&mut patrol, 1099));
        assert!(pass(&mut patrol, 1100));
        assert_eq!(patrol.checked(), 11);
        assert!(!pass(&mut patrol, 1200));
        assert!(pass(&mut patrol, 1210));
        assert_eq!(patrol.checked(), 22);
    }

    #[test]
    fn without_an_interval_nothing_is_checked() {
        let mut patrol = Patrol::every(0);
        for now in [0, 1, Nanos::MAX] {
            patrol.pass_begins(now);
            assert_eq!((patrol.is_under_way(), patrol.piece()), (false, PIECE));
        }
    }
}
