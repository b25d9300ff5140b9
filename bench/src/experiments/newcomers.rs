//! Memory that is filled while the system is calm.
//!
//! # Problem
//! A daemon, or ksmd, that has had nothing to do for a minute looks around less often.
//!
//! # Approach
//! The system starts first, and gets time. Then new processes are filled, or processes that exist
//! from the start are. Wall time counts from the moment at which the last one is filled: merges
//! during filling only shorten it. CPU counts from before the first one is, so that no work is
//! free.

use std::time::{Duration, Instant};

use anyhow::Result;
use uksm_results::timeline::median;

use crate::comparison::trial::{Trial, TrialResult, end, start_workload};
use crate::comparison::watch::Watch;
use crate::setup::Setup;
use crate::variants::System;
use crate::workload::{Behaviour, Part, Process, Spec, mergeable_mib};

/// Time between two adjustments of the system while it is calm.
const STEP: Duration = Duration::from_secs(1);

/// The source of memory after the calm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Newcomers {
    /// Processes start.
    Started,
    /// Processes fill memory that they mapped before.
    Filled,
}

/// Runs one variant once.
pub(super) fn run(trial: &Trial, newcomers: Newcomers, setup: &Setup) -> Result<TrialResult> {
    let target = mergeable_mib(&trial.specs)?;
    let waiting = waiting(&trial.specs);
    let start = || start_workload(&waiting, &trial.variant, setup);
    let mut processes = match newcomers {
        Newcomers::Started => Vec::new(),
        Newcomers::Filled => start()?,
    };
    let known: Vec<u32> = processes.iter().map(Process::pid).collect();
    let mut system = trial.variant.start(setup, &known)?;
    rest(system.as_mut(), setup.calm())?;
    if newcomers == Newcomers::Started {
        processes = start()?;
    }
    let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
    let mut watch = Watch::of_parts(&trial.specs, &pids, setup)?;
    fill_and_watch(trial, system.as_mut(), &mut processes, &mut watch, target)?;
    let run = end(trial, system, watch, processes, target)?;
    trial.print_progress(&run);
    Ok(run)
}

/// The same processes, which map their memory and wait before they fill it.
pub(super) fn waiting(specs: &[Spec]) -> Vec<Spec> {
    let waits = |part: &Part| part.with(Behaviour::Appears);
    specs
        .iter()
        .map(|spec| Spec {
            parts: spec.parts.iter().map(waits).collect(),
            ..spec.clone()
        })
        .collect()
}

/// Leaves a system without work.
pub(super) fn rest(system: &mut dyn System, calm: Duration) -> Result<()> {
    let begin = Instant::now();
    while let Some(left) = calm
        .checked_sub(begin.elapsed())
        .filter(|left| !left.is_zero())
    {
        std::thread::sleep(left.min(STEP));
        system.adjust()?;
    }
    Ok(())
}

/// Fills the waiting memory of these processes, and watches until it is merged.
pub(super) fn fill_and_watch(
    trial: &Trial,
    system: &mut dyn System,
    processes: &mut [Process],
    watch: &mut Watch,
    target: f64,
) -> Result<()> {
    let before = system.cpu()?;
    watch.open_window(target, before);
    for process in processes {
        process.appear()?;
    }
    watch.begin()?;
    trial.watch(watch, system, target)?;
    for look in watch.looks.0.iter_mut().skip(1) {
        look.cpu_seconds -= before.as_secs_f64();
    }
    Ok(())
}

/// The seconds until 90 % of the mergeable memory was merged: infinity if never.
pub(super) fn seconds_to_90(run: &TrialResult) -> f64 {
    run.looks
        .reaches(0.9 * run.mergeable_mib)
        .map_or(f64::INFINITY, |look| look.seconds)
}

/// Median and longest of the times to 90 %, if that was reached. `suffix` ends their names.
pub(super) fn times_to_90(seconds: &[f64], suffix: &str) -> Vec<(String, f64)> {
    let longest = seconds.iter().copied().reduce(f64::max);
    let named = [
        ("seconds_to_90_percent", median(seconds)),
        ("longest_seconds_to_90_percent", longest),
    ];
    named
        .into_iter()
        .filter_map(|(name, seconds)| Some((format!("{name}{suffix}"), seconds?)))
        .filter(|(_, seconds)| seconds.is_finite())
        .collect()
}
