//! Options of `uksm analyze`.

use std::path::PathBuf;

use clap::Args;
use uksm_linux::selection::Selection;
use uksm_policy::command::Nanos;
use uksm_policy::params::form::{count, share, time};

use super::option_value::accepted;
use super::targets::{ExcludeArgs, TargetArgs};
use crate::paths::Roots;

/// Options of `analyze`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without targets, all readable processes are read. If the budget does not \
                  suffice for all memory, a sample is read, and the result has 95 % intervals. \
                  See docs/analyze.md."
)]
pub(crate) struct AnalyzeArgs {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    excluded: ExcludeArgs,
    /// Processor time to spend (20ms to 1h); at 1% of a core, 1s is spent in 100 s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = budget)]
    pub(crate) budget: Nanos,
    /// Share of a core to read with (0.1% to 100%)
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = cpu)]
    pub(crate) cpu: f64,
    /// Seed by which pages are chosen; the same seed chooses the same places [default: random]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// So many control groups and processes are listed, those with the most memory (0 to 1000)
    #[arg(long, value_name = "NUMBER", default_value = "5", value_parser = top)]
    pub(crate) top: usize,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the result with plots into this HTML file, which needs no other file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) roots: Roots,
}

impl AnalyzeArgs {
    /// The processes that may be read: all, if none is named.
    ///
    /// # Errors
    /// A bad `--exclude`.
    pub(crate) fn targets(&self) -> Result<Selection, String> {
        let mut selection = self.targets.selection(&self.excluded)?;
        selection.all |= selection.chosen.is_empty();
        Ok(selection)
    }
}

fn budget(text: &str) -> Result<Nanos, String> {
    accepted(&time(20_000_000..=3_600_000_000_000), text)
}

fn cpu(text: &str) -> Result<f64, String> {
    accepted(&share(0.001..=1.0), text)
}

fn top(text: &str) -> Result<usize, String> {
    accepted(&count(0..=1000), text)
}
