//! `uksm report`: one file that shows the savings and the costs of merging over a span of time.
//!
//! # Problem
//! A table of sums does not show when memory was saved, the cost at that time, or that half of the
//! time is unknown. A manager who decides whether uksm stays on a host looks at that once, on
//! another machine, without this program.
//!
//! # Approach
//! All figures come from the ledger that the daemon writes (`crate::account`), so that they
//! continue over restarts of the daemon and no daemon must run. [`figures`] puts the records of the
//! span into steps of equal length by [`span`], [`page`] makes a
//! [`html_document`](crate::html_document) of it, with the plots of [`plot`]. Facts that are not in
//! the ledger are left out.
//!
//! # Units
//! As in the ledger: seconds, bytes, pages of 4 KiB, byte-seconds. GiB h are byte-seconds divided
//! by 3600 times 2^30.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;

use crate::account::LedgerPart;
use crate::cli::ReportArgs;
use crate::failure::Failure;
use crate::html_document::DocumentFile;
use crate::log::{print_answer, print_exactly};

mod figures;
mod page;
mod plot;
mod span;

/// The default path of the page.
pub(crate) const OUTPUT: &str = "uksm-report.html";

/// The name that means standard output.
const STANDARD_OUTPUT: &str = "-";

/// Reads the ledger, and writes the page or the figures.
///
/// # Errors
/// A bad time, a path that cannot be written, a ledger that cannot be read, no records.
pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let otherwise = if args.json { STANDARD_OUTPUT } else { OUTPUT };
    let output = args.output.as_deref().unwrap_or(Path::new(otherwise));
    let now = Timestamp::now();
    let span = args.span.bounds(now)?;
    // Whether it can be written is checked before a daemon is kept busy.
    let file = match output == Path::new(STANDARD_OUTPUT) {
        true => None,
        false => Some(DocumentFile::create("--output", output)?),
    };
    let part = LedgerPart::of(&args.span, span);
    let report = figures::figures(&part, now).map_err(|line| anyhow!(line))?;
    let text = match args.json {
        true => {
            serde_json::to_string_pretty(&report).context("the result cannot be written as JSON")?
                + "\n"
        }
        false => page::html(&report)?,
    };
    match file {
        Some(file) => {
            file.write(&text)?;
            print_answer(&format!("{}: {}", output.display(), report.headline()))?;
        }
        None => print_exactly(&text)?,
    }
    Ok(())
}
