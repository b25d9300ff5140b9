//! Many seeds, on several threads.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use uksm_policy::command::Nanos;

use super::plan::Plan;
use super::run_of_plan::{Outcome, run};
use crate::check::Violation;
use crate::fault::Fault;

/// The outcome of many seeds.
#[derive(Debug, Clone, Default)]
pub struct Swarm {
    /// Seeds run.
    pub seeds: u64,
    /// Steps of all engines.
    pub steps: u64,
    /// Pages merged.
    pub merged: u64,
    /// The number of strikes of each fault.
    pub fired: Vec<(Fault, u64)>,
    /// The longest wait of a duplicate, and its seed.
    pub longest_wait: (Nanos, u64),
    /// The lowest failed seed, the time, and the violation.
    pub failed: Option<(u64, Nanos, Violation)>,
}

impl Swarm {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.steps += outcome.steps;
        self.merged += outcome.merged;
        self.longest_wait = self.longest_wait.max((outcome.longest_wait, seed));
        if self.fired.is_empty() {
            self.fired = outcome.fired;
        } else {
            for (sum, (_, count)) in self.fired.iter_mut().zip(outcome.fired) {
                sum.1 += count;
            }
        }
        let is_lower = self
            .failed
            .as_ref()
            .is_none_or(|(lowest, ..)| seed < *lowest);
        if let Some((at, violation)) = outcome.failed.filter(|_| is_lower) {
            self.failed = Some((seed, at, violation));
        }
    }

    /// Faults that never struck.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let never = self.fired.iter().filter(|(_, count)| *count == 0);
        never.map(|(fault, _)| fault.name()).collect()
    }

    /// The counts of all faults, in one line.
    #[must_use]
    pub fn counts(&self) -> String {
        let counts = self.fired.iter();
        let counts: Vec<String> = counts.map(|(f, n)| format!("{} {n}", f.name())).collect();
        counts.join(", ")
    }
}

/// Runs all seeds of a range, or ends soon after one failed. `progress` gets the number done.
///
/// # Panics
/// If a thread cannot be joined.
#[must_use]
pub fn swarm(seeds: Range<u64>, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Swarm {
    let next = AtomicU64::new(seeds.start);
    let sum = Mutex::new(Swarm::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let outcome = run(&Plan::of(seed));
            let mut sum = sum.lock().expect("no thread panics with the sum");
            sum.add(seed, outcome);
            let done = sum.seeds;
            let is_over = sum.failed.is_some();
            drop(sum);
            progress(done);
            if is_over {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    sum.into_inner().expect("no thread panics with the sum")
}
