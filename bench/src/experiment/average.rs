//! What a system saves on average of a workload that never settles.

use super::race::{Race, end, start_workload};
use super::watch::Watch;
use crate::result::Measured;
use crate::setup::Setup;
use crate::system::Variant;
use crate::workload::{Process, Spec};
use anyhow::Result;
use std::time::Duration;

/// Before averaging begins: loads that are held at a share of CPU settle, and the daemon has loaded its
/// programs (5 s after its start; that takes 0.3·10⁹ instructions, once).
const WARM_UP: f64 = 8.0;

/// How long a workload is watched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watched {
    /// All in all.
    pub length: Duration,
    /// At least this between two looks, where that may be long: looking takes CPU, which a guest with
    /// one CPU takes from what it looks at.
    pub every: Duration,
}

/// Watches a workload that never settles, and averages.
pub(super) fn watch(
    variant: &Variant,
    case: &str,
    specs: &[Spec],
    watched: Watched,
    setup: &Setup,
) -> Result<Measured> {
    let race = Race {
        variant: variant.clone(),
        case: case.to_owned(),
        specs: specs.to_vec(),
        limit: watched.length,
        most_runs: 1,
    };
    let mut processes = start_workload(&race.specs, variant, setup)?;
    let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
    let mut watch = Watch::new(&pids, setup)?.every(watched.every);
    watch.open_window(f64::INFINITY, Duration::ZERO);
    watch.begin()?;
    let mut system = variant.start(setup, &pids)?;
    while watch.elapsed() < watched.length {
        watch.look(system.as_mut())?;
    }
    let mut written = 0;
    for process in &mut processes {
        written += process.written()?;
    }
    let seconds = watch.elapsed().as_secs_f64();
    // What can be merged changes all the time.
    let run = end(&race, system, watch, processes, 0.0)?;
    let (saved, mapped) = run.looks.means_from(WARM_UP).unwrap_or_default();
    let share = run.looks.cpu_share_from(WARM_UP).unwrap_or_default();
    println!(
        "{} {case}: {saved:.1} MiB saved of {mapped:.1} on average, {:.2} % of a core",
        variant.name,
        100.0 * share
    );
    let mut measured = race.measured(vec![run]);
    measured.figures.extend([
        ("mean_saved_mib".to_owned(), saved),
        ("mean_mapped_mib".to_owned(), mapped),
        ("cpu_percent".to_owned(), 100.0 * share),
        (
            "written_pages_per_second".to_owned(),
            written as f64 / seconds,
        ),
    ]);
    Ok(measured)
}
