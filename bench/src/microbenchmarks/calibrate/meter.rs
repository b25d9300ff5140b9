//! CPU of a piece of work of this process, without the cost of reading the clock.

use anyhow::Result;

use crate::measure::cpu::CpuClock;

/// Number of readings that measure the cost of reading the clock.
const READS: usize = 200;

/// Measures work of this process.
pub(super) struct Meter {
    clock: CpuClock,
    reading: f64,
}

impl Meter {
    /// A meter of this process.
    pub(super) fn new() -> Result<Meter> {
        let clock = CpuClock::of(std::process::id())?;
        let mut shortest = f64::INFINITY;
        for _ in 0..READS {
            let begin = clock.now()?;
            let taken = clock.now()?.saturating_sub(begin);
            shortest = shortest.min(taken.as_nanos() as f64);
        }
        Ok(Meter {
            clock,
            reading: shortest,
        })
    }

    /// Nanoseconds of CPU that one piece of work took, and its result.
    pub(super) fn once<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
        let begin = self.clock.now()?;
        let result = work()?;
        let taken = self.clock.now()?.saturating_sub(begin);
        Ok(((taken.as_nanos() as f64 - self.reading).max(0.0), result))
    }

    /// The mean of `times` pieces of work, numbered from 0.
    pub(super) fn mean<T>(
        &self,
        times: usize,
        mut work: impl FnMut(usize) -> Result<T>,
    ) -> Result<f64> {
        let mut sum = 0.0;
        for number in 0..times {
            sum += self.once(|| work(number))?.0;
        }
        Ok(sum / times as f64)
    }
}
