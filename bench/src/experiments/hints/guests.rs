//! hints-guests: real virtual machines read the files of equal disks (see [`crate::guests`]).
//!
//! Two machines (`--crowd N`: N of them) of 128 MiB (`--size`) boot. Then a system starts, and
//! after ten seconds the machines begin to read, 768 KiB a second each, so that most of their new
//! memory is equal. A case is as in the other experiments of hints: QEMU's interface to the disk,
//! and the amount of CPU.
//!
//! The contents of pages are not planned here. So the oracle is a run of its own in which nothing
//! merges and the contents of the machines are compared every few seconds, and each run has its own
//! comparison at its end.
//!
//! Only the machines' memory counts, which QEMU offers to KSM. QEMU's own memory, such as the files
//! of kernel and initramfs, does not count.
//!
//! No process gets huge pages, as in all experiments; with `--huge` the kernel gives them to QEMU,
//! which requests them, as it does by default.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use uksm_results::report::{Measured, Report};
use uksm_results::timeline::{Look, Timeline};

use super::case::DiskCase;
use super::figures::{against_ksm, figures_since, hint_figures, ratios};
use crate::guests::{Disks, Guest, GuestDisk, GuestSpec, again_if_lost, huge_pages};
use crate::measure::duplicates::mergeable_pages_of;
use crate::measure::frames::{Frames, saved_pages};
use crate::measure::pagemap::FrameSet;
use crate::setup::Setup;
use crate::units::mib;
use crate::variants::{System, Variant, ksm};

/// Default cases.
pub(super) const CASES: [&str; 2] = ["pread-low", "io_uring-low"];

/// Time of a system before the machines read.
const LEAD: Duration = Duration::from_secs(10);
/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time between two comparisons of all contents, which take seconds of an emulated core.
const COMPARISON: Duration = Duration::from_secs(6);
/// Reading rate of a machine.
const KIB_PER_SECOND: u64 = 768;
/// Longest wait for a machine to boot, and to answer.
const BOOT_LIMIT: Duration = Duration::from_secs(150);
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// The merging system, if there is one.
enum Merger<'a> {
    Nothing,
    System(&'a Variant),
}

/// Machines in a case.
struct ReadingMachines<'a> {
    case: DiskCase,
    setup: &'a Setup,
    disks: &'a Disks,
}

/// Runs all variants of all cases.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("hints-guests")?;
    let machines = setup.crowd.first().copied().unwrap_or(2);
    let disks = Disks::create(machines)?;
    huge_pages(setup.huge)?;
    for case in setup.cases_or(&CASES)? {
        let reading = ReadingMachines {
            case,
            setup,
            disks: &disks,
        };
        reading.compare(&mut report)?;
    }
    Ok(report)
}

impl ReadingMachines<'_> {
    fn compare(&self, report: &mut Report) -> Result<()> {
        let mut measured = Vec::new();
        if self.setup.wants("oracle") {
            measured.push(self.tried("oracle", &Merger::Nothing)?);
        }
        measured.extend(against_ksm(self.setup, self.case.cpu, &mut |variant| {
            self.tried(&variant.name, &Merger::System(variant))
        })?);
        for one in &mut measured {
            one.case = self.case.to_string();
        }
        ratios(report, &measured, &self.case.to_string());
        report.variants.extend(measured);
        Ok(())
    }

    /// Runs a variant, again if machines get lost; the number of tries is a figure.
    fn tried(&self, name: &str, merger: &Merger<'_>) -> Result<Measured> {
        let label = format!("{name} {}", self.case);
        let (mut measured, tries) = again_if_lost(&label, || self.once(name, merger))?;
        measured.figures.insert("tries".to_owned(), tries.into());
        println!("{label}: {:.3?}", measured.figures);
        Ok(measured)
    }

    fn spec(&self, number: usize, mergeable: bool) -> GuestSpec {
        GuestSpec {
            number,
            seed: self.setup.seed,
            memory_mib: self.setup.size_or(128),
            mergeable,
            disk: Some(GuestDisk {
                file: self.disks.files[number].clone(),
                aio: self.case.aio,
                kib_per_second: KIB_PER_SECOND / u64::from(self.case.slowness),
            }),
        }
    }

    fn once(&self, name: &str, merger: &Merger<'_>) -> Result<Measured> {
        let mergeable = match merger {
            Merger::Nothing => false,
            Merger::System(variant) => variant.needs_mergeable(),
        };
        let mut guests = Vec::new();
        let boot = Instant::now();
        for number in 0..self.disks.files.len() {
            guests.push(Guest::start(&self.spec(number, mergeable))?);
        }
        for guest in &mut guests {
            guest.wait("ready", BOOT_LIMIT)?;
        }
        let boot_seconds = boot.elapsed().as_secs_f64();
        let pids: Vec<u32> = guests.iter().map(Guest::pid).collect();
        let mut frames = Vec::new();
        for &pid in &pids {
            frames.push(Frames::of(pid, self.spec(0, mergeable).pages())?);
        }
        let mut observation = GuestObservation::new(&pids, frames, merger, self.setup)?;
        while observation.begin.elapsed() < LEAD {
            observation.look()?;
        }
        let before = observation.comparison()? - observation.saved_before;
        for guest in &mut guests {
            guest.command("go")?;
        }
        let go = observation.begin.elapsed();
        let end = go + self.setup.limit_or(100);
        let mut late = vec![None; guests.len()];
        while observation.begin.elapsed() < end {
            observation.look()?;
            for (guest, late) in guests.iter_mut().zip(&mut late) {
                if late.is_none() {
                    *late = guest.answered("done")?;
                }
            }
        }
        for (guest, late) in guests.iter_mut().zip(&mut late) {
            if late.is_none() {
                *late = Some(guest.wait("done", ANSWER_LIMIT)?);
            }
        }
        let mergeable = observation.comparison()?;
        let mut measured = observation.end(name, mergeable)?;
        for guest in &mut guests {
            guest.command("verify")?;
            let pages = guest.wait("verified", ANSWER_LIMIT)?;
            measured.verified_pages += pages.parse::<u64>().context("verified pages")?;
        }
        drop(guests);
        ksm::settle()?;
        ensure!(
            name != "uksm-hints"
                || measured
                    .figures
                    .get("hints_calls")
                    .is_some_and(|&calls| calls > 0.0),
            "nobody told of what QEMU read: {:?}",
            measured.counters
        );
        let late = late
            .iter()
            .flatten()
            .filter_map(|text| text.parse::<f64>().ok());
        let figures = [
            ("boot_seconds", boot_seconds),
            ("most_late_seconds", late.fold(0.0, f64::max) / 1e9),
        ];
        let named = figures.map(|(name, value)| (name.to_owned(), value));
        measured.figures.extend(named);
        figures_since(&mut measured, go.as_secs_f64(), before);
        Ok(measured)
    }
}

