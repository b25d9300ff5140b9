//! respond: in a settled system, a copy of 100 MiB of another process's pages appears and stays.
//!
//! Time runs from the moment before the copy begins, to 90 % of it merged: merges during copying
//! are no head start. The results are the median and the longest of several runs, of which the
//! longest is the 99th percentile of thirty; and the time of the copy. KSM, which takes long, runs
//! once.

use std::time::Duration;

use anyhow::Result;
use uksm_results::report::Report;
use uksm_results::timeline::median;

use super::newcomers::{seconds_to_90, times_to_90};
use crate::comparison::trial::{Trial, TrialResult, end, start_workload};
use crate::comparison::watch::Watch;
use crate::setup::Setup;
use crate::variants::Variant;
use crate::workload::{Behaviour, Contents, Part, Process, Spec, mergeable_mib};

/// Time for a system to settle before the copy appears.
const SETTLE: Duration = Duration::from_secs(12);

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("respond")?;
    let size = setup.size_or(100);
    let original = Part::still(Contents::Distinct, 4, size);
    let spec = |part| Spec {
        seed: setup.seed,
        parts: vec![part],
        huge: false,
        mergeable: false,
    };
    let specs = vec![spec(original), spec(original.with(Behaviour::Appears))];
    for variant in [
        Variant::uksm_governor("full"),
        Variant::ksm_1000(),
        Variant::ksm_shipped(),
    ] {
        if !setup.wants(&variant.name) {
            continue;
        }
        let repeats = if variant.name.starts_with("uksm") {
            setup.repeats
        } else {
            1
        };
        let trial = Trial {
            variant,
            case: format!("{size} MiB"),
            specs: specs.clone(),
            limit: setup.limit_or(40),
            max_runs: repeats,
        };
        let responses =
            (0..repeats).map(|round| respond(&trial.in_round(round), &setup.in_round(round)));
        let mut runs = Vec::new();
        let (mut seconds, mut copied) = (Vec::new(), Vec::new());
        for response in responses {
            let response = response?;
            runs.push(response.run);
            seconds.push(response.seconds_to_90);
            copied.push(response.copied);
        }
        let mut measured = trial.measured(runs);
        measured.figures.extend(times_to_90(&seconds, ""));
        let copied = median(&copied).map(|seconds| ("copied_seconds".to_owned(), seconds));
        measured.figures.extend(copied);
        report.variants.push(measured);
    }
    report.compare("uksm-full");
    Ok(report)
}

/// A run: the seconds until 90 % were merged, infinity if never, and the seconds until the copy was
/// complete.
struct Response {
    run: TrialResult,
    seconds_to_90: f64,
    copied: f64,
}

fn respond(trial: &Trial, setup: &Setup) -> Result<Response> {
    let target = mergeable_mib(&trial.specs)?;
    let mut processes = start_workload(&trial.specs, &trial.variant, setup)?;
    let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
    let mut system = trial.variant.start(setup, &pids)?;
    std::thread::sleep(SETTLE);
    let mut watch = Watch::new(&pids, setup)?;
    let offset = system.cpu()?;
    watch.open_window(target, offset);
    watch.begin()?;
    processes[1].appear()?;
    let copied = watch.elapsed().as_secs_f64();
    while watch.elapsed() < trial.limit {
        let look = watch.look(system.as_mut())?;
        if look.saved_mib >= 0.99 * target {
            break;
        }
    }
    for look in watch.looks.0.iter_mut().skip(1) {
        look.cpu_seconds -= offset.as_secs_f64();
    }
    let run = end(trial, system, watch, processes, target)?;
    let seconds_to_90 = seconds_to_90(&run);
    println!(
        "{}: copied after {copied:.2} s, 90 % after {seconds_to_90:.2} s",
        trial.variant.name
    );
    Ok(Response {
        run,
        seconds_to_90,
        copied,
    })
}
