//! Costs of the module's calls, part by part.
//!
//! Each part is the difference between two calls that differ in that part alone. Partners are known
//! by plan, and hashes come from SAMPLE, so that FOLD does the same as for the daemon.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use uksm_linux::module::Device;
use uksm_policy::command::{
    FoldBatch, FoldEntry, FoldKind, FrameId, Lines, PageState, Run, SpaceId, Status,
};

use super::costs::Costs;
use super::meter::Meter;
use crate::comparison::trial::start_workload;
use crate::contents::PAGE;
use crate::measure::pagemap::mapping_of;
use crate::microbenchmarks::page_cost::attach;
use crate::setup::Setup;
use crate::units::MIB_PAGES;
use crate::variants::Variant;
use crate::workload::{Contents, Part, Process, Spec};

/// MiB of each process.
const MIB: usize = 16;
/// Pages of each process.
const PAGES: usize = MIB * MIB_PAGES;
/// Entries of a full FOLD.
const BATCH: usize = 512;
/// Pages under one page table.
const TABLE: usize = 512;
/// Number of short calls in a mean.
const CALLS: usize = 200;
/// Frames and spaces listed in one call, to measure the cost of one.
const LISTED: usize = 2048;

/// Limit of the pages of one frame.
const SHARERS: usize = uksm_policy::params::MAX_SHARERS as usize;

/// The longest wait for pages that can be sampled.
const LIMIT: Duration = Duration::from_secs(10);

/// One line.
const ONE: Lines = Lines { from: 0, to: 1 };
/// All lines.
const ALL: Lines = Lines { from: 0, to: 64 };

/// Measures them.
pub(super) fn measure(setup: &Setup, costs: &mut Costs) -> Result<()> {
    let meter = Meter::new()?;
    sample(setup, &meter, costs)?;
    join(setup, &meter, costs)?;
    pairs(setup, &meter, costs)?;
    differing(setup, &meter, costs)
}

/// Processes with given contents in a new domain.
struct Scene {
    device: Device,
    processes: Vec<Process>,
    spaces: Vec<(SpaceId, u64)>,
}

impl Scene {
    fn new(setup: &Setup, contents: &[(Contents, u64)]) -> Result<Scene> {
        let specs: Vec<Spec> = contents
            .iter()
            .map(|&(contents, family)| Spec {
                seed: setup.seed,
                parts: vec![Part::still(contents, family, MIB)],
                huge: false,
                mergeable: false,
            })
            .collect();
        let processes = start_workload(&specs, &Variant::uksm("calls", &[]), setup)?;
        let device = Device::open()?;
        let mut spaces = Vec::new();
        for process in &processes {
            // A thread's reserve of addresses can be larger than this.
            let start = mapping_of(process.pid(), (PAGES * PAGE) as u64)?;
            let start = start.context("no memory")?;
            spaces.push((attach(&device, process.pid())?, start));
        }
        let mut scene = Scene {
            device,
            processes,
            spaces,
        };
        scene.settle()?;
        Ok(scene)
    }

