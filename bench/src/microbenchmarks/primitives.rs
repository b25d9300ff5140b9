//! primitives: operations on pages, each alone, with pages in the first level of caches, the
//! second, the last, or in memory.
//!
//! The model of caches (`by_function/hierarchy.rs`) has constants. Here they are compared with a
//! processor: the same instructions are timed on a machine and counted in an emulated guest
//! (`uksm-bench calibrate-caches`). It needs neither root nor the module.

mod anonymous;
mod kernel;
mod operation;

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::{Context, Result};
use uksm_results::report::{Measured, Report};

use super::page_cost::PageCost;
use crate::measure::cpu::CpuClock;
use crate::measure::window::OpenWindow;
use crate::setup::Setup;
use crate::units::MIB_PAGES;
use kernel::{Request, SmallPageMapping};
use operation::{Operation, Pages};

/// Places of pages, and their number in each of two halves: in all 16 KiB, 256 KiB, 8 MiB, 256 MiB.
const PLACES: [(&str, usize); 4] = [("l1", 2), ("l2", 32), ("llc", 1024), ("memory", 32768)];
/// The place of requests to the kernel.
pub(crate) const KERNEL: &str = "kernel";
/// Operations of a run.
const COUNT: usize = 32768;
/// In a window, another process must run once: that shows whether the emulator sees tasks change.
const PAUSE: Duration = Duration::from_millis(1);

/// Runs the experiment.
pub(crate) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("primitives")?;
    for (place, each) in PLACES {
        let each = NonZeroUsize::new(each).context("no pages")?;
        let mut pages = Pages::new(each, setup.seed)?;
        for operation in Operation::ALL {
            let measured = measure((operation.name(), place), setup, || {
                pages.work(operation, COUNT);
                Ok(())
            });
            report.variants.push(measured?);
        }
    }
    let mut mapping = SmallPageMapping::new()?;
    for request in Request::ALL {
        let work = || mapping.ask(request, COUNT);
        report
            .variants
            .push(measure((request.name(), KERNEL), setup, work)?);
    }
    Ok(report)
}

/// The median of several runs; least and most beside it. The first one does not count.
fn measure(
    (name, place): (&str, &str),
    setup: &Setup,
    mut work: impl FnMut() -> Result<()>,
) -> Result<Measured> {
    let own = CpuClock::of(std::process::id())?;
    let mut costs = Vec::new();
    let mut windows = Vec::new();
    work()?;
    for _ in 0..setup.repeats.max(1) {
        let before = own.now()?;
        let window = setup.profile.then(|| {
            let window = OpenWindow::open(0.0, before);
            std::thread::sleep(PAUSE);
            window
        });
        let begin = own.now()?;
        work()?;
        let end = own.now()?;
        // Counts are divided by the saved pages: here by the pages of the run.
        windows.extend(window.map(|open| open.close(end, COUNT as f64 / MIB_PAGES as f64)));
        costs.push(PageCost::new(end.saturating_sub(begin), COUNT).per_page_us() * 1e3);
    }
    costs.sort_by(f64::total_cmp);
    let middle = costs[costs.len() / 2];
    let (least, most) = (costs[0], costs[costs.len() - 1]);
    println!("{name:<11} {place:<7} {middle:9.1} ns ({least:.1} to {most:.1})");
    let figures = [("ns", middle), ("ns_least", least), ("ns_most", most)];
    Ok(Measured {
        name: name.to_owned(),
        case: place.to_owned(),
        cpu_seconds: middle * 1e-9 * COUNT as f64,
        figures: figures.map(|(name, value)| (name.to_owned(), value)).into(),
        windows,
        ..Measured::default()
    })
}
