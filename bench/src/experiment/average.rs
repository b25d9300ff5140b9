//! What a system saves on average of a workload that never settles.

use super::race::{Race, Run, start_workload};
use super::watch::Watch;
use crate::result::Measured;
use crate::setup::Setup;
use crate::system::{Variant, ksm};
use crate::workload::{Process, Spec};
use anyhow::Result;
use std::time::Duration;

/// Before averaging begins: loads that are held at a share of CPU settle.
const WARM_UP: f64 = 5.0;

/// Watches a workload that never settles, and averages.
pub(super) fn watch(
    variant: &Variant,
    case: &str,
    spec: &Spec,
    watched: Duration,
    setup: &Setup,
) -> Result<Measured> {
    let specs = std::slice::from_ref(spec);
    let mut processes = start_workload(specs, variant, setup)?;
    let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
    let mut watch = Watch::new(&pids, setup.clock)?;
    watch.begin();
    let mut system = variant.start(setup, &pids)?;
    while watch.elapsed() < watched {
        watch.look(system.as_mut())?;
    }
    let (counters, figures) = (system.report(), system.figures());
    system.stop()?;
    let mut verified_pages = 0;
    for process in &mut processes {
        verified_pages += process.verify()?;
    }
    drop(processes);
    ksm::settle()?;
    let (saved, mapped) = watch.looks.means_from(WARM_UP).unwrap_or_default();
    let share = watch.looks.cpu_share_from(WARM_UP).unwrap_or_default();
    println!(
        "{} {case}: {saved:.1} MiB saved of {mapped:.1} on average, {:.2} % of a core",
        variant.name,
        100.0 * share
    );
    let run = Run {
        own_mib: watch.own_mib,
        looks: watch.looks,
        mergeable_mib: 0.0, // what can be merged changes all the time
        verified_pages,
        counters,
        figures,
    };
    let race = Race {
        variant: variant.clone(),
        case: case.to_owned(),
        specs: specs.to_vec(),
        limit: watched,
        most_runs: 1,
    };
    let mut measured = race.measured(vec![run]);
    measured.figures.extend([
        ("mean_saved_mib".to_owned(), saved),
        ("mean_mapped_mib".to_owned(), mapped),
        ("cpu_percent".to_owned(), 100.0 * share),
    ]);
    Ok(measured)
}
