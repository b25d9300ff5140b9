//! The guest's tests, on one kernel after the other.
//!
//! Problem: tests need different machines. When a machine dies, the tests after the running one
//! were not run: they must count neither as passed nor be forgotten.
//!
//! Approach: this program has the table of tests, too. Tests that need the same kind of machine
//! share a boot. If a boot dies, the running test has failed (the kernel died) or is lost (the
//! machine went away), and the tests behind it run in a new boot. If the kernel died of a known
//! fault of QEMU's emulation, the test runs once more, and a message reports it.

use std::time::Duration;

use anyhow::{Result, bail};

use uksm_guest_tests::case::{Kind, TestCase};
use uksm_guest_tests::cases as table;
use uksm_guest_tests::cases::fuzz::{CALLS as FULL_RUN, CALLS_VARIABLE as FUZZ_CALLS};
use uksm_vm::accel::{Accel, Clock};
use uksm_vm::boot::{self, Boot, Outputs, Report};
use uksm_vm::initramfs::Initramfs;
use uksm_vm::kernel::Kernel;
use uksm_vm::kvm_probe;
use uksm_vm::machine::{lacking, shape};
use uksm_vm::programs;
use uksm_vm::verdict::{Collector, Ending};
use uksm_vm_protocol::machine::Machine;
use uksm_vm_protocol::messages::{Event, Work};

/// Seconds for booting, cleaning up between tests, and powering off.
const OVERHEAD: Duration = Duration::from_secs(180);

/// The selection of tests.
#[derive(Debug, Clone, Default)]
pub struct TestSelection {
    /// Only tests whose names contain one of these; all if empty.
    pub filters: Vec<String>,
    /// Leave stress tests out.
    pub without_stress: bool,
    /// Only tests that `make test` leaves out for their length ([`Kind::Long`]).
    pub only_long: bool,
    /// All tests, or those of one of several kernels.
    pub part: Part,
    /// Only tests of this kind of machine.
    pub machine: Option<Machine>,
    /// Seed of everything random.
    pub seed: u64,
    /// The number of calls of the fuzzer, if different from a full test run.
    pub fuzz_calls: Option<u32>,
}

/// A part of the tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Part {
    /// All of them.
    #[default]
    Whole,
    /// The part of one of several kernels: all tests whose results may depend on the kernel, and
    /// its share of the others ([`Kind::Policy`]), each of which runs on one kernel. The first one
    /// is the oldest, and lacks features that some of those need: it has no share.
    OfKernel {
        /// Number of the kernel, from 0.
        index: usize,
        /// Number of kernels.
        kernels: usize,
    },
}

impl Part {
    /// Removes the tests that are not of this part.
    fn retain(self, cases: &mut Vec<TestCase>) {
        let Part::OfKernel { index, kernels } = self else {
            return;
        };
        // From the last kernel on; never on the first, unless it is the only one.
        let mut turns = (1.min(kernels - 1)..kernels).rev().cycle();
        cases.retain(|case| match case.kind {
            Kind::Policy => turns.next() == Some(index),
            Kind::Long => false,
            Kind::Normal | Kind::NegativeControl | Kind::Stress | Kind::Large => true,
        });
    }
}

impl TestSelection {
    /// Factor of time bounds, for a fuzzer that makes more calls.
    fn time_factor(&self) -> u32 {
        self.fuzz_calls
            .map_or(1, |calls| calls.div_ceil(FULL_RUN).max(1))
    }
}

/// Counts of results.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TestCounts {
    /// Tests passed.
    pub passed: u64,
    /// Tests failed.
    pub failed: u64,
    /// Tests whose machine was lost.
    pub lost: u64,
}

impl TestCounts {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.lost += other.lost;
    }
}

/// The results of some tests, and those that did not pass.
#[derive(Debug, Default, Clone)]
pub struct TestResults {
    /// Numbers of passed, failed and lost tests.
    pub counts: TestCounts,
    /// The reasons of failures: the failed test, and its message.
    pub failures: Vec<String>,
}

impl TestResults {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.counts.add(other.counts);
        self.failures.extend(other.failures);
    }

    /// Prints the failures once more: in a long run they are far above the end.
    pub fn print_failures(&self) {
        for failure in &self.failures {
            println!("FAIL  {failure}");
        }
    }
}

/// The tests of a selection, in the table's order.
#[must_use]
pub fn selected(selection: &TestSelection) -> Vec<TestCase> {
    let mut cases: Vec<TestCase> = table::all()
        .into_iter()
        .filter(|case| {
            selection.filters.is_empty()
                || selection
                    .filters
                    .iter()
                    .any(|f| case.name.contains(f.as_str()))
        })
        .filter(|case| !(selection.without_stress && case.kind == Kind::Stress))
        .filter(|case| !selection.only_long || case.kind == Kind::Long)
        .filter(|case| case.kind != Kind::Large || is_named(case, selection))
        .collect();
    selection.part.retain(&mut cases);
    if let Some(machine) = selection.machine {
        cases.retain(|case| case.machine == machine);
    }
    cases
}

