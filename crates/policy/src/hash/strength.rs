//! The search for the number of lines of a page to hash (UKSM §6.1), if that is not fixed.
//!
//! # Problem
//! Each line hashed costs a cache miss a page. With too few lines different pages look equal, and
//! comparing them, or reading them in full, costs hundreds of misses.
//!
//! # Approach
//! The benefit of a strength is its profit (the saving against the strongest hash) less its penalty
//! (the cost of false matches). The control starts at half of the lines and *probes*: it goes down
//! by steps of 1, 2, 4, 8 lines while the benefit grows, as TCP starts slowly, then up from the
//! best strength found, and is *stable* at the best. It probes again when the benefit has moved by
//! half, when two windows pass without a false match, or after 1000 windows.
//!
//! It differs from the paper in this:
//! - It decides after windows of samples, not after rounds of time.
//! - A search that comes as soon as it may doubles the windows until the next one, up to 1000: a
//!   strength is judged while the index is nearly empty, and would be found too weak and too strong
//!   in turn.
//!
//! # Units
//! Strength, penalty and benefit are lines a sample; costs are nanoseconds.
//!
//! # Source
//! UKSM §6.1.

use crate::command::{Nanos, PAGE_LINES};

/// The least number of samples of a window.
pub const WINDOW: u64 = 4096;

/// The first strength.
pub const START: u16 = PAGE_LINES / 2;

const MAX_STEP: u16 = 8;

/// Windows without a false match before a weaker hash is tried; the first wait for a search.
const QUIET_WINDOWS: u64 = 2;

/// Windows after which a search begins in any case.
const MAX_STABLE: u64 = 1000;

/// Cost of reading a page without hashing any line, in lines. Natively it is 5 for pages in a row
/// and more for single ones.
const BASE_LINES: f64 = 8.0;

/// Costs and false matches of a number of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleCosts {
    /// Pages sampled.
    pub samples: u64,
    /// Cost of the calls that read them.
    pub reading: Nanos,
    /// Pages that were compared or read in full because hashes were equal, and whose contents
    /// differed.
    pub false_matches: u64,
    /// Cost of that.
    pub false_cost: Nanos,
}

impl SampleCosts {
    /// The benefit of `strength`, with which these pages were sampled.
    fn benefit(&self, strength: u16) -> f64 {
        let strength = f64::from(strength);
        let line = self.reading.max(1) as f64 / (strength + BASE_LINES);
        f64::from(PAGE_LINES) - strength - self.false_cost as f64 / line
    }
}

/// A walk of a search, away from the best strength.
#[derive(Debug, Clone, Copy)]
struct StrengthWalk {
    is_upward: bool,
    step: u16,
}

impl StrengthWalk {
    /// The next strength; none at either end.
    fn next(&mut self, strength: u16) -> Option<u16> {
        let next = if self.is_upward {
            (strength + self.step).min(PAGE_LINES)
        } else {
            strength.saturating_sub(self.step).max(1)
        };
        self.step = (2 * self.step).min(MAX_STEP);
        (next != strength).then_some(next)
    }
}

/// The control of the hash strength of one engine.
#[derive(Debug, Clone)]
pub struct StrengthControl {
    strength: u16,
    window: SampleCosts,
    /// The walk of a search; none while the strength is stable.
    walk: Option<StrengthWalk>,
    /// The best strength of the search and its benefit; while stable, the benefit of the first
    /// window.
    best: (u16, f64),
    /// Windows since the strength became stable, and the last ones without a false match.
    windows: u64,
    quiet: u64,
    /// Windows before the next search.
    wait: u64,
}

impl Default for StrengthControl {
    fn default() -> StrengthControl {
        StrengthControl {
            strength: START,
            window: SampleCosts::default(),
            walk: None,
            best: (START, 0.0),
            windows: MAX_STABLE,
            quiet: 0,
            wait: QUIET_WINDOWS,
        }
    }
}

impl StrengthControl {
    /// The strength to sample with, 1 to 64.
    #[must_use]
    pub fn strength(&self) -> u16 {
        self.strength
    }

    /// Takes in costs of samples at the present strength. False matches count when they become
    /// known, which may be after the samples.
    pub fn observe(&mut self, more: SampleCosts) {
        let window = &mut self.window;
        window.samples += more.samples;
        window.reading += more.reading;
        window.false_matches += more.false_matches;
        window.false_cost += more.false_cost;
    }

    /// Whether the window may be decided. It has at least as many samples as there are frames, so
    /// that a change of their hashes costs less than the samples.
    #[must_use]
    pub fn is_window_over(&self, frames: u64) -> bool {
        self.window.samples >= WINDOW.max(frames)
    }

    /// Decides by the window, and begins the next one. Returns the next strength.
    pub fn decide(&mut self) -> u16 {
        let window = std::mem::take(&mut self.window);
        let benefit = window.benefit(self.strength);
        match self.walk.take() {
            Some(walk) if benefit > self.best.1 => {
                self.best = (self.strength, benefit);
                self.go_on(walk);
            }
            Some(walk) => self.turn_round(walk),
            None => self.stay(benefit, window.false_matches == 0),
        }
        self.strength
    }

    /// One more window at a stable strength.
    fn stay(&mut self, benefit: f64, is_quiet: bool) {
        self.windows += 1;
        self.quiet = if is_quiet { self.quiet + 1 } else { 0 };
        if self.windows == 1 {
            self.best.1 = benefit;
        }
        let has_moved = (benefit - self.best.1).abs() > self.best.1.abs() / 2.0;
        let is_too_strong = self.quiet >= QUIET_WINDOWS && self.strength > 1;
        let is_due = self.windows >= self.wait && (has_moved || is_too_strong);
        if is_due || self.windows >= MAX_STABLE {
            self.wait = if self.windows > 2 * self.wait {
                QUIET_WINDOWS
            } else {
                (2 * self.wait).min(MAX_STABLE)
            };
            self.best = (self.strength, benefit);
            self.go_on(StrengthWalk {
                is_upward: false,
                step: 1,
            });
        }
    }

    /// Tries the next strength of the walk.
    fn go_on(&mut self, mut walk: StrengthWalk) {
        match walk.next(self.strength) {
            Some(next) => {
                self.strength = next;
                self.walk = Some(walk);
            }
            None => self.turn_round(walk),
        }
    }

    /// The walk is over: the other one begins, or the best strength becomes stable.
    fn turn_round(&mut self, walk: StrengthWalk) {
        self.strength = self.best.0;
        if walk.is_upward {
            (self.windows, self.quiet) = (0, 0);
        } else {
            self.go_on(StrengthWalk {
                is_upward: true,
                step: 1,
            });
        }
    }
}

#[cfg(test)]
mod tests;
