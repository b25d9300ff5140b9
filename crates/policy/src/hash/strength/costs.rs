//! The measures by which a strength is judged: the cost of samples, and their false matches.

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
