//! idle: the cost of a system when nothing is left to merge.
//!
//! Identical pages, which get merged, and as many random ones, which never do. After settling,
//! CPU and memory of the daemon are watched; 10 minutes in the full experiment (`--seconds`).

use std::time::{Duration, Instant};

use anyhow::Result;
use uksm_results::report::{Measured, Report};

use crate::comparison::trial::start_workload;
use crate::setup::Setup;
use crate::variants::{Variant, ksm};
use crate::workload::{Process, Spec};

/// Time to merge and to calm down.
const SETTLE: Duration = Duration::from_secs(30);

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("idle")?;
    let size = setup.size_or(64);
    let specs = [Spec::mixed(setup.seed, size, size, true)];
    let watched = setup.limit_or(600);
    for variant in [
        Variant::uksm_governor("low"),
        Variant::uksm_governor("full"),
        Variant::ksm_shipped(),
    ] {
        if !setup.wants(&variant.name) {
            continue;
        }
        let mut processes = start_workload(&specs, &variant, setup)?;
        let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
        let mut system = variant.start(setup, &pids)?;
        std::thread::sleep(SETTLE);
        let (begin, cpu, memory) = (Instant::now(), system.cpu()?, system.own_mib());
        let mut most = memory;
        while begin.elapsed() < watched {
            std::thread::sleep(Duration::from_secs(5).min(watched));
            system.adjust()?;
            most = most.max(system.own_mib());
        }
        let (wall, used) = (
            begin.elapsed().as_secs_f64(),
            (system.cpu()? - cpu).as_secs_f64(),
        );
        let counters = system.report();
        system.stop()?;
        let verified_pages = processes[0].verify()?;
        drop(processes);
        ksm::settle()?;
        println!(
            "{}: {:.3} % of a core, {memory:.1} to {most:.1} MiB",
            variant.name,
            100.0 * used / wall
        );
        report.variants.push(Measured {
            name: variant.name,
            wall_seconds: wall,
            cpu_seconds: used,
            verified_pages,
            daemon_mib: most,
            counters,
            figures: [
                ("cpu_percent".to_owned(), 100.0 * used / wall),
                ("daemon_growth_mib".to_owned(), most - memory),
            ]
            .into(),
            ..Measured::default()
        });
    }
    Ok(report)
}
