//! hints-programs: real programs that read the same files, redis-servers and Pythons.
//!
//! A case is `PROGRAM-CPU`: the program, and the amount of CPU as in the other experiments of
//! hints.
//!
//! - `redis`: four servers load one file of 32 MiB of values (`--size`).
//! - `python`: four Pythons import the large modules of the standard library.
//! - `python_alike`: the same without random values of each process: addresses of mappings, by the
//!   kernel, and the seed of hashes, by Python.
//!
//! The programs run and wait when a system starts; after ten seconds they are ordered to load. The
//! mergeable pages are known at the end, from contents: see [`crate::measure::sharing`] for the
//! times.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use uksm_results::report::{Measured, Report};
use uksm_results::timeline::{Look, Timeline};

use super::case::{Cpu, cpu_named};
use super::figures::{against_ksm, figures_since, hint_figures, ratios};
use crate::guests::huge_pages;
use crate::measure::duplicates::equal_pages;
use crate::measure::pagemap::Place as Page;
use crate::measure::sharing::Sharing;
use crate::programs::python::Python;
use crate::programs::redis::{Installation, Server, make_file, provide_file};
use crate::setup::Setup;
use crate::units::mib;
use crate::variants::{System, Variant, ksm};

/// Default cases.
const CASES: [&str; 4] = ["redis-low", "python-low", "python_alike-low", "redis-full"];
/// Processes of a case.
const PROCESSES: usize = 4;
/// Time of a system before the programs load.
const LEAD: Duration = Duration::from_secs(10);
/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(250);
/// The kernel's switch for random addresses.
const RANDOMIZE: &str = "/proc/sys/kernel/randomize_va_space";

/// A program that loads something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Redis,
    Python,
    PythonAlike,
}

/// The parts of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProgramCase {
    program: Program,
    cpu: Cpu,
}

impl Program {
    const ALL: [(&'static str, Program); 3] = [
        ("redis", Program::Redis),
        ("python", Program::Python),
        ("python_alike", Program::PythonAlike),
    ];
}

impl fmt::Display for ProgramCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Program::ALL.iter().find(|named| named.1 == self.program);
        write!(f, "{}-{}", named.map_or("", |named| named.0), self.cpu)
    }
}

impl FromStr for ProgramCase {
    type Err = Error;

    fn from_str(name: &str) -> Result<ProgramCase> {
        let form = || format!("case '{name}': not of the form PROGRAM-CPU, as in redis-low");
        let (program, cpu) = name.split_once('-').with_context(form)?;
        let program = Program::ALL.iter().find(|named| named.0 == program);
        let program = program.with_context(|| format!("no such program; {}", form()))?;
        Ok(ProgramCase {
            program: program.1,
            cpu: cpu_named(cpu).with_context(form)?,
        })
    }
}

/// Runs all variants of all cases.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("hints-programs")?;
    let place = Installation::of("/bin/redis-server".into())?;
    huge_pages(setup.huge)?;
    let cases: Vec<ProgramCase> = setup.cases_or(&CASES)?;
    if cases.iter().any(|case| case.program == Program::Redis) {
        make_file(&place, setup.size_or(32), setup.seed)?;
        provide_file(&place, false)?;
    }
    for case in cases {
        // The kernel's default, which the harness turns off for all its guests.
        let draws = if case.program == Program::PythonAlike {
            "0"
        } else {
            "2"
        };
        std::fs::write(RANDOMIZE, draws).context(RANDOMIZE)?;
        let measured = against_ksm(setup, case.cpu, &mut |variant| {
            let mut measured = once(case, variant, setup, &place)
                .with_context(|| format!("{} {case}", variant.name))?;
            measured.case = case.to_string();
            println!("{} {case}: {:.3?}", measured.name, measured.figures);
            Ok(measured)
        })?;
        ratios(&mut report, &measured, &case.to_string());
        report.variants.extend(measured);
    }
    Ok(report)
}

/// A thread that waits for one process to load.
type LoadThread = JoinHandle<Result<(CaseProcesses, f64)>>;

/// Processes of a case, running.
enum CaseProcesses {
    Servers(Vec<Server>),
    Pythons(Vec<Python>),
}

