//! One variant against two machines, watched from its start to their end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use uksm_results::over_time;
use uksm_results::report::Measured;
use uksm_results::timeline::{Look, Timeline};

use super::case::DiskCase;
use super::figures::AREA;
use super::merges::Merges;
use crate::disk_machines::sharing::{self, Chance};
use crate::disk_machines::{Disk, Load, Machine, Plan};
use crate::measure::frames::{Frames, saved_pages};
use crate::measure::pagemap::FrameSet;
use crate::setup::Setup;
use crate::units::{MIB_PAGES, mib};
use crate::variants::{System, Variant, ksm};
use crate::workload::Process;

/// Time of a system before the machines begin.
const LEAD: Duration = Duration::from_secs(10);

/// Time between two looks: they take CPU, which is the machines' and the system's, too.
const INTERVAL: Duration = Duration::from_millis(200);

/// Two machines in a case.
pub(super) struct Replay {
    /// The case.
    pub(super) case: DiskCase,
    machines: [Machine; 2],
    chances: Vec<Chance>,
}

impl Replay {
    /// Plans two machines, and fills the parts of their disks that they read.
    pub(super) fn new(
        case: DiskCase,
        loads: [Load; 2],
        setup: &Setup,
        disks: &mut [Disk; 2],
    ) -> Result<Replay> {
        let machine = |number: usize| Machine {
            seed: setup.seed,
            number: number as u64,
            load: loads[number],
            aio: case.aio,
            pages: setup.size_or(128) * MIB_PAGES,
            length: setup.limit_or(240),
            slowness: case.slowness,
            mergeable: false,
            disk: disks[number].path.clone(),
        };
        let machines = [machine(0), machine(1)];
        let plans = [Plan::of(&machines[0]), Plan::of(&machines[1])];
        for ((disk, machine), plan) in disks.iter_mut().zip(&machines).zip(&plans) {
            disk.provide(machine, plan)?;
        }
        let chances = sharing::chances([&machines[0], &machines[1]], [&plans[0], &plans[1]]);
        Ok(Replay {
            case,
            machines,
            chances,
        })
    }

    /// The saving of all that could be shared at each moment, at no cost.
    pub(super) fn oracle(&self) -> Measured {
        let look = |&(seconds, pages): &(f64, usize)| Look {
            seconds: seconds + LEAD.as_secs_f64(),
            cpu_seconds: 0.0,
            saved_mib: mib(pages),
            mapped_mib: self.mapped_mib(),
        };
        let mut looks: Vec<Look> = vec![self.nothing(0.0)];
        let mut last = None;
        for change in sharing::course(&self.chances) {
            // A step, thinned out to the resolution of a plot.
            let due = last.is_none_or(|last| change.0 - last >= INTERVAL.as_secs_f64());
            if due {
                last = Some(change.0);
                looks.push(look(&change));
            }
        }
        // All chances end with the machines.
        looks.retain(|look| look.seconds < self.end_seconds());
        let last = *looks.last().unwrap_or(&self.nothing(0.0));
        let end = Look {
            seconds: self.end_seconds(),
            ..last
        };
        looks.push(end);
        let mut measured = self.measured("oracle", looks);
        measured
            .figures
            .insert("chances".to_owned(), self.chances.len() as f64);
        measured
    }

    /// Runs one variant once.
    pub(super) fn run(&self, variant: &Variant, setup: &Setup) -> Result<Measured> {
        let mut processes = Vec::new();
        for machine in &self.machines {
            let mergeable = variant.needs_mergeable();
            let mut process = Process::start_as(
                "machine",
                &Machine {
                    mergeable,
                    ..machine.clone()
                },
            )?;
            process.ready()?;
            processes.push(process);
        }
        let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
        let mut frames = Vec::new();
        for (&pid, machine) in pids.iter().zip(&self.machines) {
            frames.push(Frames::of(pid, machine.pages)?);
        }
        let visited_before = ksm::scanned_pages()?;
        let begin = Instant::now();
        let mut system = variant.start(setup, &pids)?;
        let mut merges = Merges::of(&self.chances);
        let mut looks = vec![self.nothing(0.0)];
        let (mut own_mib, mut seen) = (0.0_f64, FrameSet::default());
        let mut begun: Option<Instant> = None;
        let end = LEAD + self.machines[0].length;
        while begin.elapsed() < end {
            if begun.is_none() && begin.elapsed() >= LEAD {
                for process in &mut processes {
                    process.go()?;
                }
                begun = Some(Instant::now());
            }
            system.adjust()?;
            let early = (
                begin.elapsed(),
                begun.map(|begun| begun.elapsed()),
                system.cpu()?,
            );
            for frames in &mut frames {
                frames.read()?;
            }
            let taken = begin.elapsed() - early.0;
            if let Some(since) = early.1 {
                // The end of the look: a page that it saw may have come during the look.
                let seconds = (since + taken).as_secs_f64();
                merges.look(seconds, [frames[0].pages(), frames[1].pages()]);
            }
            looks.push(Look {
                seconds: (early.0 + taken / 2).as_secs_f64(),
                cpu_seconds: early.2.as_secs_f64(),
                saved_mib: mib(saved_pages(&frames, &mut seen)),
                mapped_mib: self.mapped_mib(),
            });
            own_mib = own_mib.max(system.own_mib());
            std::thread::sleep(INTERVAL.max(taken * 2));
        }
        let mut measured = self.measured(&variant.name, looks);
        self.end(
            system,
            &mut processes,
            &merges,
            visited_before,
            &mut measured,
        )?;
        measured.daemon_mib = own_mib;
        println!("{} {}: {:.3?}", variant.name, self.case, measured.figures);
        Ok(measured)
    }

