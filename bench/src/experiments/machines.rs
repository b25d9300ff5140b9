//! machines: virtual machines with the same system.
//!
//! Machines of 128 MiB (`--size`) boot: Debian's kernel, an unchanged QEMU, a small `/init`. Their
//! memory is not planned: a kernel, its tables, the files of its boot, zeros. In the end each
//! machine reads the files of its boot once more, and every byte must be unchanged.
//!
//! - `idle`: four machines (`--crowd N`: N of them) are up before a system starts; the possible
//!   saving is counted from contents before.
//! - `booting`: one more machine boots every eight seconds beside a system that has been running;
//!   the possible saving is counted at the end.
//! - `overcommitted`: one more each twenty seconds, of eight, where the host has five eighths of
//!   their promised memory, and swap on compressed memory; without a merging system, too. A machine
//!   boots in nine seconds of CPU: sooner after each other, they would wait for the processor.
//! - `overcommitted-disk`: the same with swap on a disk of 1,000 requests a second.
//!
//! An emulator whose guests run guests now and then loses one. Before a system has started the
//! machine boots again, alone (`booted_again`); afterwards the run does not count, and is made
//! again; the number of tries is a figure (`tries`).
//!
//! Source: UKSM §8.2.1.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use uksm_results::report::Report;
use uksm_results::timeline::Timeline;
use uksm_testkit::kernel_file;
use uksm_testkit::zram::Swap;

use crate::comparison::rounds::interleave_by;
use crate::comparison::trial::{Trial, TrialResult};
use crate::comparison::watch::{Watch, look_now};
use crate::guests::{self, Guest, GuestSpec, again_if_lost};
use crate::low_memory::{OccupiedMemory, swap_on_disk};
use crate::measure::duplicates::mergeable_pages_of;
use crate::measure::machine::MachineCounters;
use crate::measure::pagemap::{Counter, mapping_of};
use crate::setup::Setup;
use crate::units::{MIB_PAGES, mib};
use crate::variants::{System, Variant, ksm};

/// Longest wait for a machine to boot, and to answer.
const BOOT_LIMIT: Duration = Duration::from_secs(150);
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Time between two checks of machines that boot at the same time.
const LOOK_AT_BOOT: Duration = Duration::from_millis(100);
/// Time for the other machines after the first of those that boot at the same time is up: as long
/// as the first took, and at least this.
const STRAGGLING: Duration = Duration::from_secs(5);
/// Limit of machines of a run that are booted again.
const MAX_AGAIN: usize = 4;
/// Time for the last machine to settle after it is up.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Time from the start of one machine to that of the next, in `booting` and in `overcommitted`, and
/// between two looks there.
const APART: Duration = Duration::from_secs(8);
const FAR_APART: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(500);
/// Swap, where memory is short. The disk has this size, too.
const SWAP_MIB: u64 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MachinesCase {
    Idle,
    Booting,
    Overcommitted,
    OvercommittedDisk,
}

impl FromStr for MachinesCase {
    type Err = Error;

    fn from_str(name: &str) -> Result<MachinesCase> {
        match name {
            "idle" => Ok(MachinesCase::Idle),
            "booting" => Ok(MachinesCase::Booting),
            "overcommitted" => Ok(MachinesCase::Overcommitted),
            "overcommitted-disk" => Ok(MachinesCase::OvercommittedDisk),
            _ => bail!(
                "no case '{name}'; there are idle, booting, overcommitted, overcommitted-disk"
            ),
        }
    }
}

/// Runs all variants of all cases.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("machines")?;
    guests::huge_pages(setup.huge)?;
    let all = ["idle", "booting", "overcommitted", "overcommitted-disk"];
    for case in setup.cases_or(&all)? {
        let (name, seconds, once) = match case {
            MachinesCase::Idle => ("idle", 40, idle as TrialFunction),
            MachinesCase::Booting => ("booting", 60, booting as TrialFunction),
            MachinesCase::Overcommitted => ("overcommitted", 200, overcommitted as TrialFunction),
            MachinesCase::OvercommittedDisk => {
                ("overcommitted-disk", 200, overcommitted as TrialFunction)
            }
        };
        let _swap = match case {
            MachinesCase::Idle | MachinesCase::Booting => None,
            MachinesCase::Overcommitted => Some(Swap::compressed(SWAP_MIB)?),
            MachinesCase::OvercommittedDisk => Some(swap_on_disk(SWAP_MIB)?),
        };
        let mut settings = vec![
            (Variant::uksm_governor("full"), usize::MAX),
            (Variant::ksm_unlimited(), usize::MAX),
            (Variant::ksm_shipped(), 1),
        ];
        if name.starts_with("overcommitted") {
            settings.push((Variant::uksm_governor("low"), usize::MAX));
            settings.push((Variant::no_dedup(), usize::MAX));
        }
        let trials = settings.into_iter().map(|(variant, max_runs)| Trial {
            variant,
            case: name.to_owned(),
            specs: Vec::new(),
            limit: setup.limit_or(seconds),
            max_runs,
        });
        let trials: Vec<Trial> = trials.collect();
        let again = |trial: &Trial, setup: &Setup| {
            let (mut run, tries) = again_if_lost(&trial.variant.name, || once(trial, setup))?;
            run.figures.insert("tries".to_owned(), tries.into());
            trial.print_progress(&run);
            Ok(run)
        };
        let measured = interleave_by(&again, &trials, setup.repeats.min(3), setup)?;
        report.variants.extend(measured);
    }
    report.compare_cases("uksm-full", None);
    Ok(report)
}

