//! sample-cost: the cost of finding that a page has no partner.
//!
//! SAMPLE alone, one line of each page, sequential, in batches of the module's limit; against ksmd
//! on the same random pages in its second full scan, when it has checksummed all of them once and
//! searches for partners. Beside it stands the bare cost of comparing a cold page with a hot one:
//! no merge can cost less.
//!
//! `uksm-full` is the daemon from its start on until it has read as many pages as there are, all of
//! them without partners: its decisions, its tables and its start are included. It and ksmd's scan
//! can be profiled; the pages are then those that were read.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use uksm_linux::module::Device;
use uksm_policy::command::{Lines, PageState, Run, SpaceId};
use uksm_results::report::{Measured, Report, Window};

use super::page_cost::{PageCost, attach, measured};
use crate::comparison::trial::start_workload;
use crate::contents::PAGE;
use crate::measure::cpu::CpuClock;
use crate::measure::pagemap::largest_mapping;
use crate::measure::window::OpenWindow;
use crate::setup::Setup;
use crate::units::mib;
use crate::variants::{System, Variant, ksm};
use crate::workload::{Contents, Part, Spec};

/// Pages of one SAMPLE.
const BATCH: u32 = 4096;
/// Passes over all pages.
const PASSES: u32 = 5;

/// Runs the experiment.
pub(crate) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("sample-cost")?;
    let size = setup.size_or(128);
    let part = Part::still(Contents::Distinct, 8, size);
    let spec = Spec {
        seed: setup.seed,
        parts: vec![part],
        huge: false,
        mergeable: false,
    };
    let ours = Variant::uksm("sample", &[]);
    let mut costs = Vec::new();
    for lines in [1, 4, 64] {
        let mut processes = start_workload(std::slice::from_ref(&spec), &ours, setup)?;
        let cost = sample(processes[0].pid(), lines)?;
        let name = format!("sample-{lines}-lines");
        report
            .variants
            .push(measured(name, cost, processes[0].verify()?));
        costs.push(cost.per_page_us());
    }
    let ksm = Variant::ksm_unlimited();
    let mut processes = start_workload(std::slice::from_ref(&spec), &ksm, setup)?;
    let (scan, window) = second_scan(&ksm, setup, part.pages)?;
    let mut of_ksmd = measured("ksmd-second-scan".into(), scan, processes[0].verify()?);
    of_ksmd.windows.extend(window);
    report.variants.push(of_ksmd);
    drop(processes);
    ksm::settle()?;
    report.variants.push(daemon(&spec, setup, part.pages)?);
    report
        .variants
        .push(measured("cold-compare".into(), cold_compare(size)?, 0));
    if let Some(one_line) = costs.first() {
        report
            .ratios
            .insert("sample_cost_vs_ksmd".into(), scan.per_page_us() / one_line);
    }
    Ok(report)
}

