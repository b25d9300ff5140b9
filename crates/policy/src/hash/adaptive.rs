//! Adaptive partial hashing as the engine uses it: the strength in use, what it costs, and the
//! frames' hashes that follow it.
//!
//! # Problem
//! A change of strength makes everything indexed worthless, and costs a look at every frame. In
//! the middle of a sweep it would hide the partners already passed.
//!
//! # Approach
//! The control learns of samples only when their cost and that of false matches outweighs what a
//! change would cost, and while the higher levels work: so regions are not torn between eras while
//! their duplicates are being found. In calm, when matches are false, everything may be read again
//! for a search, so seldom that its expected cost is a small part of the time.
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
/// Strengths that a search is taken to try.
const TRIALS: f64 = 16.0;
/// In calm, searches may cost this part of the time.
const CALM_SHARE: f64 = 1.0 / 64.0;
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
    /// When a search in calm was last allowed.
    allowed_at: Nanos,
    /// A search in calm is allowed, and none has ended since.
    is_calm_search_allowed: bool,
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
            allowed_at: 0,
            is_calm_search_allowed: false,
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

    /// In calm, whether false matches cost more than sampling does, so that everything is to be read
    /// again, for `reading`, to search for a better strength: at most once in `interval`, and so
    /// seldom that what it is expected to cost is [`CALM_SHARE`] of the time.
    pub(crate) fn may_search_in_calm(
        &mut self,
        lookup: &Lookup,
        now: Nanos,
        interval: Nanos,
        reading: f64,
    ) -> bool {
        let expected = reading + TRIALS * (1.0 + WORTH) * self.change_cost(lookup);
        let seldom = convert::count(expected / CALM_SHARE).max(interval);
        let is_due = self.control.is_some()
            && self.costs.false_cost > self.costs.sampling
            && now >= self.allowed_at + seldom;
        if is_due {
            self.allowed_at = now;
            self.is_calm_search_allowed = true;
        }
        is_due
    }

    /// Whether samples in calm may be reason for a search.
    pub(crate) fn is_calm_search_allowed(&self) -> bool {
        self.is_calm_search_allowed
    }

    /// What a change of strength costs for the frames, in nanoseconds.
    fn change_cost(&self, lookup: &Lookup) -> f64 {
        convert::float(lookup.frames() as u64) * self.frame_cost
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
        let change = self.change_cost(lookup);
        let control = self.control.as_mut()?;
        let cost = self.costs.sampling + self.costs.false_cost;
        if self.costs.samples == 0 || convert::float(cost) < WORTH * change {
            return None;
        }
        let was_searching = control.is_searching();
        let strength = control.observe(std::mem::take(&mut self.costs));
        let is_searching = control.is_searching();
        if was_searching && !is_searching {
            self.is_calm_search_allowed = false;
        }
        let is_changed = strength != self.strength;
        if is_changed {
            self.rehash = (!lookup.has_no_frame()).then(|| Rehash::shift(self.strength, strength));
            self.strength = strength;
            self.changes += 1;
        }
        let is_settled_anew = !is_searching && strength != self.settled;
        if is_settled_anew {
            self.settled = strength;
        }
        Some(Adapted {
            is_changed,
            is_searching,
            is_settled_anew,
        })
    }
}
