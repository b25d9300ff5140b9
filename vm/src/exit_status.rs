//! Exit statuses of the commands of this workspace when a machine decides.
//!
//! A shell script that calls one must be able to tell a failed test from a machine that was lost.

use std::process::ExitCode;

use anyhow::Result;

/// A test failed.
pub const FAILED: u8 = 1;
/// The program ended well, but the kernel complained.
pub const COMPLAINED: u8 = 124;
/// The machine was lost: there is no verdict, and the reason is unknown.
pub const LOST: u8 = 125;
/// The run could not begin: no such kernel, something does not build.
pub const NOT_BEGUN: u8 = 126;

/// The status of a command of this name; the reason why it could not begin is printed.
#[must_use]
pub fn of(command: &str, outcome: Result<u8>) -> ExitCode {
    ExitCode::from(outcome.unwrap_or_else(|error| {
        eprintln!("{command}: {error:#}");
        NOT_BEGUN
    }))
}
