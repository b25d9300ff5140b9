//! penalty: the cost of a merging system for the applications on the host (UKSM §8.4).
//!
//! - `build`: a Python compiles sources of its library.
//! - `make`: compilers, each a Python of its own, four at a time, compile a source each.
//! - `memory`: a Python moves 16 MiB by a cache line, again and again: as fast as memory is.
//! - `redis`: a redis-server answers one client, every other request of which writes.
//! - `postgres`: a PostgreSQL answers one client of pgbench.
//! - `threads`: four threads of a process read pages of 16 MiB, drawn at random, and write after
//!   every eighth into a quarter of them.
//!
//! - `nothing`: two processes in which no page equals another one.
//! - `merging`: two that map, fill and unmap the same pages again and again; and a twin of the
//!   application, which holds what it holds and waits.
//!
//! In each round each variant runs once, in random order, on fresh processes, and `alone` as well,
//! where nothing merges. A system serves all processes, including later ones, and has some seconds
//! for existing ones before the application begins. Each run is compared with that alone of its
//! round: `percent` is the additional CPU time of all processes of the application, faults and
//! waits for locks included; `elapsed_percent` the additional elapsed time, the processors used by
//! the system included. The interval is that of 95 % for the mean of the pairs. All runs must have
//! the same result, which is checked.

mod app;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use uksm_results::interval::bounds;
use uksm_results::report::{Measured, Report};
use uksm_results::timeline::median;

use self::app::{App, RunningApp};
use crate::comparison::rounds::order;
use crate::comparison::trial::start_workload;
use crate::programs::redis::Installation;
use crate::setup::Setup;
use crate::variants::uksm::LOADED;
use crate::variants::{System, Variant};
use crate::workload::{Behaviour, Contents, Part, Process, Spec};

/// MiB of each process beside the application, and the life of equal pages in `merging`.
const BESIDE_MIB: usize = 64;
const MERGED_MIB: usize = 8;
const STAY: Duration = Duration::from_millis(500);
/// Time of a system before the application begins: the daemon's programs work beside it.
const SETTLE: Duration = LOADED;

/// The name of runs without merging.
const ALONE: &str = "alone";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Nothing,
    Merging,
}

impl State {
    const ALL: [(&'static str, State); 2] =
        [("nothing", State::Nothing), ("merging", State::Merging)];

    /// The processes beside the application.
    fn specs(self, seed: u64) -> Vec<Spec> {
        let part = |family| match self {
            State::Nothing => Part::still(Contents::Distinct, family, BESIDE_MIB),
            State::Merging => {
                let wait_ms = u64::try_from(STAY.as_millis()).unwrap_or(u64::MAX);
                Part::still(Contents::Distinct, 1, MERGED_MIB)
                    .with(Behaviour::ShortLived { wait_ms })
            }
        };
        let spec = |family| Spec {
            seed,
            parts: vec![part(family)],
            huge: false,
            mergeable: false,
        };
        vec![spec(1), spec(2)]
    }
}

/// The result of one run.
#[derive(Debug, Clone)]
struct AppRun {
    /// CPU time of the application, and its elapsed time, in seconds.
    cpu: f64,
    elapsed: f64,
    /// CPU time of the system meanwhile.
    system: f64,
    /// Time within which 99 % of the requests were answered, in seconds, if there were any.
    p99: Option<f64>,
    /// A digest of the results.
    digest: String,
}

/// Runs all cases.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("penalty")?;
    let place = Installation::of("/bin/redis-server".into())?;
    let names = App::ALL.map(|(name, _)| name);
    let apps: Vec<App> = setup.cases_or(&names)?;
    let variants: Vec<Variant> = variants()
        .into_iter()
        .filter(|variant| variant.is_run(setup))
        .collect();
    for (app_name, app) in App::ALL.into_iter().filter(|(_, app)| apps.contains(app)) {
        app.prepare(&place, setup.seed)?;
        for (state_name, state) in State::ALL {
            let case = format!("{app_name},{state_name}");
            let mut runs: BTreeMap<&str, Vec<AppRun>> = BTreeMap::new();
            for round in 0..setup.repeats {
                let setup = setup.in_round(round);
                // Each state has contents of its own, too.
                let seed = setup.round_seed();
                for (name, variant) in in_order(&variants, &setup) {
                    let stage = Stage::set((app, state, seed), variant, &place, &setup);
                    let run = stage.and_then(|stage| {
                        std::thread::sleep(SETTLE);
                        stage.measure(seed)
                    });
                    let run = run.with_context(|| format!("{name} {case}"))?;
                    println!(
                        "{name} {case}: {:.3} s CPU in {:.3} s",
                        run.cpu, run.elapsed
                    );
                    runs.entry(name).or_default().push(run);
                }
            }
            let alone = runs.get(ALONE).cloned().unwrap_or_default();
            for (name, runs) in &runs {
                report.variants.push(compare(name, &case, runs, &alone)?);
            }
        }
    }
    Ok(report)
}

fn variants() -> Vec<Variant> {
    let governors = ["full", "medium", "low", "quiet"].map(Variant::uksm_governor);
    let ksm = [Variant::ksm_unlimited(), Variant::ksm_shipped()];
    governors.into_iter().chain(ksm).collect()
}

/// All variants of a round, and the one without a system, in random order.
fn in_order<'v>(variants: &'v [Variant], setup: &Setup) -> Vec<(&'v str, Option<&'v Variant>)> {
    let named = variants.iter().map(|one| (one.name.as_str(), Some(one)));
    let all: Vec<_> = named.chain([(ALONE, None)]).collect();
    let order = order(all.len(), setup).into_iter();
    order.map(|at| all[at]).collect()
}

