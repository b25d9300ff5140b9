//! hints-build, hints-web, hints-mixed: what looking first where I/O just was is worth (XLH §5.2).
//!
//! Two processes act as virtual machines of 128 MiB (see [`crate::replay`]): they build a kernel,
//! serve files in a shuffled order, or one does this and the other that. The paper's have 512 MiB.
//! They ask their disks for as many pages a second as the paper's did, so what they cache lives for
//! a quarter of the time: one and a half minutes in the web servers. KSM at a rate gets around in a
//! quarter of the time, too, so all is in proportion but the time from a read to its merge, which
//! counts four times. `slowN` asks for so many times less.
//!
//! A case is an interface, and how much CPU there is: see [`case`]. At each wake-up of KSM, with
//! the CPU that it takes there, uksm runs without and with hints. Then KSM is held at the CPU that
//! uksm took with hints. Everything counts from the start of a system on; the machines begin when
//! it had ten seconds for what is there.
//!
//! [`guests`] and [`programs`] ask the same of what nobody planned: real virtual machines, and real
//! programs. [`cost`] asks what it costs those that are watched.

mod case;
mod cost;
mod figures;
mod guests;
mod merges;
mod programs;
mod run;
mod runs;

use crate::replay::{Disk, Load};
use crate::result::Report;
use crate::setup::Setup;
use crate::system::Variant;
use anyhow::Result;
use case::Cpu;
use figures::{SAME_CPU, ratios};
use run::Replay;
use runs::Runs;

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
