//! `uksm doctor`: obstacles on this host that keep uksm from running, or from saving as much as
//! possible.
//!
//! # Problem
//! There can be fifty reasons why nothing is merged: a kernel option, a module of another kernel,
//! memory that cannot be merged, two conflicting settings. Each shows in another file, and some
//! only by missing savings.
//!
//! # Approach
//! The state that checks need is read once into a [`Host`], from a root that is a path, so that a
//! test can use a folder. A check is a row of a table ([`check::Check`]): its name, the files that
//! it reads, the cost of leaving things as they are, the remedy, and a function that judges the
//! [`Host`] and reads nothing itself. The tables are in the files of their subjects. Unreadable
//! facts are not guessed: the verdict names them. Nothing is changed; a domain of the module is
//! opened and closed again, and some of this program's own memory is offered to KSM and withdrawn.
//!
//! # Units
//! Bytes, unless a name says otherwise.

use std::time::Duration;

use anyhow::anyhow;
use uksm_linux::module::Device;

use crate::cli::DoctorArgs;
use crate::control::{self, Request};
use crate::failure::Failure;

mod check;
mod checks;
mod distribution;
mod host;
mod probe;
mod prospect;
mod report;
mod sources;
#[cfg(test)]
mod tests;
mod unpack;

use check::Severity;
pub(crate) use checks::checks_in_words;
use host::Host;
use probe::Root;
use report::DoctorReport;
use sources::Sources;

/// Timeout of the daemon's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads, judges and prints.
///
/// # Errors
/// uksm cannot merge here; with `--strict`, also if it does less than it could.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<(), Failure> {
    if let Some(path) = &args.config
        && !path.try_exists().unwrap_or(true)
    {
        let line = format!("--config {}: no such file", path.display());
        return Err(Failure::usage(line));
    }
    if !args.root.is_dir() {
        let line = format!("--root {}: no such folder", args.root.display());
        return Err(Failure::usage(line));
    }
    let sources = Sources {
        device: &|path| Device::open_at(path)?.is_guarded(),
        daemon: &|path| control::ask_within(path, &Request::Status, ANSWER_TIMEOUT),
        mappings_apart: &|| {
            uksm_linux::ksm::memory::offering_keeps_mappings_apart().unwrap_or(false)
        },
    };
    let host = Host::read(&Root::at_path(&args.root), args.config.as_deref(), &sources);
    let report = DoctorReport::of(&host);
    crate::log::print_report(&report, args.json)?;
    let least = match args.strict {
        true => Severity::Warning,
        false => Severity::Error,
    };
    match report.refusal(least) {
        None => Ok(()),
        Some(line) => Err(anyhow!(line).into()),
    }
}