/// The tests of a selection, if there are any.
///
/// # Errors
/// There are none.
pub fn some_selected(selection: &TestSelection) -> Result<Vec<TestCase>> {
    let cases = selected(selection);
    if cases.is_empty() {
        bail!("no test has a name with {}", selection.filters.join(" or "));
    }
    Ok(cases)
}

/// Whether a filter names large tests, or this one by its whole name, instead of all of an area.
fn is_named(case: &TestCase, selection: &TestSelection) -> bool {
    let mut filters = selection.filters.iter();
    filters.any(|filter| {
        (filter.contains("large") && case.name.contains(filter.as_str())) || case.name == *filter
    })
}

/// Runs the selected tests on one kernel.
///
/// # Errors
/// No test is selected, none of those selected can run on this kernel though any machine was asked
/// for, or a machine could not be started at all.
pub fn run(kernel: &Kernel, selection: &TestSelection) -> Result<TestResults> {
    let cases = some_selected(selection)?;
    let accel = kvm_probe::detect(kernel, Clock::Time)?;
    println!(
        "kernel {} ({}), {accel}, seed {}",
        kernel.release, kernel.version, selection.seed
    );
    let mut outcome = TestResults::default();
    for machine in Machine::ALL {
        let mut rest: Vec<&TestCase> = cases
            .iter()
            .filter(|case| case.machine == machine)
            .collect();
        if rest.is_empty() {
            continue;
        }
        if let Some(reason) = lacking(machine, kernel) {
            let number = rest.len();
            println!("{}  left out: {number} {machine:?}: {reason}", kernel.name);
            continue;
        }
        let mut boots = 0;
        let mut repeated = None;
        while !rest.is_empty() {
            boots += 1;
            let label = format!("{machine:?}-{boots}").to_lowercase();
            let report = boot(kernel, accel, machine, &rest, selection, label)?;
            print_ending(kernel, &report, &rest);
            let running = rest.get(report.collector.results().len());
            let running = running.map(|case| case.name);
            if running.is_some() && running != repeated && died_of_emulation(accel, &report.ending)
            {
                repeated = running;
                println!("{}  AGAIN  {}", kernel.name, running.unwrap_or_default());
                let finished = report.collector.results().len();
                let (counted, _) = count(&report.collector, &Ending::Passed, finished);
                outcome.counts.add(counted);
                outcome.failures.extend(failed_tests(kernel, &report));
                rest.drain(..finished);
                continue;
            }
            outcome.failures.extend(failures(kernel, &report));
            let (counted, behind) = count(&report.collector, &report.ending, rest.len());
            outcome.counts.add(counted);
            rest.drain(..rest.len() - behind);
        }
    }
    if outcome.counts == TestCounts::default() && selection.machine.is_none() {
        bail!("{}: no selected test can run on it", kernel.name);
    }
    Ok(outcome)
}

fn boot(
    kernel: &Kernel,
    accel: Accel,
    machine: Machine,
    cases: &[&TestCase],
    selection: &TestSelection,
    label: String,
) -> Result<Report> {
    let shape = shape(machine);
    // This kind of machine is always emulated, independent of the others.
    let accel = match shape.clock {
        Clock::Time => accel,
        Clock::Instructions => Accel::Counted,
    };
    let time_factor = if accel.is_emulated() {
        kernel.time_factor
    } else {
        1
    };
    let mut parameters: Vec<String> = shape.parameters.iter().map(ToString::to_string).collect();
    if let Some(calls) = selection.fuzz_calls {
        parameters.push(format!("{FUZZ_CALLS}={calls}"));
    }
    let time_factor = time_factor * selection.time_factor();
    let tests: u64 = cases
        .iter()
        .map(|case| case.bound.saturating_mul(u64::from(time_factor)))
        .sum();
    let boot = Boot {
        label,
        kernel,
        accel,
        machine,
        memory_mib: shape.memory_mib,
        cpus: shape.cpus,
        preallocate: false,
        disk_mib: None,
        work: Work::Tests {
            names: cases.iter().map(|case| case.name.to_owned()).collect(),
        },
        variant: Some(shape.variant),
        load: true,
        load_too: Vec::new(),
        again_if_lost: false,
        kernel_modules: shape.kernel_modules,
        files: programs_for(cases)?,
        parameters,
        plugin: None,
        seed: selection.seed,
        time_factor,
        bound: OVERHEAD + Duration::from_secs(tests),
    };
    let name = kernel.name.clone();
    boot::run(
        boot,
        Outputs::events_only(&mut |event| print_event(&name, event)),
    )
}

