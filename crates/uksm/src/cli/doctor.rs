//! Options of `uksm doctor`.

use std::path::PathBuf;

use clap::Args;

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Fail also for warnings, where uksm does less than it could
    #[arg(long)]
    pub(crate) strict: bool,
    /// Configuration file to check; files of conf.d beside it are read after it [default:
    /// /etc/uksm/config.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where the host's files are; tests put a folder here.
    #[arg(long, hide = true, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
}
