//! The number of lines of a page to hash (UKSM §6.1).
//!
//! # Problem
//! Each line hashed costs a cache miss a page. With too few lines different pages look equal, and
//! comparing them costs hundreds of misses. The best strength depends on the contents of memory and
//! changes with them.
//!
//! # Approach
//! The benefit of a strength is its profit (the saving against the strongest hash) less its penalty
//! (the cost of false matches); both are measured. The control starts at [`START`] and searches as
//! TCP starts slowly: steps of 1, 2, 4, 8 lines downwards, then upwards, from the best strength
//! found. Then it is stable until the benefit moves by half, two windows pass without a false
//! match, or 1000 windows pass.
//!
//! It differs from the paper in this:
//! - A trial reads all indexed pages again. So a search is *coarse*, by steps of 8 lines and for
//!   gains of half of that, where a finer one has little to gain: at the start, if nothing misled,
//!   in calm, and when nothing misleads any more.
//! - It starts at a quarter and not at half: until a search is worth its cost, and during the
//!   search, every page is sampled at the first strength, and 16 lines distinguish natural contents
//!   nearly as well as 32 (docs/decisions/0005).
//! - It decides after windows of samples, not rounds of time, so that 32 to 1 takes thousands of
//!   samples and not half a minute.
//! - All costs are weighed *in lines*: a penalty is divided by the cost of a line, which is learnt
//!   from the change of the cost of reading a page with the strength. A slower machine changes
//!   nothing.
//! - A weaker hash cannot have fewer collisions. So a penalty measured at one strength is a lower
//!   bound for the weaker ones, and a strength is tried only if by all such bounds it can be better
//!   than the best. The same bounds let a search cross a plateau: where pages differ in one line
//!   only, no single step helps, and the penalty limits the distance.
//! - After a change of strength few pages are indexed yet and collisions seem rare. The cost of a
//!   strength when it was settled on is remembered, each time it disappoints for twice as long (up
//!   to 1000 windows). That keeps the control from oscillating.
//! - A trial is made only if its possible gain is worth its cost: the indexed pages are read again
//!   for it. The fewer pages remain to be sampled, the larger the gain must be
//!   (docs/decisions/0045).
//! - The stable state also ends when the *loss* moves by half (lines hashed and penalty), for at
//!   weak strengths half the benefit is the cost of 30 lines.
//!
//! # Units
//! Strength, penalty, benefit and loss are lines a sample; costs are nanoseconds.
//!
//! # Source
//! UKSM §6.1.

use crate::command::PAGE_LINES;
use costs::LineCost;
pub use costs::SampleCosts;

mod costs;

/// Samples after which a window is decided if its result is clear.
pub const WINDOW: u64 = 512;

/// Samples after which a window is decided in any case.
pub const MAX_WINDOW: u64 = 8 * WINDOW;

/// The first strength.
pub const START: u16 = PAGE_LINES / 4;
const STRENGTHS: usize = PAGE_LINES as usize + 1;
const MAX_STEP: u16 = 8;

/// Lines by which a strength must be better.
const MARGIN: f64 = 0.25;

/// The same in a coarse search.
const COARSE_MARGIN: f64 = MAX_STEP as f64 / 2.0;

/// Trials are expensive if they must gain more lines than this.
const EXPENSIVE_TRIAL_LINES: f64 = 1.0;

/// The strength that a rough search from the start tries: it saves most of the cost of lines and
/// distinguishes natural contents nearly as well (docs/decisions/0045).
pub(crate) const ROUGH: u16 = START / 4;

/// Factor by which the possible gain of a trial must exceed its cost: a trial seldom gains all that
/// seemed possible before it.
const MIN_GAIN_FACTOR: f64 = 4.0;

/// Windows without a false match before a weaker hash is tried.
const QUIET_WINDOWS: u64 = 2;

/// Windows after which all strengths are tried anew.
const MAX_STABLE: u64 = 1000;