impl CaseProcesses {
    fn start(case: ProgramCase, mergeable: bool, place: &Installation) -> Result<CaseProcesses> {
        let numbers = 0..PROCESSES;
        Ok(match case.program {
            Program::Redis => {
                let start = |number| Server::start(place, &format!("server-{number}"), mergeable);
                let mut servers: Vec<Server> = numbers.map(start).collect::<Result<_>>()?;
                for server in &mut servers {
                    server.loaded()?;
                }
                provide_file(place, true)?;
                CaseProcesses::Servers(servers)
            }
            program => {
                let alike = program == Program::PythonAlike;
                let start = |_| Python::start(mergeable, alike);
                CaseProcesses::Pythons(numbers.map(start).collect::<Result<_>>()?)
            }
        })
    }

    fn pids(&self) -> Vec<u32> {
        match self {
            CaseProcesses::Servers(servers) => servers.iter().map(Server::pid).collect(),
            CaseProcesses::Pythons(pythons) => pythons.iter().map(Python::pid).collect(),
        }
    }

    /// Makes all load at once; the waiting threads return the seconds that it took.
    fn load(self) -> Result<Vec<LoadThread>> {
        let begin = Instant::now();
        let mut threads = Vec::new();
        match self {
            CaseProcesses::Servers(servers) => {
                for mut server in servers {
                    threads.push(std::thread::spawn(move || {
                        Server::reload(server.connection())?;
                        Ok((
                            CaseProcesses::Servers(vec![server]),
                            begin.elapsed().as_secs_f64(),
                        ))
                    }));
                }
            }
            CaseProcesses::Pythons(mut pythons) => {
                for python in &mut pythons {
                    python.import()?;
                }
                for mut python in pythons {
                    threads.push(std::thread::spawn(move || {
                        ensure!(python.imported()? > 200, "few modules were imported");
                        Ok((
                            CaseProcesses::Pythons(vec![python]),
                            begin.elapsed().as_secs_f64(),
                        ))
                    }));
                }
            }
        }
        Ok(threads)
    }

    /// A digest of the processes' data, equal in all that loaded the same.
    fn digest(&mut self) -> Result<String> {
        match self {
            CaseProcesses::Servers(servers) => servers[0].digest(),
            CaseProcesses::Pythons(pythons) => Ok(pythons[0].digest()?.to_string()),
        }
    }
}

fn once(
    case: ProgramCase,
    variant: &Variant,
    setup: &Setup,
    place: &Installation,
) -> Result<Measured> {
    let running = CaseProcesses::start(case, variant.needs_mergeable(), place)?;
    let pids = running.pids();
    let mut observation = ProgramObservation {
        sharing: Sharing::default(),
        begin: Instant::now(),
        looks: Vec::new(),
        own_mib: 0.0,
    };
    let saved_before = observation.sharing.look(0.0, &pids)?.saved;
    observation.begin = Instant::now();
    let mut system = variant.start(setup, &pids)?;
    while observation.begin.elapsed() < LEAD {
        observation.look(system.as_mut(), &pids)?;
    }
    let go = observation.begin.elapsed();
    let threads = running.load()?;
    while observation.begin.elapsed() < go + setup.limit_or(60) {
        observation.look(system.as_mut(), &pids)?;
    }
    let mut load_seconds: f64 = 0.0;
    let mut loaded = Vec::new();
    for thread in threads {
        let Ok(outcome) = thread.join() else {
            bail!("waiting for a program panicked");
        };
        let (running, seconds) = outcome?;
        load_seconds = load_seconds.max(seconds);
        loaded.push(running);
    }
    let (cpu, counters, figures) = (system.cpu()?, system.report(), system.figures());
    system.stop()?;
    drop(system);
    let equal = equal_pages(&pids)?;
    let mut digests = Vec::new();
    for running in &mut loaded {
        digests.push(running.digest()?);
    }
    ensure!(
        digests.iter().all(|digest| *digest == digests[0]),
        "processes that loaded the same hold different things: {digests:?}"
    );
    drop(loaded);
    if case.program == Program::Redis {
        provide_file(place, false)?;
    }
    ksm::settle()?;
    let mut measured = Measured {
        name: variant.name.clone(),
        cpu_seconds: cpu.as_secs_f64(),
        cpu_seconds_of_runs: vec![cpu.as_secs_f64()],
        wall_seconds: (go + setup.limit_or(60)).as_secs_f64(),
        mergeable_mib: mib(equal.mergeable()) - mib(saved_before),
        daemon_mib: observation.own_mib,
        counters,
        figures,
        ..Measured::default()
    };
    observation.fill(&mut measured, &equal.sets, saved_before, go.as_secs_f64());
    measured
        .figures
        .insert("load_seconds".to_owned(), load_seconds);
    let percent = 100.0 * measured.cpu_seconds / measured.wall_seconds;
    measured.figures.insert("cpu_percent".to_owned(), percent);
    hint_figures(&mut measured);
    Ok(measured)
}

