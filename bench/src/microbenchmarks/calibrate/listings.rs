//! Costs of listing processes and mappings, of waking, and of starting.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use uksm_linux::clock;
use uksm_linux::connector::Connector;
use uksm_linux::driver::{Driver, HostClocks, Machine};
use uksm_linux::machine::LinuxMachine;
use uksm_linux::module::Device;
use uksm_linux::proc::Proc;
use uksm_linux::processes::Processes;
use uksm_linux::selection::Selection;
use uksm_linux::sleeper::Sleeper;
use uksm_policy::command::{Command, Observation, SpaceId};

use super::costs::Costs;
use super::meter::Meter;
use crate::comparison::trial::start_workload;
use crate::setup::Setup;
use crate::variants::{System, Variant, uksm};
use crate::workload::{Contents, Part, Process, Spec};

/// Number of calls in a mean.
const CALLS: usize = 200;
/// Processes that appear.
const NEWCOMERS: usize = 32;
/// Mappings of a process that has many.
const MAPPINGS: usize = 400;
/// A sleep, in nanoseconds.
const SLEEP: u64 = 2_000_000;
/// A sleep as long as those between bursts of work, and their number.
const LONG_SLEEP: Duration = Duration::from_millis(20);
const SLEEPS: u32 = 50;
/// The longest wait for processes to be listed.
const LIMIT: Duration = Duration::from_secs(30);
/// Time after which the daemon has started, and has nothing to do.
const STARTED: Duration = Duration::from_millis(60);
/// Number of starts in a mean.
const STARTS: u32 = 3;

/// Measures them.
pub(super) fn measure(setup: &Setup, costs: &mut Costs) -> Result<()> {
    let meter = Meter::new()?;
    costs.insert("turn", turn(&meter)?);
    // One machine after the other: a process is in one domain only.
    costs.insert("list_processes", polled(&meter)?);
    let mut machine = machine(true)?;
    let known = arrivals(&mut machine, &meter, 0)?;
    ensure!(!known.spaces.is_empty(), "no process is listed");
    let wake = meter.mean(CALLS, |_| {
        let until = clock::now() + SLEEP;
        let events_wake_from = u64::MAX;
        Ok(machine.perform(Command::Sleep {
            until,
            events_wake_from,
            hints_wake_from: u64::MAX,
        })?)
    })?;
    costs.insert("wake", wake);
    costs.insert("late", late());
    let events = meter.mean(CALLS, |_| Ok(machine.perform(Command::ListProcesses)?))?;
    costs.insert("events", events);

    let small = spec(setup, 1);
    let processes = start_workload(&vec![small; NEWCOMERS], &ours(), setup)?;
    let newcomers = arrivals(&mut machine, &meter, NEWCOMERS)?;
    let arrived = newcomers.spaces.len() as f64;
    let process = (newcomers.taken - events * newcomers.calls) / arrived;
    costs.insert("process", process.max(0.0));
    let many = start_workload(&[spec(setup, MAPPINGS)], &ours(), setup)?;
    let newcomer = arrivals(&mut machine, &meter, 1)?;
    let of = |machine: &mut LinuxMachine<Device>, space: SpaceId| {
        meter.mean(20, |_| Ok(machine.perform(Command::ListMappings(space))?))
    };
    let small = *newcomers.spaces.last().context("no newcomer")?;
    let few_lines = lines(&processes)?;
    let many_lines = lines(&many)?;
    let few = of(&mut machine, small)?;
    let space = *newcomer.spaces.last().context("no newcomer")?;
    // Only the first listing is read: an expensive one is kept for a while.
    let (all, _) = meter.once(|| Ok(machine.perform(Command::ListMappings(space))?))?;
    let mapping = (all - few) / (many_lines - few_lines);
    costs.insert("mapping", mapping);
    costs.insert("list_mappings", few - mapping);
    drop((many, machine));
    costs.insert("start", start(setup)?);
    Ok(())
}

/// Delay of a sleeper beyond its time, in nanoseconds.
fn late() -> f64 {
    let begin = Instant::now();
    for _ in 0..SLEEPS {
        std::thread::sleep(LONG_SLEEP);
    }
    let slept = begin.elapsed().as_nanos() as f64;
    slept / f64::from(SLEEPS) - LONG_SLEEP.as_nanos() as f64
}

