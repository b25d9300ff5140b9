//! hints-build, hints-web, hints-mixed: the value of looking first where I/O just was (XLH §5.2).
//!
//! Two processes act as virtual machines of 128 MiB (see [`crate::disk_machines`]): they build a
//! kernel, serve files in a shuffled order, or one does this and the other that. The paper's have
//! 512 MiB. They request as many pages a second from their disks as the paper's, so cached pages
//! live for a quarter of the time: one and a half minutes in the web servers. KSM at a rate scans
//! all memory in a quarter of the time, too, so all is in proportion but the time from a read to
//! its merge, which counts four times. `slowN` divides the requests by N.
//!
//! A case is an interface, and an amount of CPU: see [`case`]. At each wake-up of KSM, with the CPU
//! that it takes there, uksm runs without and with hints. Then KSM is held at the CPU that uksm
//! used with hints. Everything counts from the start of a system on; the machines begin after the
//! system has had ten seconds for existing memory.
//!
//! [`guests`] and [`programs`] measure the same without planned contents: with real virtual
//! machines, and real programs. [`cost`] measures the cost for the observed processes.

mod case;
mod cost;
mod figures;
mod guests;
mod merges;
mod programs;
mod run;
mod runs;

use anyhow::Result;
use uksm_results::report::Report;

use crate::disk_machines::{Disk, Load};
use crate::setup::Setup;
use crate::variants::Variant;
use case::Cpu;
use figures::{SAME_CPU, ratios};
use run::Replay;
use runs::Runs;

/// Default cases.
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

/// Runs hints-mixed: the two machines hardly ever read the same.
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
