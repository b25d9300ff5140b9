//! Options of `uksm metrics`.

use std::path::PathBuf;

use clap::Args;

/// Options of `metrics`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --textfile and --listen, OpenMetrics text is printed once. A daemon that does not run is told by \
                  uksm_up, and no failure. docs/metrics.md has a line for each metric."
)]
pub(crate) struct MetricsArgs {
    /// Write the text into this file as a whole, in the form that node_exporter's textfile
    /// collector reads
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub(crate) textfile: Option<PathBuf>,
    /// Serve /metrics over HTTP until stopped: at PORT of this machine, at ADDRESS:PORT, or at
    /// unix:PATH, which its user and group may ask
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Listen at an address that other machines reach; nobody who asks there is told apart
    #[arg(long, requires = "listen")]
    pub(crate) public: bool,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::SOCKET)]
    pub(crate) socket: PathBuf,
}