/// SAMPLE over the workload's pages, sequentially.
fn sample(pid: u32, lines: u16) -> Result<PageCost> {
    let range = largest_mapping(pid)?.context("the workload has no memory")?;
    let mut device = Device::open()?;
    let space = attach(&device, pid)?;
    // A pass that does not count: the address space may be locked by the process that just filled
    // it.
    let begin = Instant::now();
    loop {
        let states = pass(&mut device, space, range, lines)?;
        if ordinary(&states) >= 0.99 {
            break;
        }
        ensure!(
            begin.elapsed() < Duration::from_secs(10),
            "pages are not ready to be sampled: {states:?}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let own = CpuClock::of(std::process::id())?;
    let mut states = BTreeMap::new();
    let begin = own.now()?;
    for _ in 0..PASSES {
        for (state, pages) in pass(&mut device, space, range, lines)? {
            *states.entry(state).or_default() += pages;
        }
    }
    let cpu = own.now()?.saturating_sub(begin);
    ensure!(
        ordinary(&states) >= 0.99,
        "SAMPLE found other than ordinary pages: {states:?}"
    );
    Ok(PageCost {
        cpu,
        pages: states[&PageState::Anon] as f64,
    })
}

/// Time between two queries of the daemon's number of pages read.
const DAEMON_LOOK: Duration = Duration::from_millis(50);
/// Time between two checks for the end of a scan.
const SCAN_LOOK: Duration = Duration::from_micros(200);

/// Pages by state.
type States = BTreeMap<PageState, u64>;

/// Samples all pages once.
fn pass(device: &mut Device, space: SpaceId, range: (u64, u64), lines: u16) -> Result<States> {
    let (mut at, end) = range;
    let mut states = States::new();
    let mut pages = Vec::new();
    while at < end {
        let count = BATCH.min(u32::try_from((end - at) / PAGE as u64).unwrap_or(BATCH));
        let run = Run {
            start: at,
            space,
            count,
            stride: 1,
        };
        device.sample(&[run], Lines { from: 0, to: lines }, &mut pages)?;
        for same in pages.chunk_by(|a, b| a.state == b.state) {
            *states.entry(same[0].state).or_default() += same.len() as u64;
        }
        at += u64::from(count) * PAGE as u64;
    }
    Ok(states)
}

/// The share of ordinary pages.
fn ordinary(states: &States) -> f64 {
    let anon = states.get(&PageState::Anon).copied().unwrap_or(0);
    anon as f64 / states.values().sum::<u64>().max(1) as f64
}

/// ksmd's CPU in its second full scan.
fn second_scan(
    variant: &Variant,
    setup: &Setup,
    pages: usize,
) -> Result<(PageCost, Option<Window>)> {
    let before = ksm::full_scans()?;
    let system = variant.start(setup, &[])?;
    let first = scan_end(system.as_ref(), before + 1)?;
    let window = setup.profile.then(|| OpenWindow::open(0.0, first));
    let second = scan_end(system.as_ref(), before + 2)?;
    let window = window.map(|open| open.close(second, mib(pages)));
    let cost = PageCost::new(second.saturating_sub(first), pages);
    Ok((cost, window))
}

/// The daemon's CPU until it has read as many pages as there are.
fn daemon(spec: &Spec, setup: &Setup, pages: usize) -> Result<Measured> {
    let variant = Variant::uksm_governor("full");
    let mut processes = start_workload(std::slice::from_ref(spec), &variant, setup)?;
    let window = setup.profile.then(|| OpenWindow::open(0.0, Duration::ZERO));
    let mut system = variant.start(setup, &[processes[0].pid()])?;
    let begin = Instant::now();
    let sampled = loop {
        std::thread::sleep(DAEMON_LOOK);
        let report = system.report();
        let sampled = report
            .as_ref()
            .and_then(|report| report["sampling"]["pages"].as_u64());
        let sampled = sampled.unwrap_or(0);
        if sampled >= pages as u64 {
            break sampled;
        }
        ensure!(
            begin.elapsed() < Duration::from_secs(120),
            "the daemon has looked at {sampled} of {pages} pages in 120 s"
        );
    };
    let cpu = system.cpu()?;
    let sampled = usize::try_from(sampled)?;
    let window = window.map(|open| open.close(cpu, mib(sampled)));
    system.stop()?;
    let mut measured = measured(
        variant.name,
        PageCost::new(cpu, sampled),
        processes[0].verify()?,
    );
    measured.windows.extend(window);
    Ok(measured)
}

/// ksmd's CPU when this many full scans are done.
pub(super) fn scan_end(system: &dyn System, scans: u64) -> Result<Duration> {
    let begin = Instant::now();
    while ksm::full_scans()? < scans {
        if begin.elapsed() > Duration::from_secs(120) {
            bail!("ksmd did not finish a full scan in 120 s");
        }
        std::thread::sleep(SCAN_LOOK);
    }
    system.cpu()
}

/// Comparing each page of a large buffer with one that stays in the cache.
fn cold_compare(mib: usize) -> Result<PageCost> {
    let pages = mib * crate::units::MIB_PAGES;
    let hot = vec![7_u8; PAGE];
    let cold = vec![7_u8; pages * PAGE];
    let own = CpuClock::of(std::process::id())?;
    let begin = own.now()?;
    let equal = cold
        .chunks_exact(PAGE)
        .filter(|page| **std::hint::black_box(page) == hot[..])
        .count();
    let cpu = own.now()?.saturating_sub(begin);
    if equal != pages {
        bail!(
            "{} of {pages} equal pages compared as different",
            pages - equal
        );
    }
    Ok(PageCost {
        cpu,
        pages: pages as f64,
    })
}
