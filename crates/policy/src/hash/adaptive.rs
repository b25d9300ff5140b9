//! Adaptive partial hashing as the engine uses it: the strength in use, what it costs, and the
//! frames' hashes that follow it.
//!
//! # Problem
//! A change of strength makes everything indexed worthless, and costs a look at every frame. In
//! the middle of a sweep it would hide the partners already passed.
//!
//! # Approach
//! The control learns of samples only when their cost and that of false matches outweighs what a
//! change would cost, and while the higher levels work, or nothing was promoted for long and
//! matches are false: so regions are not torn between eras while their duplicates are being found.
//! A change happens between answers, while no page waits to be merged. Frames shift their hash by
//! the lines added or taken away ([`super::rehash`]).
//!
//! # Source
//! UKSM §6.1, §6.2.

use super::line::LineHash;
use super::rehash::Rehash;
use super::strength::{START, SampleCosts, StrengthControl};
use crate::command::{Command, Frame, Nanos};
use crate::convert;
use crate::lookup::Lookup;
use crate::params::Params;
use crate::report::StrengthReport;

/// Sampling must have cost this many times what a change of strength costs.
const WORTH: f64 = 4.0;
/// Reading everything again in vain is at most 2^this times as seldom.
const MOST_IN_VAIN: u32 = 8;
/// What shifting the hash of a frame is assumed to cost until some were.
const FIRST_FRAME_COST: f64 = 500.0;

/// The hash of one engine, at the strength that is best now.
#[derive(Debug)]
pub(crate) struct AdaptiveHash {
    hash: LineHash,
    strength: u16,
    /// The last strength that a search ended with.
    settled: u16,
    /// None if the strength is fixed.
    control: Option<StrengthControl>,
    /// Not told to the control yet.
    costs: SampleCosts,
    frame_cost: f64,
    changes: u64,
    /// When all was last read again because matches were false.
    read_again: Nanos,
    /// How often that was in a row without another strength as its result.
    in_vain: u32,
    rehash: Option<Rehash>,
}

/// What the control has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Adapted {
    /// The strength is another one.
    pub(crate) is_changed: bool,
    /// A search is under way.
    pub(crate) is_searching: bool,
    /// A search has ended with another strength than the one before.
    pub(crate) is_settled_anew: bool,
}

impl AdaptiveHash {
    /// The hash of a domain's seed. The frames that are there are to be learned first.
    pub(crate) fn new(params: &Params, seed: u64) -> AdaptiveHash {
        let strength = params.strength.unwrap_or(START);
        AdaptiveHash {
            hash: LineHash::new(seed),
            strength,
            settled: strength,
            control: params.strength.is_none().then(StrengthControl::new),
            costs: SampleCosts::default(),
            frame_cost: FIRST_FRAME_COST,
            changes: 0,
            read_again: 0,
            in_vain: 0,
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
        }
    }

    /// The hash of a page of zeros.
    pub(crate) fn zero(&self) -> u64 {
        self.hash.zero(self.strength)
    }

    /// How many samples a search waits for, if one is under way.
    pub(crate) fn samples_wanted(&self) -> Option<u64> {
        let control = self.control.as_ref()?;
        control.is_searching().then(|| control.samples_wanted())
    }

    /// Whether a search waits for nothing but the outcomes of the pages that wait to be merged.
    pub(crate) fn can_decide(&self) -> bool {
        self.samples_wanted()
            .is_some_and(|wanted| self.costs.samples >= wanted)
    }

    /// Whether matches turned out false that the control has not been told of.
    pub(crate) fn has_false_matches(&self) -> bool {
        self.costs.false_matches > 0
    }

    /// Whether false matches cost more than sampling does, so that everything may be read again to
    /// find a better strength: at most once in `interval`, and each time that none is found
    /// twice as seldom.
    pub(crate) fn may_read_again(&mut self, now: Nanos, interval: Nanos) -> bool {
        let is_due = self.control.is_some()
            && self.costs.false_cost > self.costs.sampling
            && now >= self.read_again + (interval << self.in_vain);
        if is_due {
            self.read_again = now;
            self.in_vain = (self.in_vain + 1).min(MOST_IN_VAIN);
        }
        is_due
    }

    /// So many pages were sampled for `cost`. Only if `is_reason` can they be reason for a search:
    /// in calm a search takes minutes, in which little is indexed.
    pub(crate) fn sampled(&mut self, pages: u64, cost: Nanos, is_reason: bool) {
        if is_reason {
            self.costs.samples += pages;
            self.costs.sampling += cost;
        } else {
            self.costs = SampleCosts::default();
        }
    }

    /// Working through these samples has cost this much.
    pub(crate) fn worked(&mut self, cost: Nanos) {
        if self.costs.samples > 0 {
            self.costs.sampling += cost;
        }
    }

    /// So many pages were compared because their hashes were equal, and were not equal.
    pub(crate) fn matched_falsely(&mut self, pages: u64, cost: Nanos) {
        self.costs.false_matches += pages;
        self.costs.false_cost += cost;
    }

    /// The next command that a change of strength needs.
    pub(crate) fn rehash_command(&self) -> Option<Command> {
        self.rehash.as_ref().map(Rehash::command)
    }

    /// A piece of the frames came back for it, for `cost`.
    ///
    /// # Panics
    /// If none was asked for.
    pub(crate) fn rehashed(
        &mut self,
        lookup: &mut Lookup,
        frames: &[Frame],
        cursor: u32,
        now: Nanos,
        cost: Nanos,
    ) {
        let rehash = self.rehash.take().expect("a rehash was under way");
        if !frames.is_empty() {
            // A short listing tells what a call costs, not what a frame does.
            let count = convert::float(frames.len() as u64);
            self.frame_cost +=
                (convert::float(cost) / count - self.frame_cost) * count / (count + 2000.0);
        }
        self.rehash = rehash.take_in(lookup, frames, cursor, now);
    }

    /// Lets the control decide, if that is worth it and possible, with so many frames known.
    pub(crate) fn adapt(&mut self, lookup: &Lookup) -> Option<Adapted> {
        if self.rehash.is_some() {
            return None;
        }
        let control = self.control.as_mut()?;
        let change = convert::float(lookup.frames() as u64) * self.frame_cost;
        let cost = self.costs.sampling + self.costs.false_cost;
        if self.costs.samples == 0 || convert::float(cost) < WORTH * change {
            return None;
        }
        let strength = control.observe(std::mem::take(&mut self.costs));
        let is_searching = control.is_searching();
        let is_changed = strength != self.strength;
        if is_changed {
            self.rehash = (!lookup.has_no_frame()).then(|| Rehash::shift(self.strength, strength));
            self.strength = strength;
            self.changes += 1;
        }
        let is_settled_anew = !is_searching && strength != self.settled;
        if is_settled_anew {
            self.in_vain = 0;
            self.settled = strength;
        }
        Some(Adapted {
            is_changed,
            is_searching,
            is_settled_anew,
        })
    }
}
