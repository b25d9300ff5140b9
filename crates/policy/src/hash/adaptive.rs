//! Adaptive partial hashing in the engine: the present strength, its cost, and the frames' hashes,
//! which follow it.
//!
//! # Problem
//! A change of strength makes the whole index worthless and costs a read of every frame. In the
//! middle of a sweep it would hide the partners already passed.
//!
//! # Approach
//! The control receives samples only when their cost and that of false matches outweighs the cost
//! of a change, and while the higher levels work: so the strength does not change while duplicates
//! of a region are being found. Samples of first sweeps and of the bottom level are added up apart:
//! if their matches were false too often, the control searches when the host is calm, so rarely
//! that the expected cost of searches is a small part of the time. On a host with few pages no
//! search begins: each trial reads them again, and a search takes several times as many samples as
//! there are pages, to save some lines of each. Colliding pages are read in full there
//! (docs/decisions/0041). The strength changes between answers, while no page waits to be merged.
//! The frames' hashes are shifted by the lines added or taken away ([`super::rehash`]).
//!
//! # Source
//! UKSM §6.1, §6.2.

use super::growth::Growth;
use super::line::LineHash;
use super::rehash::Rehash;
use super::strength::{Prospect, ROUGH, START, SampleCosts, StrengthControl, WINDOW};
use crate::command::{Command, Frame, Nanos};
use crate::convert;
use crate::lookup::Lookup;
use crate::params::{Params, SECOND};
use crate::report::StrengthReport;

/// Factor by which sampling must have cost more than a change of strength.
const MIN_COST_FACTOR: f64 = 4.0;
/// No first search begins with fewer pages than 64 windows take.
const MIN_PAGES: u64 = 64 * WINDOW;
/// Number of strengths that a search is assumed to try.
const EXPECTED_TRIALS: f64 = 16.0;
/// Costs that the control did not receive are halved after this number of samples.
const MAX_REMEMBERED_SAMPLES: u64 = 1 << 16;
/// Factor by which false matches must have cost more than sampling before the calm is long.
const LONG_CALM_FACTOR: u64 = 4;
/// Share of the bottom level's time that searches may use in calm.
const CALM_SEARCH_SHARE: f64 = 0.25;
/// Share of the time that searches may use while the strength under trial misleads.
const MISLED_SHARE: f64 = 1.0 / 128.0;
/// Cost of a false match in calm, in comparisons: its own, and a merge that it may have hidden,
/// which is worth several times the cost of a merge.
const LOST_MERGE: u64 = 17;
/// A change of strength makes the index worthless. Where reading its pages again would take longer
/// than `MAX_FREE_REREAD`, as at a small share, it may use 1/`REREAD_SHARE_DIVISOR` of the
/// governor's share.
const MAX_FREE_REREAD: Nanos = SECOND;
const REREAD_SHARE_DIVISOR: u64 = 16;
/// Cost of shifting the hash of a frame, in nanoseconds, assumed until it is measured.
const FIRST_FRAME_COST: f64 = 500.0;

/// Cost of reading pages again and of working on their contents, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadingCost {
    /// Pages on the ladder.
    pub(crate) pages: u64,
    /// All pages on the ladder.
    pub(crate) all: f64,
    /// The indexed pages, whose index a change of strength makes worthless.
    pub(crate) indexed: f64,
}

/// The hash of one engine, at the strength that is best now.
#[derive(Debug)]
pub(crate) struct AdaptiveHash {
    hash: LineHash,
    strength: u16,
    /// None if the strength is fixed.
    control: Option<StrengthControl>,
    /// Costs that the control has not received yet.
    costs: SampleCosts,
    /// The part of `costs.reading` that a search caused itself.
    own: Nanos,
    /// Costs of samples that the control did not receive, since its last search.
    unheeded: SampleCosts,
    /// Pages sampled since the strength was changed last.
    sampled: u64,
    /// The control must receive `unheeded` and search.
    is_search_due: bool,
    /// Colliding pages are read in full, so that they mislead only once.
    reads_in_full: bool,
    /// At the last look there were too few pages for a search to be worth beginning.
    has_few_pages: bool,
    /// The host is calm: a search samples only once its next trial is due.
    is_calm: bool,
    /// Share of the time that searches may use in calm.
    calm_share: f64,
    /// The governor's share.
    governed: f64,
    /// Number of comparisons that a false match counts for the control: one, until a calm has shown
    /// that merges were lost.
    weight: u64,
    frame_cost: f64,
    changes: u64,
    growth: Growth,
    /// The time when a search in calm was last allowed.
    allowed_at: Option<Nanos>,
    /// The time of the last change of strength, or the start.
    changed_at: Nanos,
    /// The time from which a search may try another strength although a change is not worth its
    /// cost.
    next_trial: Nanos,
    /// The same if the present strength misleads.
    next_if_misled: Nanos,
    rehash: Option<Rehash>,
}