type TrialFunction = fn(&Trial, &Setup) -> Result<TrialResult>;

/// All are up, then the system starts.
fn idle(trial: &Trial, setup: &Setup) -> Result<TrialResult> {
    let begun = Instant::now();
    let mut machines = Machines::none(setup);
    for number in 0..setup.crowd.first().copied().unwrap_or(4) {
        machines.start(number, trial, setup)?;
    }
    let booted_again = machines.wait_together()?;
    let boot_seconds = begun.elapsed().as_secs_f64();
    std::thread::sleep(SETTLE_TIME);
    let pids = machines.pids();
    let mergeable_mib = machines.mergeable_mib()?;
    let mut watch = Watch::of_long(machines.bytes(), &pids, setup)?;
    watch.begin()?;
    let mut system = trial.variant.start(setup, &pids)?;
    trial.watch(&mut watch, system.as_mut(), mergeable_mib)?;
    let mut figures = watch.figures(system.as_ref())?;
    figures.insert("boot_seconds".to_owned(), boot_seconds);
    figures.insert("booted_again".to_owned(), booted_again as f64);
    figures.insert("machines".to_owned(), pids.len() as f64);
    let (own_mib, looks) = (watch.own_mib, watch.looks);
    end(system, machines, (looks, own_mib), mergeable_mib, figures)
}

/// The system runs, then one machine after the other starts.
fn booting(trial: &Trial, setup: &Setup) -> Result<TrialResult> {
    one_by_one(
        setup.crowd.first().copied().unwrap_or(4),
        APART,
        trial,
        setup,
    )
}

/// The same, in five eighths of the machines' promised memory: with half of it the kernel kills one
/// if nothing merges.
fn overcommitted(trial: &Trial, setup: &Setup) -> Result<TrialResult> {
    let count = setup.crowd.first().copied().unwrap_or(8);
    let _taken = OccupiedMemory::leaving(count * setup.size_or(128) * 5 / 8)?;
    one_by_one(count, FAR_APART, trial, setup)
}

fn one_by_one(count: usize, apart: Duration, trial: &Trial, setup: &Setup) -> Result<TrialResult> {
    let mut machines = Machines::none(setup);
    let mut counter = Counter::of_long(machines.bytes())?;
    let mut looks = Timeline::default();
    let (mut own_mib, mut least_kib) = (0.0_f64, u64::MAX);
    let (mut started_at, mut boot_times) = (Vec::new(), Vec::new());
    let (before, begin) = (MachineCounters::now()?, Instant::now());
    let mut system = trial.variant.start(setup, &[])?;
    while begin.elapsed() < trial.limit {
        let started = machines.guests.len();
        if started < count && begin.elapsed() >= apart * u32::try_from(started)? {
            machines.start(started, trial, setup)?;
            started_at.push(Instant::now());
        }
        let up = machines.up()?;
        boot_times.extend(boot_seconds(&started_at[boot_times.len()..up]));
        system.adjust()?;
        let seen = counter.count(&machines.pids())?;
        looks.0.push(look_now(begin, system.as_ref(), &seen)?);
        own_mib = own_mib.max(system.own_mib());
        least_kib = least_kib.min(kernel_file::number("/proc/meminfo", "MemAvailable")?);
        std::thread::sleep(LOOK);
    }
    machines.wait()?;
    boot_times.extend(boot_seconds(&started_at[boot_times.len()..]));
    let longest = boot_times.iter().copied().fold(0.0, f64::max);
    let mut figures = MachineCounters::now()?.since(&before);
    // Pages swapped out by now are not read, and not counted.
    let mergeable_mib = machines.mergeable_mib()?;
    figures.extend(system.figures());
    let (saved, mapped) = looks.means_from(0.0).unwrap_or_default();
    let more = [
        ("machines", count as f64),
        (
            "mean_boot_seconds",
            boot_times.iter().sum::<f64>() / count as f64,
        ),
        ("longest_boot_seconds", longest),
        ("mean_saved_mib", saved),
        ("mean_mapped_mib", mapped),
        ("least_available_mib", least_kib as f64 / 1024.0),
    ];
    figures.extend(more.map(|(name, value)| (name.to_owned(), value)));
    end(system, machines, (looks, own_mib), mergeable_mib, figures)
}

