//! The measures by which a strength is judged: the cost of samples, their false matches, and the
//! cost of hashing a line.

use crate::command::Nanos;

/// Costs and false matches of a number of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleCosts {
    /// Pages sampled.
    pub samples: u64,
    /// Cost of the calls that read them, which depends on the number of lines.
    pub reading: Nanos,
    /// Cost of the work on them.
    pub work: Nanos,
    /// Pages that were compared because hashes were equal, and whose contents differed.
    pub false_matches: u64,
    /// Cost of the false matches: their comparisons, and the merges lost by them.
    pub false_cost: Nanos,
}

impl SampleCosts {
    /// Cost of sampling: reading and work.
    pub(crate) fn sampling(&self) -> Nanos {
        self.reading.saturating_add(self.work)
    }

    /// Adds further samples.
    pub(super) fn add(&mut self, more: SampleCosts) {
        self.samples = self.samples.saturating_add(more.samples);
        self.reading = self.reading.saturating_add(more.reading);
        self.work = self.work.saturating_add(more.work);
        self.false_matches = self.false_matches.saturating_add(more.false_matches);
        self.false_cost = self.false_cost.saturating_add(more.false_cost);
    }

    /// The same samples, with a false cost of `times` as much.
    pub(crate) fn weighted(self, times: u64) -> SampleCosts {
        SampleCosts {
            false_cost: self.false_cost.saturating_mul(times),
            ..self
        }
    }

    /// Halves the weight of all samples.
    pub(crate) fn halve(&mut self) {
        self.samples /= 2;
        self.reading /= 2;
        self.work /= 2;
        self.false_matches /= 2;
        self.false_cost /= 2;
    }

    /// The part of `total` per sample.
    pub(super) fn per_sample(&self, total: u64) -> f64 {
        total as f64 / self.samples as f64
    }
}

/// The cost of a line, from the differences between the costs of reading a page at different
/// strengths.
///
/// These costs also depend on the places of the pages, which differ from window to window, so only
/// neighbouring windows are compared, large steps count more (least squares), and the estimate
/// leans on a guess from the cost itself until it has seen enough steps. The work on the pages is
/// left out: it differs from window to window by more than the cost of lines (docs/decisions/0046).
#[derive(Debug, Clone, Default)]
pub(super) struct LineCost {
    last: Option<(u16, f64)>,
    /// Sums over steps of step times difference of cost, and of step squared.
    moments: (f64, f64),
}

impl LineCost {
    /// Cost of reading a page without hashing any line, in lines: the guess, and its bound.
    const GUESSED_BASE: f64 = 8.0;
    const MAX_BASE: f64 = 128.0;
    /// The guess weighs as much as one step of four lines.
    const GUESS_WEIGHT: f64 = 16.0;
    const FORGET: f64 = 0.9;

    /// Reading a page at this strength costs `cost` nanoseconds now.
    pub(super) fn learn(&mut self, strength: u16, cost: f64) {
        if let Some((before, cost_before)) = self.last
            && before != strength
        {
            let step = f64::from(strength) - f64::from(before);
            self.moments.0 = self.moments.0 * Self::FORGET + step * (cost - cost_before);
            self.moments.1 = self.moments.1 * Self::FORGET + step * step;
        }
        self.last = Some((strength, cost));
    }

    /// Nanoseconds a line, above 0.
    pub(super) fn nanos(&self) -> f64 {
        let Some((strength, cost)) = self.last else {
            return 1.0;
        };
        let (strength, cost) = (f64::from(strength), cost.max(1e-3));
        let guess = cost / (strength + Self::GUESSED_BASE);
        let fitted =
            (self.moments.0 + Self::GUESS_WEIGHT * guess) / (self.moments.1 + Self::GUESS_WEIGHT);
        fitted.clamp(cost / (strength + Self::MAX_BASE), cost / strength)
    }
}
