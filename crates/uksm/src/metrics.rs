//! `uksm metrics`: the daemon's figures, for Prometheus and other readers of its formats.
//!
//! # Problem
//! An operator wants the same figures as in `uksm status`, over time, by group, in the form of all
//! other figures of the host. The daemon is privileged: it must not open a port, and a program that
//! reads figures needs none of its rights.
//!
//! # Approach
//! A client of the daemon's socket asks once for each scrape, for any number of groups
//! ([`Snapshot`]), and writes the answer by the rows of the [`catalogue`] ([`exposition`]): to
//! standard output, to a file that appears as a whole ([`textfile`]), or over HTTP ([`listen`]). A
//! missing daemon is no failure: `uksm_up` reports it.
//!
//! # Source
//! OpenMetrics 1.0; Prometheus's text format 0.0.4, which is what node_exporter's textfile
//! collector reads (`docs/decisions/0043-metrics-client.md`).

mod catalogue;
mod exposition;
mod listen;
mod snapshot;
mod textfile;

use std::sync::Arc;

use anyhow::anyhow;

use crate::cli::MetricsArgs;
use crate::failure::Failure;

use exposition::Format;
use snapshot::Snapshot;

/// Prints, writes or serves the metrics.
///
/// # Errors
/// A bad address, an unusable path, no right to ask the daemon.
pub(crate) fn metrics(args: &MetricsArgs) -> Result<(), Failure> {
    if let Some(address) = &args.listen {
        let address = listen::Address::of(address, args.public).map_err(Failure::usage)?;
        let line = listen::serve(&address, &args.socket);
        return line.map_err(|line| anyhow!(line).into());
    }
    let snapshot = Snapshot::ask(&args.socket).map_err(|line| anyhow!(line))?;
    if snapshot.about.is_none() {
        crate::log::print_line(&format!(
            "{}: no daemon answers: uksm_up is 0",
            args.socket.display()
        ));
    }
    let snapshot = Arc::new(snapshot);
    match &args.textfile {
        Some(path) => {
            let text = exposition::text(&snapshot, Format::Prometheus);
            textfile::write(path, &text).map_err(|line| anyhow!(line))?;
        }
        None => {
            let text = exposition::text(&snapshot, Format::OpenMetrics);
            crate::log::print_exactly(&text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
