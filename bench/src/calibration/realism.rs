//! The accuracy of the simulator: the same workloads in a guest and on a simulated host.
//!
//! The guest counts instructions, and the simulator's costs were counted in such a guest by
//! micro-benchmarks (`calibrate`). So both sides have one unit, and nothing was fitted to the
//! compared figures. A row that is out of bounds is reported, and fails the command.

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use uksm_results::agreement::{self, Bounds, Pair};
use uksm_results::clock::Clock;
use uksm_results::report::{Measured, Report};
use uksm_simulator::Costs;
use uksm_simulator::experiment::{Experiment, Setup};

use crate::boot::{self, GuestOptions};

/// The permitted deviations.
const BOUNDS: Bounds = Bounds {
    saved: 0.10,
    cpu: 0.35,
    nothing_mib: 1.0,
};

/// The experiments, and their options in the guest: as in the simulator's `realism`.
const RUNS: [(&str, &[&str]); 4] = [
    ("static-mixed", &["--size", "64", "--repeats", "3"]),
    ("clone", &["--size", "64", "--repeats", "3"]),
    (
        "scatter",
        &[
            "--size",
            "64",
            "--repeats",
            "3",
            "--seconds",
            "60",
            "--cases",
            "20-same,5-shuffled,100-shuffled,20-runs,45-runs64",
        ],
    ),
    (
        "cow-broken",
        &[
            "--size",
            "64",
            "--seconds",
            "30",
            "--cases",
            "round,100@10,100@20,20000@10,20000@20",
        ],
    ),
];

/// Seeds with which each case is simulated.
const SEEDS: u64 = 3;

/// Variants that both sides have.
const VARIANTS: &str = "uksm-full,ksm-unlimited,ksm-1000,uksm-unfiltered,ksm-held";

/// Memory of the guests, MiB: the largest case has 512, and frames may be a quarter of all memory.
const MEMORY_MIB: u32 = 1280;

/// How the comparison is made.
#[derive(Debug, Clone, Args)]
pub(crate) struct RealismOptions {
    #[command(flatten)]
    pub guest: GuestOptions,
    /// Costs: a TOML file, or `emulated`, `native` or `counted`
    #[arg(long, default_value = "counted")]
    pub costs: String,
    /// Compare with the guest's results that are in the folder already
    #[arg(long)]
    pub keep: bool,
}

/// Runs both sides, and compares.
///
/// # Errors
/// A row is out of bounds; a side cannot be run.
pub(crate) fn run(options: &RealismOptions) -> Result<()> {
    let costs = Costs::named_or_in_file(&options.costs).map_err(|error| anyhow!(error))?;
    if !options.keep {
        for (name, arguments) in RUNS {
            boot::experiment(name, &guest(options, arguments))?;
        }
    }
    let seeds = options.guest.seed..options.guest.seed + SEEDS;
    let simulated: Result<Vec<Report>> = seeds.map(|seed| simulate(seed, costs.clone())).collect();
    let simulated = simulated?;
    let runs: Vec<_> = simulated.iter().map(Report::rows).collect();
    let mut report = Report {
        experiment: "realism".to_owned(),
        seed: options.guest.seed,
        clock: Some(Clock::Instructions),
        ..Report::default()
    };
    let mut pairs = Vec::new();
    for (name, _) in RUNS {
        let guest = Report::read(&options.guest.results.join(format!("{name}.json")))?;
        ensure!(
            guest.clock() == Clock::Instructions,
            "{name}: this result does not count instructions"
        );
        let prefix = format!("{name}: ");
        let (found, alone) = agreement::pairs(&prefix, &guest.rows(), &runs);
        for row in alone.iter().filter(|row| !row.ends_with("uksm-low")) {
            println!("only in the guest: {row}");
        }
        pairs.extend(found);
        (report.kernel, report.accel) = (guest.kernel, guest.accel);
        report.memory_mib = guest.memory_mib;
    }
    ensure!(!pairs.is_empty(), "there is nothing to compare");
    println!("\n{}", agreement::table(&pairs, BOUNDS));
    for pair in &pairs {
        report.variants.extend(measured(pair));
        let label = format!("{}@{}", pair.name, pair.case);
        report.ratios.insert(
            format!("saved_simulated_vs_guest_{label}"),
            pair.saved_ratio(),
        );
        report
            .ratios
            .insert(format!("cpu_simulated_vs_guest_{label}"), pair.cpu_ratio());
    }
    println!("result {}", report.write(&options.guest.results)?.display());
    let outside = pairs.iter().filter(|pair| !pair.faults(BOUNDS).is_empty());
    let outside = outside.count();
    ensure!(
        outside == 0,
        "{outside} of {} rows are out of bounds (saved {:.0} %, CPU {:.0} %)",
        pairs.len(),
        100.0 * BOUNDS.saved,
        100.0 * BOUNDS.cpu
    );
    println!("all {} rows are within bounds", pairs.len());
    Ok(())
}

/// The guest of one experiment.
fn guest(options: &RealismOptions, arguments: &[&str]) -> GuestOptions {
    let variants = ["--variants", VARIANTS];
    GuestOptions {
        count: Clock::Instructions,
        memory: Some(options.guest.memory.unwrap_or(MEMORY_MIB)),
        options: arguments
            .iter()
            .chain(&variants)
            .map(|&argument| argument.to_owned())
            .collect(),
        ..options.guest.clone()
    }
}

/// The simulated side, with one seed.
fn simulate(seed: u64, (costs, costs_name): (Costs, String)) -> Result<Report> {
    let experiment = Experiment::named("realism").map_err(|error| anyhow!(error))?;
    let setup = Setup {
        costs,
        costs_name,
        seed,
        parameters: vec![],
        cases: None,
        variants: vec![],
        layout: None,
        times: 1,
    };
    experiment
        .run(&setup, 1, &|line| eprintln!("{line}"))
        .map_err(|error| anyhow!(error))
}

/// Both sides of a pair as variants of a result.
fn measured(pair: &Pair) -> [Measured; 2] {
    [("guest", pair.guest), ("simulated", pair.model)].map(|(side, figures)| Measured {
        name: format!("{} ({side})", pair.name),
        case: pair.case.clone(),
        saved_mib: figures.saved_mib,
        cpu_seconds: figures.cpu,
        ..Measured::default()
    })
}
