//! hints-cost: the cost of the programs that report I/O and new memory to the processes that do it.
//!
//! - `build`: compiles sources of its library to files.
//! - `read`: reads them again and again, and sums them up.
//! - `fault`: maps a MiB and touches its pages, again and again.
//! - `table`: maps 128 MiB and touches a page in 2 MiB: each fault takes a page table, the worst
//!   case of growth.
//! - `fork`: forks a child that ends, again and again: page tables without growth.
//!
//! Each runs with the programs not loaded (`off`), loaded (`loaded`), and loaded while the process
//! is followed (`followed`): one after the other, and so several times (`--repeats`), in one boot.
//! A run is compared with the one without programs beside it; the least and the most of five bound
//! the median with 94 %. Hints are not read while it runs; reading them is the daemon's CPU, not
//! the program's.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use uksm_linux::hints::Hints;
use uksm_policy::command::SpaceId;
use uksm_results::report::{Measured, Report};

use crate::measure::cpu::CpuClock;
use crate::programs::python::Python;
use crate::setup::Setup;

/// Default cases.
const CASES: [&str; 5] = ["build", "read", "fault", "table", "fork"];
/// Number of sources, and of repetitions.
const BUILT: (u32, u32) = (40, 1);
const READ: (u32, u32) = (150, 20);
/// MiB that are mapped, and repetitions.
const FAULTED: (u32, u32) = (100, 10);
/// Mappings of 128 MiB with few touched pages, and repetitions.
const TABLED: (u32, u32) = (100, 4);
/// Forks, and repetitions.
const FORKED: (u32, u32) = (100, 1);

/// Least number of reported calls for a cost of one call: fewer drown in other differences between
/// two runs.
const TOLD: u64 = 1000;

/// The state of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Programs {
    Off,
    Loaded,
    Followed,
}

impl Programs {
    const ALL: [(&'static str, Programs); 3] = [
        ("off", Programs::Off),
        ("loaded", Programs::Loaded),
        ("followed", Programs::Followed),
    ];
}

/// The work of the Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PythonWork {
    Build,
    Read,
    Fault,
    Table,
    Fork,
}

impl PythonWork {
    fn name(self) -> &'static str {
        match self {
            PythonWork::Build => "build",
            PythonWork::Read => "read",
            PythonWork::Fault => "fault",
            PythonWork::Table => "table",
            PythonWork::Fork => "fork",
        }
    }
}

impl FromStr for PythonWork {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<PythonWork> {
        match name {
            "build" => Ok(PythonWork::Build),
            "read" => Ok(PythonWork::Read),
            "fault" => Ok(PythonWork::Fault),
            "table" => Ok(PythonWork::Table),
            "fork" => Ok(PythonWork::Fork),
            _ => anyhow::bail!("case '{name}': there are {}", CASES.join(", ")),
        }
    }
}

/// One run: CPU of the process, in seconds, a digest of its result, and reported calls.
#[derive(Debug, Clone, Copy)]
struct PythonRun {
    cpu: f64,
    digest: u64,
    calls: u64,
}

/// Runs all cases.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("hints-cost")?;
    for case in setup.cases_or::<PythonWork>(&CASES)? {
        // From then on the files are in the page cache.
        once(case, Programs::Off)?;
        let mut runs: BTreeMap<&str, Vec<PythonRun>> = BTreeMap::new();
        for _ in 0..setup.repeats {
            for (name, programs) in Programs::ALL {
                let run =
                    once(case, programs).with_context(|| format!("{name} {}", case.name()))?;
                runs.entry(name).or_default().push(run);
            }
        }
        let off = runs["off"].clone();
        for (name, _) in Programs::ALL {
            let measured = compare(name, case, &runs[name], &off)?;
            println!("{name} {}: {:.3?}", case.name(), measured.figures);
            report.variants.push(measured);
        }
    }
    Ok(report)
}

fn once(case: PythonWork, programs: Programs) -> Result<PythonRun> {
    let (files, times) = match case {
        PythonWork::Build => BUILT,
        PythonWork::Read => READ,
        PythonWork::Fault => FAULTED,
        PythonWork::Table => TABLED,
        PythonWork::Fork => FORKED,
    };
    let mut hints = match programs {
        Programs::Off => None,
        Programs::Loaded | Programs::Followed => Some(Hints::open()?),
    };
    let mut python = Python::worker(case.name(), files, times, false)?;
    if let Some(hints) = hints.as_mut().filter(|_| programs == Programs::Followed) {
        hints.follow(python.pid(), SpaceId(1));
    }
    let clock = CpuClock::of(python.pid())?;
    let before = clock.now()?;
    let digest = python.work()?;
    Ok(PythonRun {
        cpu: (clock.now()? - before).as_secs_f64(),
        digest,
        calls: hints.map_or(0, |hints| hints.counts().calls),
    })
}

/// The runs of a variant, each beside one without programs.
fn compare(
    name: &str,
    case: PythonWork,
    runs: &[PythonRun],
    off: &[PythonRun],
) -> Result<Measured> {
    let is_same = |run: &&PythonRun| run.digest == off[0].digest;
    let wrong = runs.iter().find(|run| !is_same(run));
    ensure!(
        wrong.is_none(),
        "{name}: something else was made: {wrong:?}"
    );
    let pairs = runs.iter().zip(off);
    let mut more: Vec<f64> = pairs
        .map(|(run, off)| 100.0 * (run.cpu / off.cpu - 1.0))
        .collect();
    more.sort_by(f64::total_cmp);
    let mut cpu: Vec<f64> = runs.iter().map(|run| run.cpu).collect();
    cpu.sort_by(f64::total_cmp);
    let median = cpu[cpu.len() / 2];
    let mut figures = BTreeMap::from([
        ("more_percent".to_owned(), more[more.len() / 2]),
        ("more_percent_least".to_owned(), more[0]),
        ("more_percent_most".to_owned(), more[more.len() - 1]),
    ]);
    let calls = runs[0].calls;
    if calls >= TOLD {
        let extra: f64 = runs
            .iter()
            .zip(off)
            .map(|(run, off)| run.cpu - off.cpu)
            .sum();
        let each = extra * 1e9 / (calls as f64 * runs.len() as f64);
        figures.extend([
            ("calls".to_owned(), calls as f64),
            ("ns_a_call".to_owned(), each),
        ]);
    }
    Ok(Measured {
        name: name.to_owned(),
        case: case.name().to_owned(),
        wall_seconds: median,
        cpu_seconds: median,
        finished: true,
        cpu_seconds_of_runs: runs.iter().map(|run| run.cpu).collect(),
        figures,
        ..Measured::default()
    })
}
