//! The guest's instructions during a variant: by owner and by function.
//!
//! # Problem
//! Totals do not show the parts to improve, and no profiler of the guest counts instructions.
//!
//! # Approach
//! The emulator counts them by task and block of code, with a plugin of ours (`vm/plugin/`). The
//! program in the guest marks the start of each run and the moment when 95 % is merged, and leaves
//! the addresses of the kernel's functions. Here the three are put together: a table for people,
//! and everything in `NAME.profile.json`. On request the emulator also models caches, and
//! [`hierarchy`] estimates the time of accesses to memory. `docs/experiments/caches.md` lists the
//! counted parts and the others.
//!
//! # Units
//! Instructions; and instructions over the pages that were saved at the end of the window.

mod counts;
mod hierarchy;
mod names;
mod primitives;
mod profile;
mod symbols;
mod table;

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use uksm_results::report::Report;

use crate::boot;
use counts::Counts;
use names::Names;
use profile::Profile;

/// Ending of the names of profiles.
const ENDING: &str = ".profile.json";

/// What is shown of a profile.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DisplayOptions {
    /// Of a profile, show the blocks of this function, too: its name, or the end of its path;
    /// repeatable
    #[arg(long, value_name = "FUNCTION")]
    pub annotate: Vec<String>,
}

/// Makes the profile of an experiment that has been run, prints it, and removes its sources.
pub(crate) fn make(results: &Path, experiment: &str, shown: &DisplayOptions) -> Result<()> {
    let (profile, path) = assemble(results, experiment)?;
    print!("{}", table::text(&profile, &shown.annotate));
    println!("profile {}", path.display());
    Ok(())
}

/// Makes the profile of operations on pages, and prints the model's times beside those of this
/// machine.
pub(crate) fn calibrate(results: &Path, native: &Report) -> Result<()> {
    let (profile, path) = assemble(results, &native.experiment)?;
    print!("{}", primitives::compared(&profile, native)?);
    println!("profile {}", path.display());
    Ok(())
}

/// Makes the profile of an experiment that has been run, and its file, and removes its sources.
fn assemble(results: &Path, experiment: &str) -> Result<(Profile, PathBuf)> {
    let report = Report::read(&results.join(format!("{experiment}.json")))?;
    let counts_file = boot::counts_file(results, experiment);
    let symbols = results.join(format!("{experiment}.symbols"));
    let counted = fs::read_to_string(&counts_file)
        .with_context(|| format!("the emulator left no {}", counts_file.display()))?;
    let counts: Counts = counted
        .parse()
        .with_context(|| counts_file.display().to_string())?;
    let profile = Names::read(&counts, &symbols)?.profile(&report, &counts)?;
    let path = results.join(format!("{experiment}{ENDING}"));
    let text = serde_json::to_string(&profile)? + "\n";
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    for file in [&counts_file, &symbols] {
        fs::remove_file(file).with_context(|| file.display().to_string())?;
    }
    Ok((profile, path))
}

/// Whether a file is a profile, by its name.
pub(crate) fn is_profile(path: &Path) -> bool {
    path.to_string_lossy().ends_with(ENDING)
}

/// The tables of a profile's file.
pub(crate) fn read(path: &Path, shown: &DisplayOptions) -> Result<String> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let profile: Profile =
        serde_json::from_str(&text).with_context(|| format!("{}: no profile", path.display()))?;
    Ok(table::text(&profile, &shown.annotate))
}