/// A run under observation.
struct GuestObservation {
    pids: Vec<u32>,
    frames: Vec<Frames>,
    system: Option<Box<dyn System>>,
    begin: Instant,
    looks: Vec<Look>,
    /// Saved before the system started.
    saved_before: f64,
    own_mib: f64,
    seen: FrameSet,
}

impl GuestObservation {
    fn new(
        pids: &[u32],
        frames: Vec<Frames>,
        merger: &Merger<'_>,
        setup: &Setup,
    ) -> Result<GuestObservation> {
        let mut observation = GuestObservation {
            pids: pids.to_vec(),
            frames,
            system: None,
            begin: Instant::now(),
            looks: Vec::new(),
            saved_before: 0.0,
            own_mib: 0.0,
            seen: FrameSet::default(),
        };
        observation.saved_before = observation.saved()?.0;
        observation.begin = Instant::now();
        if let Merger::System(variant) = merger {
            observation.system = Some(variant.start(setup, pids)?);
        }
        Ok(observation)
    }

    /// MiB saved, and mapped.
    fn saved(&mut self) -> Result<(f64, f64)> {
        for frames in &mut self.frames {
            frames.read()?;
        }
        let pages = self.frames.iter().flat_map(Frames::pages);
        let mapped = pages.filter(|&&frame| frame != 0).count();
        Ok((mib(saved_pages(&self.frames, &mut self.seen)), mib(mapped)))
    }

    /// MiB that merging all would save.
    fn comparison(&self) -> Result<f64> {
        let addresses = self.frames.iter().map(Frames::addresses);
        let mappings: Vec<_> = self.pids.iter().copied().zip(addresses).collect();
        Ok(mib(mergeable_pages_of(&mappings)?))
    }

    fn look(&mut self) -> Result<()> {
        let begin = self.begin.elapsed();
        let mut cpu_seconds = 0.0;
        if let Some(system) = &mut self.system {
            system.adjust()?;
            cpu_seconds = system.cpu()?.as_secs_f64();
            self.own_mib = self.own_mib.max(system.own_mib());
        }
        let (saved, mapped_mib) = self.saved()?;
        let saved_mib = match self.system {
            Some(_) => saved - self.saved_before,
            None => self.comparison()? - self.saved_before,
        };
        let taken = self.begin.elapsed() - begin;
        self.looks.push(Look {
            seconds: (begin + taken / 2).as_secs_f64(),
            cpu_seconds,
            saved_mib,
            mapped_mib,
        });
        let interval = match self.system {
            Some(_) => INTERVAL,
            None => COMPARISON,
        };
        std::thread::sleep(interval.saturating_sub(taken).max(taken / 2));
        Ok(())
    }

    /// Stops the system; returns the result so far.
    fn end(mut self, name: &str, mergeable_mib: f64) -> Result<Measured> {
        let last = self.looks.last().copied();
        let mut measured = Measured {
            name: name.to_owned(),
            wall_seconds: self.begin.elapsed().as_secs_f64(),
            saved_mib: last.map_or(0.0, |look| look.saved_mib),
            mergeable_mib: mergeable_mib - self.saved_before,
            daemon_mib: self.own_mib,
            looks: Timeline(std::mem::take(&mut self.looks)),
            ..Measured::default()
        };
        if let Some(system) = &mut self.system {
            measured.cpu_seconds = system.cpu()?.as_secs_f64();
            measured.counters = system.report();
            measured.figures = system.figures();
            system.stop().with_context(|| name.to_owned())?;
        }
        measured.cpu_seconds_of_runs = vec![measured.cpu_seconds];
        let percent = 100.0 * measured.cpu_seconds / measured.wall_seconds;
        measured.figures.insert("cpu_percent".to_owned(), percent);
        hint_figures(&mut measured);
        Ok(measured)
    }
}
