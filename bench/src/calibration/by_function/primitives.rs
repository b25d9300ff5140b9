//! The cache model's times of operations on pages, beside those of a machine.
//!
//! The same program did the same in both: in an emulated guest, whose instructions and accesses
//! were counted, and here, where they were timed. The latency of memory here is the time to follow
//! pages from one to the next. Pages lie in huge ones, as the kernel sees memory, so walks are left
//! out.

use std::fmt::Write;

use anyhow::{Context, Result};
use uksm_results::report::{Measured, Report};

use super::hierarchy::{Accesses, Instructions};
use super::profile::{Owner, Profile, ProfiledRun};
use crate::microbenchmarks::primitives::KERNEL;

/// A line for each operation and place.
///
/// # Errors
/// An operation was not measured here.
pub(super) fn compared(profile: &Profile, here: &Report) -> Result<String> {
    let took = |name: &str, case: &str| {
        let found = here.find(name, case);
        found.with_context(|| format!("{name} {case} was not measured here"))
    };
    let latency = figure(took("follow", "memory")?, "ns")?;
    let mut text = format!("latency of memory here: {latency:.0} ns; all figures are of a page\n");
    let columns = [
        "what",
        "where",
        "ns here",
        "(least, most)",
        "model",
        "ratio",
        "instructions",
        "L2",
        "beside",
        "LLC",
        "beside",
        "stream",
        "near",
        "memory",
    ];
    row(&mut text, &columns.map(str::to_owned))?;
    for run in profile.medians() {
        let cells = cells(run, took(&run.variant, &run.case)?, latency)?;
        row(&mut text, &cells)?;
    }
    Ok(text)
}

fn figure(measured: &Measured, name: &str) -> Result<f64> {
    let found = measured.figures.get(name).copied();
    found.with_context(|| format!("{} {}: no {name}", measured.name, measured.case))
}

fn row(text: &mut String, cells: &[String; 14]) -> std::fmt::Result {
    let widths = [14, 7, 9, 20, 9, 6, 12, 7, 7, 7, 7, 7, 7, 7];
    for (cell, width) in cells.iter().zip(widths) {
        write!(text, "{cell:>width$}")?;
    }
    writeln!(text)
}

fn cells(run: &ProfiledRun, here: &Measured, latency: f64) -> Result<[String; 14]> {
    let pages = run.saved_pages.max(1.0);
    let in_kernel = run.case == KERNEL;
    let is_its = |owner| owner == Owner::OtherUser || in_kernel && owner == Owner::OtherKernel;
    let mut accesses = Accesses::default();
    let its = run.accesses.iter().filter(|(owner, _)| is_its(**owner));
    its.for_each(|(_, &more)| accesses.add(more));
    accesses.walks = 0;
    let mut instructions = run.instructions(is_its);
    if !in_kernel {
        instructions = Instructions {
            of_loops: instructions.of_loops + instructions.other,
            other: 0,
        };
    }
    let model = accesses.time(instructions, latency) / pages;
    let ns = figure(here, "ns")?;
    let of = |count: u64| format!("{:.1}", count as f64 / pages);
    Ok([
        run.variant.clone(),
        run.case.clone(),
        format!("{ns:.1}"),
        format!(
            "({:.1}, {:.1})",
            figure(here, "ns_least")?,
            figure(here, "ns_most")?
        ),
        format!("{model:.1}"),
        format!("{:.2}", model / ns),
        of(instructions.of_loops + instructions.other),
        of(accesses.l2),
        of(accesses.l2_beside),
        of(accesses.llc),
        of(accesses.llc_beside),
        of(accesses.streamed),
        of(accesses.near),
        of(accesses.memory),
    ])
}
