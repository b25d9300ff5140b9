//! Options of `uksm metrics`.

use std::path::PathBuf;

use clap::Args;

/// Options of `metrics`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --textfile and --listen, OpenMetrics text is printed once. If no \
                  daemon runs, uksm_up is 0 and the exit status is 0. docs/metrics.md has a row \
                  for each metric."
)]
pub(crate) struct MetricsArgs {
    /// Write the text into this file, in the form of node_exporter's textfile collector
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub(crate) textfile: Option<PathBuf>,
    /// Serve /metrics over HTTP until stopped: at PORT of this machine, at ADDRESS:PORT, or at
    /// unix:PATH, for its user and group
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Allow an address that other machines reach; every client there may read the metrics
    #[arg(long, requires = "listen")]
    pub(crate) public: bool,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::SOCKET)]
    pub(crate) socket: PathBuf,
}
