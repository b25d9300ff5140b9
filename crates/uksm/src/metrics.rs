//! `uksm metrics`: what the daemon says of itself, for Prometheus and whoever else reads its formats.
//!
//! # Problem
//! Who watches a host wants the same figures as `uksm status`, over time, by group, in the form that everything else on the host has. The
//! daemon is privileged: it must not open a port, and a program that reads figures needs none of its rights.
//!
//! # Approach
//! A client of the daemon's socket that asks once for each scrape, however many groups there are ([`Snapshot`]), and writes what the
//! [`catalogue`] makes of the answer ([`exposition`]): to standard output, to a file that appears as a whole ([`textfile`]), or to whoever
//! asks over HTTP ([`listen`]). A daemon that does not run is no failure: it is what `uksm_up` says.
//!
//! # Source
//! OpenMetrics 1.0; Prometheus's text format 0.0.4, which is what node_exporter's textfile collector reads
//! (`docs/decisions/0043-metrics-client.md`).

mod catalogue;
mod exposition;
mod listen;
mod textfile;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use uksm_redistribution::status::Status as Redistribution;

use crate::account;
use crate::cli::MetricsArgs;
use crate::control::{self, Answer, NoAnswer, Request};
use crate::failure::Failure;
use crate::status::groups::{GroupStatus, GroupsStatus};

use exposition::Format;

/// So long the daemon may take to answer: a scrape is given up after 10 s if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(8);

/// What the daemon answered at one time.
#[derive(Debug, Default)]
struct Snapshot {
    /// The daemon; none if none runs.
    about: Option<About>,
    /// How long it took to answer.
    answer_seconds: f64,
    /// Its groups; a daemon without groups is one, which has the name that accounts give it.
    groups: Vec<GroupStatus>,
    redistribution: Option<Redistribution>,
}

#[derive(Debug)]
struct About {
    version: String,
    uptime_seconds: f64,
    groups: u64,
    /// The rest is of daemons with groups.
    supervisor_bytes: Option<u64>,
    moves_told: Option<bool>,
    moves_lost: Option<u64>,
    written_on_host: Option<u64>,
}

/// Prints, writes or serves the metrics.
///
/// # Errors
/// A bad address, a place that cannot be had, no right to ask the daemon.
pub(crate) fn metrics(args: &MetricsArgs) -> Result<(), Failure> {
    if let Some(address) = &args.listen {
        let address = listen::Address::of(address, args.public).map_err(Failure::usage)?;
        let line = listen::serve(&address, &args.socket);
        return line.map_err(|line| anyhow!(line).into());
    }
    let snapshot = Snapshot::ask(&args.socket).map_err(|line| anyhow!(line))?;
    if snapshot.about.is_none() {
        crate::log::say(&format!(
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
            let _closed = std::io::stdout().write_all(text.as_bytes());
        }
    }
    Ok(())
}

impl Snapshot {
    /// Asks the daemon, once.
    ///
    /// # Errors
    /// It runs, and does not answer, or nobody may ask it: one line.
    fn ask(socket: &Path) -> Result<Snapshot, String> {
        let begun = Instant::now();
        let answer = control::ask_within(socket, &Request::Status, PATIENCE);
        let mut snapshot = match answer {
            Err(NoAnswer::NotRunning) => Snapshot::default(),
            Err(NoAnswer::Failed(line)) | Ok(Answer::Error(line)) => return Err(line),
            Ok(Answer::Ksm(_)) => {
                return Err(
                    "the daemon drives in-kernel KSM, of which there are no metrics yet: see `uksm status --json`"
                        .to_owned(),
                );
            }
            Ok(answer) => Snapshot::of(answer).ok_or("the daemon answered another question")?,
        };
        snapshot.answer_seconds = begun.elapsed().as_secs_f64();
        Ok(snapshot)
    }

    /// Of what was answered; none if that is no status.
    fn of(answer: Answer) -> Option<Snapshot> {
        match answer {
            Answer::Status(status) => Some(Snapshot {
                about: Some(About {
                    version: status.daemon.version.clone(),
                    uptime_seconds: status.daemon.uptime_seconds,
                    groups: 0,
                    supervisor_bytes: None,
                    moves_told: None,
                    moves_lost: None,
                    written_on_host: status.merged.written_on_host,
                }),
                groups: vec![GroupStatus {
                    name: account::ALL.to_owned(),
                    status: Some(status),
                    ..GroupStatus::default()
                }],
                ..Snapshot::default()
            }),
            Answer::Groups(status) => {
                let GroupsStatus {
                    version,
                    uptime_seconds,
                    supervisor_bytes,
                    moves_told,
                    moves_lost,
                    written_on_host,
                    groups,
                    redistribution,
                    ..
                } = *status;
                Some(Snapshot {
                    about: Some(About {
                        version,
                        uptime_seconds,
                        groups: u64::try_from(groups.len()).unwrap_or(u64::MAX),
                        supervisor_bytes: Some(supervisor_bytes),
                        moves_told: Some(moves_told),
                        moves_lost: Some(moves_lost),
                        written_on_host,
                    }),
                    groups,
                    redistribution,
                    ..Snapshot::default()
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
