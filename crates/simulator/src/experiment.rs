//! Experiments: workloads, deduplicators, and the goal of each case.
//!
//! # Problem
//! The figures must be the same each time, and comparable with those of the guest experiments.
//!
//! # Approach
//! An experiment is a list of cases. Each case is run once for each of its variants, on a host of
//! its own made from the same seed. A case ends when the wanted share is merged, or after its time.

mod boots;
mod case;
mod crowd;
mod hints;
mod idle;
mod measurable;
mod measure;
mod mixed;
mod reachability;
mod realism;
mod scale;
mod scatter;
mod setup;

use uksm_policy::params::Governor;
use uksm_results::report::{Report, SIMULATED};

pub use case::Indexed;
use case::{Case, Variant};
use measure::CaseResult;
pub use reachability::reachability;
pub use scatter::Custom;
pub use setup::Setup;

/// One experiment.
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// The question that it answers.
    pub question: &'static str,
    cases: fn(u64) -> Vec<Case>,
    /// Adds a comparison of variants.
    compare: fn(&mut Report),
}

/// All experiments.
pub const EXPERIMENTS: [Experiment; 8] = [
    Experiment {
        name: "scatter",
        question: "How soon is what is merged that lies anywhere?",
        cases: scatter::cases,
        compare: with_full,
    },
    Experiment {
        name: "crowd",
        question: "How soon are two newcomers merged among idle processes?",
        cases: crowd::cases,
        compare: with_full,
    },
    Experiment {
        name: "idle",
        question: "What does it cost to watch processes that do nothing?",
        cases: idle::cases,
        compare: with_full,
    },
    Experiment {
        name: "scale",
        question: "Does a GiB cost the same on a large host as on a small one?",
        cases: scale::cases,
        compare: with_full,
    },
    Experiment {
        name: "boots",
        question: "How much is saved while guests boot one after the other?",
        cases: boots::cases,
        compare: with_full,
    },
    Experiment {
        name: "mixed",
        question: "What do the other workloads cost and save?",
        cases: mixed::cases,
        compare: with_full,
    },
    Experiment {
        name: "hints",
        question: "What is shared over time of what I/O brings into guests' page caches?",
        cases: hints::cases,
        compare: hints::compare,
    },
    Experiment {
        name: "realism",
        question: "What do the workloads of guest experiments cost and save here?",
        cases: realism::cases,
        compare: with_full,
    },
];

/// Compares uksm at the full governor with all others.
fn with_full(report: &mut Report) {
    report.compare("uksm-full");
}

/// A case and one of its variants, run by one thread.
struct Task<'a> {
    case: &'a Case,
    variant: Variant,
}

impl Experiment {
    /// The experiment of a name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<&'static Experiment, String> {
        let found = EXPERIMENTS.iter().find(|one| one.name == name);
        found.ok_or_else(|| {
            let known = EXPERIMENTS.each_ref().map(|one| one.name).join(", ");
            format!("no experiment '{name}'; there are {known}")
        })
    }

    /// Runs the experiment, on several threads at once, and reports its progress to `progress`.
    ///
    /// # Errors
    /// Parameters that the engine does not accept, and names that match nothing.
    pub fn run(
        &self,
        setup: &Setup,
        threads: usize,
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Report, String> {
        for governor in Governor::ALL {
            setup.params(governor, &[])?;
        }
        let cases = match setup.layout {
            None => (self.cases)(setup.seed),
            Some(layout) if self.name == "scatter" => vec![scatter::custom(layout, setup.seed)],
            Some(_) => return Err(format!("{} takes no layout, scatter does", self.name)),
        };
        let wanted = |name: &str| setup.cases.as_ref().is_none_or(|part| name.contains(part));
        let mut tasks = vec![];
        for case in cases.iter().filter(|case| wanted(&case.name)) {
            let chosen = case.variants.iter().filter(|variant| {
                setup.variants.is_empty() || setup.variants.contains(&variant.name())
            });
            tasks.extend(chosen.map(|&variant| Task { case, variant }));
        }
        if tasks.is_empty() {
            let known: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
            return Err(format!(
                "no case and variant of these names; cases are: {}",
                known.join(", ")
            ));
        }
        let mut report = Report {
            experiment: self.name.to_owned(),
            kernel: SIMULATED.to_owned(),
            accel: setup.costs_name.clone(),
            seed: setup.seed,
            ..Report::default()
        };
        for case in in_parallel(&tasks, setup, threads, progress)? {
            report.memory_mib = report.memory_mib.max(case.memory_mib);
            report.variants.push(case.measured);
        }
        (self.compare)(&mut report);
        Ok(report)
    }
}

/// Runs all tasks; the results are in the order of the tasks.
fn in_parallel(
    tasks: &[Task<'_>],
    setup: &Setup,
    threads: usize,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Vec<CaseResult>, String> {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let work = || {
        let mut results = vec![];
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(at) else {
                return Ok(results);
            };
            let mut result = measure::measure(setup, task.case, task.variant)?;
            for _ in 1..setup.times {
                let again = measure::measure(setup, task.case, task.variant)?;
                let [first, other] = [&result.measured, &again.measured];
                if other.figures != first.figures || other.looks != first.looks {
                    return Err(format!("{}: another result each time", task.case.name));
                }
                result.real.again(&again.real);
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            let figures = &result.measured;
            progress(&format!(
                "[{done}/{}] {}, {}: {:.1} MiB of {:.1} after {:.2} s; {}",
                tasks.len(),
                figures.case,
                figures.name,
                figures.saved_mib,
                figures.mergeable_mib,
                figures.wall_seconds,
                result.real,
            ));
            results.push((at, result));
        }
    };
    let finished: Vec<Result<Vec<_>, String>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut results = vec![];
    for part in finished {
        results.extend(part?);
    }
    results.sort_by_key(|&(at, _)| at);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