    /// Work before the measurement: a process that was just filled may be locked, and its pages
    /// wait in the CPU's lists.
    fn settle(&mut self) -> Result<()> {
        let begin = Instant::now();
        for process in 0..self.processes.len() {
            let whole = self.run(process, 0, PAGES, 1)?;
            while let Err(error) = self.sample(&[whole], ONE) {
                ensure!(begin.elapsed() < LIMIT, error);
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let mut batch = self.batch(&[(0, PAGES - 1, FoldKind::Set(0))])?;
        batch.drain = true;
        self.device.fold(&batch)?;
        Ok(())
    }

    fn run(&self, process: usize, page: usize, count: usize, stride: u32) -> Result<Run> {
        let (space, start) = self.spaces[process];
        Ok(Run {
            start: start + (page * PAGE) as u64,
            space,
            count: u32::try_from(count)?,
            stride,
        })
    }

    /// One SAMPLE, of which all pages must be ordinary or merged ones.
    fn sample(&mut self, runs: &[Run], lines: Lines) -> Result<()> {
        let mut pages = Vec::new();
        self.device.sample(runs, lines, &mut pages)?;
        let is_there = |state| matches!(state, PageState::Anon | PageState::Frame);
        match pages.iter().find(|page| !is_there(page.state)) {
            None => Ok(()),
            Some(page) => bail!("SAMPLE found a page that cannot be merged: {page:?}"),
        }
    }

    /// A batch of these entries: process, page and kind, with the hashes that pages have.
    fn batch(&mut self, entries: &[(usize, usize, FoldKind)]) -> Result<FoldBatch> {
        let mut found = Vec::new();
        let mut pages = Vec::new();
        for &(process, page, kind) in entries {
            let run = self.run(process, page, 1, 1)?;
            self.device.sample(&[run], ONE, &mut pages)?;
            found.push(FoldEntry {
                address: run.start,
                hash: pages.first().context("no answer")?.hash,
                space: run.space,
                kind,
            });
        }
        found.sort_by_key(|entry| (entry.space, entry.address));
        Ok(FoldBatch {
            entries: found,
            lines: ONE.to,
            split: false,
            locked: false,
            drain: false,
        })
    }

    /// The time of one FOLD whose outcomes must all be `expected`.
    fn fold(&mut self, meter: &Meter, batch: &FoldBatch, expected: Status) -> Result<f64> {
        let (taken, outcomes) = meter.once(|| Ok(self.device.fold(batch)?))?;
        let hit = outcomes.iter().filter(|one| one.status == expected);
        let (hit, all) = (hit.count(), batch.entries.len());
        // A page may be busy for a moment.
        ensure!(
            hit * 100 >= all * 98,
            "only {hit} of {all} entries were {expected:?}: {:?}",
            outcomes.iter().find(|one| one.status != expected)
        );
        Ok(taken)
    }

    /// The frame of two equal pages.
    fn frame(&mut self, process: usize, pages: [usize; 2]) -> Result<FrameId> {
        let entries = pages.map(|page| (process, page, FoldKind::Set(0)));
        let batch = self.batch(&entries)?;
        let outcomes = self.device.fold(&batch)?;
        let first = outcomes.first().context("no outcome")?;
        ensure!(first.status == Status::Merged, "no frame: {first:?}");
        Ok(FrameId(first.frame))
    }

    /// Makes all processes check their memory.
    fn end(mut self) -> Result<()> {
        for process in &mut self.processes {
            process.verify()?;
        }
        Ok(())
    }
}

/// SAMPLE and SIZES.
fn sample(setup: &Setup, meter: &Meter, costs: &mut Costs) -> Result<()> {
    let mut scene = Scene::new(setup, &[(Contents::Distinct, 1)])?;
    let whole = scene.run(0, 0, PAGES, 1)?;
    let single = scene.run(0, 0, 1, 1)?;
    let part = scene.run(0, 0, BATCH, 1)?;
    let scattered: Result<Vec<Run>> = (0..BATCH)
        .map(|number| scene.run(0, number * (PAGES / BATCH), 1, 1))
        .collect();
    let scattered = scattered?;
    scene.sample(&[whole], ALL)?;
    let one = meter.mean(CALLS, |_| scene.sample(&[single], ONE))?;
    let all = meter.mean(5, |_| scene.sample(&[whole], ONE))?;
    let all_lines = meter.mean(3, |_| scene.sample(&[whole], ALL))?;
    let together = meter.mean(20, |_| scene.sample(&[part], ONE))?;
    let apart = meter.mean(20, |_| scene.sample(&scattered, ONE))?;
    let line = (all_lines - all) / (PAGES * 63) as f64;
    let page = (all - one) / (PAGES - 1) as f64 - line;
    let run = (apart - together) / (BATCH - 1) as f64;
    costs.insert("line", line);
    costs.insert("page", page);
    costs.insert("run", run);
    costs.insert("call", one - page - line - run);
    let spaces = vec![scene.spaces[0].0; LISTED];
    let device = &mut scene.device;
    let few = meter.mean(CALLS, |_| Ok(device.sizes(&spaces[..1])?))?;
    let many = meter.mean(5, |_| Ok(device.sizes(&spaces)?))?;
    costs.insert("size", (many - few) / (LISTED - 1) as f64);
    scene.end()
}

/// FOLD into a frame: the fixed cost, that of a page table, and of a page; and that of a page
/// already merged.
fn join(setup: &Setup, meter: &Meter, costs: &mut Costs) -> Result<()> {
    let mut scene = Scene::new(setup, &[(Contents::Identical, 2)])?;
    let mut frame = scene.frame(0, [0, 1])?;
    let mut sharers = 2;
    let mut next = 2;
    // A frame takes a limited number of pages; the first two of another are not counted.
    let mut kind = |scene: &mut Scene, next: &mut usize, more: usize| -> Result<FoldKind> {
        if sharers + more > SHARERS {
            frame = scene.frame(0, [*next, *next + 1])?;
            *next += 2;
            sharers = 2;
        }
        sharers += more;
        Ok(FoldKind::Frame(frame))
    };
    let mut single = 0.0;
    for _ in 0..CALLS {
        let kind = kind(&mut scene, &mut next, 1)?;
        let batch = scene.batch(&[(0, next, kind)])?;
        single += scene.fold(meter, &batch, Status::Merged)?;
        next += 1;
    }
    let single = single / CALLS as f64;
    // Batches under one page table, as full as a frame's mappings allow.
    let mut batches = Vec::new();
    let mut already = Vec::new();
    for _ in 0..6 {
        let kind = kind(&mut scene, &mut next, SHARERS - 8)?;
        let entries: Vec<_> = (next..next + SHARERS - 8)
            .map(|page| (0, page, kind))
            .collect();
        next += entries.len();
        let batch = scene.batch(&entries)?;
        batches.push(scene.fold(meter, &batch, Status::Merged)?);
        already.push(scene.fold(meter, &batch, Status::Already)?);
    }
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    // One page in each of several page tables, against as many side by side.
    let tables = PAGES / TABLE - 1 - next / TABLE;
    let kind = kind(&mut scene, &mut next, 2 * tables)?;
    let apart: Vec<_> = (1..=tables)
        .map(|table| (0, next + table * TABLE, kind))
        .collect();
    let beside: Vec<_> = (0..tables).map(|at| (0, next + at, kind)).collect();
    let apart = scene.batch(&apart)?;
    let apart = scene.fold(meter, &apart, Status::Merged)?;
    let beside = scene.batch(&beside)?;
    let beside = scene.fold(meter, &beside, Status::Merged)?;
    // The pages of those batches, and the first ones.
    let whole = scene.run(0, 0, BATCH, 1)?;
    let sampled = meter.mean(20, |_| scene.sample(&[whole], ONE))?;
    let page = (sampled - costs["call"] - costs["run"]) / BATCH as f64 - costs["line"];
    costs.insert("page_merged", page);
    let merge = (mean(&batches) - single) / (SHARERS - 9) as f64;
    let table = ((apart - beside) / (tables - 1) as f64).max(0.0);
    let at_any_rate = single - merge - table;
    costs.insert("merge", merge);
    costs.insert("table", table);
    costs.insert("fold", at_any_rate);
    let check = (mean(&already) - at_any_rate - table) / (SHARERS - 8) as f64;
    costs.insert("check", check.max(0.0));
    let last = scene.batch(&[(0, PAGES - 1, kind)])?;
    let drained = FoldBatch {
        drain: true,
        ..last
    };
    let taken = meter.mean(20, |_| Ok(scene.device.fold(&drained)?))?;
    costs.insert("drain", (taken - at_any_rate - table - merge).max(0.0));
    scene.end()
}

/// FOLD of pairs: the cost of making a frame; and FRAMES.
fn pairs(setup: &Setup, meter: &Meter, costs: &mut Costs) -> Result<()> {
    let twins = [(Contents::Distinct, 3), (Contents::Distinct, 3)];
    let mut scene = Scene::new(setup, &twins)?;
    let half = BATCH / 2;
    let whole = scene.processes[0].rewrite()?;
    let mut taken = Vec::new();
    for first in (0..LISTED).step_by(half) {
        let pair = |page: usize| {
            let set = FoldKind::Set(u16::try_from(page - first).unwrap_or(0));
            [(0, page, set), (1, page, set)]
        };
        let entries: Vec<_> = (first..first + half).flat_map(pair).collect();
        let batch = scene.batch(&entries)?;
        taken.push(scene.fold(meter, &batch, Status::Merged)?);
    }
    let mean = taken.iter().sum::<f64>() / taken.len() as f64;
    let at_any_rate = costs["fold"] + 2.0 * costs["table"];
    costs.insert("pair", (mean - at_any_rate) / half as f64);
    let device = &mut scene.device;
    let count = u32::try_from(LISTED)?;
    let few = meter.mean(CALLS, |_| Ok(device.frames(0, 1, ONE, false)?))?;
    let many = meter.mean(5, |_| Ok(device.frames(0, count, ONE, false)?))?;
    let frame = (many - few) / (LISTED - 1) as f64 - costs["line"];
    costs.insert("frame", frame.max(0.0));
    let merged = scene.processes[0].rewrite()?;
    let nanos = |time: Duration| time.as_nanos() as f64;
    costs.insert("write", nanos(whole) / PAGES as f64);
    costs.insert(
        "unshare",
        nanos(merged.saturating_sub(whole)) / LISTED as f64,
    );
    scene.end()
}

/// FOLD of pages whose hash is right and whose contents differ.
fn differing(setup: &Setup, meter: &Meter, costs: &mut Costs) -> Result<()> {
    let mixed = [(Contents::Identical, 2), (Contents::Distinct, 4)];
    let mut scene = Scene::new(setup, &mixed)?;
    let kind = FoldKind::Frame(scene.frame(0, [0, 1])?);
    let mut taken = Vec::new();
    for first in (0..4 * BATCH).step_by(BATCH) {
        let entries: Vec<_> = (first..first + BATCH).map(|page| (1, page, kind)).collect();
        let batch = scene.batch(&entries)?;
        taken.push(scene.fold(meter, &batch, Status::Differed)?);
    }
    let mean = taken.iter().sum::<f64>() / taken.len() as f64;
    let at_any_rate = costs["fold"] + 2.0 * costs["table"];
    costs.insert("compare", (mean - at_any_rate) / BATCH as f64);
    scene.end()
}
