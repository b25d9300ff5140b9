//! The exit status of the programs that write results.

use std::process::ExitCode;

use anyhow::Result;

/// The status of a program of this name; the reason of a failure is printed.
#[must_use]
pub fn of(program: &str, outcome: Result<()>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    eprintln!("{program}: {error:#}");
    ExitCode::FAILURE
}
