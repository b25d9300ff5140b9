//! `uksm analyze`: the amount of duplicate memory on this host, before anything is installed.
//!
//! # Problem
//! The first question is whether deduplication pays, on a host that must not be disturbed. The
//! equal memory, its places, the part that in-kernel KSM finds or could find, and the cost of
//! finding all must be estimated within little processor time, with error bounds.
//!
//! # Approach
//! [`reading`] asks the kernel for the memory of each process, and reads as many pages as the
//! budget allows, chosen at random. Nothing is stopped, attached, advised or written.
//! [`uksm_sketch::redundancy`] counts where equal pages were read, and [`uksm_sketch::occupancy`]
//! extrapolates to all pages. [`figures`] puts the results into [`report`], which people and
//! programs read, and [`page`] draws it.
//!
//! At the end [`watch`] reads some of the pages again, and [`lifetimes`] estimates how long pages
//! live. That is last, so that the sleep for the cost of estimating also passes between the
//! readings.
//!
//! # Units
//! Pages of 4 KiB, seconds; shares are parts of one.

use uksm_linux::clock;
use uksm_linux::contents::Sampler;
use uksm_linux::proc::Proc;
use uksm_sketch::content::Salt;

use crate::cli::AnalyzeArgs;
use crate::failure::Failure;
use crate::hash_seed;
use crate::html_document::DocumentFile;

mod figures;
mod lifetimes;
mod page;
mod plan;
mod progress;
mod report;
mod sampling;
#[cfg(test)]
mod tests;
mod units;
mod watch;

use lifetimes::Lifetimes;
use plan::AnalysisPlan;
use watch::Watch;

/// Reads, estimates and prints.
///
/// # Errors
/// The fault, in one line.
pub(crate) fn analyze(args: &AnalyzeArgs) -> Result<(), Failure> {
    let before = (clock::now(), clock::process_cpu());
    let mut selection = args.targets().map_err(Failure::usage)?;
    let proc = Proc::at(&args.roots.proc_root);
    selection.pin(&proc).map_err(anyhow::Error::from)?;
    // Whether it can be written is checked before an hour of reading.
    let create = |path| DocumentFile::create("--html", path);
    let file = args.html.as_deref().map(create).transpose()?;
    let random = args.seed.map_or_else(hash_seed::random, Ok)?;
    let plan = AnalysisPlan {
        budget: args.budget,
        cpu_before: before.1,
    };
    let salt = Salt::new(random);
    let mut sampler = Sampler::new(salt, args.cpu);
    let mut watch = Watch::new(salt);
    let reading = sampling::sample(plan, &mut sampler, &selection, &proc, &mut watch)?;
    let again = watch.with_copies(&reading.pages);
    let mut report = figures::report(reading, args.top);
    // The costs of the program's start and of estimating are slept for, too.
    sampler.rest();
    report.lifetimes = Lifetimes::of(&again.read(plan, &mut sampler, &proc));
    sampler.rest();
    report.seed = random;
    report.budget_seconds = seconds(args.budget);
    report.cpu_share = args.cpu;
    report.seconds = seconds(clock::now() - before.0);
    report.cpu_seconds = seconds(clock::process_cpu() - before.1);
    if let Some(file) = file {
        file.write(&page::html(&report)?)?;
    }
    crate::log::print_report(&report, args.json)?;
    Ok(())
}

fn seconds(time: u64) -> f64 {
    time as f64 / 1e9
}
