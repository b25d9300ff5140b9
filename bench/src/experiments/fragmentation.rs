//! fragmentation: frames and huge pages, after rounds of starts, ends and writes.
//!
//! Sixteen machines (processes of 24 MiB, `--size`) are alive. Half of the memory of each has
//! contents with few copies or many, a quarter is equal in six machines that start one after the
//! other, and a quarter is its own. In each round one of them, drawn, ends and another one starts,
//! three others write 6 % of their pages at random places, and files of 8 MiB are written. A page
//! cache has all memory but a quarter, with every system, so that saved memory becomes cache. Time
//! is counted in rounds (case `240-rounds`: of half a second of rest each, as few as a host has in
//! hours).
//!
//! Figures:
//!
//! - `mean_saved_mib` of all looks, one every five rounds; `mergeable_mib` at the end.
//! - `huge_faults_percent`: huge pages that the kernel gave at once to a process that touched a
//!   quarter of the free memory, every five rounds in the second half.
//! - `free_blocks_percent`: free memory in free blocks of 2 MiB, before that.
//! - `compactions` and `compactions_percent`: compactions for an allocation, and those that made
//!   room, over all rounds.
//! - `huge_pool_percent`: at the end, the page cache removed: huge pages in the pool when all free
//!   memory is asked for (`huge_pool_mib`).
//! - `frames`, `frame_blocks`, `frames_per_block`, and the histogram `frames_by_block`: frames, and
//!   blocks of 2 MiB with at least one, at the end. Frames of in-kernel KSM can be moved, and are
//!   not among them. `unmovable_blocks`: those that the allocator keeps for pages that cannot be
//!   moved.
//!
//! Systems run one after the other in one boot, in random order in each round of runs; memory is
//! compacted in between. Figures are means of all runs, with their intervals.

mod blocks;
mod file_cache;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, ensure};
use uksm_results::interval::{Interval, bounds};
use uksm_results::report::Report;
use uksm_results::timeline::Timeline;
use uksm_testkit::kernel_file;

use self::blocks::{
    Compactions, FrameBlocks, free_blocks, huge_faults, huge_pool, unmovable_blocks,
};
use self::file_cache::FileCache;
use crate::comparison::rounds::rounds;
use crate::comparison::trial::{Trial, TrialResult, mean_figures, start_workload};
use crate::comparison::watch::look_now;
use crate::measure::machine::free_kib;
use crate::measure::pagemap::Counter;
use crate::rng::Rng;
use crate::setup::Setup;
use crate::units::{MIB_PAGES, mib};
use crate::variants::{Variant, ksm};
use crate::workload::{Contents, Part, Process, Sharers, Spec, mergeable_mib};

/// Machines that are alive, and MiB of each.
const ALIVE: usize = 16;
const MACHINE_MIB: usize = 24;
/// Machines that start one after the other with the same image.
const SAME_IMAGE: u64 = 6;
/// Machines that write in a round, and percent of their pages.
const WRITERS: usize = 3;
const WRITTEN_PERCENT: u32 = 6;
/// Pages of new files in a round.
const FILE_PAGES: usize = 8 * MIB_PAGES;
/// Rest of a round.
const REST: Duration = Duration::from_millis(500);
/// Rounds between two looks.
const LOOK_ROUNDS: usize = 5;
const BLOCK_KIB: u64 = 2048;
/// Families of contents: with few copies or many; of images; of one machine.
const SHARED: u64 = 1 << 52;
const IMAGES: u64 = 1 << 53;
const OWN: u64 = 1 << 54;
/// Name of the draws of machines.
const MACHINES: u64 = 1 << 55;
/// Limit of the runs of each system.
const MAX_RUNS: usize = 3;

/// The number of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RoundCount(usize);

impl FromStr for RoundCount {
    type Err = Error;

