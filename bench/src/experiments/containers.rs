//! containers: many small systems, each with a service and a store, in namespaces of their own.
//!
//! A system is a Python with the imports of a web service, and a redis-server with 2 MiB of keys
//! (`--size`), of which most are in all. Twenty by default (`--crowd N`: N of them). All are up and
//! idle before a merging system starts. Equal pages count as mergeable; not all of them may be
//! merged, so a run lasts for its whole time, unless 95 % are merged before, and the CPU for half
//! of it is a figure.
//!
//! Source: UKSM §8.2.2, where three containers ran a web site each.

use std::time::Duration;

use anyhow::{Result, ensure};
use uksm_results::report::Report;
use uksm_testkit::kernel_file;

use crate::comparison::rounds::interleave_by;
use crate::comparison::trial::{Trial, TrialResult, end_after};
use crate::comparison::watch::Watch;
use crate::guests::huge_pages;
use crate::measure::duplicates::equal_pages;
use crate::programs::program_setup::ProgramSetup;
use crate::programs::python::Python;
use crate::programs::redis::{Installation, Server, fill};
use crate::setup::Setup;
use crate::units::mib;
use crate::variants::Variant;

/// The imports of a service.
const MODULES: [&str; 16] = [
    "argparse", "asyncio", "csv", "datetime", "decimal", "email", "hashlib", "html", "http",
    "json", "logging", "sqlite3", "ssl", "string", "urllib", "xml",
];
/// Time for the services to settle after they are up.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Memory of a system until it is up, in MiB, kernel memory included.
const A_SYSTEM_MIB: u64 = 20;

/// Runs all variants.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("containers")?;
    let place = Installation::of("/bin/redis-server".into())?;
    huge_pages(setup.huge)?;
    let count = setup.crowd.first().copied().unwrap_or(20);
    let (needed, available) = (
        count as u64 * A_SYSTEM_MIB,
        kernel_file::number("/proc/meminfo", "MemAvailable")? >> 10,
    );
    ensure!(
        needed <= available,
        "{count} systems take some {needed} MiB, and {available} are available: give the guest more by --memory"
    );
    let settings = [
        (Variant::uksm_governor("full"), 20, usize::MAX),
        (Variant::ksm_unlimited(), 40, usize::MAX),
        (Variant::ksm_shipped(), 40, 1),
    ];
    let trials = settings.map(|(variant, seconds, max_runs)| Trial {
        variant,
        case: format!("{count} systems"),
        specs: Vec::new(),
        limit: setup.limit_or(seconds),
        max_runs,
    });
    let once = |trial: &Trial, setup: &Setup| once(trial, setup, &place, count);
    report.variants = interleave_by(&once, &trials, setup.repeats.min(3), setup)?;
    report.compare("uksm-full");
    Ok(report)
}

/// A small system, running.
struct Container {
    service: Python,
    store: Server,
}

/// One run: fresh systems, merged, and checked.
fn once(trial: &Trial, setup: &Setup, place: &Installation, count: usize) -> Result<TrialResult> {
    let mut containers = start(trial, setup, place, count)?;
    let mut digests = Vec::new();
    for container in &mut containers {
        digests.push((container.service.digest()?, container.store.digest()?));
    }
    std::thread::sleep(SETTLE_TIME);
    let pids: Vec<u32> = containers
        .iter()
        .flat_map(|container| [container.service.pid(), container.store.pid()])
        .collect();
    let equal = equal_pages(&pids)?;
    let mergeable_mib = mib(equal.mergeable());
    let mut watch = Watch::new(&pids, setup)?;
    watch.open_window(mergeable_mib, Duration::ZERO);
    watch.begin()?;
    let mut system = trial.variant.start(setup, &pids)?;
    trial.watch(&mut watch, system.as_mut(), mergeable_mib)?;
    let mut run = end_after(trial, system, watch, mergeable_mib, move || {
        for (container, before) in containers.iter_mut().zip(digests) {
            let after = (container.service.digest()?, container.store.digest()?);
            ensure!(
                after == before,
                "a system holds {after:?} where it held {before:?}"
            );
        }
        // The code and the keys of all systems are unchanged; other pages are not checked.
        Ok(0)
    })?;
    run.figures
        .insert("processes".to_owned(), pids.len() as f64);
    run.figures
        .insert("zero_mib".to_owned(), mib(equal.zero.len()));
    run.add_half();
    trial.print_progress(&run);
    Ok(run)
}

/// Starts this many systems; the services import side by side.
fn start(
    trial: &Trial,
    setup: &Setup,
    place: &Installation,
    count: usize,
) -> Result<Vec<Container>> {
    let program_setup = ProgramSetup {
        mergeable: trial.variant.needs_mergeable(),
        contained: true,
    };
    let mut containers = Vec::new();
    for number in 0..count {
        let mut service = Python::service(&MODULES, program_setup)?;
        service.import()?;
        let mut store = Server::start_in(place, &format!("store-{number}"), program_setup)?;
        store.loaded()?;
        fill(
            store.connection(),
            setup.round_seed(),
            number as u64,
            setup.size_or(2),
        )?;
        containers.push(Container { service, store });
    }
    for container in &mut containers {
        let modules = container.service.imported()?;
        ensure!(
            modules > MODULES.len() as u64,
            "a service has {modules} modules"
        );
    }
    Ok(containers)
}
