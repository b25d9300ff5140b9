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

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::campaign::{self, Part, TestCounts, TestResults, TestSelection};
use super::own_files;
use uksm_vm::accel::Clock;
use uksm_vm::{kernel_names, kvm_probe, programs, source, tool};

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
/// them. The kernels run beside each other, as they wait most of their time: together they use at
/// most two processors. Each printed line begins with the kernel's name.
fn guest_tests(scope: &Scope) -> Vec<Step> {
    let kernels = scope.kernels.len();
    let jobs: Vec<(String, &String, Part)> = scope
        .kernels
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let part = Part::OfKernel { index, kernels };
            (format!("guest tests on {name}"), name, part)
        })
        .collect();
    if let Some(last) = scope.kernels.last() {
        // The accelerator is detected once for all jobs; an error occurs again in each.
        let _known =
            kernel_names::named(last).and_then(|kernel| kvm_probe::detect(&kernel, Clock::Time));
    }
    let run = |(job, kernel, part): &(String, &String, Part)| {
        let selection = TestSelection {
            part: *part,
            ..scope.selection.clone()
        };
        Step::done(job, &mut || {
            campaign::run(&kernel_names::named(kernel)?, &selection)
        })
    };
    std::thread::scope(|threads| {
        let running: Vec<_> = jobs
            .iter()
            .map(|job| (&job.0, threads.spawn(move || run(job))))
            .collect();
        let done = running.into_iter().map(|(name, thread)| {
            thread.join().unwrap_or_else(|_| Step {
                name: name.clone(),
                outcome: failed(format!("{name}: panicked; see above")),
                seconds: 0.0,
            })
        });
        done.collect()
    })
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
