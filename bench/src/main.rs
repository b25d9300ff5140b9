//! `uksm-bench`: workloads, experiments, the demo and their pictures.
//!
//! Inside a guest, as root, with the module loaded: `uksm-bench run NAME` and `uksm-bench
//! demo-guest`. Outside: `uksm-bench bench NAME` and `uksm-bench demo` boot the guest with the
//! harness, show its reports, and draw the result.

mod boot;
mod calibration;
mod comparison;
mod contents;
mod demo;
mod disk_machines;
mod experiments;
mod guests;
mod low_memory;
mod measure;
mod microbenchmarks;
mod native_ksm;
mod programs;
mod rng;
mod setup;
mod trace;
mod units;
mod variants;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use uksm_results::clock::Clock;
use uksm_results::report::Report;
use uksm_results::{cost_figure, exit_status, pictures};

use crate::calibration::{by_function, cpu_parts, realism};
use crate::microbenchmarks::cost_file;

#[derive(Parser)]
#[command(
    version,
    about = "Measures uksm next to in-kernel KSM",
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
    /// Run an experiment in a guest
    Bench {
        /// Name of the experiment
        experiment: String,
        /// Show where the guest's instructions go, by owner and function; needs --count
        /// instructions
        #[arg(long)]
        profile: bool,
        /// Model a processor's caches as well: many times slower; needs --profile
        #[arg(long, requires = "profile")]
        caches: bool,
        #[command(flatten)]
        shown: by_function::DisplayOptions,
        #[command(flatten)]
        guest: boot::GuestOptions,
    },
    /// Run the demo in guests
    Demo {
        /// Virtual machines that boot for each setting; 0 leaves them out
        #[arg(long, default_value_t = 4)]
        machines: usize,
        #[command(flatten)]
        guest: boot::GuestOptions,
    },
    /// Run an experiment here: in a guest, as root, with the module loaded
    Run {
        /// Name of the experiment
        experiment: String,
        #[command(flatten)]
        setup: setup::Setup,
    },
    /// Run the demo here: in a guest, as root, with the module loaded
    DemoGuest {
        #[command(flatten)]
        setup: setup::Setup,
        #[command(flatten)]
        sizes: demo::guest::Sizes,
    },
    /// Draw results as SVG beside their JSON files
    Plot {
        /// Results
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Draw one case of a result of `installed` as SVG: net memory saved over the share of a core
    Figure {
        /// The result
        file: PathBuf,
        /// The case
        #[arg(long)]
        case: String,
        /// Where it is written
        #[arg(long)]
        output: PathBuf,
    },
    /// Print results, and profiles, as tables
    Table {
        /// Results
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        shown: by_function::DisplayOptions,
    },
    /// Measure what the simulator needs to know of costs, in a guest that counts instructions, and
    /// write it as a file of costs
    Calibrate {
        #[command(flatten)]
        guest: boot::GuestOptions,
        /// The file
        #[arg(long, default_value = "crates/simulator/costs/counted.toml")]
        output: PathBuf,
    },
    /// Hold the model of caches against this machine: what is done to pages is timed here, and
    /// counted in a guest
    CalibrateCaches {
        /// Runs of each here; the median counts
        #[arg(long, default_value_t = 7)]
        repeats: usize,
        #[command(flatten)]
        guest: boot::GuestOptions,
    },
    /// Run the same workloads in guests that count instructions and on simulated hosts, and say how
    /// well they agree
    Realism(realism::RealismOptions),
    /// Measure `uksm run --backend ksm` beside in-kernel KSM on this machine, as root; changes
    /// KSM's knobs meanwhile, and puts them back
    NativeKsm(native_ksm::NativeKsmOptions),
    /// Print where the daemon's CPU went, from the results of several experiments
    Profile {
        /// Folder of results
        #[arg(long, default_value = "results")]
        results: PathBuf,
    },
    /// Capture what processes have in memory, as identities of pages over time: no contents
    Capture(trace::capture::CaptureOptions),
    /// Be a workload (started by the experiments)
    #[command(hide = true)]
    Workload {
        /// What to be, as JSON
        spec: String,
    },
    /// Be a process of several threads that are busy (started by the experiments)
    #[command(hide = true)]
    Busy {
        /// What to be, as JSON
        spec: String,
    },
    /// Be /init of a virtual machine (started by the experiments)
    #[command(hide = true)]
    GuestReader(guests::reader::Reader),
    /// Be a member of a group (started by the experiments)
    #[command(hide = true)]
    Member {
        /// What to be, as JSON
        spec: String,
    },
    /// Act as a virtual machine (started by the experiments)
    #[command(hide = true)]
    Machine {
        /// Which, as JSON
        machine: String,
    },
}