/// The processes of a run, and the system that serves them.
struct Stage {
    app: RunningApp,
    system: Option<Box<dyn System>>,
    _twin: Option<RunningApp>,
    _beside: Vec<Process>,
}

impl Stage {
    /// Starts all processes, then the system, if there is a variant.
    fn set(
        (app, state, seed): (App, State, u64),
        variant: Option<&Variant>,
        place: &Installation,
        setup: &Setup,
    ) -> Result<Stage> {
        let nobody = Variant::uksm(ALONE, &[]);
        let offered = variant.unwrap_or(&nobody);
        let mergeable = offered.needs_mergeable();
        let beside = start_workload(&state.specs(seed), offered, setup)?;
        let start = |name| RunningApp::start((app, seed), place, name, mergeable);
        let (app, twin) = match state {
            State::Nothing => (start("app")?, None),
            State::Merging => (start("app")?, Some(start("twin")?)),
        };
        // The system serves all present and future processes: applications start processes.
        let system = variant.map(|variant| variant.start(setup, &[]));
        Ok(Stage {
            app,
            system: system.transpose()?,
            _twin: twin,
            _beside: beside,
        })
    }

    fn system_cpu(&self) -> Result<Duration> {
        self.system
            .as_ref()
            .map_or(Ok(Duration::ZERO), |system| system.cpu())
    }

    /// Makes the application work, and ends the system.
    fn measure(mut self, seed: u64) -> Result<AppRun> {
        let (cpu, system, begun) = (self.app.cpu()?, self.system_cpu()?, Instant::now());
        let mut answered = self.app.work(seed)?;
        let elapsed = begun.elapsed();
        let cpu = self.app.cpu()?.saturating_sub(cpu);
        let system_cpu = self.system_cpu()?.saturating_sub(system);
        if let Some(system) = &mut self.system {
            system.adjust()?;
            system.stop()?;
        }
        answered.sort();
        let p99 = answered.get(answered.len() * 99 / 100);
        Ok(AppRun {
            cpu: cpu.as_secs_f64(),
            elapsed: elapsed.as_secs_f64(),
            system: system_cpu.as_secs_f64(),
            p99: p99.map(Duration::as_secs_f64),
            digest: self.app.digest()?,
        })
    }
}

/// The runs of a variant, each beside that alone of its round.
fn compare(name: &str, case: &str, runs: &[AppRun], alone: &[AppRun]) -> Result<Measured> {
    ensure!(
        runs.len() == alone.len(),
        "{name} {case}: rounds without one alone"
    );
    for (run, alone) in runs.iter().zip(alone) {
        if run.digest != alone.digest {
            bail!("{name} {case}: something else was made: {run:?}, alone {alone:?}");
        }
    }
    let mut figures = BTreeMap::new();
    if name != ALONE {
        let mut add = |figure: &str, of: &dyn Fn(&AppRun) -> Option<f64>| {
            let pairs = runs.iter().zip(alone);
            let ratios: Option<Vec<f64>> = pairs
                .map(|(run, alone)| Some(of(run)? / of(alone)?))
                .collect();
            for (bound, ratio) in bounds(&ratios.unwrap_or_default()) {
                figures.insert(format!("{figure}{bound}@{case}"), 100.0 * (ratio - 1.0));
            }
        };
        add("percent", &|run| Some(run.cpu));
        add("elapsed_percent", &|run| Some(run.elapsed));
        add("p99_percent", &|run| run.p99);
    }
    let median_of = |of: &dyn Fn(&AppRun) -> Option<f64>| {
        let all: Option<Vec<f64>> = runs.iter().map(of).collect();
        median(&all.unwrap_or_default())
    };
    let own = [
        ("system_cpu_seconds", median_of(&|run| Some(run.system))),
        (
            "p99_ms",
            median_of(&|run| run.p99.map(|seconds| 1000.0 * seconds)),
        ),
    ];
    figures.extend(
        own.into_iter()
            .filter_map(|(name, figure)| Some((name.to_owned(), figure?))),
    );
    Ok(Measured {
        name: name.to_owned(),
        case: case.to_owned(),
        wall_seconds: median_of(&|run| Some(run.elapsed)).unwrap_or_default(),
        cpu_seconds: median_of(&|run| Some(run.cpu)).unwrap_or_default(),
        finished: true,
        cpu_seconds_of_runs: runs.iter().map(|run| run.cpu).collect(),
        figures,
        ..Measured::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn once(cpu: f64, digest: &str) -> AppRun {
        AppRun {
            cpu,
            elapsed: 2.0 * cpu,
            system: 0.5,
            p99: None,
            digest: digest.to_owned(),
        }
    }

    #[test]
    fn each_run_is_compared_with_the_one_alone_of_its_round() {
        let alone = [once(1.0, "a"), once(2.0, "b")];
        let runs = [once(1.01, "a"), once(2.02, "b")];
        let measured = compare("uksm-full", "build,nothing", &runs, &alone).unwrap();
        let figure = |name: &str| measured.figures[name];
        assert!((figure("percent@build,nothing") - 1.0).abs() < 1e-9);
        assert!((figure("percent_high@build,nothing") - 1.0).abs() < 1e-6);
        assert!((figure("elapsed_percent_low@build,nothing") - 1.0).abs() < 1e-6);
        assert!(!measured.figures.contains_key("p99_percent@build,nothing"));
    }

    #[test]
    fn what_made_something_else_is_an_error() {
        let error = compare("uksm-full", "x", &[once(1.0, "a")], &[once(1.0, "b")]).unwrap_err();
        assert!(error.to_string().contains("something else"), "{error}");
    }
}
