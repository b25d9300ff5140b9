//! Options that name a part of the ledger, for `uksm account` and `uksm report`.

use std::path::PathBuf;

use clap::Args;

/// A span of time, a group, and where the ledger is.
#[derive(Debug, Args)]
pub(crate) struct SpanArgs {
    /// From this time on: like 2026-03-01T12:00:00Z, 2026-03-01, today, or how long ago, like 2h or
    /// 7d; days are of UTC. A record that lies partly in the span counts for that part
    /// [default: all]
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Until this time, which is not included; a day is its beginning [default: all]
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only this group
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// The folder of the ledger [default: that of the running daemon, else /var/lib/uksm/accounts]
    #[arg(long, value_name = "PATH", visible_alias = "ledger")]
    pub(crate) dir: Option<PathBuf>,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::SOCKET)]
    pub(crate) socket: PathBuf,
}