    fn from_str(name: &str) -> Result<RoundCount> {
        let number = name.strip_suffix("-rounds");
        let number = number.and_then(|number| number.parse().ok());
        let number: usize =
            number.with_context(|| format!("no case '{name}'; it is N-rounds, as 240-rounds"))?;
        ensure!(
            number >= 2 * LOOK_ROUNDS,
            "case '{name}': at least {} rounds",
            2 * LOOK_ROUNDS
        );
        Ok(RoundCount(number))
    }
}

/// Runs the experiment.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("fragmentation")?;
    let cases: Vec<RoundCount> = setup.cases_or(&["240-rounds"])?;
    for RoundCount(count) in cases {
        let case = format!("{count}-rounds");
        let variants = [
            Variant::uksm_governor("full"),
            Variant::ksm_unlimited(),
            Variant::no_dedup(),
        ];
        let trials = variants.map(|variant| Trial {
            variant,
            case: case.clone(),
            specs: Vec::new(),
            limit: Duration::ZERO,
            max_runs: MAX_RUNS,
        });
        let histograms = std::cell::RefCell::new(BTreeMap::new());
        let once = |trial: &Trial, setup: &Setup| {
            let (run, frames) = churn(trial, count, setup)?;
            let name = trial.variant.name.clone();
            histograms.borrow_mut().insert(name, frames.histogram());
            trial.print_progress(&run);
            Ok(run)
        };
        let runs = rounds(&once, &trials, setup.repeats.min(MAX_RUNS), setup)?;
        compare(&mut report, &runs, &case);
        let mut histograms = histograms.into_inner();
        for (trial, runs) in runs {
            let figures = mean_figures(&runs);
            let mut measured = trial.measured(runs);
            measured.figures.extend(figures);
            if let Some(counts) = histograms.remove(&measured.name) {
                measured.histograms = [("frames_by_block".to_owned(), counts)].into();
            }
            report.variants.push(measured);
        }
    }
    Ok(report)
}

/// The figures of which there are ratios: more of them is better.
const COMPARED: [&str; 3] = ["huge_faults_percent", "huge_pool_percent", "mean_saved_mib"];

/// Adds the ratios of uksm's figures to those of each other system that has them.
fn compare(report: &mut Report, runs: &[(&Trial, Vec<TrialResult>)], case: &str) {
    let is_ours = |trial: &Trial| trial.variant.name.starts_with("uksm-");
    let Some((_, ours)) = runs.iter().find(|(trial, _)| is_ours(trial)) else {
        return;
    };
    for (trial, theirs) in runs.iter().filter(|(trial, _)| !is_ours(trial)) {
        for figure in COMPARED {
            let ratios = ratios(ours, theirs, figure);
            let Some(&(_, ratio)) = bounds(&ratios).first() else {
                continue;
            };
            let name = format!("{figure}_vs_{}@{case}", trial.variant.name);
            let interval = Interval::of(&ratios);
            report.ratios.insert(name.clone(), ratio);
            report.intervals.extend(interval.map(|found| (name, found)));
        }
    }
}

/// The ratio of each pair of runs; none if a run of theirs has nothing.
fn ratios(ours: &[TrialResult], theirs: &[TrialResult], figure: &str) -> Vec<f64> {
    let pairs = ours.iter().zip(theirs);
    let ratios = pairs.map(|(our, their)| our.figures[figure] / their.figures[figure]);
    let ratios: Option<Vec<f64>> = ratios
        .map(|ratio| ratio.is_finite().then_some(ratio))
        .collect();
    ratios.unwrap_or_default()
}

/// The machine that starts as this number in this place.
fn machine(place: usize, number: u64, setup: &Setup) -> Spec {
    let quarter = setup.size_or(MACHINE_MIB) * MIB_PAGES / 4;
    let part = |contents, family, pages| Part {
        pages,
        ..Part::still(contents, family, 0)
    };
    let shared = Contents::Sharers(Sharers {
        process: place,
        processes: ALIVE,
    });
    Spec {
        seed: setup.round_seed(),
        parts: vec![
            part(shared, SHARED, 2 * quarter),
            part(Contents::Distinct, IMAGES + number / SAME_IMAGE, quarter),
            part(Contents::Distinct, OWN + number, quarter),
        ],
        huge: false,
        mergeable: false,
    }
}

