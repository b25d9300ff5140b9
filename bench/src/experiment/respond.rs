//! respond: in a settled system, 100 MiB of pages that another process has appear and stay.
//!
//! Time runs from the moment when the copy is complete, to 90 % merged.

use super::race::{Watch, start_workload};
use super::{Race, Run, Setup};
use crate::result::Report;
use crate::system::{Variant, ksm};
use crate::workload::{Behaviour, Contents, Part, Process, Spec};
use anyhow::Result;
use std::time::Duration;

/// How long a system may settle before the copy appears.
const SETTLE: Duration = Duration::from_secs(12);

/// Runs it.
pub fn run(setup: &Setup) -> Result<Report> {
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
        let limit = setup.limit_or(40);
        let race = Race {
            variant,
            case: format!("{size} MiB"),
            specs: specs.clone(),
            limit,
            most_runs: 1,
        };
        let (run, seconds_to_90) = respond(&race, setup)?;
        let mut measured = race.measured(vec![run]);
        measured
            .figures
            .extend(seconds_to_90.map(|s| ("seconds_to_90_percent".to_owned(), s)));
        report.variants.push(measured);
    }
    report.compare("uksm-full");
    Ok(report)
}

fn respond(race: &Race, setup: &Setup) -> Result<(Run, Option<f64>)> {
    let mut processes = start_workload(&race.specs, &race.variant, setup)?;
    let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
    let mut system = race.variant.start(setup, &pids)?;
    std::thread::sleep(SETTLE);
    processes[1].appear()?;
    let mut watch = Watch::new(&pids)?;
    let offset = system.cpu()?;
    watch.begin();
    let target = crate::workload::mergeable_mib(&race.specs);
    while watch.elapsed() < race.limit {
        let look = watch.look(system.as_mut())?;
        if look.saved_mib >= 0.99 * target {
            break;
        }
    }
    for look in watch.looks.0.iter_mut().skip(1) {
        look.cpu_seconds -= offset.as_secs_f64();
    }
    let (counters, figures) = (system.report(), system.figures());
    system.stop()?;
    let mut verified_pages = 0;
    for process in &mut processes {
        verified_pages += process.verify()?;
    }
    drop(processes);
    ksm::settle()?;
    let seconds_to_90 = watch.looks.reaches(0.9 * target).map(|look| look.seconds);
    println!("{}: 90 % after {seconds_to_90:?} s", race.variant.name);
    let run = Run {
        own_mib: watch.own_mib,
        looks: watch.looks,
        mergeable_mib: target,
        verified_pages,
        counters,
        figures,
    };
    Ok((run, seconds_to_90))
}
