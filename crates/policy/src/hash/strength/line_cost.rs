//! What a line costs to hash.

/// The cost of a line, from the differences of what it costs to read a page at different strengths.
///
/// That also depends on where the pages lie, which differs from window to window, so only
/// neighbouring windows are compared, large steps count more (least squares), and the estimate
/// leans on a guess from the cost itself until enough steps were seen. The work on what was read is
/// left out: it differs from window to window by more than lines cost (docs/decisions/0046).
#[derive(Debug, Clone, Default)]
pub(super) struct LineCost {
    last: Option<(u16, f64)>,
    /// Sums over steps of step times difference of cost, and of step squared.
    moments: (f64, f64),
}

impl LineCost {
    /// Lines that it costs to read a page without any line: the guess, and its bound.
    const GUESSED_BASE: f64 = 8.0;
    const MAX_BASE: f64 = 128.0;
    /// The guess weighs as much as one step of four lines.
    const GUESS_WEIGHT: f64 = 16.0;
    const FORGET: f64 = 0.9;

    /// To read a page at this strength costs so many nanoseconds now.
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