/// The machines that are alive, and the draws of those that end and write.
struct LiveMachines<'a> {
    alive: Vec<(Spec, Process)>,
    started: u64,
    draws: Rng,
    trial: &'a Trial,
    setup: &'a Setup,
}

impl<'a> LiveMachines<'a> {
    fn start(trial: &'a Trial, setup: &'a Setup) -> Result<LiveMachines<'a>> {
        let mut machines = LiveMachines {
            alive: Vec::new(),
            started: 0,
            draws: Rng::new(setup.round_seed(), MACHINES),
            trial,
            setup,
        };
        for place in 0..ALIVE {
            let machine = machines.next(place)?;
            machines.alive.push(machine);
        }
        Ok(machines)
    }

    fn next(&mut self, place: usize) -> Result<(Spec, Process)> {
        let spec = machine(place, self.started, self.setup);
        self.started += 1;
        let mut started =
            start_workload(std::slice::from_ref(&spec), &self.trial.variant, self.setup)?;
        let process = started.pop().context("no machine has started")?;
        Ok((spec, process))
    }

    /// One ends and another one starts, and some write.
    fn round(&mut self) -> Result<()> {
        let place = self.draws.below(ALIVE);
        drop(self.alive.remove(place));
        let machine = self.next(place)?;
        self.alive.insert(place, machine);
        for _ in 0..WRITERS {
            let writer = self.draws.below(ALIVE);
            self.alive[writer].1.rewrite_some(WRITTEN_PERCENT)?;
        }
        Ok(())
    }

    fn pids(&self) -> Vec<u32> {
        let processes = self.alive.iter();
        processes.map(|(_, process)| process.pid()).collect()
    }

    fn mergeable_mib(&self) -> Result<f64> {
        let specs: Vec<Spec> = self.alive.iter().map(|(spec, _)| spec.clone()).collect();
        mergeable_mib(&specs)
    }

    fn verify(&mut self) -> Result<u64> {
        let mut processes = self.alive.iter_mut();
        processes.try_fold(0, |pages, (_, process)| Ok(pages + process.verify()?))
    }
}

/// Huge pages at some looks.
#[derive(Debug, Default)]
struct HugeLooks {
    free_blocks_percent: Vec<f64>,
    faults_percent: Vec<f64>,
}

