//! The daemon's answer at one time.

use std::path::Path;
use std::time::{Duration, Instant};

use uksm_redistribution::status::RedistributionStatus as Redistribution;

use crate::account;
use crate::control::{self, Answer, NoAnswer, Request};
use crate::status::groups::{GroupStatus, GroupsStatus};

/// Timeout of the daemon's answer: Prometheus gives up a scrape after 10 s by default.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

/// The daemon's answer at one time.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// The daemon; none if none runs.
    pub(super) about: Option<About>,
    /// Time until the answer.
    pub(super) answer_seconds: f64,
    /// Its groups; a daemon without groups counts as one, with the name that it has in accounts.
    pub(super) groups: Vec<GroupStatus>,
    pub(super) redistribution: Option<Redistribution>,
}

#[derive(Debug)]
pub(super) struct About {
    pub(super) version: String,
    pub(super) uptime_seconds: f64,
    pub(super) groups: u64,
    /// This and the next two are of daemons with groups only.
    pub(super) supervisor_bytes: Option<u64>,
    pub(super) moves_told: Option<bool>,
    pub(super) moves_lost: Option<u64>,
    pub(super) written_on_host: Option<u64>,
}

impl Snapshot {
    /// Asks the daemon, once.
    ///
    /// # Errors
    /// It runs, and does not answer, or there is no right to ask it: one line.
    pub(super) fn ask(socket: &Path) -> Result<Snapshot, String> {
        let begun = Instant::now();
        let answer = control::ask_within(socket, &Request::Status, ANSWER_TIMEOUT);
        let mut snapshot = match answer {
            Err(NoAnswer::NotRunning) => Snapshot::default(),
            Err(NoAnswer::Failed(line)) | Ok(Answer::Error(line)) => return Err(line),
            Ok(Answer::Ksm(_)) => {
                return Err(
                    "the daemon drives in-kernel KSM, of which there are no metrics yet: see `uksm status --json`"
                        .to_owned(),
                );
            }
            Ok(answer) => Snapshot::of(answer).ok_or("the daemon sent an unexpected reply")?,
        };
        snapshot.answer_seconds = begun.elapsed().as_secs_f64();
        Ok(snapshot)
    }

    /// From an answer; none if that is no status.
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