impl AdaptiveHash {
    /// The hash of a domain's seed. It learns the existing frames first.
    pub(crate) fn new(params: &Params, seed: u64) -> AdaptiveHash {
        let strength = params.strength.unwrap_or(START);
        AdaptiveHash {
            hash: LineHash::new(seed),
            strength,
            control: params.strength.is_none().then(StrengthControl::new),
            costs: SampleCosts::default(),
            own: 0,
            unheeded: SampleCosts::default(),
            sampled: 0,
            is_search_due: false,
            reads_in_full: params.reads_in_full(),
            has_few_pages: false,
            is_calm: false,
            calm_share: CALM_SEARCH_SHARE * params.bottom_cpu,
            governed: params.cpu,
            weight: 1,
            frame_cost: FIRST_FRAME_COST,
            changes: 0,
            growth: Growth::default(),
            allowed_at: None,
            changed_at: 0,
            next_trial: 0,
            next_if_misled: 0,
            rehash: Some(Rehash::learn(strength)),
        }
    }

    /// The governor's share has changed.
    pub(crate) fn take_shares(&mut self, params: &Params) {
        self.governed = params.cpu;
    }

    /// The run starts.
    pub(crate) fn start(&mut self, now: Nanos) {
        self.changed_at = now;
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

    /// Whether a search tries strengths.
    pub(crate) fn is_searching(&self) -> bool {
        self.samples_wanted().is_some()
    }

    /// Whether the first search has not begun, because there are few pages.
    fn waits_for_pages(&self) -> bool {
        let control = self.control.as_ref();
        self.has_few_pages
            && !self.growth.is_searched_for()
            && control.is_some_and(StrengthControl::is_starting)
    }

    /// Number of samples that a search waits for, if one is under way.
    pub(crate) fn samples_wanted(&self) -> Option<u64> {
        let control = self.control.as_ref()?;
        let is_searching = control.is_searching() && !self.waits_for_pages();
        is_searching.then(|| control.samples_wanted())
    }

    /// Number of samples that a search still lacks, if one is under way: the unused time of others
    /// may pay for these, and for no more. None in calm before its next trial is due: by then the
    /// samples would be void, and other pages indexed.
    pub(crate) fn samples_missing(&self, now: Nanos) -> Option<u64> {
        if self.is_calm && !self.is_trial_due(now) {
            return None;
        }
        let missing = self.samples_wanted()?.saturating_sub(self.costs.samples);
        (missing > 0).then_some(missing)
    }

    /// Whether a search lacks no samples, and waits only for the outcomes of queued merges.
    pub(crate) fn can_decide(&self, lookup: &Lookup, now: Nanos, reading: ReadingCost) -> bool {
        self.has_its_samples() && self.may_decide(lookup, now, reading)
    }

    /// Whether the control may decide: a change is worth its cost or a trial is due, and the
    /// indexed pages can be read again.
    fn may_decide(&self, lookup: &Lookup, now: Nanos, reading: ReadingCost) -> bool {
        (self.is_worth_change(lookup) || self.may_try(now)) && self.can_read_again(now, reading)
    }

    /// Whether a search is under way that needs no more samples.
    fn has_its_samples(&self) -> bool {
        self.samples_wanted()
            .is_some_and(|wanted| self.costs.samples >= wanted)
    }

    /// Whether a search with all its samples may go on although a change is not worth its cost yet.
    fn may_try(&self, now: Nanos) -> bool {
        self.has_its_samples() && self.is_trial_due(now)
    }

    /// Whether a search may try another strength although a change is not worth its cost.
    fn is_trial_due(&self, now: Nanos) -> bool {
        now >= self.next_trial
            || self.growth.is_searched_for()
            || (now >= self.next_if_misled && self.is_misled(LONG_CALM_FACTOR))
    }

    /// Whether the indexed pages can be read again at the governor's share: soon, or at the price
    /// of a small part of its time since the last change.
    fn can_read_again(&self, now: Nanos, reading: ReadingCost) -> bool {
        let takes = convert::count(reading.indexed / self.governed);
        takes <= MAX_FREE_REREAD
            || now >= self.changed_at + takes.saturating_mul(REREAD_SHARE_DIVISOR)
    }

    /// Whether sampling has cost enough to make a change of strength worth its cost. Pages that a
    /// search reads for itself are no reason to continue it.
    fn is_worth_change(&self, lookup: &Lookup) -> bool {
        let cost = (self.costs.sampling() + self.costs.false_cost).saturating_sub(self.own);
        self.costs.samples > 0 && convert::float(cost) >= MIN_COST_FACTOR * self.change_cost(lookup)
    }

    /// Whether false matches have cost more than `times` as much as sampling, among the samples
    /// that the control did not receive.
    fn is_misled(&self, times: u64) -> bool {
        let unheeded = self.unheeded.weighted(LOST_MERGE);
        unheeded.false_cost > times * unheeded.sampling()
    }

    /// Sets whether the host is calm.
    pub(crate) fn set_calm(&mut self, is_calm: bool) {
        self.is_calm = is_calm;
    }

    /// The host has been calm for `calm`. Allows a search if, among the samples that the control
    /// did not receive, false matches cost more than sampling; `LONG_CALM_FACTOR` times more before
    /// the calm is longer than `long`. A search is allowed at most once per `long`, and so rarely
    /// that its expected cost, with `reading` everything once, is [`CALM_SEARCH_SHARE`] of the
    /// bottom level's share.
    pub(crate) fn search_in_calm(
        &mut self,
        lookup: &Lookup,
        now: Nanos,
        (calm, long): (Nanos, Nanos),
        reading: ReadingCost,
    ) {
        let least = if calm > long { 1 } else { LONG_CALM_FACTOR };
        let may_search = self.control.is_some() && !self.is_searching() && !self.waits_for_pages();
        if !self.is_misled(least) || !may_search {
            return;
        }
        let expected =
            reading.all + EXPECTED_TRIALS * (1.0 + MIN_COST_FACTOR) * self.change_cost(lookup);
        let seldom = convert::count(expected / self.calm_share).max(long);
        let is_due = self.allowed_at.is_none_or(|last| now >= last + seldom);
        if is_due {
            self.allowed_at = Some(now);
            self.is_search_due = true;
            self.weight = LOST_MERGE;
        }
    }

    /// Begins a search at once, as at the start, if memory has grown since the strength was found
    /// and the host is calm.
    fn search_if_grown(&mut self, reading: ReadingCost) {
        let Some(control) = self.control.as_mut() else {
            return;
        };
        if control.is_searching() || !self.is_calm || !self.growth.is_much(reading.all) {
            return;
        }
        if self.strength >= ROUGH {
            self.growth.search();
            control.begin_again();
            self.costs = SampleCosts::default();
            self.own = 0;
            self.is_search_due = false;
        }
    }

    /// Cost of shifting all frames to another strength, in nanoseconds.
    fn change_cost(&self, lookup: &Lookup) -> f64 {
        convert::float(lookup.frames() as u64) * self.frame_cost
    }

    /// `pages` were sampled for `cost`. The control receives the samples only if `is_reason`: in
    /// calm a window takes minutes, in which little is indexed. A search for memory that has grown
    /// receives all samples, because the first sweeps of that memory bring the ones it needs.
    pub(crate) fn sampled(&mut self, pages: u64, cost: Nanos, is_reason: bool) {
        let is_reason = is_reason || self.growth.is_searched_for();
        if !is_reason {
            self.own = 0;
            let unjudged = std::mem::take(&mut self.costs);
            self.unheeded.false_matches += unjudged.false_matches;
            self.unheeded.false_cost += unjudged.false_cost;
        }
        let costs = if is_reason {
            &mut self.costs
        } else {
            &mut self.unheeded
        };
        costs.samples += pages;
        costs.reading += cost;
        self.sampled += pages;
        if self.unheeded.samples > MAX_REMEMBERED_SAMPLES {
            self.unheeded.halve();
        }
    }

    /// A search has read pages for itself at this cost.
    pub(crate) fn searched(&mut self, cost: Nanos) {
        self.own += cost;
    }

    /// Working through the samples has cost this much.
    pub(crate) fn worked(&mut self, cost: Nanos) {
        if self.costs.samples > 0 {
            self.costs.work += cost;
        }
    }

    /// `pages` were compared because their hashes were equal, and differed.
    pub(crate) fn matched_falsely(&mut self, pages: u64, cost: Nanos) {
        self.costs.false_matches += pages;
        self.costs.false_cost += cost;
    }

    /// Whether there were false matches since the control last received samples.
    pub(crate) fn has_matched_falsely(&self) -> bool {
        self.costs.false_matches > 0
    }

    /// The next command that a change of strength needs.
    pub(crate) fn rehash_command(&self) -> Option<Command> {
        self.rehash.as_ref().map(Rehash::command)
    }

    /// A piece of the frames was listed for the rehash, for `cost`.
    ///
    /// # Panics
    /// If no rehash was under way.
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
            // A short listing shows the cost of a call, not that of a frame.
            let count = convert::float(frames.len() as u64);
            self.frame_cost +=
                (convert::float(cost) / count - self.frame_cost) * count / (count + 2000.0);
        }
        self.rehash = rehash.take_in(lookup, frames, cursor, now);
    }

    /// Lets the control decide, if that is worth its cost and possible. Returns whether the
    /// strength has changed.
    ///
    /// A search that has its samples, on a host that has become calm, would go on sampling only to
    /// make its next trial worth its cost. Instead it waits until its trials, with `reading`
    /// everything once for each, take no more than the calm share of the time, or [`MISLED_SHARE`]
    /// if the strength under trial misleads.
    pub(crate) fn adapt(&mut self, lookup: &Lookup, now: Nanos, reading: ReadingCost) -> bool {
        if self.rehash.is_some() {
            return false;
        }
        self.has_few_pages = self.reads_in_full && reading.pages < MIN_PAGES;
        self.search_if_grown(reading);
        let waits_for_pages = self.waits_for_pages();
        let change = self.change_cost(lookup);
        let may_decide = self.may_decide(lookup, now, reading);
        let Some(control) = self.control.as_mut() else {
            return false;
        };
        let was_searching = control.is_searching();
        // In calm, the frequency of trials is limited instead.
        control.expect((!self.is_calm).then_some(Prospect {
            indexed: lookup.indexed(),
            pages: reading.pages.max(self.sampled),
        }));
        let strength = if std::mem::take(&mut self.is_search_due) {
            self.costs = SampleCosts::default();
            self.own = 0;
            let unheeded = std::mem::take(&mut self.unheeded);
            control.reconsider(unheeded.weighted(LOST_MERGE))
        } else {
            if !may_decide || waits_for_pages {
                return false;
            }
            self.own = 0;
            let costs = std::mem::take(&mut self.costs);
            control.observe(costs.weighted(self.weight))
        };
        let is_changed = strength != self.strength;
        let is_settled = was_searching && !control.is_searching();
        if is_changed || is_settled {
            self.unheeded = SampleCosts::default();
        }
        if is_settled {
            self.growth.settle(reading.all);
        }
        if is_changed {
            self.rehash = (!lookup.has_no_frame()).then(|| Rehash::shift(self.strength, strength));
            self.strength = strength;
            self.changes += 1;
            self.sampled = 0;
            self.changed_at = now;
            let after = |share| now + convert::count((change + reading.all) / share);
            self.next_trial = after(self.calm_share);
            self.next_if_misled = after(MISLED_SHARE);
        }
        is_changed
    }
}

#[cfg(test)]
mod tests;
