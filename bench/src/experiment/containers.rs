//! containers: many small systems, each with a service and a store, in namespaces of their own.
//!
//! A system is a Python with the imports of a web service, and a redis-server with 2 MiB of keys
//! (`--size`), of which most are in all. Twenty by default (`--crowd N`: N of them). All are up and
//! idle before a merging system starts. Equal pages count as mergeable; not all of them may be
//! merged, so a run lasts for its whole time, unless 95 % are merged before, and the CPU for half
//! of it is a figure.
//!
//! Source: UKSM §8.2.2, where three containers ran a web site each.

use super::race::{Race, Run, interleave_by};
use super::watch::Watch;
use crate::guests::huge_pages;
use crate::measure::duplicates::mergeable_pages;
use crate::measure::meminfo;
use crate::python::Python;
use crate::redis::{Place, Server, fill};
use crate::result::Report;
use crate::setup::Setup;
use crate::system::{Variant, ksm};
use crate::workload::mib;
use crate::workload::surroundings::Surroundings;
use anyhow::{Result, ensure};
use std::time::Duration;

/// The imports of a service.
const MODULES: [&str; 16] = [
    "argparse", "asyncio", "csv", "datetime", "decimal", "email", "hashlib", "html", "http",
    "json", "logging", "sqlite3", "ssl", "string", "urllib", "xml",
];
/// Time for the services to settle after they are up.
const SETTLED: Duration = Duration::from_secs(1);
/// Memory of a system until it is up, in MiB, kernel memory included.
const A_SYSTEM_MIB: u64 = 20;

/// Runs all variants.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("containers")?;
    let place = Place::of("/bin/redis-server".into())?;
    huge_pages(setup.huge)?;
    let count = setup.crowd.first().copied().unwrap_or(20);
    let (needed, available) = (
        count as u64 * A_SYSTEM_MIB,
        meminfo::kib("MemAvailable")? >> 10,
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
    let races = settings.map(|(variant, seconds, most_runs)| Race {
        variant,
        case: format!("{count} systems"),
        specs: Vec::new(),
        limit: setup.limit_or(seconds),
        most_runs,
    });
    let once = |race: &Race, setup: &Setup| once(race, setup, &place, count);
    report.variants = interleave_by(&once, &races, setup.repeats.min(3), setup)?;
    report.compare("uksm-full");
    Ok(report)
}

/// A small system, running.
struct Container {
    service: Python,
    store: Server,
}

/// One run: fresh systems, merged, and checked.
fn once(race: &Race, setup: &Setup, place: &Place, count: usize) -> Result<Run> {
    let mut containers = start(race, setup, place, count)?;
    let mut digests = Vec::new();
    for container in &mut containers {
        digests.push((container.service.digest()?, container.store.digest()?));
    }
    std::thread::sleep(SETTLED);
    let pids: Vec<u32> = containers
        .iter()
        .flat_map(|container| [container.service.pid(), container.store.pid()])
        .collect();
    let mergeable_mib = mib(mergeable_pages(&pids)?);
    let mut watch = Watch::new(&pids, setup)?;
    watch.open_window(mergeable_mib, Duration::ZERO);
    watch.begin()?;
    let mut system = race.variant.start(setup, &pids)?;
    race.watch(&mut watch, system.as_mut(), mergeable_mib)?;
    let window = watch.close_window(system.as_ref())?;
    let (counters, mut figures) = (system.report(), watch.figures(system.as_ref())?);
    figures.insert("processes".to_owned(), pids.len() as f64);
    if let Some(half) = watch.looks.reaches(mergeable_mib / 2.0) {
        figures.insert("half_cpu_seconds".to_owned(), half.cpu_seconds);
        figures.insert("half_seconds".to_owned(), half.seconds);
    }
    system.stop()?;
    for (container, before) in containers.iter_mut().zip(digests) {
        let after = (container.service.digest()?, container.store.digest()?);
        ensure!(
            after == before,
            "a system holds {after:?} where it held {before:?}"
        );
    }
    let (own_mib, looks) = (watch.own_mib, watch.looks);
    drop(containers);
    ksm::settle()?;
    let run = Run {
        looks,
        mergeable_mib,
        // The code and the keys of all systems are unchanged; other pages are not checked.
        verified_pages: 0,
        own_mib,
        counters,
        figures,
        window,
    };
    race.say(&run);
    Ok(run)
}

/// Starts this many systems; the services import side by side.
fn start(race: &Race, setup: &Setup, place: &Place, count: usize) -> Result<Vec<Container>> {
    let surroundings = Surroundings {
        mergeable: race.variant.needs_mergeable(),
        contained: true,
    };
    let mut containers = Vec::new();
    for number in 0..count {
        let mut service = Python::service(&MODULES, surroundings)?;
        service.import()?;
        let mut store = Server::start_in(place, &format!("store-{number}"), surroundings)?;
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
