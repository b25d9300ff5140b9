//! Options of `uksm report`.

use std::path::PathBuf;

use clap::Args;

use super::SpanArgs;

/// Options of `report`.
#[derive(Debug, Args)]
#[command(
    after_help = "The figures are those that the daemon writes down each account_interval, also of daemons that have ended. docs/report.md says what \
                  each is, and what is not known."
)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) span: SpanArgs,
    /// The file, which needs no other; - is standard output [default: uksm-report.html, or - with
    /// --json]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The same figures as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