/// The programs that tests of the daemon start; others need none.
fn programs_for(cases: &[&TestCase]) -> Result<Initramfs> {
    let mut files = Initramfs::new();
    let starts_a_daemon = |case: &&TestCase| {
        matches!(case.kind, Kind::Policy | Kind::Long) || case.name.starts_with("daemon::")
    };
    if cases.iter().any(starts_a_daemon) {
        let built = programs::build(&["uksm"])?;
        files.file("/bin/uksm", &built["uksm"], 0o755)?;
    }
    Ok(files)
}

/// Prints an event as it comes.
fn print_event(kernel: &str, event: &Event) {
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

/// Counts one boot of `asked` tests; returns the number of those that must still be run.
///
/// The test that ran when the machine ended is accounted for. A machine that ended before it began
/// the first test would do so again: all tests count. Complaints of the kernel beyond the tests'
/// own results are one more failure.
fn count(collector: &Collector, ending: &Ending, asked: usize) -> (TestCounts, usize) {
    let results = collector.results();
    let failed = results
        .iter()
        .filter(|result| result.failure.is_some())
        .count();
    let unfinished = asked.saturating_sub(results.len());
    let (gone, behind) = match (unfinished, collector.has_begun()) {
        (0, _) => (0, 0),
        (_, true) => (1, unfinished - 1),
        (_, false) => (unfinished, 0),
    };
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let mut counts = TestCounts {
        passed: number(results.len() - failed),
        failed: number(failed),
        lost: 0,
    };
    match ending {
        Ending::Passed => counts.failed += number(gone),
        Ending::Failed(_) if gone == 0 && failed == 0 => counts.failed += 1,
        Ending::Failed(_) => counts.failed += number(gone),
        // After its last test, too: the kernel was broken by one of them.
        Ending::KernelDied(_) => counts.failed += number(gone.max(1)),
        Ending::Lost(_) => counts.lost += number(gone.max(1)),
    }
    (counts, behind)
}

/// Whether an emulated kernel died of a breakpoint that was no longer there. A kernel puts one into
/// its text while it changes that, as for a static key or the attachment of a program, and waits
/// until no CPU can meet it; QEMU before 8.1 may run a translation of it after that (its change
/// deba78709a). Neither the module nor a test changes text.
fn died_of_emulation(accel: Accel, ending: &Ending) -> bool {
    accel.is_emulated()
        && matches!(ending, Ending::KernelDied(words) if words.contains("int3: 0000"))
}

/// Limit of the lines of a failed test's message that are printed again.
const MAX_LINES: usize = 60;

/// The tests of a boot that failed, and the reason for which the boot itself failed.
fn failures(kernel: &Kernel, report: &Report) -> Vec<String> {
    let of_boot = own_reasons(report).into_iter();
    let of_boot = of_boot.map(|reason| format!("{} {}", kernel.name, first_line(reason)));
    failed_tests(kernel, report).chain(of_boot).collect()
}

/// The tests of a boot that failed, each with its whole message: often only the end of a run's
/// output is kept.
fn failed_tests<'a>(kernel: &'a Kernel, report: &'a Report) -> impl Iterator<Item = String> + 'a {
    report.collector.results().iter().filter_map(|result| {
        let failure = indented(result.failure.as_deref()?);
        Some(format!("{} {}: {failure}", kernel.name, result.name))
    })
}

/// A text whose lines but the first are indented: at most [`MAX_LINES`].
fn indented(text: &str) -> String {
    let lines: Vec<&str> = text.lines().take(MAX_LINES).collect();
    lines.join("\n      ")
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The reasons for which a boot did not pass, without those that its tests have reported.
fn own_reasons(report: &Report) -> Vec<&str> {
    match &report.ending {
        Ending::Passed => vec![],
        Ending::Failed(reasons) => reasons
            .iter()
            .filter(|reason| !is_of_a_test(reason, report))
            .map(String::as_str)
            .collect(),
        Ending::KernelDied(reason) | Ending::Lost(reason) => vec![reason],
    }
}

/// Prints the reason for which a boot did not pass.
fn print_ending(kernel: &Kernel, report: &Report, asked: &[&TestCase]) {
    let next = asked
        .get(report.collector.results().len())
        .map_or("the end of the run", |case| case.name);
    let word = match &report.ending {
        Ending::Passed => return,
        Ending::Failed(_) | Ending::KernelDied(_) => "FAIL",
        Ending::Lost(_) => "LOST",
    };
    for reason in own_reasons(report) {
        println!("{}  {word}  {next}: {reason}", kernel.name);
    }
    let tail = boot::console_tail(&report.log);
    println!("--- end of {}\n{tail}\n---", report.log.display());
}

fn is_of_a_test(reason: &str, report: &Report) -> bool {
    report
        .collector
        .results()
        .iter()
        .any(|result| result.failure.is_some() && reason.starts_with(&result.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_vm::channel::Message;

    fn collector(events: Vec<Event>) -> Collector {
        let mut collector = Collector::new(3);
        for event in events {
            collector.take(&Message::Event(event));
        }
        collector
    }
    fn passed(test: &str) -> Event {
        Event::Passed {
            test: test.into(),
            seconds: 1.0,
        }
    }
    fn started(test: &str) -> Event {
        Event::Started {
            test: test.into(),
            bound: 1,
        }
    }

    #[test]
    fn each_kernel_runs_what_depends_on_it_and_one_of_them_each_other_test() {
        let names = |part| -> Vec<&str> {
            let selection = TestSelection {
                part,
                ..TestSelection::default()
            };
            selected(&selection).iter().map(|case| case.name).collect()
        };
        for kernels in 1..=3 {
            let parts: Vec<_> = (0..kernels)
                .map(|index| names(Part::OfKernel { index, kernels }))
                .collect();
            for case in selected(&TestSelection::default()) {
                let on: Vec<usize> = (0..kernels)
                    .filter(|&index| parts[index].contains(&case.name))
                    .collect();
                match case.kind {
                    Kind::Policy => {
                        assert_eq!(on.len(), 1, "{}", case.name);
                        assert!(on[0] > 0 || kernels == 1, "{}", case.name);
                    }
                    Kind::Long => assert!(on.is_empty(), "{}", case.name),
                    _ => assert_eq!(on.len(), kernels, "{}", case.name),
                }
            }
        }
    }

    #[test]
    fn test_that_was_running_is_lost_and_those_behind_it_run_again() {
        let collector = collector(vec![started("a"), passed("a"), started("b")]);
        let (counts, behind) = count(&collector, &Ending::Lost(String::new()), 3);
        assert_eq!(
            counts,
            TestCounts {
                passed: 1,
                failed: 0,
                lost: 1
            }
        );
        assert_eq!(behind, 1);
    }

    #[test]
    fn kernel_that_died_fails_the_running_test() {
        let collector = collector(vec![started("a")]);
        let (counts, behind) = count(&collector, &Ending::KernelDied(String::new()), 2);
        assert_eq!(
            counts,
            TestCounts {
                passed: 0,
                failed: 1,
                lost: 0
            }
        );
        assert_eq!(behind, 1);
    }

    #[test]
    fn only_an_emulated_machine_dies_of_a_breakpoint_that_is_gone() {
        let died = |words: &str| Ending::KernelDied(format!("the kernel died during a: {words}"));
        let int3 = died("[  395.287896] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI");
        assert!(died_of_emulation(Accel::Emulated, &int3));
        assert!(!died_of_emulation(Accel::Kvm, &int3));
        let other = died("Oops: general protection fault, maybe for address 0x0: 0000 [#1]");
        assert!(!died_of_emulation(Accel::Emulated, &other));
        assert!(!died_of_emulation(
            Accel::Emulated,
            &Ending::Lost("int3: 0000".to_owned())
        ));
    }

    #[test]
    fn machine_that_never_began_accounts_for_all_tests() {
        let collector = collector(Vec::new());
        assert_eq!(
            count(&collector, &Ending::Failed(vec!["no module".into()]), 3),
            (
                TestCounts {
                    failed: 3,
                    ..TestCounts::default()
                },
                0
            )
        );
        assert_eq!(
            count(&collector, &Ending::Lost(String::new()), 3),
            (
                TestCounts {
                    lost: 3,
                    ..TestCounts::default()
                },
                0
            )
        );
    }

    #[test]
    fn complaint_of_the_kernel_after_passed_tests_is_one_failure() {
        let collector = collector(vec![started("a"), passed("a")]);
        let ending = Ending::Failed(vec!["kernel: WARNING".into()]);
        assert_eq!(
            count(&collector, &ending, 1),
            (
                TestCounts {
                    passed: 1,
                    failed: 1,
                    lost: 0
                },
                0
            )
        );
    }

    #[test]
    fn every_test_passed_is_no_failure() {
        let collector = collector(vec![started("a"), passed("a")]);
        assert_eq!(
            count(&collector, &Ending::Passed, 1),
            (
                TestCounts {
                    passed: 1,
                    ..TestCounts::default()
                },
                0
            )
        );
    }
}