/// Windows over which the penalty of a settled strength is measured before it can count as moved.
const SETTLING_WINDOWS: u64 = 4;

/// Windows for which a strength that disappointed is not tried again, at first.
const FIRST_MEMORY: u64 = 16;

/// Limit of the walks of one search: two more than the longest useful alternation.
const MAX_WALKS: u32 = 8;

/// Memory of one strength.
#[derive(Debug, Clone, Copy)]
struct Memory {
    /// Nanoseconds a sample: they stay true when the estimate of a line's cost moves.
    penalty: f64,
    /// The window until which the penalty is believed, and the number of windows next time.
    until: u64,
    lasts: u64,
}

impl Memory {
    const EMPTY: Memory = Memory {
        penalty: 0.0,
        until: 0,
        lasts: FIRST_MEMORY,
    };

    fn disappoint(&mut self, now: u64) {
        self.until = now + self.lasts;
        self.lasts = (self.lasts * 2).min(MAX_STABLE);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Weaker,
    Stronger,
}

impl Direction {
    fn other(self) -> Direction {
        match self {
            Direction::Weaker => Direction::Stronger,
            Direction::Stronger => Direction::Weaker,
        }
    }

    fn step(self, from: u16, delta: u16, grain: Grain) -> u16 {
        match self {
            Direction::Weaker if grain == Grain::Rough => (from * ROUGH / START).max(1),
            Direction::Weaker => from.saturating_sub(delta).max(1),
            Direction::Stronger => (from + delta).min(PAGE_LINES),
        }
    }

    /// The strengths that lie beyond `from`.
    fn beyond(self, from: u16) -> std::ops::Range<u16> {
        match self {
            Direction::Weaker => 1..from,
            Direction::Stronger => from + 1..PAGE_LINES + 1,
        }
    }
}

/// Cost and use of a trial of another strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prospect {
    /// Indexed pages: they are read again.
    pub indexed: u64,
    /// Pages that are likely to be sampled at the strength found.
    pub pages: u64,
}

/// The precision of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grain {
    Fine,
    Coarse,
    /// Longer steps downwards, where trials are expensive.
    Rough,
}

impl Grain {
    /// The first step of a walk.
    fn first_step(self) -> u16 {
        match self {
            Grain::Fine => 1,
            Grain::Coarse | Grain::Rough => MAX_STEP,
        }
    }

    /// The least gain of a strength, in lines.
    fn margin(self) -> f64 {
        match self {
            Grain::Fine => MARGIN,
            Grain::Coarse | Grain::Rough => COARSE_MARGIN,
        }
    }
}

/// A search for the best strength: walks from the best so far, in alternating directions, until
/// two walks in a row found nothing.
#[derive(Debug, Clone)]
struct Search {
    grain: Grain,
    direction: Direction,
    /// The strength that the walk has reached, and its next step.
    at: u16,
    delta: u16,
    improved: bool,
    failed_walks: u32,
    walks: u32,
}

#[derive(Debug, Clone)]
enum SearchState {
    /// The first window, at [`START`].
    Starting,
    Searching(Search),
    Stable {
        /// Windows since the strength was settled on.
        windows: u64,
        /// Penalty when the strength had settled, in nanoseconds a sample; the present one,
        /// smoothed, is in the memory.
        reference: f64,
        quiet: u64,
    },
}

/// The control of the hash strength of one engine.
#[derive(Debug, Clone)]
pub struct StrengthControl {
    strength: u16,
    /// The best strength known; the strength itself unless a search tries another.
    best: u16,
    window: SampleCosts,
    /// Windows decided: the control's clock.
    windows: u64,
    line: LineCost,
    /// Nanoseconds that a sample cost in the last window, with the work on it.
    sample_cost: f64,
    /// Sums of false matches and of their cost, in which old ones fade.
    falses: (f64, f64),
    memory: [Memory; STRENGTHS],
    /// None if trials are free.
    prospect: Option<Prospect>,
    state: SearchState,
}

