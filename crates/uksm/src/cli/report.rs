//! Options of `uksm report`.

use std::path::PathBuf;

use clap::Args;

use super::SpanArgs;

/// Options of `report`.
#[derive(Debug, Args)]
#[command(
    after_help = "The figures are from the records that the daemon writes each account_interval, \
                  also of daemons that have ended. docs/report.md explains each figure, and what \
                  is not known."
)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) span: SpanArgs,
    /// The HTML file, which needs no other file; - is standard output [default: uksm-report.html,
    /// or - with --json]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write the same figures as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
