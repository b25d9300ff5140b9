//! hints-build, hints-web, hints-mixed: what looking first where I/O just was is worth (XLH §5.2).
//!
//! Two processes act as virtual machines of 128 MiB (see [`crate::replay`]): they build a kernel, serve
//! files in a shuffled order, or one does this and the other that. The paper's have 512 MiB. They ask
//! their disks for as many pages a second as the paper's did, so what they cache lives for a quarter
//! of the time: one and a half minutes in the web servers. KSM at a rate gets around in a quarter of the
//! time, too, so all is in proportion but the time from a read to its merge, which counts four times.
//! `slowN` asks for so many times less.
//!
//! A case is an interface, and how much CPU there is: see [`case`]. At each wake-up of KSM, with
//! the CPU that it takes there, uksm runs without and with hints. Then KSM is held at the CPU that uksm took
//! with hints. Everything counts from the start of a system on; the machines begin when it had ten
//! seconds for what is there.
//!
//! [`guests`] and [`programs`] ask the same of what nobody planned: real virtual machines, and real programs.
//! [`cost`] asks what it costs those that are watched.

mod case;
mod cost;
mod guests;
mod merges;
mod programs;
mod run;
mod runs;

use crate::replay::{Disk, Load};
use crate::result::{Measured, Report};
use crate::setup::Setup;
use crate::system::Variant;
use anyhow::Result;
use case::Cpu;
use run::Replay;
use runs::Runs;
use std::collections::BTreeMap;
use uksm_results::over_time;

/// Cases that are run by default.
const CASES: [&str; 8] = [
    "pread-20ms",
    "pread-100ms",
    "pread-200ms",
    "pread-quiet",
    "pread-low",
    "pread-full",
    "io_uring-20ms",
    "io_uring-low",
];

/// Runs hints-build.
pub(super) fn build(setup: &Setup) -> Result<Report> {
    run(setup, "hints-build", [Load::Build; 2])
}

/// Runs hints-web.
pub(super) fn web(setup: &Setup) -> Result<Report> {
    run(setup, "hints-web", [Load::Web; 2])
}

/// Runs hints-mixed: what the two machines read is hardly ever the same.
pub(super) fn mixed(setup: &Setup) -> Result<Report> {
    run(setup, "hints-mixed", [Load::Build, Load::Web])
}

fn run(setup: &Setup, experiment: &str, loads: [Load; 2]) -> Result<Report> {
    let mut report = setup.report(experiment)?;
    let mut disks = [Disk::create(0)?, Disk::create(1)?];
    for case in setup.cases_or(&CASES)? {
        let replay = Replay::new(case, loads, setup, &mut disks)?;
        compare(&replay, setup, &mut report)?;
    }
    Ok(report)
}

/// Runs all variants of a case.
fn compare(replay: &Replay, setup: &Setup, report: &mut Report) -> Result<()> {
    let cpu = replay.case.cpu;
    let mut run = |variant: &Variant| replay.run(variant, setup);
    let mut runs = Runs::new(setup, &mut run);
    runs.measured.push(replay.oracle());
    let taken = match cpu {
        Cpu::WakeUp(_) => runs.ksm_at_rate(cpu)?,
        Cpu::Governor(_) => None,
    };
    if let Some(share) = runs.uksm(cpu, taken)? {
        let held = Variant::ksm_at(share);
        runs.once(&Variant {
            name: SAME_CPU.to_owned(),
            ..held
        })?;
    }
    if replay.case.is_unlimited() {
        runs.once(&Variant::ksm_unlimited())?;
    }
    let measured = runs.measured;
    ratios(report, &measured, &replay.case.to_string());
    report.variants.extend(measured);
    Ok(())
}

/// KSM at its rate, or the shipped one, uksm with so much CPU without and with hints, and KSM without
/// a limit.
fn against_ksm(
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

/// How hints compare with all else of a case, by areas.
fn ratios(report: &mut Report, measured: &[Measured], case: &str) {
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

/// The figure of what is compared: MiB saved, times the seconds for which they were.
const AREA: &str = "area_mib_seconds";

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

/// Adds figures of what was loaded from `go` on: the area since then, and how soon all was shared that could
/// be before, `before` MiB, and parts of what came to that.
fn figures_since(measured: &mut Measured, go: f64, before: f64) {
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

/// Adds what a daemon says of hints to a run's figures.
fn hint_figures(measured: &mut Measured) {
    let hints = measured.counters.as_ref();
    let hints = hints.and_then(|counters| counters.pointer("/hints"));
    let count = |field: &str| hints?.get(field)?.as_f64();
    let figures: Vec<(String, f64)> = HINT_COUNTERS
        .iter()
        .filter_map(|&field| Some((format!("hints_{field}"), count(field)?)))
        .collect();
    measured.figures.extend(figures);
}

/// Runs hints-programs.
pub(super) fn programs(setup: &Setup) -> Result<Report> {
    programs::run(setup)
}

/// Runs hints-cost.
pub(super) fn cost(setup: &Setup) -> Result<Report> {
    cost::run(setup)
}

/// Runs hints-guests.
pub(super) fn guests(setup: &Setup) -> Result<Report> {
    guests::run(setup)
}

/// KSM, held at the CPU that uksm took with hints.
const SAME_CPU: &str = "ksm-same-cpu";

fn area(measured: &[Measured], name: &str) -> Option<f64> {
    let variant = measured.iter().find(|variant| variant.name == name)?;
    variant.figures.get(AREA).copied()
}
