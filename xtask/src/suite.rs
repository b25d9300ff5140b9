//! Everything that `make test` checks, and its closing line.
//!
//! Problem: each tool reports failures in its own way. A tool that was not run, or that ran
//! nothing, must not look like one that passed.
//!
//! Approach: each check is a step with its own count. A step that cannot be started, or that ran no
//! test where there must be some, counts as one failure. All steps run, even after a failure. The
//! last line is `N passed, N failed`.
//!
//! Optimising the guests' programs takes minutes of one processor, so the Makefile builds them
//! beside all steps that only compile. The suite waits for them before it runs any test.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::campaign::{self, Part, TestCounts, TestResults, TestSelection};
use super::own_files;
use uksm_vm::accel::Clock;
use uksm_vm::kernel::Kernel;
use uksm_vm::{kernel_names, kvm_probe, programs, source, tool};
use uksm_vm_protocol::machine::Machine;

/// The selection of checks.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Kernels whose guests are tested, the oldest first; tests that do not depend on the kernel
    /// are divided among the others.
    pub kernels: Vec<String>,
    /// Selection of guest tests.
    pub selection: TestSelection,
}

/// One check and its result.
struct Step {
    name: String,
    outcome: TestResults,
    seconds: f64,
}

impl Step {
    fn done(name: &str, check: &mut dyn FnMut() -> Result<TestResults>) -> Step {
        println!("\n=== {name}");
        let begin = Instant::now();
        let outcome = check().unwrap_or_else(|error| {
            println!("FAIL  {name}: {error:#}");
            failed(format!("{name}: {error:#}"))
        });
        Step {
            name: name.to_owned(),
            outcome,
            seconds: begin.elapsed().as_secs_f64(),
        }
    }
}

/// Runs all checks; returns the sum.
#[must_use]
pub fn run(scope: &Scope) -> TestResults {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut steps = Vec::new();
    let mut step = |name: &str, check: &mut dyn FnMut() -> Result<TestResults>| {
        steps.push(Step::done(name, check));
    };
    step("format", &mut || {
        once(cargo_command(&cargo).args(["fmt", "--all", "--check"]))
    });
    step("clippy", &mut || {
        once(cargo_command(&cargo).args([
            "clippy",
            "--quiet",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))
    });
    step("shellcheck", &mut shellcheck);
    step("checkpatch", &mut checkpatch);
    step("module in userspace, sanitized", &mut || {
        once(without_make(&mut tool::command("make")).args(["-C", "kernel", "check"]))
    });
    // Errors in them are reported by the guest tests, which build them again.
    let _built = programs::build(&["uksm", "uksm-guest"]);
    step("cargo test", &mut || {
        cargo_tests(cargo_command(&cargo).args([
            "test",
            "--locked",
            "--workspace",
            "--no-fail-fast",
        ]))
    });
    steps.extend(guest_tests(scope));
    let mut sum = TestResults::default();
    println!("\n=== summary");
    for step in steps {
        let TestCounts {
            passed,
            failed,
            lost,
        } = step.outcome.counts;
        println!(
            "{passed:5} passed {failed:3} failed {lost:3} lost {:6.0} s  {}",
            step.seconds, step.name
        );
        sum.add(step.outcome);
    }
    sum.print_failures();
    sum
}

/// The tests in guests: those that depend on the kernel on each, and each of the others on one of
/// them.
fn guest_tests(scope: &Scope) -> Vec<Step> {
    let kernels: Vec<(&String, Result<Kernel>)> = scope
        .kernels
        .iter()
        .map(|name| (name, kernel_names::named(name)))
        .collect();
    if let Some((_, Ok(last))) = kernels.last() {
        // The accelerator is detected once for all jobs; an error occurs again in each.
        let _known = kvm_probe::detect(last, Clock::Time);
    }
    let mut steps: Vec<Step> = kernels
        .iter()
        .map(|(name, kernel)| Step {
            name: format!("guest tests on {name}"),
            outcome: match kernel {
                Ok(_) => TestResults::default(),
                Err(error) => failed(format!("{name}: {error:#}")),
            },
            seconds: 0.0,
        })
        .collect();
    for (index, step) in run_jobs(guest_jobs(scope, &kernels)) {
        steps[index].outcome.add(step.outcome);
        steps[index].seconds += step.seconds;
    }
    for step in &mut steps {
        if step.outcome.counts == TestCounts::default() {
            step.outcome = failed(format!("{}: ran no test", step.name));
        }
    }
    steps
}

/// The tests of one kernel that share a kind of machine.
struct GuestJob<'a> {
    /// Number of the kernel.
    index: usize,
    kernel: &'a Kernel,
    machine: Machine,
    selection: TestSelection,
    /// The sum of its tests' limits, in seconds: an upper bound of its time, for the order.
    bound: u64,
}

