//! fold-cost: the module's cost of merging a page with a known partner.
//!
//! No policy: the partners are known by plan and passed to FOLD in address order. This is the floor
//! for the daemon's cost a saved page; `cold-compare` of sample-cost is the floor of that. Three
//! shapes: identical pages into one frame, pairs of two processes by sets, and pages whose hash was
//! right and whose contents differ.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use uksm_linux::module::Device;
use uksm_policy::command::{FoldBatch, FoldEntry, FoldKind, FrameId, SpaceId, Status};
use uksm_policy::params::MAX_SHARERS;
use uksm_results::report::Report;

use super::page_cost::{PageCost, attach, measured};
use crate::comparison::trial::start_workload;
use crate::contents::PAGE;
use crate::measure::cpu::CpuClock;
use crate::measure::pagemap::largest_mapping;
use crate::setup::Setup;
use crate::units::MIB_PAGES;
use crate::variants::Variant;
use crate::workload::{Contents, Part, Process, Spec};

/// Entries of one FOLD.
const BATCH: usize = 512;

/// Runs the experiment.
pub(crate) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("fold-cost")?;
    let size = setup.size_or(128);
    let spec = |contents, family| Spec {
        seed: setup.seed,
        parts: vec![Part::still(contents, family, size)],
        huge: false,
        mergeable: false,
    };
    let ours = Variant::uksm("fold", &[]);
    let pages = size * MIB_PAGES;

    let identical = spec(Contents::Identical, 1);
    let mut processes = start_workload(std::slice::from_ref(&identical), &ours, setup)?;
    let mut domain = Domain::new(&processes)?;
    let cost = domain.fill_frames(pages)?;
    report.variants.push(measured(
        "into-a-frame".into(),
        cost,
        processes[0].verify()?,
    ));

    let clones = [spec(Contents::Distinct, 2), spec(Contents::Distinct, 2)];
    let mut processes = start_workload(&clones, &ours, setup)?;
    let mut domain = Domain::new(&processes)?;
    let pairs = |page: usize| {
        let set = u16::try_from(page % (BATCH / 2)).unwrap_or(0);
        vec![(0, page, FoldKind::Set(set)), (1, page, FoldKind::Set(set))]
    };
    let cost = domain.run(0..pages, &pairs, Status::Merged)?;
    let verified = processes[0].verify()? + processes[1].verify()?;
    report
        .variants
        .push(measured("pairs".into(), cost, verified));

    let mixed = [spec(Contents::Identical, 1), spec(Contents::Distinct, 3)];
    let mut processes = start_workload(&mixed, &ours, setup)?;
    let mut domain = Domain::new(&processes)?;
    let frame = domain.frame(0)?;
    let wrong = |page: usize| vec![(1, page, FoldKind::Frame(frame))];
    let cost = domain.run(0..pages, &wrong, Status::Differed)?;
    report
        .variants
        .push(measured("differing".into(), cost, processes[1].verify()?));
    Ok(report)
}

/// A domain with the processes of a workload.
struct Domain {
    device: Device,
    spaces: Vec<(SpaceId, u64)>,
}

impl Domain {
    fn new(processes: &[Process]) -> Result<Domain> {
        let device = Device::open()?;
        let mut spaces = Vec::new();
        for process in processes {
            let (start, _) = largest_mapping(process.pid())?.context("no memory")?;
            spaces.push((attach(&device, process.pid())?, start));
        }
        Ok(Domain { device, spaces })
    }

    fn entry(&self, (process, page, kind): (usize, usize, FoldKind)) -> FoldEntry {
        let (space, start) = self.spaces[process];
        FoldEntry {
            address: start + (page * PAGE) as u64,
            hash: 0,
            space,
            kind,
        }
    }

    fn batch(mut entries: Vec<FoldEntry>) -> FoldBatch {
        entries.sort_by_key(|entry| (entry.space, entry.address));
        FoldBatch {
            entries,
            lines: 0,
            split: false,
            locked: false,
            drain: false,
        }
    }

    /// A frame of this page of the first process and the next one, which are equal.
    fn frame(&mut self, page: usize) -> Result<FrameId> {
        let two = [page, page + 1].map(|page| (0, page, FoldKind::Set(0)));
        let mut batch = Self::batch(two.map(|entry| self.entry(entry)).to_vec());
        batch.drain = true;
        let outcomes = self.device.fold(&batch)?;
        ensure!(
            outcomes[0].status == Status::Merged,
            "no frame: {:?}",
            outcomes[0]
        );
        Ok(FrameId(outcomes[0].frame))
    }

    /// Merges all pages of the first process, which are equal, into as many frames as needed;
    /// returns the cost of an entry, without those that make frames.
    fn fill_frames(&mut self, pages: usize) -> Result<PageCost> {
        let mut sum = FoldCost::default();
        let most = usize::try_from(MAX_SHARERS).context("sharers")?;
        for first in (0..pages.saturating_sub(1)).step_by(most) {
            let frame = self.frame(first)?;
            let into_frame = |page: usize| vec![(0, page, FoldKind::Frame(frame))];
            let rest = first + 2..(first + most).min(pages);
            sum.add(self.fold(rest, &into_frame, Status::Merged)?);
        }
        sum.cost(Status::Merged)
    }

    /// Merges all pages; returns the cost of an entry.
    fn run(
        &mut self,
        pages: std::ops::Range<usize>,
        entries_of: &dyn Fn(usize) -> Vec<(usize, usize, FoldKind)>,
        expected: Status,
    ) -> Result<PageCost> {
        self.fold(pages, entries_of, expected)?.cost(expected)
    }

    /// Merges all pages, a FOLD for each full batch.
    fn fold(
        &mut self,
        pages: std::ops::Range<usize>,
        entries_of: &dyn Fn(usize) -> Vec<(usize, usize, FoldKind)>,
        expected: Status,
    ) -> Result<FoldCost> {
        let own = CpuClock::of(std::process::id())?;
        let batch_pages = BATCH / entries_of(pages.start).len();
        let mut folded = FoldCost::default();
        let mut first = pages.start;
        while first < pages.end {
            let last = (first + batch_pages).min(pages.end);
            let entries = (first..last)
                .flat_map(entries_of)
                .map(|entry| self.entry(entry));
            let batch = Self::batch(entries.collect());
            let begin = own.now()?;
            let outcomes = self.device.fold(&batch)?;
            folded.add(FoldCost {
                cpu: own.now()?.saturating_sub(begin),
                tried: outcomes.len(),
                hit: outcomes
                    .iter()
                    .filter(|outcome| outcome.status == expected)
                    .count(),
            });
            first = last;
        }
        Ok(folded)
    }
}

/// The cost of folding some entries.
#[derive(Debug, Clone, Copy, Default)]
struct FoldCost {
    cpu: Duration,
    tried: usize,
    /// Entries with the expected outcome.
    hit: usize,
}

impl FoldCost {
    fn add(&mut self, other: FoldCost) {
        self.cpu += other.cpu;
        self.tried += other.tried;
        self.hit += other.hit;
    }

    /// A page may be busy for a moment; more than a few would be another experiment.
    fn cost(self, expected: Status) -> Result<PageCost> {
        let FoldCost { cpu, tried, hit } = self;
        ensure!(
            hit * 100 >= tried * 99,
            "only {hit} of {tried} entries were {expected:?}"
        );
        Ok(PageCost::new(cpu, tried))
    }
}