    /// Stops a system, makes the machines read their memory, and adds all other figures.
    fn end(
        &self,
        mut system: Box<dyn System>,
        processes: &mut Vec<Process>,
        merges: &Merges<'_>,
        visited_before: Option<u64>,
        measured: &mut Measured,
    ) -> Result<()> {
        measured.cpu_seconds = system.cpu()?.as_secs_f64();
        measured.cpu_seconds_of_runs = vec![measured.cpu_seconds];
        measured.counters = system.report();
        let visited = visited(measured, visited_before)?;
        measured.figures.extend(system.figures());
        system.stop().with_context(|| measured.name.clone())?;
        drop(system);
        let mut late = Duration::ZERO;
        for process in processes.iter_mut() {
            late = late.max(process.late()?);
            measured.verified_pages += process.verify().with_context(|| measured.name.clone())?;
        }
        processes.clear();
        ksm::settle()?;
        let taken = merges.taken();
        let seconds = measured.wall_seconds;
        let mut figures = BTreeMap::from([
            ("cpu_percent", 100.0 * measured.cpu_seconds / seconds),
            (
                "merged_percent_of_chances",
                100.0 * taken as f64 / self.chances.len().max(1) as f64,
            ),
            ("most_late_seconds", late.as_secs_f64()),
        ]);
        if let Some(median) = merges.median_seconds() {
            figures.insert("median_seconds_to_merge", median);
        }
        if let Some(visited) = visited.filter(|_| taken > 0) {
            figures.insert(
                "visited_pages_per_merged_page",
                visited as f64 / taken as f64,
            );
        }
        let named = figures
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        measured.figures.extend(named);
        measured.histograms = merges.histograms();
        Ok(())
    }

    /// A result with the area under these looks.
    fn measured(&self, name: &str, looks: Vec<Look>) -> Measured {
        let end = self.end_seconds();
        let points: Vec<(f64, f64)> = looks
            .iter()
            .map(|look| (look.seconds, look.saved_mib))
            .collect();
        let area = over_time::mean(&points, 0.0).unwrap_or(0.0) * end;
        let lasts = |chance: &&Chance| chance.until >= self.machines[0].length.as_secs_f64();
        let at_end = self.chances.iter().filter(lasts).count();
        Measured {
            name: name.to_owned(),
            case: self.case.to_string(),
            wall_seconds: end,
            saved_mib: looks.last().map_or(0.0, |look| look.saved_mib),
            mergeable_mib: mib(at_end),
            looks: Timeline(looks),
            figures: BTreeMap::from([(AREA.to_owned(), area)]),
            ..Measured::default()
        }
    }

    fn end_seconds(&self) -> f64 {
        (LEAD + self.machines[0].length).as_secs_f64()
    }

    fn mapped_mib(&self) -> f64 {
        self.machines.iter().map(Machine::mib).sum()
    }

    fn nothing(&self, seconds: f64) -> Look {
        Look {
            seconds,
            cpu_seconds: 0.0,
            saved_mib: 0.0,
            mapped_mib: self.mapped_mib(),
        }
    }
}

/// Pages that a system looked at: for uksm those sampled and those tried, for KSM those scanned, if
/// this kernel counts them.
fn visited(measured: &Measured, scanned_before: Option<u64>) -> Result<Option<u64>> {
    if measured.name.starts_with("ksm-") {
        let scanned = scanned_before.zip(ksm::scanned_pages()?);
        return Ok(scanned.map(|(before, now)| now - before));
    }
    let count = |path: &str| measured.counters.as_ref()?.pointer(path)?.as_u64();
    let sampled = count("/kernel/sampled").zip(count("/kernel/tried"));
    Ok(sampled.map(|(sampled, tried)| sampled + tried))
}
