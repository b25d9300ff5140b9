//! The cost of a page, a moving average from calls of many pages.
//!
//! # Units
//! Nanoseconds a page, at most a millisecond.

use crate::command::Nanos;
use crate::convert;

/// Upper bound of the cost of a page.
const MAX_COST_NS: f64 = 1e6;

/// The average.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageCost {
    each: f64,
    least: f64,
    memory: f64,
}

impl PageCost {
    /// A page is assumed to cost `first`, and never less than `least`. A call of `memory` pages
    /// counts as much as all before it.
    pub(crate) fn new(first: f64, least: f64, memory: f64) -> PageCost {
        PageCost {
            each: first,
            least,
            memory,
        }
    }

    /// The cost of one page.
    pub(crate) fn each(&self) -> f64 {
        self.each
    }

    /// `pages` cost this much together. A call of no pages changes nothing.
    pub(crate) fn measured(&mut self, pages: u64, cost: Nanos) {
        if pages == 0 {
            return;
        }
        let pages = convert::float(pages);
        let each = convert::float(cost) / pages;
        let weight = pages / (pages + self.memory);
        self.each = (self.each + (each - self.each) * weight).clamp(self.least, MAX_COST_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_calls_tell_nearly_all_and_bounds_hold() {
        let mut cost = PageCost::new(1000.0, 20.0, 500.0);
        cost.measured(0, 1 << 40);
        assert_eq!(cost.each(), 1000.0);
        cost.measured(500, 500 * 3000);
        assert_eq!(cost.each(), 2000.0);
        cost.measured(1 << 40, 0);
        assert_eq!(cost.each(), 20.0);
        cost.measured(1, u64::MAX);
        assert_eq!(cost.each(), 1e6);
    }
}