/// A process of `parts` small mappings.
fn spec(setup: &Setup, parts: usize) -> Spec {
    let part = Part {
        pages: 8,
        ..Part::still(Contents::Distinct, 9, 0)
    };
    Spec {
        seed: setup.seed,
        parts: vec![part; parts],
        huge: false,
        mergeable: false,
    }
}

fn ours() -> Variant {
    Variant::uksm("listings", &[])
}

/// Lines of the maps of the last of these processes.
fn lines(processes: &[Process]) -> Result<f64> {
    let pid = processes.last().context("no process")?.pid();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).context("no maps")?;
    Ok(maps.lines().count() as f64)
}

/// A machine of all processes, which receives process events or searches for processes.
fn machine(has_events: bool) -> Result<LinuxMachine<Device>> {
    let selection = Selection {
        all: true,
        ..Selection::default()
    };
    let mut processes = Processes::new(Proc::at(Path::new("/proc")), selection)?;
    if has_events {
        let connector = Connector::open().context("this kernel tells of no processes")?;
        processes = processes.with_connector(connector);
    }
    Ok(LinuxMachine::new(
        Device::open()?,
        processes,
        Sleeper::new()?,
    ))
}

/// Processes that were listed as new.
struct Arrivals {
    spaces: Vec<SpaceId>,
    /// Nanoseconds of the calls that listed them.
    taken: f64,
    calls: f64,
}

/// Lists processes until `least` have arrived and no more wait.
fn arrivals(machine: &mut LinuxMachine<Device>, meter: &Meter, least: usize) -> Result<Arrivals> {
    let mut all = Arrivals {
        spaces: vec![],
        taken: 0.0,
        calls: 0.0,
    };
    let begin = Instant::now();
    loop {
        let (taken, answer) = meter.once(|| Ok(machine.perform(Command::ListProcesses)?))?;
        let Observation::Processes { arrived, more, .. } = answer else {
            bail!("no list of processes");
        };
        // A call that lists no process found none yet.
        if !arrived.is_empty() {
            all.taken += taken;
            all.calls += 1.0;
        }
        all.spaces.extend(arrived.iter().map(|one| one.space));
        if !more && all.spaces.len() >= least {
            return Ok(all);
        }
        ensure!(
            begin.elapsed() < LIMIT,
            "{} of {least} processes were listed in {} s",
            all.spaces.len(),
            LIMIT.as_secs()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process list of a machine that searches for processes and knows all of them.
fn polled(meter: &Meter) -> Result<f64> {
    let mut machine = machine(false)?;
    arrivals(&mut machine, meter, 1)?;
    meter.mean(10, |_| Ok(machine.perform(Command::ListProcesses)?))
}

/// A machine that does nothing.
struct Nothing;

impl Machine for Nothing {
    type Error = anyhow::Error;

    fn perform(&mut self, _: Command) -> Result<Observation> {
        Ok(Observation::Woke)
    }
}

/// A turn of the driver around nothing.
fn turn(meter: &Meter) -> Result<f64> {
    let mut driver = Driver::new(HostClocks);
    let (taken, ()) = meter.once(|| {
        for _ in 0..CALLS {
            driver.turn(
                |_, _, _| Command::Sleep {
                    until: 0,
                    events_wake_from: 0,
                    hints_wake_from: u64::MAX,
                },
                &mut Nothing,
            )?;
            std::hint::black_box(clock::now());
        }
        Ok(())
    })?;
    Ok(taken / CALLS as f64)
}

/// The daemon, from its exec until it has nothing to do: it may serve no present process.
fn start(setup: &Setup) -> Result<f64> {
    let governor = ["--governor".to_owned(), "full".to_owned()];
    let options = [&governor[..], &setup.daemon_options()[..]].concat();
    let nobody = ["--comm".to_owned(), "nobody".to_owned()];
    let mut sum = 0.0;
    for _ in 0..STARTS {
        let mut daemon = uksm::Uksm::start_on(&setup.uksm, &options, &nobody)?;
        std::thread::sleep(STARTED);
        sum += daemon.cpu()?.as_nanos() as f64;
        daemon.stop()?;
    }
    Ok(sum / f64::from(STARTS))
}