impl Default for StrengthControl {
    fn default() -> Self {
        Self::new()
    }
}

impl StrengthControl {
    /// A control without any knowledge, at [`START`].
    #[must_use]
    pub fn new() -> StrengthControl {
        StrengthControl {
            strength: START,
            best: START,
            window: SampleCosts::default(),
            windows: 0,
            line: LineCost::default(),
            sample_cost: 0.0,
            falses: (0.0, 0.0),
            memory: [Memory::EMPTY; STRENGTHS],
            prospect: None,
            state: SearchState::Starting,
        }
    }

    /// Sets cost and gain of trials from now on; None if they are free, as at first.
    pub fn expect(&mut self, prospect: Option<Prospect>) {
        self.prospect = prospect;
    }

    /// The strength to sample with, 1 to 64.
    #[must_use]
    pub fn strength(&self) -> u16 {
        self.strength
    }

    /// Whether a search for a better strength is under way.
    #[must_use]
    pub fn is_searching(&self) -> bool {
        !matches!(self.state, SearchState::Stable { .. })
    }

    /// Whether no search has begun yet.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        matches!(self.state, SearchState::Starting)
    }

    /// Nanoseconds a line, as estimated.
    #[must_use]
    pub fn line_cost(&self) -> f64 {
        self.line.nanos()
    }

    /// Benefit of the strength in lines a sample: profit less penalty, at most 63.
    #[must_use]
    pub fn benefit(&self) -> f64 {
        f64::from(PAGE_LINES) - self.loss(self.strength)
    }

    /// Samples until the window can be decided: a larger batch would only delay the answer.
    #[must_use]
    pub fn samples_wanted(&self) -> u64 {
        let full = if self.window.samples < WINDOW {
            WINDOW
        } else {
            MAX_WINDOW
        };
        full.saturating_sub(self.window.samples).max(1)
    }

    /// Takes in the costs of samples at the present strength, and returns the next strength.
    ///
    /// False matches count where they become known, which may be after the samples.
    pub fn observe(&mut self, costs: SampleCosts) -> u16 {
        self.window.add(costs);
        let samples = self.window.samples;
        if samples >= MAX_WINDOW || (samples >= WINDOW && self.is_clear()) {
            let window = std::mem::take(&mut self.window);
            self.decide(window);
        }
        self.strength
    }

    /// Searches for another strength, because samples outside of windows misled too often at the
    /// present one. Returns the next strength.
    pub fn reconsider(&mut self, costs: SampleCosts) -> u16 {
        if costs.samples == 0 || self.is_searching() {
            return self.strength;
        }
        self.window = SampleCosts::default();
        let memory = &mut self.memory[usize::from(self.strength)];
        memory.penalty = memory.penalty.max(costs.per_sample(costs.false_cost));
        self.search(Grain::Coarse, Direction::Stronger, 0);
        self.strength
    }

    /// Searches as at the start, from the present strength and without any knowledge: the old
    /// penalties are those of other memory. The cost of a line stays known.
    pub fn begin_again(&mut self) {
        self.best = self.strength;
        self.window = SampleCosts::default();
        self.memory = [Memory::EMPTY; STRENGTHS];
        self.state = SearchState::Starting;
    }

    /// Whether the window is large enough for its result. Only a trial can be unclear: when its
    /// gain is less than twice the chance error of the number of false matches.
    fn is_clear(&self) -> bool {
        if !matches!(self.state, SearchState::Searching(_)) || self.falses.0 == 0.0 {
            return true;
        }
        let penalty = self.window.per_sample(self.window.false_cost) / self.line.nanos();
        let gain = self.loss(self.best)
            - f64::from(self.strength)
            - penalty.max(self.penalty(self.strength));
        let one_match = self.falses.1 / self.falses.0 / self.line.nanos();
        let error = one_match * (self.window.false_matches as f64 + 1.0).sqrt()
            / self.window.samples as f64;
        gain.abs() > 2.0 * error
    }

    fn decide(&mut self, window: SampleCosts) {
        const FADE_FACTOR: f64 = 0.9;
        self.windows += 1;
        self.line
            .learn(self.strength, window.per_sample(window.reading));
        self.sample_cost = window.per_sample(window.sampling());
        if window.false_matches > 0 {
            self.falses.0 = self.falses.0 * FADE_FACTOR + window.false_matches as f64;
            self.falses.1 = self.falses.1 * FADE_FACTOR + window.false_cost as f64;
        }
        let penalty = window.per_sample(window.false_cost);
        match std::mem::replace(&mut self.state, SearchState::Starting) {
            SearchState::Starting => {
                self.memory[usize::from(self.strength)].penalty = penalty;
                let grain = if MIN_GAIN_FACTOR * self.trial_cost(self.trial_window())
                    > EXPENSIVE_TRIAL_LINES
                {
                    Grain::Rough
                } else if window.false_matches == 0 && f64::from(self.strength) > COARSE_MARGIN {
                    Grain::Coarse
                } else {
                    Grain::Fine
                };
                self.search(grain, Direction::Weaker, 0);
            }
            SearchState::Searching(search) => self.decide_trial(search, penalty),
            SearchState::Stable {
                windows,
                reference,
                quiet,
            } => {
                let quiet = if window.false_matches == 0 {
                    quiet + 1
                } else {
                    0
                };
                self.watch(windows + 1, reference, quiet, penalty);
            }
        }
    }

    /// Lower bound of the penalty of `strength`, in lines, by all that is known of it and of
    /// stronger ones.
    fn penalty(&self, strength: u16) -> f64 {
        (strength..=PAGE_LINES)
            .filter(|&s| s == self.best || self.memory[usize::from(s)].until > self.windows)
            .map(|s| self.memory[usize::from(s)].penalty)
            .fold(0.0, f64::max)
            / self.line.nanos()
    }

    /// Lower bound of the loss of `strength`: lines hashed and penalty.
    fn loss(&self, strength: u16) -> f64 {
        f64::from(strength) + self.penalty(strength)
    }

    /// Whether `strength` may be better than the best by more than the margin, by all that is
    /// known.
    fn may_be_better(&self, strength: u16, grain: Grain) -> bool {
        self.loss(self.best) - self.loss(strength) > grain.margin()
    }

    /// Whether `strength` may be better by enough to make a trial worth its cost.
    fn is_worth_trial(&self, strength: u16, grain: Grain) -> bool {
        // A rough search seldom reads the pages of its one trial in vain: they are indexed at the
        // strength that is kept.
        let window = match grain {
            Grain::Rough if strength < self.best => WINDOW,
            _ => self.trial_window(),
        };
        let least = grain
            .margin()
            .max(MIN_GAIN_FACTOR * self.trial_cost(window));
        self.loss(self.best) - self.loss(strength) > least
    }

    /// Samples of a trial: many where samples mislead.
    fn trial_window(&self) -> u64 {
        if self.falses.0 == 0.0 {
            WINDOW
        } else {
            MAX_WINDOW
        }
    }

    /// Cost of a trial with a window of `window` samples, in lines for each page that is likely to
    /// be sampled after it: it reads the indexed pages and the window.
    fn trial_cost(&self, window: u64) -> f64 {
        let Some(prospect) = self.prospect else {
            return 0.0;
        };
        let read = (prospect.indexed + window) as f64 / prospect.pages.max(1) as f64;
        read * self.sample_cost / self.line.nanos()
    }

    fn decide_trial(&mut self, mut search: Search, penalty: f64) {
        let tried = self.strength;
        let memory = &mut self.memory[usize::from(tried)];
        if memory.until <= self.windows {
            memory.penalty = 0.0;
        }
        // Few pages are indexed at this strength yet: its real penalty can only be higher.
        memory.penalty = memory.penalty.max(penalty);
        memory.until = self.windows + memory.lasts;
        if self.may_be_better(tried, search.grain) {
            self.best = tried;
            search.improved = true;
        } else {
            self.memory[usize::from(tried)].disappoint(self.windows);
        }
        self.walk_on(search);
    }

    fn search(&mut self, grain: Grain, direction: Direction, failed_walks: u32) {
        self.walk_on(Search {
            grain,
            direction,
            at: self.best,
            delta: grain.first_step(),
            improved: false,
            failed_walks,
            walks: 0,
        });
    }

    /// Goes to the next strength worth a trial, or settles on the best.
    fn walk_on(&mut self, mut search: Search) {
        loop {
            while search
                .direction
                .beyond(search.at)
                .any(|s| self.is_worth_trial(s, search.grain))
            {
                search.at = search.direction.step(search.at, search.delta, search.grain);
                search.delta = (search.delta * 2).min(MAX_STEP);
                if self.is_worth_trial(search.at, search.grain) {
                    self.strength = search.at;
                    self.state = SearchState::Searching(search);
                    return;
                }
            }
            search.failed_walks = if search.improved {
                0
            } else {
                search.failed_walks + 1
            };
            search.walks += 1;
            if search.failed_walks >= 2 || search.walks >= MAX_WALKS {
                break;
            }
            search.direction = search.direction.other();
            search.at = self.best;
            search.delta = search.grain.first_step();
            search.improved = false;
        }
        self.strength = self.best;
        let reference = self.memory[usize::from(self.best)].penalty;
        self.state = SearchState::Stable {
            windows: 0,
            reference,
            quiet: 0,
        };
    }

    /// Takes in one more window of the stable state. Penalties are nanoseconds a sample.
    fn watch(&mut self, windows: u64, mut reference: f64, quiet: u64, penalty: f64) {
        const SMOOTHING: f64 = 0.25;
        let here = usize::from(self.strength);
        let smooth = self.memory[here].penalty;
        let smooth = smooth + (penalty - smooth) * SMOOTHING;
        self.memory[here].penalty = smooth;
        // Stronger hashes cannot have more collisions than this one has.
        for memory in &mut self.memory[here + 1..] {
            memory.penalty = memory.penalty.min(smooth);
        }

        if windows == SETTLING_WINDOWS {
            reference = smooth;
        }
        let strength = f64::from(self.strength);
        let settled = reference / self.line.nanos();
        let benefit = (f64::from(PAGE_LINES) - strength - settled).abs();
        let loss = strength + settled;
        let moved = smooth / self.line.nanos() - settled;
        let has_moved =
            windows >= SETTLING_WINDOWS && moved.abs() > (benefit.min(loss) / 2.0).max(1.0);
        let is_worn = windows >= MAX_STABLE;
        let is_quiet = quiet >= QUIET_WINDOWS
            && Direction::Weaker
                .beyond(self.strength)
                .any(|s| self.is_worth_trial(s, Grain::Coarse));

        if is_worn {
            for memory in &mut self.memory {
                memory.until = 0;
            }
        }
        if has_moved && moved > 0.0 {
            if windows > self.memory[here].lasts {
                // The strength was good for long, so contents changed: a strength that disappointed
                // may now fit.
                for memory in &mut self.memory {
                    memory.lasts = FIRST_MEMORY;
                }
            }
            self.memory[here].disappoint(self.windows);
            self.search(Grain::Fine, Direction::Stronger, 0);
        } else if has_moved || is_worn {
            self.search(Grain::Fine, Direction::Weaker, 0);
        } else if is_quiet {
            self.search(Grain::Coarse, Direction::Weaker, 1);
        } else {
            self.state = SearchState::Stable {
                windows,
                reference,
                quiet,
            };
        }
    }
}

#[cfg(test)]
mod tests;
