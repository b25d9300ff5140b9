//! `xtask`: the checks of `make`, from the command line.
//!
//! Exit status: 0 passed; else one of [`exit_status`], where a complaint of the kernel is a failed
//! test.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use uksm_guest_tests::foreign::schedule::Arm;
use uksm_vm::exit_status::{self, FAILED, LOST};
use uksm_vm::{kernel_names, seed};
use xtask::campaign::{self, Part, TestCounts, TestResults, TestSelection};
use xtask::foreign::campaign as foreign;
use xtask::suite::{self, Scope};

#[derive(Parser)]
#[command(
    about = "Runs the tests: all of make test, those of guests, or foreign suites",
    version
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the guest's tests.
    Test {
        /// Kernel, repeatable: 6.1, 6.12, newest (these by default), another series, 6.1-rt,
        /// 6.12-rt, 6.12-debug, 6.12-kasan, 6.12-clang, 7.3-cfi.
        #[arg(long)]
        kernel: Vec<String>,
        /// Only tests whose names contain this, repeatable.
        #[arg(long)]
        filter: Vec<String>,
        /// Leave stress tests out.
        #[arg(long)]
        without_stress: bool,
        /// Only the tests that `make test` leaves out for their length.
        #[arg(long)]
        only_long: bool,
        /// Seed of everything random.
        #[arg(long)]
        seed: Option<u64>,
        /// Calls that the fuzzer makes, instead of those of a full test run.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        fuzz_calls: Option<u32>,
        /// Print the tests' names and end.
        #[arg(long)]
        list: bool,
    },
    /// Everything `make test` checks; ends with "N passed, N failed".
    Suite {
        /// Kernel, repeatable; 6.1, 6.12 and newest by default.
        #[arg(long)]
        kernel: Vec<String>,
        /// Seed of everything random in guests.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run other people's tests with and without the module, and compare.
    Foreign {
        /// Kernel, repeatable: 6.1, 6.12, newest (these by default), 6.1-rt, 6.12-rt.
        #[arg(long)]
        kernel: Vec<String>,
        /// Only programs whose names contain this, repeatable.
        #[arg(long)]
        filter: Vec<String>,
        /// Only this arm and the first, repeatable: bare, busy, idle, tortured.
        #[arg(long)]
        arm: Vec<Arm>,
        /// Seed of everything random.
        #[arg(long)]
        seed: Option<u64>,
    },
}

fn main() -> ExitCode {
    exit_status::of("xtask", carry_out(Cli::parse().verb))
}

fn carry_out(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Test {
            kernel,
            filter,
            without_stress,
            only_long,
            seed,
            fuzz_calls,
            list,
        } => {
            let selection = TestSelection {
                filters: filter,
                without_stress,
                only_long,
                part: Part::Whole,
                machine: None,
                seed: seed::or_new(seed)?,
                fuzz_calls,
            };
            if list {
                for case in campaign::some_selected(&selection)? {
                    println!(
                        "{:?} {:?} {} s  {}",
                        case.machine, case.kind, case.bound, case.name
                    );
                }
                return Ok(0);
            }
            let mut outcome = TestResults::default();
            for name in kernel_names::or_default(kernel, &kernel_names::STOCK) {
                outcome.add(campaign::run(&kernel_names::named(&name)?, &selection)?);
            }
            outcome.print_failures();
            let counts = outcome.counts;
            println!(
                "{} passed, {} failed, {} lost",
                counts.passed, counts.failed, counts.lost
            );
            Ok(test_status(counts))
        }
        Verb::Suite { kernel, seed } => {
            let selection = TestSelection {
                seed: seed::or_new(seed)?,
                ..TestSelection::default()
            };
            let kernels = kernel_names::or_default(kernel, &kernel_names::STOCK);
            let counts = suite::run(&Scope { kernels, selection }).counts;
            if counts.lost > 0 {
                println!(
                    "{} tests were lost with their machine; they count as failed",
                    counts.lost
                );
            }
            println!(
                "{} passed, {} failed",
                counts.passed,
                counts.failed + counts.lost
            );
            Ok(test_status(counts))
        }
        Verb::Foreign {
            kernel,
            filter,
            arm,
            seed,
        } => {
            let selection = foreign::ProgramSelection {
                filters: filter,
                arms: arm,
                seed: seed::or_new(seed)?,
            };
            let mut equal = true;
            for name in kernel_names::or_default(kernel, &foreign::KERNELS) {
                equal &= foreign::run(&kernel_names::named(&name)?, &selection)?;
            }
            Ok(if equal { 0 } else { FAILED })
        }
    }
}

/// Exit status of `test` and `suite`; a run without a test has failed.
fn test_status(counts: TestCounts) -> u8 {
    match counts {
        TestCounts { failed: 1.., .. } => FAILED,
        TestCounts { lost: 1.., .. } => LOST,
        TestCounts { passed: 0, .. } => FAILED,
        TestCounts { .. } => 0,
    }
}