fn main() -> ExitCode {
    exit_status::of("uksm-bench", run(Cli::parse().command))
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::List => {
            for experiment in &experiments::EXPERIMENTS {
                println!("{:<16} {}", experiment.name, experiment.question);
            }
        }
        Command::Bench {
            experiment,
            profile,
            caches,
            shown,
            guest,
        } => {
            if profile {
                boot::profiled(&experiment, &guest, caches)?;
                by_function::make(&guest.results, &experiment, &shown)?;
            } else {
                boot::experiment(&experiment, &guest)?;
            }
        }
        Command::Demo { machines, guest } => boot::demo(&guest, machines)?,
        Command::Run { experiment, setup } => experiments::run_named(&experiment, &setup)?,
        Command::DemoGuest { setup, sizes } => demo::guest::run(&setup, &sizes)?,
        Command::Plot { files } => {
            // A profile has no course over time.
            for file in files.iter().filter(|file| !by_function::is_profile(file)) {
                println!("{}", pictures::draw_beside(file)?.display());
            }
        }
        Command::Figure { file, case, output } => {
            let text = cost_figure::svg(&Report::read(&file)?, &case)?;
            let written = std::fs::write(&output, text);
            written.with_context(|| format!("cannot write {}", output.display()))?;
        }
        Command::Table { files, shown } => {
            for file in files {
                if by_function::is_profile(&file) {
                    print!("{}", by_function::read(&file, &shown)?);
                } else {
                    println!("{}", Report::read(&file)?.table());
                }
            }
        }
        Command::Calibrate { guest, output } => {
            let guest = boot::GuestOptions {
                count: Clock::Instructions,
                ..guest
            };
            boot::experiment("calibrate", &guest)?;
            let report = Report::read(&guest.results.join("calibrate.json"))?;
            let text = cost_file::text(&report)?;
            std::fs::write(&output, &text)
                .with_context(|| format!("cannot write {}", output.display()))?;
            println!("costs  {}", output.display());
        }
        Command::CalibrateCaches { repeats, guest } => {
            let guest = boot::GuestOptions {
                count: Clock::Instructions,
                ..guest
            };
            let here = boot::primitives_here(&guest.results.join("here"), repeats)?;
            boot::profiled("primitives", &guest, true)?;
            by_function::calibrate(&guest.results, &here)?;
        }
        Command::NativeKsm(options) => native_ksm::run(&options)?,
        Command::Realism(options) => realism::run(&options)?,
        Command::Profile { results } => {
            cpu_parts::print(&results, &["static-mixed", "sparse-majority", "clone"])?;
        }
        Command::Capture(options) => trace::capture::run(&options)?,
        Command::Workload { spec } => {
            let spec = serde_json::from_str(&spec).context("bad workload")?;
            workload::child::run(&spec)?;
        }
        Command::Busy { spec } => {
            let spec = serde_json::from_str(&spec).context("bad busy process")?;
            workload::busy::run(&spec)?;
        }
        Command::GuestReader(reader) => guests::reader::run(&reader)?,
        Command::Member { spec } => {
            let spec = serde_json::from_str(&spec).context("bad member")?;
            experiments::groups::member::run(&spec)?;
        }
        Command::Machine { machine } => {
            let machine = serde_json::from_str(&machine).context("bad machine")?;
            disk_machines::child::run(&machine)?;
        }
    }
    Ok(())
}
