//! crowd: two newcomers with the same pages, among thousands of idle processes or in a storm.
//!
//! The daemon may merge every process of the host. When it has settled, its CPU is measured for
//! `--calm` seconds: the cost of a crowd without mergeable pages. Then pairs of processes start,
//! one pair after the other, and fill 64 MiB with the same distinct pages. The figure is the time
//! from then to 90 % merged, median and longest of the pairs, for each governor and crowd. In a
//! storm 200 processes start each second and live for 0.2 s; the daemon's CPU is measured for 20 s,
//! and the pairs start while the storm goes on. The additional time compared with the same boot and
//! governor without a storm is its delay. KSM serves only memory that is offered to it, so it knows
//! of no crowd: it runs once, with the smallest.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use uksm_policy::params::Governor;
use uksm_results::report::{Measured, Report};

use super::newcomers::{fill_and_watch, rest, seconds_to_90, times_to_90, waiting};
use crate::comparison::trial::{Trial, TrialResult, start_workload};
use crate::comparison::watch::Watch;
use crate::setup::Setup;
use crate::variants::{System, Variant, ksm};
use crate::workload::{Contents, Crowd, Part, Process, Spec, Storm, Wind, mergeable_mib};

/// Idle processes, if no number is given.
const CROWDS: [usize; 3] = [10, 400, 3000];

/// Time for the first examination of the crowd.
const SETTLE: Duration = Duration::from_secs(30);
/// Time that a pair of newcomers stays after it is merged. A pair that ends sooner is short-lived,
/// which makes a daemon leave the next one alone for some seconds (UKSM §5.2).
const STAY: Duration = Duration::from_secs(5);

/// The storm, and its duration before the newcomers come.
const STORM: Wind = Wind {
    rate: 200,
    life: Duration::from_millis(200),
};
const STORM_WATCHED: Duration = Duration::from_secs(20);

/// The name of the case with a storm, and of the case that it is compared with.
const IN_STORM: &str = "storm";
const IDLE: &str = "idle";

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("crowd")?;
    let size = setup.size_or(64);
    for case in &setup.cases {
        ensure!(
            [IDLE, IN_STORM].contains(&case.as_str()),
            "case '{case}': there are {IDLE} and {IN_STORM}"
        );
    }
    let wants = |case: &str| setup.cases.is_empty() || setup.cases.iter().any(|c| c == case);
    let crowds = if setup.crowd.is_empty() {
        &CROWDS[..]
    } else {
        &setup.crowd
    };
    let smallest = *crowds.iter().min().context("no crowd")?;
    let part = Part::still(Contents::Distinct, 11, size);
    let spec = Spec {
        seed: setup.seed,
        parts: vec![part],
        huge: false,
        mergeable: false,
    };
    let trial = |variant, case: &str| Trial {
        variant,
        case: case.to_owned(),
        specs: vec![spec.clone(), spec.clone()],
        limit: setup.limit_or(120),
        max_runs: setup.repeats,
    };
    let uksm = Governor::ALL.map(|governor| Variant::uksm_governor(governor.name()));
    for &crowd in crowds.iter().filter(|_| wants(IDLE)) {
        let ksm = (crowd == smallest).then(Variant::ksm_unlimited);
        for variant in uksm.iter().cloned().chain(ksm) {
            if setup.wants(&variant.name) {
                let trial = trial(variant, &crowd.to_string());
                report.variants.push(among(&trial, crowd, None, setup)?);
            }
        }
    }
    let default = Variant::uksm_governor(Governor::Full.name());
    if wants(IN_STORM) && setup.wants(&default.name) {
        let before = figure(&report, &smallest.to_string());
        let trial = trial(default, IN_STORM);
        let measured = among(&trial, smallest, Some(STORM), setup)?;
        report.variants.push(measured);
        let during = figure(&report, IN_STORM);
        if let (Some((before, during)), Some(measured)) =
            (before.zip(during), report.variants.last_mut())
        {
            let delay = ("storm_delay_seconds".to_owned(), during - before);
            measured.figures.extend([delay]);
        }
    }
    report.compare("uksm-full");
    Ok(report)
}

/// The time to 90 % of the default governor in a case.
fn figure(report: &Report, case: &str) -> Option<f64> {
    let default = format!("uksm-{}", Governor::Full.name());
    let name = format!("seconds_to_90_percent@{case}");
    report.find(&default, case)?.figures.get(&name).copied()
}

/// One variant among a crowd, and in a storm if there is one.
fn among(trial: &Trial, crowd: usize, wind: Option<Wind>, setup: &Setup) -> Result<Measured> {
    let crowd = Crowd::start(crowd, setup.seed)?;
    let mut system = trial.variant.start(setup, &[])?;
    rest(system.as_mut(), SETTLE)?;
    let mut figures = BTreeMap::new();
    let suffix = format!("@{}", trial.case);
    let mut storm = None;
    if let Some(wind) = wind {
        storm = Some(Storm::start(wind)?);
        let percent = cpu_percent(system.as_mut(), STORM_WATCHED)?;
        figures.insert("storm_cpu_percent".to_owned(), percent);
    } else {
        let percent = cpu_percent(system.as_mut(), setup.calm())?;
        figures.insert(format!("idle_cpu_percent{suffix}"), percent);
    }
    let (mut runs, mut seconds) = (Vec::new(), Vec::new());
    for _ in 0..trial.max_runs.max(1) {
        let (run, processes) = pair(trial, system.as_mut(), setup)?;
        trial.print_progress(&run);
        seconds.push(seconds_to_90(&run));
        runs.push(run);
        if seconds.last().is_some_and(|seconds| seconds.is_infinite()) {
            break; // the others would take as long, and tell nothing more
        }
        rest(system.as_mut(), STAY)?;
        drop(processes);
    }
    if let Some(storm) = storm {
        figures.insert("storm_processes_per_second".to_owned(), storm.end()?);
    }
    system.stop()?;
    let verified_pages = crowd.verify()?;
    drop(crowd);
    ksm::settle()?;
    figures.extend(times_to_90(&seconds, &suffix));
    println!("{} {}: {figures:.3?}", trial.variant.name, trial.case);
    let mut measured = trial.measured(runs);
    measured.verified_pages += verified_pages;
    measured.figures.extend(figures);
    Ok(measured)
}

/// Share of a core that an idle system uses, in percent.
fn cpu_percent(system: &mut dyn System, watched: Duration) -> Result<f64> {
    let (begin, before) = (Instant::now(), system.cpu()?);
    rest(system, watched)?;
    let used = system.cpu()?.saturating_sub(before).as_secs_f64();
    Ok(100.0 * used / begin.elapsed().as_secs_f64().max(f64::EPSILON))
}

/// Two newcomers: they start, are filled, and are merged. Returns them, too.
fn pair(
    trial: &Trial,
    system: &mut dyn System,
    setup: &Setup,
) -> Result<(TrialResult, Vec<Process>)> {
    let mergeable_mib = mergeable_mib(&trial.specs)?;
    let mut processes = start_workload(&waiting(&trial.specs), &trial.variant, setup)?;
    let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
    let mut watch = Watch::of_parts(&trial.specs, &pids, setup)?;
    fill_and_watch(trial, system, &mut processes, &mut watch, mergeable_mib)?;
    let mut verified_pages = 0;
    for process in &mut processes {
        verified_pages += process.verify()?;
    }
    let run = TrialResult {
        figures: watch.figures(system)?,
        window: watch.close_window(system)?,
        own_mib: watch.own_mib,
        looks: watch.looks,
        mergeable_mib,
        verified_pages,
        counters: system.report(),
    };
    Ok((run, processes))
}
