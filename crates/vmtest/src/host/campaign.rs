//! The guest's tests, on one kernel after the other.
//!
//! Problem: tests need different machines, and a machine that dies takes the
//! tests behind it along; those must be neither passed nor forgotten.
//!
//! Approach: the table of tests is linked into this program too. Tests that
//! need the same kind of machine share a boot. If a boot dies, the test that
//! ran has failed (the kernel died) or is lost (the machine went away), and the
//! tests behind it run in a new boot.

use std::time::Duration;

use anyhow::{Result, bail};

use super::accel::{self, Accel};
use super::initramfs::Initramfs;
use super::kernel::Kernel;
use super::machine::shape;
use super::programs;
use super::verdict::Ending;
use super::vm::{self, Audience, Boot, Report};
use crate::guest::case::{Kind, Machine, TestCase};
use crate::guest::tests;
use crate::protocol::{Event, Work};

/// Seconds for booting, cleaning up between tests, and powering off.
const OVERHEAD: Duration = Duration::from_secs(180);

/// Which tests to run.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only tests whose names contain one of these; all if empty.
    pub filters: Vec<String>,
    /// Leave stress tests out.
    pub without_stress: bool,
    /// Seed of everything random.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Tests passed.
    pub passed: u64,
    /// Tests failed.
    pub failed: u64,
    /// Tests whose machine was lost.
    pub lost: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.lost += other.lost;
    }
}

/// The tests of a selection, in the table's order.
#[must_use]
pub fn selected(selection: &Selection) -> Vec<TestCase> {
    tests::all()
        .into_iter()
        .filter(|case| {
            selection.filters.is_empty()
                || selection
                    .filters
                    .iter()
                    .any(|f| case.name.contains(f.as_str()))
        })
        .filter(|case| !(selection.without_stress && case.kind == Kind::Stress))
        .collect()
}

/// Runs the selected tests on one kernel.
///
/// # Errors
/// No test is selected, or a machine could not be started at all.
pub fn run(kernel: &Kernel, selection: &Selection) -> Result<Tally> {
    let cases = selected(selection);
    if cases.is_empty() {
        bail!("no test has a name with {}", selection.filters.join(" or "));
    }
    let accel = accel::detect(kernel)?;
    println!(
        "kernel {} ({}), {accel}, seed {}",
        kernel.release, kernel.version, selection.seed
    );
    let mut tally = Tally::default();
    for machine in Machine::ALL {
        let mut rest: Vec<&TestCase> = cases
            .iter()
            .filter(|case| case.machine == machine)
            .collect();
        let mut boots = 0;
        while !rest.is_empty() {
            boots += 1;
            let label = format!("{machine:?}-{boots}").to_lowercase();
            let report = boot(kernel, accel, machine, &rest, selection.seed, label)?;
            let done = report.books.results().len();
            tally.add(account(kernel, &report, &rest));
            // The test that was running when the machine died is accounted for.
            let gone = usize::from(done < rest.len());
            rest.drain(..(done + gone).min(rest.len()));
        }
    }
    Ok(tally)
}

fn boot(
    kernel: &Kernel,
    accel: Accel,
    machine: Machine,
    cases: &[&TestCase],
    seed: u64,
    label: String,
) -> Result<Report> {
    let shape = shape(machine);
    let patience = if accel == Accel::Emulated {
        kernel.patience
    } else {
        1
    };
    let tests: u64 = cases
        .iter()
        .map(|case| case.bound.saturating_mul(u64::from(patience)))
        .sum();
    let boot = Boot {
        label,
        kernel,
        accel,
        machine,
        memory_mib: shape.memory_mib,
        cpus: shape.cpus,
        work: Work::Tests {
            names: cases.iter().map(|case| case.name.to_owned()).collect(),
        },
        variant: Some(shape.variant),
        load: true,
        kernel_modules: shape.kernel_modules,
        files: programs_for(cases)?,
        parameters: Vec::new(),
        seed,
        patience,
        bound: OVERHEAD + Duration::from_secs(tests),
    };
    let name = kernel.name.clone();
    vm::run(boot, Audience::of_events(&mut |event| tell(&name, event)))
}

/// The programs that tests of the daemon start; others need none.
fn programs_for(cases: &[&TestCase]) -> Result<Initramfs> {
    let mut files = Initramfs::new();
    if cases.iter().any(|case| case.name.starts_with("daemon::")) {
        let built = programs::build(&["uksm"])?;
        files.file("/bin/uksm", &built["uksm"], 0o755)?;
    }
    Ok(files)
}

/// Prints an event as it comes.
fn tell(kernel: &str, event: &Event) {
    match event {
        Event::Passed { test, seconds } => println!("{kernel}  ok    {test}  {seconds:.1} s"),
        Event::Failed {
            test,
            message,
            seconds,
        } => println!("{kernel}  FAIL  {test}  {seconds:.1} s: {message}"),
        Event::Metric {
            test,
            name,
            value,
            unit,
        } => println!("{kernel}        {test}: {name} = {value} {unit}"),
        Event::Note { text } => println!("{kernel}        {text}"),
        Event::Unable { message } => println!("{kernel}  FAIL  the guest: {message}"),
        Event::Booted { uptime, .. } => println!("{kernel}  booted in {uptime:.1} s"),
        Event::Started { .. } | Event::Exited { .. } | Event::Verdict { .. } => {}
    }
}

/// Counts one boot. What the kernel said beyond the tests' own results counts
/// as one more failure.
fn account(kernel: &Kernel, report: &Report, asked: &[&TestCase]) -> Tally {
    let results = report.books.results();
    let count = |failed: bool| {
        results
            .iter()
            .filter(|r| r.failure.is_some() == failed)
            .count() as u64
    };
    let mut tally = Tally {
        passed: count(false),
        failed: count(true),
        lost: 0,
    };
    let next = asked
        .get(results.len())
        .map_or("the end of the run", |case| case.name);
    match &report.ending {
        Ending::Passed => {}
        Ending::Failed(reasons) => {
            if tally.failed == 0 || results.len() < asked.len() {
                tally.failed += 1;
                println!("{}  FAIL  {next}: {}", kernel.name, reasons.join("; "));
            } else {
                for reason in reasons.iter().filter(|reason| reason.starts_with("kernel")) {
                    println!("{}        {reason}", kernel.name);
                }
            }
        }
        Ending::KernelDied(reason) => {
            tally.failed += 1;
            println!("{}  FAIL  {next}: {reason}", kernel.name);
        }
        Ending::Lost(reason) => {
            tally.lost += 1;
            println!("{}  LOST  {next}: {reason}", kernel.name);
        }
    }
    if report.ending != Ending::Passed {
        println!(
            "--- end of {}\n{}\n---",
            report.log.display(),
            vm::console_tail(&report.log)
        );
    }
    tally
}
