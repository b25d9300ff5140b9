//! The demo's guest side: working servers, settings in turn, and the proof.
//!
//! Workload: four redis-servers that have most of their keys in common, each filled in an order of
//! its own, with a light write load; and a process with identical and random pages (UKSM §8.1.1).
//! Every run has fresh processes, at random addresses. The possible saving of a setting is counted
//! from the contents before it starts. Then another server starts, beside a system that has been
//! running: the time until its common contents are shared, too, is measured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use uksm_testkit::kernel_file;

use super::Event;
use crate::comparison::rounds::interleave_by;
use crate::comparison::trial::{Trial, TrialResult, start_workload};
use crate::comparison::watch::Watch;
use crate::measure::duplicates::mergeable_pages;
use crate::measure::pagemap::Counter;
use crate::programs::redis::{Installation, Server, WriteLoad, fill, write_all};
use crate::setup::Setup;
use crate::units::mib;
use crate::variants::{System, Variant, ksm};
use crate::workload::{Process, Spec};

/// Time watched after 95 %: to see the further progress, and that it stays.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// Longest wait until a newcomer is shared.
const NEWCOMER: Duration = Duration::from_secs(10);
/// Time between two looks at it.
const LOOK: Duration = Duration::from_millis(100);

/// Sizes of the demo.
#[derive(Debug, Clone, Args)]
pub(crate) struct Sizes {
    /// The redis-server program
    #[arg(long, default_value = "/bin/redis-server")]
    pub redis: PathBuf,
    /// Number of redis-servers
    #[arg(long, default_value_t = 4)]
    pub servers: usize,
    /// MiB of values in each redis-server
    #[arg(long, default_value_t = 32)]
    pub values: usize,
    /// MiB of identical pages, and of random ones
    #[arg(long, default_value_t = 48)]
    pub mixed: usize,
    /// Runs of uksm, and of KSM without sleep; their medians count
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
}

/// Runs the demo and writes its result.
pub(crate) fn run(setup: &Setup, sizes: &Sizes) -> Result<()> {
    let mut report = setup.report("demo")?;
    let place = Installation::of(sizes.redis.clone())?;
    let settings = [
        (Variant::uksm_governor("full"), 25, sizes.rounds),
        (Variant::uksm_governor("low"), 25, 1),
        (Variant::ksm_unlimited(), 40, sizes.rounds),
        (Variant::ksm_shipped(), 60, 1),
    ];
    let trials = settings.map(|(variant, seconds, max_runs)| Trial {
        variant,
        case: String::new(),
        specs: vec![Spec::mixed(setup.seed, sizes.mixed, sizes.mixed, true)],
        limit: setup.limit_or(seconds),
        max_runs,
    });
    let once = |trial: &Trial, setup: &Setup| merge(trial, setup, &place, sizes);
    report.variants = interleave_by(&once, &trials, sizes.rounds, setup)?;
    report.compare("uksm-full");
    report.write(&setup.output)?;
    Ok(())
}

fn stage(text: String) {
    Event::Stage { text }.print();
}

/// The processes of one run.
struct DemoProcesses {
    servers: Vec<Server>,
    processes: Vec<Process>,
    /// The digest of each server after [`write_all`].
    digests: Vec<String>,
    seed: u64,
}

impl DemoProcesses {
    /// Fresh ones, filled.
    fn start(
        trial: &Trial,
        setup: &Setup,
        place: &Installation,
        sizes: &Sizes,
    ) -> Result<DemoProcesses> {
        let mergeable = trial.variant.needs_mergeable();
        let seed = setup.round_seed();
        let start = &|number: u64| {
            let mut server = Server::start(place, &format!("server-{number}"), mergeable)?;
            let digest = filled(&mut server, seed, number, sizes.values)?;
            Ok((server, digest))
        };
        // Each is a process, so all start at once, beside the workload.
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..sizes.servers as u64)
                .map(|number| scope.spawn(move || start(number)))
                .collect();
            let processes = start_workload(&trial.specs, &trial.variant, setup)?;
            let servers = threads
                .into_iter()
                .map(joined)
                .collect::<Result<Vec<_>>>()?;
            let (servers, digests) = servers.into_iter().unzip();
            Ok(DemoProcesses {
                servers,
                processes,
                digests,
                seed,
            })
        })
    }

    fn pids(&self) -> Vec<u32> {
        let servers = self.servers.iter().map(Server::pid);
        servers
            .chain(self.processes.iter().map(Process::pid))
            .collect()
    }

    fn load(&mut self) -> Result<WriteLoad> {
        let connections = self.servers.iter_mut().map(Server::connect);
        Ok(WriteLoad::start(
            connections.collect::<Result<_>>()?,
            self.seed,
        ))
    }

    /// Checks that every byte is unchanged: the processes check themselves, and servers hold the
    /// same after the same writes.
    fn prove(&mut self) -> Result<u64> {
        let seed = self.seed;
        let found = all_at_once(&mut self.servers, |server| digest(server, seed))?;
        for (number, (found, expected)) in found.iter().zip(&self.digests).enumerate() {
            ensure!(
                found == expected,
                "redis-server {number} holds other data than before it was merged: {found}, not {expected}"
            );
        }
        let mut pages = 0;
        for process in &mut self.processes {
            pages += process.verify()?;
        }
        Ok(pages)
    }
}

