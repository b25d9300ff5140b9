//! Real time of simulating on this machine.
//!
//! # Problem
//! All times of a run are simulated, so they do not measure the code that runs in it. That no step
//! of the policy delays the rest for long is a claim about that code and real caches.
//!
//! # Approach
//! The processor time of each step is measured, and the long ones are kept. They are printed during
//! an experiment and are no part of its result, which has the same bytes each time. A machine that
//! is virtual, or busy, makes some steps look long. So a run can be repeated: it has the same steps
//! again, and for each the shortest time counts.
//!
//! # Units
//! Nanoseconds of processor time of the thread.

use std::collections::BTreeMap;
use std::fmt;

use rustix::time::{ClockId, clock_gettime};
use uksm_policy::command::{Nanos, Observation};

use crate::convert;

/// Steps that took less are not kept.
const SHORT: Nanos = 2_000_000;

/// Times of the steps of an engine.
#[derive(Debug, Clone, Default)]
pub struct Steps {
    /// Number of steps.
    pub count: u64,
    /// Steps that were not short, by their number: the name of the processed answer, and the time.
    long: BTreeMap<u64, (&'static str, Nanos)>,
    /// All steps, if they are to be kept.
    kept: Option<Vec<StepRecord>>,
}

/// One step of an engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StepRecord {
    /// Pages of the processed SAMPLE.
    pub(crate) sampled: u64,
    /// Runs of these pages.
    pub(crate) runs: u64,
    /// Pages that were already merged.
    pub(crate) merged: u64,
    /// Outcomes of the processed FOLD.
    pub(crate) folded: u64,
    /// Time of the step.
    pub(crate) time: Nanos,
}

impl Steps {
    /// Keeps each step from now on.
    pub(crate) fn keep(&mut self) {
        self.kept = Some(vec![]);
    }

    /// The steps that were kept.
    pub(crate) fn kept(&mut self) -> Vec<StepRecord> {
        self.kept.take().unwrap_or_default()
    }

    /// Adds a step, which processed an answer of this name.
    pub(crate) fn took(&mut self, what: &'static str, step: StepRecord) {
        self.count += 1;
        if step.time > SHORT {
            self.long.insert(self.count, (what, step.time));
        }
        if let Some(kept) = &mut self.kept {
            kept.push(step);
        }
    }

    /// Keeps the shorter time of each step after a repetition.
    fn again(&mut self, other: &Steps) {
        self.long.retain(|number, (_, time)| {
            let again = other.long.get(number);
            again.is_some_and(|&(_, again)| {
                *time = again.min(*time);
                true
            })
        });
    }

    /// The longest step that was not short: the name of the processed answer, and the time.
    #[must_use]
    pub fn longest(&self) -> Option<(&'static str, Nanos)> {
        self.long.values().copied().max_by_key(|&(_, time)| time)
    }
}

/// Times of a run on the machine that simulated it.
#[derive(Debug, Clone, Default)]
pub struct Real {
    /// Processor time of all of it, workload and checks included.
    pub seconds: f64,
    /// The engine's steps, where there is an engine.
    pub steps: Option<Steps>,
}

impl Real {
    /// Keeps the shorter times after a repetition.
    pub(crate) fn again(&mut self, other: &Real) {
        self.seconds = self.seconds.min(other.seconds);
        if let (Some(steps), Some(other)) = (&mut self.steps, &other.steps) {
            steps.again(other);
        }
    }
}

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s to simulate", self.seconds)?;
        let Some(steps) = &self.steps else {
            return Ok(());
        };
        let rate = steps.count as f64 / 1e6 / (self.seconds / 60.0);
        write!(f, ", {rate:.2} million steps a minute, ")?;
        match steps.longest() {
            Some((what, time)) => {
                let milliseconds = convert::seconds(time) * 1e3;
                write!(f, "the longest {milliseconds:.1} ms ({what})")
            }
            None => f.write_str("each below 2 ms"),
        }
    }
}

/// Processor time of this thread.
pub(crate) fn thread_time() -> Nanos {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let part = |part: i64| Nanos::try_from(part).expect("processor time is not negative");
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// The name of an answer.
pub(crate) fn name(observation: &Observation) -> &'static str {
    match observation {
        Observation::Started => "the start",
        Observation::Processes { .. } => "processes",
        Observation::Sizes(_) => "sizes",
        Observation::Mappings { .. } => "mappings",
        Observation::Unread { .. } => "unread mappings",
        Observation::Sampled(_) => "samples",
        Observation::Folded(_) => "merges",
        Observation::Frames { .. } => "frames",
        Observation::GivenBack { .. } => "pages given back",
        Observation::NoMemory(_) => "no memory",
        Observation::Hints { .. } => "hints",
        Observation::Woke
        | Observation::MemoryIsShort
        | Observation::EventsArrived
        | Observation::HintsArrived => "waking",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_run_that_is_repeated_each_step_counts_with_its_shortest_time() {
        let run = |times: [Nanos; 3]| {
            let mut steps = Steps::default();
            for time in times {
                let step = StepRecord {
                    sampled: 1,
                    runs: 1,
                    merged: 0,
                    folded: 0,
                    time: time * 1_000_000,
                };
                steps.took("samples", step);
            }
            Real {
                seconds: 1.0,
                steps: Some(steps),
            }
        };
        let mut real = run([9, 1, 5]);
        assert!(real.to_string().contains("longest 9.0 ms (samples)"));
        real.again(&run([1, 8, 4]));
        assert!(real.to_string().contains("longest 4.0 ms"), "{real}");
        real.again(&run([1, 8, 1]));
        assert!(real.to_string().contains("each below 2 ms"), "{real}");
    }
}
