//! Options of `uksm status`.

use std::path::PathBuf;

use clap::Args;

/// Options of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Only this group
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::SOCKET)]
    pub(crate) socket: PathBuf,
}
