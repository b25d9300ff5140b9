//! The demo's guest side: workload, four settings one after the other, and the proof.
//!
//! Workload: one process with identical and random pages (UKSM §8.1.1), and four redis-servers
//! that loaded the same file and go on taking writes. Every setting meets fresh processes. What a
//! setting could save at most is counted from the contents before it starts.

use super::Event;
use crate::experiment::{Race, Run, Watch};
use crate::measure::duplicates::mergeable_pages;
use crate::redis::{Place, Server, WriteLoad, make_file, write_range};
use crate::setup::Setup;
use crate::system::{Variant, ksm};
use crate::workload::{Process, Spec, mib};
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Watched for this long after 95 %: how far it gets, and that it stays.
const AFTERWARDS: Duration = Duration::from_secs(3);

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
    #[arg(long, default_value_t = 64)]
    pub values: usize,
    /// MiB of identical pages, and of random ones
    #[arg(long, default_value_t = 128)]
    pub mixed: usize,
}

/// Runs the demo and writes its result.
pub(crate) fn run(setup: &Setup, sizes: &Sizes) -> Result<()> {
    let mut report = setup.report("demo")?;
    let place = Place::of(sizes.redis.clone())?;
    stage(format!(
        "filling a redis-server with {} MiB of values",
        sizes.values
    ));
    make_file(&place, sizes.values, setup.seed)?;
    stage("starting the redis-server that is never merged, for comparison".into());
    let mut control = Server::start(&place, "control", false)?;
    control.loaded()?;
    let settings = [
        (Variant::uksm_governor("full"), 25),
        (Variant::ksm_unlimited(), 40),
        (Variant::ksm_1000(), 35),
        (Variant::ksm_shipped(), 25),
    ];
    for (variant, seconds) in settings {
        if !setup.wants(&variant.name) {
            continue;
        }
        let spec = Spec::mixed(setup.seed, sizes.mixed, sizes.mixed, true);
        let limit = setup.limit_or(seconds);
        let race = Race {
            variant,
            case: String::new(),
            specs: vec![spec],
            limit,
            most_runs: 1,
        };
        let run = merge(&race, setup, &place, sizes, &mut control)?;
        report.variants.push(race.measured(vec![run]));
    }
    report.compare("uksm-full");
    report.write(&setup.output)?;
    Ok(())
}

fn stage(text: String) {
    Event::Stage { text }.say();
}

/// One setting: start everything fresh, merge, prove.
fn merge(
    race: &Race,
    setup: &Setup,
    place: &Place,
    sizes: &Sizes,
    control: &mut Server,
) -> Result<Run> {
    let variant = &race.variant;
    let offered = variant.needs_mergeable();
    stage(format!(
        "{}: starting {} fresh redis-servers and the workload",
        variant.name, sizes.servers
    ));
    let mut servers: Vec<Server> = (0..sizes.servers)
        .map(|number| Server::start(place, &format!("server-{number}"), offered))
        .collect::<Result<_>>()?;
    let mut processes = race
        .specs
        .iter()
        .map(|spec| {
            Process::start(&Spec {
                mergeable: offered,
                huge: setup.huge,
                ..spec.clone()
            })
        })
        .collect::<Result<Vec<_>>>()?;
    for process in &mut processes {
        process.ready()?;
    }
    for server in &mut servers {
        server.loaded()?;
    }
    let pids: Vec<u32> = processes
        .iter()
        .map(Process::pid)
        .chain(servers.iter().map(Server::pid))
        .collect();
    let connections = servers
        .iter_mut()
        .map(Server::connect)
        .collect::<Result<Vec<_>>>()?;
    let target = mib(mergeable_pages(&pids)?);
    let load = WriteLoad::start(connections, setup.seed);

    let run = watch(race, setup, &pids, target)?;

    let writes = load.finish()?;
    stage(format!("{}: checking every byte", variant.name));
    let mut connection = [control.connect()?];
    write_range(&mut connection, setup.seed, 0..writes)?;
    let digest = prove(&mut servers, control).with_context(|| variant.name.clone())?;
    let mut verified_pages = 0;
    for process in &mut processes {
        verified_pages += process.verify().with_context(|| variant.name.clone())?;
    }
    Event::Proved {
        variant: variant.name.clone(),
        pages: verified_pages,
        digest,
    }
    .say();
    drop(processes);
    drop(servers);
    ksm::settle()?;
    Ok(Run {
        verified_pages,
        ..run
    })
}

fn watch(race: &Race, setup: &Setup, pids: &[u32], target: f64) -> Result<Run> {
    let mut watch = Watch::new(pids, setup)?;
    watch.begin();
    let mut system = race.variant.start(setup, pids)?;
    let mut reached = None;
    while watch.elapsed() < race.limit {
        let look = watch.look(system.as_mut())?;
        Event::Progress {
            variant: race.variant.name.clone(),
            look,
            mergeable_mib: target,
            limit_seconds: race.limit.as_secs_f64(),
        }
        .say();
        if look.saved_mib >= 0.95 * target {
            let since = *reached.get_or_insert_with(Instant::now);
            if since.elapsed() > AFTERWARDS {
                break;
            }
        }
    }
    let (counters, figures) = (system.report(), system.figures());
    system.stop()?;
    Ok(Run {
        own_mib: watch.own_mib,
        looks: watch.looks,
        mergeable_mib: target,
        verified_pages: 0,
        counters,
        figures,
        window: None,
    })
}

/// Compares what all servers hold with what the one never merged holds; all digests at once, since
/// each takes a core for a while.
fn prove(servers: &mut [Server], control: &mut Server) -> Result<String> {
    let (expected, found) = std::thread::scope(|scope| {
        let asked: Vec<_> = servers
            .iter_mut()
            .map(|server| scope.spawn(move || server.digest()))
            .collect();
        let expected = control.digest();
        let found: Vec<_> = asked
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        (expected, found)
    });
    let expected = expected?;
    for (number, digest) in found.into_iter().enumerate() {
        let digest = match digest {
            Ok(digest) => digest?,
            Err(_) => anyhow::bail!("asking redis-server {number} panicked"),
        };
        ensure!(
            digest == expected,
            "redis-server {number} holds other data than the one never merged: {digest}, not {expected}"
        );
    }
    Ok(expected)
}
