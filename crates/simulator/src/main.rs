//! `uksm-simulate`: experiments on simulated hosts, and runs in which anything may go wrong.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Parser, Subcommand};
use uksm_results::{exit_status, pictures};
use uksm_simulator::Costs;
use uksm_simulator::check::Violation;
use uksm_simulator::experiment::{Custom, EXPERIMENTS, Experiment, Setup};
use uksm_simulator::seed::{self, Plan};

#[derive(Parser)]
#[command(
    version,
    about = "Runs the policy on simulated hosts",
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the experiments
    List,
    /// Run an experiment
    Run(Options),
    /// Run one seed in which anything may happen, and check everything
    Seed(OneSeed),
    /// Run many of them; one that fails is made smaller and printed as a command
    Seeds(ManySeeds),
}

/// Seeds fit in 32 bits: they are part of contents.
const LAST_SEED: u64 = u32::MAX as u64;

fn seed_range() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=LAST_SEED)
}

#[derive(clap::Args)]
struct OneSeed {
    /// The seed
    #[arg(value_parser = seed_range())]
    seed: u64,
    /// Events and faults to leave out
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// End events and faults after this many milliseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    milliseconds: Option<u64>,
}

#[derive(clap::Args)]
struct ManySeeds {
    /// The first seed
    #[arg(long, default_value_t = 1, value_parser = seed_range())]
    first: u64,
    /// How many
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: u64,
    /// Threads; one for each core if not given
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(clap::Args)]
struct Options {
    /// Name of the experiment
    experiment: String,
    /// Seed of everything
    #[arg(long, default_value_t = 1, value_parser = seed_range())]
    seed: u64,
    /// Costs: a TOML file, or `emulated`, `native` or `counted`
    #[arg(long, default_value = "emulated")]
    costs: String,
    /// Only cases with this in their name
    #[arg(long)]
    cases: Option<String>,
    /// Only these variants
    #[arg(long, value_delimiter = ',')]
    variants: Vec<String>,
    /// Another layout for scatter: PROCESSES,MIB,PERCENT,PLACE, where PLACE is same, singly, guest
    /// or runs:LENGTH
    #[arg(long)]
    layout: Option<Custom>,
    /// Set a parameter of the engine, as `name=value`
    #[arg(long = "set", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// Runs of each case, to separate the real time of steps from other work of this machine
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    times: u32,
    /// Threads; one for each core if not given
    #[arg(long)]
    threads: Option<usize>,
    /// Folder for the result
    #[arg(long, default_value = "results")]
    output: PathBuf,
}

fn main() -> ExitCode {
    exit_status::of("uksm-simulate", run(Cli::parse().command))
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::List => {
            for experiment in &EXPERIMENTS {
                println!("{:<16} {}", experiment.name, experiment.question);
            }
            Ok(())
        }
        Command::Run(options) => experiment(&options),
        Command::Seed(one) => one_seed(&one),
        Command::Seeds(many) => many_seeds(&many),
    }
}

fn one_seed(one: &OneSeed) -> Result<()> {
    let known: Vec<&str> = Plan::all_parts().collect();
    for name in &one.without {
        if !known.contains(&name.as_str()) {
            bail!("nothing is called '{name}'; there are {}", known.join(", "));
        }
    }
    let mut plan = Plan::of(one.seed).without(&one.without);
    if let Some(milliseconds) = one.milliseconds {
        plan.length = milliseconds * 1_000_000;
    }
    let outcome = seed::run(&plan);
    let fired = outcome.fired.iter().filter(|(_, count)| *count > 0);
    let fired: Vec<String> = fired.map(|(f, n)| format!("{} {n}", f.name())).collect();
    println!(
        "seed {}: {} steps, {} pages merged, {} waited longest; {}",
        one.seed,
        outcome.steps,
        outcome.merged,
        seconds(outcome.longest_wait),
        fired.join(", ")
    );
    match outcome.failed {
        None => Ok(()),
        Some((at, violation)) => bail!("after {}: {violation}", seconds(at)),
    }
}

fn many_seeds(many: &ManySeeds) -> Result<()> {
    let seeds = many.first..many.first + many.count;
    if seeds.end - 1 > LAST_SEED {
        bail!("the last seed is {LAST_SEED}");
    }
    // The message of a panic is part of the outcome of its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let step = (many.count / 100).max(1);
    let progress = |done: u64| {
        if done.is_multiple_of(step) {
            eprintln!("{done} of {} seeds", many.count);
        }
    };
    let swarm = seed::swarm(seeds, threads(many.threads), &progress);
    println!(
        "{} seeds, {} steps, {} pages merged; seed {} has the duplicate that waited longest, {}",
        swarm.seeds,
        swarm.steps,
        swarm.merged,
        swarm.longest_wait.1,
        seconds(swarm.longest_wait.0)
    );
    println!("faults: {}", swarm.counts());
    if let Some((seed, at, violation)) = &swarm.failed {
        println!("seed {seed} fails after {}: {violation}", seconds(*at));
        println!("{}", smallest(*seed, violation));
        bail!("seed {seed} fails");
    }
    let missing = swarm.missing();
    if many.count >= 1000 && !missing.is_empty() {
        bail!("never struck: {}", missing.join(", "));
    }
    Ok(())
}

/// The command that repeats the failure of a seed with the fewest events and faults.
fn smallest(seed: u64, violation: &Violation) -> String {
    let (plan, left_out) = seed::minimise(&Plan::of(seed), violation.check);
    let without = if left_out.is_empty() {
        String::new()
    } else {
        format!(" --without {}", left_out.join(","))
    };
    let milliseconds = plan.length / 1_000_000;
    format!("make simulate-seed SEED={seed} OPTIONS='--milliseconds {milliseconds}{without}'")
}

fn seconds(time: u64) -> String {
    format!("{:.2} s", time as f64 / 1e9)
}

fn threads(given: Option<usize>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    given.unwrap_or(cores).max(1)
}

fn experiment(options: &Options) -> Result<()> {
    let experiment = Experiment::named(&options.experiment).map_err(|error| anyhow!(error))?;
    let (costs, costs_name) =
        Costs::named_or_in_file(&options.costs).map_err(|error| anyhow!(error))?;
    let parameters = options.parameters.iter().map(|given| {
        let (name, value) = given.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    let parameters: Option<Vec<(String, String)>> = parameters.collect();
    let setup = Setup {
        costs,
        costs_name,
        seed: options.seed,
        parameters: parameters.context("--set needs NAME=VALUE")?,
        cases: options.cases.clone(),
        variants: options.variants.clone(),
        layout: options.layout,
        times: options.times,
    };
    let report = experiment
        .run(&setup, threads(options.threads), &|line| {
            eprintln!("{line}");
        })
        .map_err(|error| anyhow!(error))?;
    print!("{}", report.table());
    write(&options.output, experiment.name, "json", &report.json()?)?;
    let svg = pictures::svg(&report)?;
    write(&options.output, experiment.name, "svg", &svg)
}

fn write(folder: &Path, name: &str, extension: &str, text: &str) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join(format!("simulated-{name}.{extension}"));
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("{}", path.display());
    Ok(())
}
