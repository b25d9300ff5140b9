//! Costs of in-kernel KSM's parts: full scans over memory of one kind.
//!
//! In the first scan of unique pages each is inserted in a list and gets a checksum. In later ones
//! each gets another one, and is searched for in the unstable tree, which grows meanwhile; smart
//! scan, which would leave pages out, is off then. Pages that all are equal show the cost of a
//! merge with a frame, and in the scan after that, the cost of passing a merged page. Pairs show
//! the cost of making a frame. The levels of a search are counted as in the simulator.

use std::time::{Duration, Instant};

use anyhow::Result;
use uksm_simulator::peer::levels;
use uksm_simulator::steps::line;

use super::costs::Costs;
use crate::comparison::trial::start_workload;
use crate::microbenchmarks::sample_cost::scan_end;
use crate::setup::Setup;
use crate::units::MIB_PAGES;
use crate::variants::Variant;
use crate::variants::ksm::{self, ScanRate, Settings};
use crate::workload::{Contents, Part, Process, Spec};

/// MiB of each kind of memory.
const MIB: usize = 64;
/// The heights of two trees: MiB of unique pages, and scans of them. The end of a scan is noticed
/// late, by up to a tick of the clock, so that several scans are timed.
const TREES: [(usize, usize); 2] = [(8, 32), (64, 5)];
/// MiB of pages that have a twin, whose frames make a stable tree.
const STABLE_MIB: usize = 16;
/// Time during which ksmd wakes again and again.
const WAKING: Duration = Duration::from_secs(1);
/// Interval of the wake-ups.
const SLEEP_MS: u64 = 20;

/// Measures them.
pub(super) fn measure(setup: &Setup, costs: &mut Costs) -> Result<()> {
    let pages = MIB * MIB_PAGES;
    let mean_levels =
        |counts: &mut dyn Iterator<Item = usize>| counts.map(levels).map(f64::from).sum::<f64>();

    // A scan costs a checksum and the way down a tree. Trees of two heights separate the two.
    let mut points = Vec::new();
    let mut first = 0.0;
    ksm::smart_scan(false)?;
    for (mib, times) in TREES {
        let scans = scans(setup, &[(Contents::Distinct, mib)], times, false)?;
        let pages = mib * MIB_PAGES;
        let levels = mean_levels(&mut (0..pages)) / pages as f64;
        let later: f64 = scans.taken[1..].iter().sum();
        points.push((levels, later / (pages * (times - 1)) as f64));
        first = scans.taken[0] / pages as f64;
    }
    let (checksum, tree_step) = line(&points);
    costs.insert("ksm.checksum", checksum);
    costs.insert("ksm.tree_step", tree_step);
    costs.insert("ksm.first", (first - checksum).max(0.0));
    // Pages that stay unique beside a stable tree are searched for in both.
    let (paired, all) = (STABLE_MIB * MIB_PAGES, MIB * MIB_PAGES);
    let beside = [(Contents::Distinct, STABLE_MIB), (Contents::Distinct, MIB)];
    let beside = scans(setup, &beside, 5, false)?;
    ksm::smart_scan(true)?;

    let same = scans(setup, &[(Contents::Identical, MIB)], 3, true)?;
    let revisit = same.taken[2] / pages as f64;
    costs.insert("ksm.revisit", revisit);
    costs.insert("ksm.wake", (same.wake.0 - revisit).max(1.0));
    costs.insert("ksm.late", same.wake.1);

    let later = &beside.taken[2..];
    let later = later.iter().sum::<f64>() / later.len() as f64;
    let unique = (all - paired) as f64;
    let unstable = mean_levels(&mut (0..all - paired)) * tree_step;
    let searched = later - 2.0 * paired as f64 * revisit - unique * checksum - unstable;
    let stable_step = (searched / (unique * f64::from(levels(paired)))).max(0.0);
    costs.insert("ksm.stable_step", stable_step);

    // The stable tree has one node.
    let found = checksum + stable_step * f64::from(levels(1));
    costs.insert("ksm.merge", same.taken[1] / pages as f64 - found);

    let half = pages / 2;
    let twins = [(Contents::Distinct, MIB / 2), (Contents::Distinct, MIB / 2)];
    let twins = scans(setup, &twins, 2, false)?;
    // The first half fills the unstable tree; each page of the second moves one to the stable tree.
    let unstable = mean_levels(&mut (0..half)) + mean_levels(&mut (0..half).rev());
    let stable = mean_levels(&mut (0..half));
    let searched = tree_step * unstable + stable_step * stable;
    let pairs = twins.taken[1] - checksum * pages as f64 - searched;
    costs.insert("ksm.pair", pairs / half as f64);
    Ok(())
}

/// Times of scans, in nanoseconds of ksmd's CPU.
struct Scans {
    taken: Vec<f64>,
    /// A wakeup with one page: CPU, and delay.
    wake: (f64, f64),
}

/// Full scans of one process with these contents; and the cost of a wakeup with one page.
fn scans(setup: &Setup, parts: &[(Contents, usize)], times: usize, wakes: bool) -> Result<Scans> {
    let parts = parts.iter();
    let spec = Spec {
        seed: setup.seed,
        parts: parts
            .map(|&(contents, mib)| Part::still(contents, 7, mib))
            .collect(),
        huge: false,
        mergeable: true,
    };
    let variant = Variant::ksm_unlimited();
    let mut processes = start_workload(&[spec], &variant, setup)?;
    let before = ksm::full_scans()?;
    let mut system = variant.start(setup, &[])?;
    let mut ends = vec![Duration::ZERO];
    for scan in 1..=times {
        ends.push(scan_end(system.as_ref(), before + scan as u64)?);
    }
    system.stop()?;
    let between = |pair: &[Duration]| pair[1].saturating_sub(pair[0]).as_nanos() as f64;
    let taken = ends.windows(2).map(between).collect();
    let wake = if wakes { waking(setup)? } else { (0.0, 0.0) };
    processes
        .iter_mut()
        .try_for_each(|process: &mut Process| process.verify().map(drop))?;
    drop(processes);
    ksm::settle()?;
    Ok(Scans { taken, wake })
}

/// The cost of a wakeup of ksmd for one page, and the delay of its sleep.
fn waking(setup: &Setup) -> Result<(f64, f64)> {
    let rate = ScanRate {
        pages_to_scan: 1,
        sleep_millisecs: SLEEP_MS,
    };
    let mut system = Variant::ksm("ksm-waking", Settings::at(rate)).start(setup, &[])?;
    // The first sleep may be one of another rate.
    std::thread::sleep(Duration::from_millis(10 * SLEEP_MS));
    let (begin, before) = (Instant::now(), system.cpu()?);
    let first = ksm::scanned_pages()?;
    std::thread::sleep(WAKING);
    let (elapsed, taken) = (begin.elapsed(), system.cpu()?.saturating_sub(before));
    let last = ksm::scanned_pages()?;
    system.stop()?;
    let asked = SLEEP_MS as f64 * 1e6;
    // Each examines one page. A kernel that does not count those is assumed to wake at the set
    // interval.
    let wakes = match (first, last) {
        (Some(first), Some(last)) => (last - first) as f64,
        _ => elapsed.as_nanos() as f64 / asked,
    };
    let taken = taken.as_nanos() as f64 / wakes;
    let late = elapsed.as_nanos() as f64 / wakes - asked - taken;
    Ok((taken, late.max(0.0)))
}
