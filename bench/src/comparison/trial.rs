//! One variant against one workload, watched until the memory is merged.
//!
//! The workload is mapped and filled before the clock starts, so a variant is charged for all its
//! own work from then on and for no other work.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use uksm_results::Outcome;
use uksm_results::interval::bounds;
use uksm_results::report::{Measured, Window};
use uksm_results::timeline::{Look, Timeline, nearest_median};

use super::watch::Watch;
use crate::setup::Setup;
use crate::variants::{System, Variant, ksm};
use crate::workload::{Process, Spec, mergeable_mib};

/// A variant stays watched for this long after 95 %, to see its further progress.
const AFTERWARDS: Duration = Duration::from_millis(1500);

/// A look that saw nothing.
const NOTHING: Look = Look {
    seconds: 0.0,
    cpu_seconds: 0.0,
    saved_mib: 0.0,
    mapped_mib: 0.0,
};

/// A variant and its workload.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    /// The system and its setting.
    pub variant: Variant,
    /// Size or order, if there are several.
    pub case: String,
    /// The workload.
    pub specs: Vec<Spec>,
    /// Its time limit.
    pub limit: Duration,
    /// Limit of the runs of this variant, if one is long.
    pub max_runs: usize,
}

/// The results of one run.
#[derive(Debug, Clone)]
pub(crate) struct TrialResult {
    /// All looks.
    pub looks: Timeline,
    /// MiB that merging everything would save.
    pub mergeable_mib: f64,
    /// Pages found unchanged afterwards.
    pub verified_pages: u64,
    /// Largest memory of the daemon.
    pub own_mib: f64,
    /// The system's own counters.
    pub counters: Option<Value>,
    /// The parts of its CPU.
    pub figures: BTreeMap<String, f64>,
    /// The part whose instructions were counted by function.
    pub window: Option<Window>,
}

impl TrialResult {
    /// The moment at which 95 % of the mergeable memory was merged.
    pub(crate) fn at_95(&self) -> Option<Look> {
        self.looks
            .reaches(0.95 * self.mergeable_mib)
            .filter(|_| self.mergeable_mib > 0.0)
    }

    /// The last look.
    pub(crate) fn last_look(&self) -> Look {
        self.looks.last().unwrap_or(NOTHING)
    }

    /// Adds the CPU and the time of merging half of the mergeable memory, if it came so far.
    pub(crate) fn add_half(&mut self) {
        if let Some(half) = self.looks.reaches(self.mergeable_mib / 2.0) {
            self.figures
                .insert("half_cpu_seconds".to_owned(), half.cpu_seconds);
            self.figures.insert("half_seconds".to_owned(), half.seconds);
        }
    }

    /// Its outcome.
    pub(super) fn outcome(&self) -> Outcome {
        let judged = self.judged();
        Outcome {
            mib_per_cpu_second: if judged.cpu_seconds > 0.0 {
                judged.saved_mib / judged.cpu_seconds
            } else {
                0.0
            },
            reached_seconds: self.at_95().map(|look| look.seconds),
        }
    }

    /// The same, or the end.
    pub(crate) fn judged(&self) -> Look {
        self.at_95().unwrap_or_else(|| self.last_look())
    }
}

/// The mean of each figure of these runs, with the bounds of its interval.
pub(crate) fn mean_figures(runs: &[TrialResult]) -> BTreeMap<String, f64> {
    let mut means = BTreeMap::new();
    for name in runs.first().into_iter().flat_map(|run| run.figures.keys()) {
        let values = runs.iter().filter_map(|run| run.figures.get(name).copied());
        let values: Vec<f64> = values.collect();
        let ends = bounds(&values).into_iter();
        means.extend(ends.map(|(end, value)| (format!("{name}{end}"), value)));
    }
    means
}

/// Starts the processes of a workload, in order, and waits until they are filled.
pub(crate) fn start_workload(
    specs: &[Spec],
    variant: &Variant,
    setup: &Setup,
) -> Result<Vec<Process>> {
    let mut processes = Vec::new();
    for spec in specs {
        let spec = Spec {
            mergeable: variant.needs_mergeable(),
            huge: setup.huge,
            ..spec.clone()
        };
        // One after the other: in-kernel KSM visits them in the order in which they offered.
        let mut process = Process::start(&spec)?;
        process.ready()?;
        processes.push(process);
    }
    Ok(processes)
}

