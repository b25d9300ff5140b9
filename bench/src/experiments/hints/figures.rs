//! Figures of runs with hints, and their comparison.

use std::collections::BTreeMap;

use anyhow::Result;
use uksm_results::over_time;
use uksm_results::report::{Measured, Report};

use super::case::Cpu;
use super::runs::Runs;
use crate::setup::Setup;
use crate::variants::Variant;

/// KSM at its rate, or the shipped one, uksm with this much CPU without and with hints, and KSM
/// without a limit.
pub(super) fn against_ksm(
    setup: &Setup,
    cpu: Cpu,
    run: &mut dyn FnMut(&Variant) -> Result<Measured>,
) -> Result<Vec<Measured>> {
    let mut runs = Runs::new(setup, run);
    let taken = runs.ksm_at_rate(cpu)?;
    runs.uksm(cpu, taken)?;
    runs.once(&Variant::ksm_unlimited())?;
    Ok(runs.measured)
}

/// The ratios of hints to all else in a case, by areas.
pub(super) fn ratios(report: &mut Report, measured: &[Measured], case: &str) {
    let area = |name: &str| area(measured, name);
    let with = area("uksm-hints");
    let ratios = [
        ("area_vs_uksm-no-hints", area("uksm-no-hints")),
        ("area_vs_ksm-same-cpu", area(SAME_CPU)),
        ("area_vs_ksm-rate", area("ksm-rate")),
        ("area_vs_ksm-unlimited", area("ksm-unlimited")),
        ("share_of_oracle", area("oracle")),
    ];
    for (name, peer) in ratios {
        if let Some((with, peer)) = with.zip(peer).filter(|&(_, peer)| peer > 0.0) {
            report.ratios.insert(format!("{name}@{case}"), with / peer);
        }
    }
}

/// The compared figure: MiB saved times seconds.
pub(super) const AREA: &str = "area_mib_seconds";

/// Counters of hints in the daemon's status that are figures of a run.
const HINT_COUNTERS: [&str; 9] = [
    "calls",
    "taken",
    "lost",
    "aged_pages",
    "left_out_pages",
    "sampled_pages",
    "merged_pages",
    "merged_within_100_ms",
    "merged_within_1_s",
];

/// Adds figures of the memory loaded from `go` on: the area since then, and the times until all
/// earlier mergeable memory, `before` MiB, and parts of the later were shared.
pub(super) fn figures_since(measured: &mut Measured, go: f64, before: f64) {
    let looks = measured.looks.0.iter();
    let points: Vec<(f64, f64)> = looks.map(|look| (look.seconds, look.saved_mib)).collect();
    let end = points.last().map_or(go, |last| last.0);
    let area = over_time::mean(&points, go).unwrap_or(0.0) * (end - go);
    let saved = points.iter().rev().find(|point| point.0 <= go);
    let mut figures = BTreeMap::from([
        (AREA.to_owned(), area),
        ("mergeable_mib_before".to_owned(), before),
        (
            "saved_mib_before".to_owned(),
            saved.map_or(0.0, |point| point.1),
        ),
    ]);
    for percent in [50, 90] {
        let added = (measured.mergeable_mib - before) * f64::from(percent) / 100.0;
        if let Some(look) = measured.looks.reaches(before + added) {
            let name = format!("seconds_to_{percent}_percent_of_loaded");
            figures.insert(name, look.seconds - go);
        }
    }
    let most = measured.looks.reaches(0.95 * measured.mergeable_mib);
    measured.seconds_to_95_percent = most.map(|look| look.seconds);
    measured.finished = measured.seconds_to_95_percent.is_some();
    if measured.cpu_seconds > 0.0 {
        measured.mib_per_cpu_second = measured.saved_mib / measured.cpu_seconds;
    }
    measured.figures.extend(figures);
}

/// Adds the daemon's counters of hints to a run's figures.
pub(super) fn hint_figures(measured: &mut Measured) {
    let hints = measured.counters.as_ref();
    let hints = hints.and_then(|counters| counters.pointer("/hints"));
    let count = |field: &str| hints?.get(field)?.as_f64();
    let figures: Vec<(String, f64)> = HINT_COUNTERS
        .iter()
        .filter_map(|&field| Some((format!("hints_{field}"), count(field)?)))
        .collect();
    measured.figures.extend(figures);
}

/// KSM, held at the CPU that uksm used with hints.
pub(super) const SAME_CPU: &str = "ksm-same-cpu";

fn area(measured: &[Measured], name: &str) -> Option<f64> {
    let variant = measured.iter().find(|variant| variant.name == name)?;
    variant.figures.get(AREA).copied()
}