/// A run under observation.
struct ProgramObservation {
    sharing: Sharing,
    begin: Instant,
    looks: Vec<(Look, usize)>,
    own_mib: f64,
}

impl ProgramObservation {
    fn look(&mut self, system: &mut dyn System, pids: &[u32]) -> Result<()> {
        system.adjust()?;
        let (begin, cpu) = (self.begin.elapsed(), system.cpu()?);
        let seen = self.sharing.look(begin.as_secs_f64(), pids)?;
        let taken = self.begin.elapsed() - begin;
        let look = Look {
            seconds: (begin + taken / 2).as_secs_f64(),
            cpu_seconds: cpu.as_secs_f64(),
            saved_mib: 0.0,
            mapped_mib: mib(seen.mapped),
        };
        self.looks.push((look, seen.saved));
        self.own_mib = self.own_mib.max(system.own_mib());
        std::thread::sleep(INTERVAL.max(taken * 2));
        Ok(())
    }

    /// Adds the observations to a result.
    fn fill(self, measured: &mut Measured, sets: &[Vec<Page>], saved_before: usize, go: f64) {
        let looks = self.looks.iter().map(|&(look, saved)| Look {
            saved_mib: mib(saved) - mib(saved_before),
            ..look
        });
        let looks: Vec<Look> = looks.collect();
        let last = looks.last().copied();
        let mut times = self.sharing.times(sets);
        times.sort_by(f64::total_cmp);
        let merged = times.iter().filter(|time| time.is_finite()).count();
        let percent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
        let equal: usize = sets.iter().map(Vec::len).sum();
        let mapped = last.map_or(0.0, |look| look.mapped_mib);
        let mut figures = BTreeMap::from([
            ("mapped_mib", mapped),
            ("equal_pages", equal as f64),
            (
                "equal_percent_of_mapped",
                100.0 * mib(equal) / mapped.max(1.0),
            ),
            ("merged_percent_of_equal", percent(merged, times.len())),
        ]);
        for (name, percent) in [
            ("median_seconds_to_merge", 50),
            ("p90_seconds_to_merge", 90),
        ] {
            // The times of unmerged pages are infinite.
            if let Some(seconds) = quantile(&times, percent).filter(|seconds| seconds.is_finite()) {
                figures.insert(name, seconds);
            }
        }
        let named = figures
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        measured.figures.extend(named);
        measured.saved_mib = last.map_or(0.0, |look| look.saved_mib);
        measured.looks = Timeline(looks);
        figures_since(measured, go, 0.0);
    }
}

/// The value below which `percent` of the sorted values lie.
fn quantile(sorted: &[f64], percent: usize) -> Option<f64> {
    sorted.get(sorted.len() * percent / 100).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_named_as_it_is_read() {
        for name in CASES
            .into_iter()
            .chain(["redis-20ms", "python_alike-quiet"])
        {
            assert_eq!(name.parse::<ProgramCase>().unwrap().to_string(), name);
        }
        for name in ["redis", "perl-low", "redis-fast"] {
            let error = format!("{:#}", name.parse::<ProgramCase>().unwrap_err());
            assert!(error.contains(&format!("'{name}'")), "{error}");
        }
    }

    #[test]
    fn what_was_not_merged_counts_as_endless() {
        let times = [1.0, 2.0, 3.0, f64::INFINITY];
        assert_eq!(quantile(&times, 50), Some(3.0));
        assert_eq!(quantile(&times, 90), Some(f64::INFINITY));
        assert_eq!(quantile(&[], 50), None);
    }
}