/// All jobs, the longest first, so that at the end no processor waits long for another.
fn guest_jobs<'a>(scope: &Scope, kernels: &'a [(&String, Result<Kernel>)]) -> Vec<GuestJob<'a>> {
    let mut jobs = Vec::new();
    for (index, (_, kernel)) in kernels.iter().enumerate() {
        let Ok(kernel) = kernel else { continue };
        for machine in Machine::ALL {
            let selection = TestSelection {
                part: Part::OfKernel {
                    index,
                    kernels: kernels.len(),
                },
                machine: Some(machine),
                ..scope.selection.clone()
            };
            let cases = campaign::selected(&selection);
            if !cases.is_empty() {
                jobs.push(GuestJob {
                    index,
                    kernel,
                    machine,
                    selection,
                    bound: cases.iter().map(|case| case.bound).sum(),
                });
            }
        }
    }
    jobs.sort_by_key(|job| Reverse(job.bound));
    jobs
}

/// Runs jobs beside each other; gives the results with the numbers of their kernels.
///
/// A machine has two processors and waits for a part of its time. Two machines on two processors
/// keep these busy; with three, tests exceeded limits of time.
fn run_jobs(jobs: Vec<GuestJob>) -> Vec<(usize, Step)> {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let waiting = Mutex::new(VecDeque::from(jobs));
    let finished = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for _ in 0..processors.div_ceil(2).max(2) {
            threads.spawn(|| {
                // The lock is not held while the job runs.
                let next = || waiting.lock().expect(NO_PANIC).pop_front();
                while let Some(job) = next() {
                    let name = format!("guest tests on {}, {:?}", job.kernel.name, job.machine);
                    let step = Step::done(&name, &mut || run_job(&job));
                    finished.lock().expect(NO_PANIC).push((job.index, step));
                }
            });
        }
    });
    finished.into_inner().expect(NO_PANIC)
}

/// No thread panics with a lock.
const NO_PANIC: &str = "no thread panics while it holds this lock";

/// Runs a job. A panic is an error, so that the other jobs run.
fn run_job(job: &GuestJob) -> Result<TestResults> {
    let run = AssertUnwindSafe(|| campaign::run(job.kernel, &job.selection));
    catch_unwind(run).unwrap_or_else(|_| bail!("panicked; see above"))
}

fn passed() -> TestResults {
    TestResults {
        counts: TestCounts {
            passed: 1,
            ..TestCounts::default()
        },
        failures: vec![],
    }
}

fn failed(how: String) -> TestResults {
    TestResults {
        counts: TestCounts {
            failed: 1,
            ..TestCounts::default()
        },
        failures: vec![how],
    }
}

fn cargo_command(cargo: &str) -> Command {
    let mut command = tool::command(cargo);
    command.current_dir(tool::tree());
    command
}

/// Removes the variables of an outer make.
fn without_make(command: &mut Command) -> &mut Command {
    command
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .env_remove("MFLAGS");
    command.current_dir(tool::tree())
}

/// A command whose success is one passed check.
fn once(command: &mut Command) -> Result<TestResults> {
    let shown = tool::shown(command);
    let status = command.status().with_context(|| shown.clone())?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(passed())
}

