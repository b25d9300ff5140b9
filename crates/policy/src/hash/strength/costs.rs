//! What a strength is judged by: the cost of samples, and how often they misled.

use crate::command::Nanos;

/// What samples cost and how often they misled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleCosts {
    /// Pages sampled.
    pub samples: u64,
    /// What the calls that read them cost, which more or fewer lines change.
    pub reading: Nanos,
    /// What the work on them cost.
    pub work: Nanos,
    /// Pages that were compared because hashes were equal, and whose contents were not.
    pub false_matches: u64,
    /// What those cost: their comparisons, and merges that were lost by them.
    pub false_cost: Nanos,
}

impl SampleCosts {
    /// What sampling them cost.
    pub(crate) fn sampling(&self) -> Nanos {
        self.reading.saturating_add(self.work)
    }

    /// These come on top.
    pub(super) fn add(&mut self, more: SampleCosts) {
        self.samples = self.samples.saturating_add(more.samples);
        self.reading = self.reading.saturating_add(more.reading);
        self.work = self.work.saturating_add(more.work);
        self.false_matches = self.false_matches.saturating_add(more.false_matches);
        self.false_cost = self.false_cost.saturating_add(more.false_cost);
    }

    /// The same, with false matches that cost so many times as much.
    pub(crate) fn weighted(self, times: u64) -> SampleCosts {
        SampleCosts {
            false_cost: self.false_cost.saturating_mul(times),
            ..self
        }
    }

    /// All of it counts half from now on.
    pub(crate) fn halve(&mut self) {
        self.samples /= 2;
        self.reading /= 2;
        self.work /= 2;
        self.false_matches /= 2;
        self.false_cost /= 2;
    }

    /// So much of all samples is this much of one.
    pub(super) fn per_sample(&self, total: u64) -> f64 {
        total as f64 / self.samples as f64
    }
}