impl HugeLooks {
    fn add(&mut self) -> Result<()> {
        let free = free_kib()?;
        let in_blocks = free_blocks()? * BLOCK_KIB;
        // The kernel compacts nothing when less than its watermarks is left, which
        // khugepaged raises.
        let attempts = usize::try_from(free / 4 / BLOCK_KIB)?;
        let given = huge_faults(attempts)?;
        self.free_blocks_percent
            .push(percent(in_blocks as f64, free as f64));
        self.faults_percent
            .push(percent(given as f64, attempts as f64));
        Ok(())
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        100.0 * part / whole
    } else {
        0.0
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// All rounds with one system.
fn churn(trial: &Trial, count: usize, setup: &Setup) -> Result<(TrialResult, FrameBlocks)> {
    let left_kib = kernel_file::number("/proc/meminfo", "MemTotal")? / 4;
    let mut cache = FileCache::create(setup.round_seed())?;
    let mut machines = LiveMachines::start(trial, setup)?;
    let mut counter = Counter::new()?;
    let mut system = trial.variant.start(setup, &[])?;
    let (begin, compactions) = (Instant::now(), Compactions::now()?);
    let (mut looks, mut huge, mut own_mib) = (Timeline::default(), HugeLooks::default(), 0.0_f64);
    let mut saved = Vec::new();
    for round in 1..=count {
        machines.round()?;
        cache.write(FILE_PAGES)?;
        cache.leave_free(left_kib)?;
        system.adjust()?;
        std::thread::sleep(REST);
        if round % LOOK_ROUNDS != 0 {
            continue;
        }
        let seen = counter.count(&machines.pids())?;
        saved.push(mib(seen.saved()));
        looks.0.push(look_now(begin, system.as_ref(), &seen)?);
        own_mib = own_mib.max(system.own_mib());
        if round > count / 2 {
            huge.add()?;
        }
    }
    let after = Compactions::now()?;
    let successes = after.successes - compactions.successes;
    let all = successes + after.failures - compactions.failures;
    let frames = FrameBlocks::now()?;
    let unmovable = unmovable_blocks()?;
    cache.clear()?;
    let free = free_kib()?;
    let pool = huge_pool(free / BLOCK_KIB)?;
    let mut figures = system.figures();
    figures.extend(
        [
            ("mean_saved_mib", mean(&saved)),
            ("mergeable_mib", machines.mergeable_mib()?),
            ("huge_faults_percent", mean(&huge.faults_percent)),
            ("free_blocks_percent", mean(&huge.free_blocks_percent)),
            ("compactions", all as f64),
            ("compactions_percent", percent(successes as f64, all as f64)),
            (
                "huge_pool_percent",
                percent((pool * BLOCK_KIB) as f64, free as f64),
            ),
            ("huge_pool_mib", (pool * 2) as f64),
            ("frames", frames.frames() as f64),
            ("frame_blocks", frames.blocks() as f64),
            (
                "frames_per_block",
                frames.frames() as f64 / frames.blocks().max(1) as f64,
            ),
            ("unmovable_blocks", unmovable as f64),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    let counters = system.report();
    system.stop()?;
    let verified_pages = machines.verify()?;
    drop((machines, cache, system));
    ksm::settle()?;
    kernel_file::write("/proc/sys/vm/compact_memory", "1")?;
    let run = TrialResult {
        looks,
        // It changes all the time.
        mergeable_mib: 0.0,
        verified_pages,
        own_mib,
        counters,
        figures,
        window: None,
    };
    Ok((run, frames))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_and_what_is_none_is_named() {
        assert_eq!("40-rounds".parse::<RoundCount>().unwrap(), RoundCount(40));
        for (name, said) in [
            ("idle", "no case 'idle'"),
            ("x-rounds", "no case 'x-rounds'"),
            ("3-rounds", "case '3-rounds': at least 10"),
        ] {
            let error = name.parse::<RoundCount>().unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }

    fn run(value: f64) -> TrialResult {
        TrialResult {
            looks: Timeline::default(),
            mergeable_mib: 0.0,
            verified_pages: 0,
            own_mib: 0.0,
            counters: None,
            figures: [("huge".to_owned(), value), ("frames".to_owned(), 0.0)].into(),
            window: None,
        }
    }

    #[test]
    fn a_figure_that_a_system_has_not_gives_no_ratio() {
        let (ours, theirs) = ([run(30.0), run(8.0)], [run(10.0), run(4.0)]);
        assert_eq!(ratios(&ours, &theirs, "huge"), [3.0, 2.0]);
        assert!(ratios(&ours, &[run(10.0), run(0.0)], "huge").is_empty());
        assert!(ratios(&ours, &theirs, "frames").is_empty());
    }

    #[test]
    fn a_figure_of_several_runs_is_their_mean_with_an_interval() {
        let figures = mean_figures(&[run(10.0), run(40.0)]);
        assert!((figures["huge"] - 20.0).abs() < 1e-9, "{figures:?}");
        assert!(figures["huge_low"] < 20.0 && figures["huge_high"] > 20.0);
        assert_eq!(figures["frames"], 0.0);
        assert!(!figures.contains_key("frames_low"), "{figures:?}");
    }
}
