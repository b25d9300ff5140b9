//! The hash in the engine: its strength, which is fixed or follows a control, and the frames'
//! hashes, which follow the strength.
//!
//! # Approach
//! By default the strength is small and fixed: pages that it does not distinguish are read in full
//! ([`crate::merge::collisions`]). A control ([`super::strength`]) takes part only if the parameter
//! asks for it. It changes the strength between answers, while no page waits to be merged. The
//! frames' hashes are shifted by the lines added or taken away ([`super::rehash`]).
//!
//! # Source
//! UKSM §6.1, §6.2.

use super::line::LineHash;
use super::rehash::Rehash;
use super::strength::{SampleCosts, StrengthControl};
use crate::command::{Command, Frame, Nanos};
use crate::lookup::Lookup;
use crate::params::{Contents, Params};
use crate::report::StrengthReport;

/// Least number of lines where pages of zeros alone are merged: nothing is read in full there, and
/// each page that looks like zeros is compared with them each time that it is read.
const MIN_FOR_ZEROS: u16 = 16;

/// The hash of one engine.
#[derive(Debug)]
pub(crate) struct AdaptiveHash {
    hash: LineHash,
    strength: u16,
    /// None if the strength is fixed.
    control: Option<StrengthControl>,
    changes: u64,
    rehash: Option<Rehash>,
}

impl AdaptiveHash {
    /// The hash of a domain's seed. It learns the existing frames first.
    pub(crate) fn new(params: &Params, seed: u64) -> AdaptiveHash {
        let control = params.strength.is_none().then(StrengthControl::default);
        let first = control.as_ref().map(StrengthControl::strength);
        let mut strength = params.strength.or(first).expect("fixed or controlled");
        if control.is_none() && params.merge == Contents::Zero {
            strength = strength.max(MIN_FOR_ZEROS);
        }
        AdaptiveHash {
            hash: LineHash::new(seed),
            strength,
            control,
            changes: 0,
            rehash: Some(Rehash::learn(strength)),
        }
    }

    /// The strength in use, in lines.
    pub(crate) fn strength(&self) -> u16 {
        self.strength
    }

    /// The counts.
    pub(crate) fn report(&self) -> StrengthReport {
        StrengthReport {
            lines: self.strength,
            changes: self.changes,
            read_in_full: 0,
        }
    }

    /// The hash of a page of zeros.
    pub(crate) fn zero(&self) -> u64 {
        self.hash.zero(self.strength)
    }

    /// `samples` pages were sampled; reading them cost this much.
    pub(crate) fn sampled(&mut self, samples: u64, reading: Nanos) {
        if let Some(control) = &mut self.control {
            control.observe(SampleCosts {
                samples,
                reading,
                ..SampleCosts::default()
            });
        }
    }

    /// Pages were compared or read in full because their hashes were equal, and differed.
    pub(crate) fn matched_falsely(&mut self, false_matches: u64, false_cost: Nanos) {
        if let Some(control) = &mut self.control {
            control.observe(SampleCosts {
                false_matches,
                false_cost,
                ..SampleCosts::default()
            });
        }
    }

    /// Whether the control can decide once no page waits to be merged.
    pub(crate) fn can_decide(&self, lookup: &Lookup) -> bool {
        let frames = lookup.frames() as u64;
        let control = self.control.as_ref();
        self.rehash.is_none() && control.is_some_and(|control| control.is_window_over(frames))
    }

    /// Lets the control decide if it can. Returns whether the strength has changed.
    pub(crate) fn adapt(&mut self, lookup: &Lookup) -> bool {
        if !self.can_decide(lookup) {
            return false;
        }
        let before = self.strength;
        if let Some(control) = &mut self.control {
            self.strength = control.decide();
        }
        if self.strength == before {
            return false;
        }
        self.rehash = (!lookup.has_no_frame()).then(|| Rehash::shift(before, self.strength));
        self.changes += 1;
        true
    }

    /// The next command that a change of strength needs.
    pub(crate) fn rehash_command(&self) -> Option<Command> {
        self.rehash.as_ref().map(Rehash::command)
    }

    /// A piece of the frames was listed for the rehash.
    ///
    /// # Panics
    /// If no rehash was under way.
    pub(crate) fn rehashed(
        &mut self,
        lookup: &mut Lookup,
        frames: &[Frame],
        cursor: u32,
        now: Nanos,
    ) {
        let rehash = self.rehash.take().expect("a rehash was under way");
        self.rehash = rehash.take_in(lookup, frames, cursor, now);
    }
}