/// Fills a server; returns its digest.
fn filled(server: &mut Server, seed: u64, number: u64, mib: usize) -> Result<String> {
    server.loaded()?;
    fill(server.connection(), seed, number, mib)?;
    digest(server, seed)
}

fn digest(server: &mut Server, seed: u64) -> Result<String> {
    write_all(server.connection(), seed)?;
    server.digest()
}

/// Works with all servers at once, since each is a process; returns the results in their order.
fn all_at_once<T: Send>(
    servers: &mut [Server],
    work: impl Fn(&mut Server) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = servers
            .iter_mut()
            .map(|server| scope.spawn(move || work(server)))
            .collect();
        threads.into_iter().map(joined).collect()
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    match thread.join() {
        Ok(result) => result,
        Err(_) => bail!("who works with a redis-server panicked"),
    }
}

/// One run: start everything fresh, merge, let another server come, prove.
fn merge(trial: &Trial, setup: &Setup, place: &Installation, sizes: &Sizes) -> Result<TrialResult> {
    let name = &trial.variant.name;
    stage(format!(
        "{name}, round {}: filling {} fresh redis-servers",
        setup.round + 1,
        sizes.servers
    ));
    let mut demo = DemoProcesses::start(trial, setup, place, sizes)?;
    let pids = demo.pids();
    let target = mib(mergeable_pages(&pids)?);
    let load = demo.load()?;
    let available = kernel_file::number("/proc/meminfo", "MemAvailable")?;

    let mut watch = Watch::new(&pids, setup)?;
    watch.begin()?;
    // The system serves all present and future processes: later ones are served, too.
    let mut system = trial.variant.start(setup, &[])?;
    look(trial, &mut watch, system.as_mut(), target)?;
    let gained =
        (kernel_file::number("/proc/meminfo", "MemAvailable")? as f64 - available as f64) / 1024.0;
    load.finish()?;
    let mut figures = BTreeMap::from([("mem_available_mib".to_owned(), gained)]);

    stage(format!("{name}: one more redis-server"));
    let mut newcomer = Server::start(place, "newcomer", trial.variant.needs_mergeable())?;
    let digest = filled(&mut newcomer, demo.seed, sizes.servers as u64, sizes.values)?;
    demo.servers.push(newcomer);
    demo.digests.push(digest);
    let soon = shared_after(&demo.pids(), system.as_mut())?;
    figures.extend(soon.map(|seconds| ("newcomer_seconds".to_owned(), seconds)));

    let (counters, more) = (system.report(), system.figures());
    figures.extend(more);
    system.stop()?;
    stage(format!("{name}: checking every byte"));
    let pages = demo.prove().with_context(|| name.clone())?;
    Event::Proved {
        variant: name.clone(),
        pages,
        servers: demo.servers.len(),
    }
    .print();
    drop(demo);
    ksm::settle()?;
    Ok(TrialResult {
        own_mib: watch.own_mib,
        looks: watch.looks,
        mergeable_mib: target,
        verified_pages: pages,
        counters,
        figures,
        window: None,
    })
}

/// Looks until all is merged, or until the time of the setting is over.
fn look(trial: &Trial, watch: &mut Watch, system: &mut dyn System, target: f64) -> Result<()> {
    let mut reached = None;
    while watch.elapsed() < trial.limit {
        let look = watch.look(system)?;
        Event::Progress {
            variant: trial.variant.name.clone(),
            look,
            mergeable_mib: target,
            limit_seconds: trial.limit.as_secs_f64(),
        }
        .print();
        if look.saved_mib >= 0.95 * target {
            let since = *reached.get_or_insert_with(Instant::now);
            if since.elapsed() > AFTERWARDS {
                break;
            }
        }
    }
    Ok(())
}

/// The seconds until 95 % of the possible saving of all of them is reached; none if that takes too
/// long.
fn shared_after(pids: &[u32], system: &mut dyn System) -> Result<Option<f64>> {
    let begin = Instant::now();
    let mut counter = Counter::new()?;
    let target = mib(mergeable_pages(pids)?);
    while begin.elapsed() < NEWCOMER {
        system.adjust()?;
        if mib(counter.count(pids)?.saved()) >= 0.95 * target {
            return Ok(Some(begin.elapsed().as_secs_f64()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(None)
}