/// Runs one variant once.
pub(crate) fn run(trial: &Trial, setup: &Setup) -> Result<TrialResult> {
    let target = mergeable_mib(&trial.specs)?;
    let processes = start_workload(&trial.specs, &trial.variant, setup)?;
    let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
    let mut watch = Watch::of_parts(&trial.specs, &pids, setup)?;
    watch.open_window(target, Duration::ZERO);
    watch.begin()?;
    let mut system = trial.variant.start(setup, &pids)?;
    trial.watch(&mut watch, system.as_mut(), target)?;
    let run = end(trial, system, watch, processes, target)?;
    trial.print_progress(&run);
    Ok(run)
}

/// Ends a run: stops the system and makes every process read its memory.
pub(crate) fn end(
    trial: &Trial,
    system: Box<dyn System>,
    watch: Watch,
    mut processes: Vec<Process>,
    mergeable_mib: f64,
) -> Result<TrialResult> {
    end_after(trial, system, watch, mergeable_mib, move || {
        processes.iter_mut().map(Process::verify).sum()
    })
}

/// The same with other processes: `verify` has them, and counts the pages that it finds unchanged.
pub(crate) fn end_after(
    trial: &Trial,
    mut system: Box<dyn System>,
    mut watch: Watch,
    mergeable_mib: f64,
    verify: impl FnOnce() -> Result<u64>,
) -> Result<TrialResult> {
    let window = watch.close_window(system.as_ref())?;
    let (counters, figures) = (system.report(), watch.figures(system.as_ref())?);
    system.stop().with_context(|| trial.label())?;
    let verified_pages = verify().with_context(|| trial.label())?;
    drop(system);
    ksm::settle()?;
    Ok(TrialResult {
        own_mib: watch.own_mib,
        looks: watch.looks,
        mergeable_mib,
        verified_pages,
        counters,
        figures,
        window,
    })
}

impl Trial {
    /// The same with the contents of another round.
    pub(crate) fn in_round(&self, round: usize) -> Trial {
        let shift = |spec: &Spec| Spec {
            seed: spec.seed.wrapping_add(round as u64),
            ..spec.clone()
        };
        Trial {
            specs: self.specs.iter().map(shift).collect(),
            ..self.clone()
        }
    }

    /// Limit of the rounds in which it runs: if ratios must be certain, variants with several runs
    /// run as often as that takes.
    pub(super) fn max_rounds(&self, setup: &Setup) -> usize {
        if setup.within.is_some() && self.max_runs > 1 {
            setup.max_repeats
        } else {
            self.max_runs
        }
    }

    /// Its name in messages.
    fn label(&self) -> String {
        format!("{} {}", self.variant.name, self.case)
    }

    /// Prints the progress of a run.
    pub(crate) fn print_progress(&self, run: &TrialResult) {
        let judged = run.judged();
        println!(
            "{}: {:.1} of {:.1} MiB after {:.2} s, {:.3} s CPU",
            self.label(),
            judged.saved_mib,
            run.mergeable_mib,
            judged.seconds,
            judged.cpu_seconds
        );
    }

    /// Looks until the memory is merged, or until the time of the variant is over.
    pub(crate) fn watch(
        &self,
        watch: &mut Watch,
        system: &mut dyn System,
        target: f64,
    ) -> Result<()> {
        let mut reached = None;
        while watch.elapsed() < self.limit {
            let look = watch.look(system)?;
            if look.saved_mib >= 0.95 * target {
                let since = *reached.get_or_insert_with(Instant::now);
                if since.elapsed() > AFTERWARDS || look.saved_mib >= 0.999 * target {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The result of all runs: the median one by CPU.
    pub(crate) fn measured(&self, mut runs: Vec<TrialResult>) -> Measured {
        let cpu: Vec<f64> = runs.iter().map(|run| run.judged().cpu_seconds).collect();
        let outcomes = runs.iter().map(TrialResult::outcome).collect();
        let windows = runs.iter().filter_map(|run| run.window.clone()).collect();
        let Some(at) = nearest_median(&cpu) else {
            return Measured::default();
        };
        let run = runs.swap_remove(at);
        let judged = run.judged();
        Measured {
            name: self.variant.name.clone(),
            case: self.case.clone(),
            wall_seconds: judged.seconds,
            cpu_seconds: judged.cpu_seconds,
            saved_mib: run.looks.last().map_or(0.0, |look| look.saved_mib),
            mergeable_mib: run.mergeable_mib,
            finished: run.at_95().is_some(),
            seconds_to_95_percent: run.at_95().map(|look| look.seconds),
            mib_per_cpu_second: run.outcome().mib_per_cpu_second,
            verified_pages: run.verified_pages,
            daemon_mib: run.own_mib,
            cpu_seconds_of_runs: cpu,
            outcomes,
            looks: run.looks,
            counters: run.counters,
            figures: run.figures,
            windows,
            ..Measured::default()
        }
    }
}