/// Runs `cargo test` and adds up what its test programs report.
fn cargo_tests(command: &mut Command) -> Result<TestResults> {
    let shown = tool::shown(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| shown.clone())?;
    let output = child.stdout.take().context("cargo test has an output")?;
    let mut outcome = TestResults::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        // One line for every passed test is too much to read.
        if !line.ends_with("... ok") && !line.trim().is_empty() {
            println!("{line}");
        }
        outcome.failures.extend(parse_failure(&line));
        if let Some((passed, failed)) = parse_result(&line) {
            outcome.counts.passed += passed;
            outcome.counts.failed += failed;
        }
    }
    let status = child.wait()?;
    if !status.success() && outcome.counts.failed == 0 {
        println!("FAIL  {shown}: {status}");
        outcome.add(failed(format!("{shown}: {status}")));
    }
    if outcome.counts.passed + outcome.counts.failed == 0 {
        bail!("{shown}: ran no test");
    }
    Ok(outcome)
}

/// `test strength::tests::a ... FAILED`
fn parse_failure(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.to_owned())
}

/// `test result: ok. 12 passed; 0 failed; 0 ignored; …`
fn parse_result(line: &str) -> Option<(u64, u64)> {
    let counts = line.strip_prefix("test result: ")?;
    let number = |word: &str| {
        let before = counts.split(word).next()?;
        before.split_whitespace().last()?.parse().ok()
    };
    Some((number(" passed;")?, number(" failed;")?))
}

/// All scripts of the tree, recognised by their first line.
fn shellcheck() -> Result<TestResults> {
    let scripts = files_where(&tool::tree(), &|path| {
        let mut start = [0_u8; 9];
        let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
        read.is_ok() && &start == b"#!/bin/sh"
    })?;
    if scripts.is_empty() {
        bail!("no script was found");
    }
    once(tool::command("shellcheck").args(scripts))
}

/// The modules' sources and the contract, by the kernel's own rules. The strict ones are for the
/// kernel's inside: user space has no `BIT()`.
fn checkpatch() -> Result<TestResults> {
    let tree = tool::tree();
    let is_source = |path: &Path| path.extension().is_some_and(|e| e == "c" || e == "h");
    let mut module = files_where(&tree.join("kernel"), &is_source)?;
    module.retain(|path| !path.starts_with(tree.join("kernel/test")));
    module.extend(files_where(&tree.join("guest-tests/kernel"), &is_source)?);
    let contract = files_where(&tree.join("interface"), &is_source)?;
    if module.is_empty() || contract.is_empty() {
        bail!("no source of the module, or no contract, was found");
    }
    let script = source::checkpatch()?.join("scripts/checkpatch.pl");
    let check = |strictness: &[&str], sources: &[PathBuf]| {
        let mut perl = tool::command("perl");
        perl.arg(&script).args([
            "--no-tree",
            "--quiet",
            "--terse",
            "--show-types",
            "--no-summary",
        ]);
        once(perl.args(strictness).arg("--file").args(sources))
    };
    let mut outcome = check(&["--strict"], &module)?;
    outcome.add(check(&[], &contract)?);
    Ok(outcome)
}

/// Our files below a folder that `wanted` selects, sorted.
fn files_where(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut files = own_files::below(folder)?;
    files.retain(|path| wanted(path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_of_test_programs_are_counted() {
        assert_eq!(
            parse_result(
                "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out"
            ),
            Some((12, 0))
        );
        assert_eq!(
            parse_result("test result: FAILED. 3 passed; 2 failed; 0 ignored"),
            Some((3, 2))
        );
        assert_eq!(parse_result("test strength::tests::a ... ok"), None);
        let failure = parse_failure("test strength::tests::a ... FAILED");
        assert_eq!(failure.as_deref(), Some("strength::tests::a"));
        assert_eq!(parse_failure("test strength::tests::a ... ok"), None);
    }

    #[test]
    fn check_that_fails_or_cannot_start_is_no_pass() {
        assert!(once(&mut tool::command("false")).is_err());
        assert!(once(&mut tool::command("no-such-tool-as-this")).is_err());
        assert_eq!(once(&mut tool::command("true")).unwrap().counts.passed, 1);
    }

    #[test]
    fn scripts_of_this_tree_are_found() {
        let scripts = files_where(&tool::tree(), &|path| path.ends_with(".ci/run")).unwrap();
        assert_eq!(scripts.len(), 1);
    }
}
