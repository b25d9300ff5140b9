//! Options of `uksm group suggest`.

use clap::Args;
use uksm_linux::boundary::Boundary;
use uksm_linux::selection::Selection;
use uksm_policy::params::form::{count, share, size};

use super::option_value::accepted;
use super::targets::{ExcludeArgs, TargetArgs};
use crate::paths::Roots;

/// Options of `group suggest`.
#[derive(Debug, Args)]
pub(crate) struct SuggestArgs {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    excluded: ExcludeArgs,
    /// Which processes may be in one group: all, those of one user, of one unit, of one control
    /// group by the first DEPTH names of its path (cgroup:DEPTH), or of one value of an environment
    /// variable (env:NAME). Processes of different boundaries are never compared
    #[arg(long, value_name = "RULE", default_value = "user")]
    pub(crate) boundary: Boundary,
    /// Share of a core to read with (0.1% to 100%)
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = cpu)]
    pub(crate) cpu: f64,
    /// Most pages to read of one process (512 to 1073741824); of a larger one a sample is read
    #[arg(long, value_name = "NUMBER", default_value = "1048576", value_parser = pages)]
    pub(crate) pages_per_process: u64,
    /// Join two sets of processes if this share of the smaller set's memory has partners in the
    /// other
    /// (0% to 100%)
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = least_share)]
    pub(crate) least_share: f64,
    /// Propose groups that save at least this much (4KiB to 1TiB); the default is what the worker
    /// of a group takes
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = least_saved)]
    pub(crate) least_saved: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) roots: Roots,
}

impl SuggestArgs {
    /// The processes that may be read.
    ///
    /// # Errors
    /// A bad `--exclude`.
    pub(crate) fn targets(&self) -> Result<Selection, String> {
        self.targets.selection(&self.excluded)
    }
}

fn cpu(text: &str) -> Result<f64, String> {
    accepted(&share(0.001..=1.0), text)
}

fn least_share(text: &str) -> Result<f64, String> {
    accepted(&share(0.0..=1.0), text)
}

fn pages(text: &str) -> Result<u64, String> {
    accepted(&count(512..=1 << 30), text)
}

fn least_saved(text: &str) -> Result<u64, String> {
    accepted(&size(4096..=1 << 40), text)
}