/// Seconds since each of these starts.
fn boot_seconds(started_at: &[Instant]) -> impl Iterator<Item = f64> {
    started_at.iter().map(|at| at.elapsed().as_secs_f64())
}

/// Stops the system and makes every machine check its memory.
fn end(
    mut system: Box<dyn System>,
    mut machines: Machines,
    (looks, own_mib): (Timeline, f64),
    mergeable_mib: f64,
    figures: BTreeMap<String, f64>,
) -> Result<TrialResult> {
    let counters = system.report();
    system.stop()?;
    let verified_pages = machines.check()?;
    drop(machines);
    ksm::settle()?;
    Ok(TrialResult {
        looks,
        mergeable_mib,
        verified_pages,
        own_mib,
        counters,
        figures,
        window: None,
    })
}

/// Machines that are up.
struct Machines {
    guests: Vec<Guest>,
    specs: Vec<GuestSpec>,
    /// The number of them, in their order, that are known to be up.
    up: usize,
    pages: usize,
}

impl Machines {
    fn none(setup: &Setup) -> Machines {
        Machines {
            guests: Vec::new(),
            specs: Vec::new(),
            up: 0,
            pages: setup.size_or(128) * MIB_PAGES,
        }
    }

    /// Starts one more.
    fn start(&mut self, number: usize, trial: &Trial, setup: &Setup) -> Result<()> {
        let spec = GuestSpec {
            number,
            seed: setup.round_seed(),
            memory_mib: setup.size_or(128),
            mergeable: trial.variant.needs_mergeable(),
            disk: None,
        };
        self.guests.push(Guest::start(&spec)?);
        self.specs.push(spec);
        Ok(())
    }

    /// Waits until all that were started together are up, and boots lost ones again; returns the
    /// number of those.
    ///
    /// They do the same, by turns on the same processors, so that all are up at about the same
    /// time: one that takes much longer than the first is lost, which is known long before
    /// [`BOOT_LIMIT`].
    fn wait_together(&mut self) -> Result<usize> {
        let mut booting: Vec<usize> = (0..self.guests.len()).collect();
        let (mut begin, mut again) = (Instant::now(), 0);
        let mut limit = BOOT_LIMIT;
        loop {
            let mut late = Vec::new();
            for &number in &booting {
                if self.guests[number].answered("ready")?.is_none() {
                    late.push(number);
                }
            }
            if late.is_empty() {
                self.up = self.guests.len();
                return Ok(again);
            }
            let took = begin.elapsed();
            if late.len() < booting.len() && limit == BOOT_LIMIT {
                limit = BOOT_LIMIT.min(took + took.max(STRAGGLING));
            }
            booting = late;
            if took < limit {
                std::thread::sleep(LOOK_AT_BOOT);
                continue;
            }
            for &number in &booting {
                let late = self.guests[number].lost("ready", "it takes too long");
                ensure!(again < MAX_AGAIN, late);
                println!("{late}; it boots again");
                again += 1;
                self.guests[number] = Guest::start(&self.specs[number])?;
            }
            begin = Instant::now();
        }
    }

    /// Waits until all are up.
    fn wait(&mut self) -> Result<()> {
        for guest in &mut self.guests[self.up..] {
            guest.wait("ready", BOOT_LIMIT)?;
        }
        self.up = self.guests.len();
        Ok(())
    }

    /// The number of those up by now, before the first that is not.
    fn up(&mut self) -> Result<usize> {
        while let Some(next) = self.guests.get_mut(self.up) {
            if next.answered("ready")?.is_none() {
                break;
            }
            self.up += 1;
        }
        Ok(self.up)
    }

    fn pids(&self) -> Vec<u32> {
        self.guests.iter().map(Guest::pid).collect()
    }

    /// Size of a machine's memory, which is one mapping of QEMU.
    fn bytes(&self) -> u64 {
        self.pages as u64 * 4096
    }

    /// MiB that merging all equal pages of the machines' memory would save.
    fn mergeable_mib(&self) -> Result<f64> {
        let bytes = self.bytes();
        let mut mappings = Vec::new();
        for pid in self.pids() {
            let start = mapping_of(pid, bytes)?.context("a machine has no memory")?;
            mappings.push((pid, start..start + bytes));
        }
        Ok(mib(mergeable_pages_of(&mappings)?))
    }

    /// Makes each machine read the files of its boot once more; returns the pages of all.
    fn check(&mut self) -> Result<u64> {
        for guest in &mut self.guests {
            guest.command("check")?;
        }
        let mut pages = 0;
        for guest in &mut self.guests {
            let checked = guest.wait("checked", ANSWER_LIMIT)?;
            pages += checked.parse::<u64>().context("pages of a machine")?;
        }
        Ok(pages)
    }
}
