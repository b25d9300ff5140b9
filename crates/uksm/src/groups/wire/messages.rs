//! The messages between supervisor and worker.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uksm_linux::supervised_spaces::{SpaceNotice, SpaceReport};
use uksm_policy::command::{SpaceArrival, SpaceId};

use crate::control::{Answer, Request};

/// The settings of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// All settings.
    pub(crate) settings: BTreeMap<String, String>,
    /// The seed of its domain.
    pub(crate) seed: u64,
    /// KSM's folder.
    pub(crate) ksm_root: PathBuf,
}

/// From the supervisor to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SupervisorMessage {
    /// The first message. The file of the domain comes with it if there is one already.
    Setup(Box<Setup>),
    /// The second message, if hints are on; the file of the hints comes with it.
    Hints,
    /// Spaces came and went.
    Spaces(Vec<SpaceNote>),
    /// A request; its number distinguishes late answers.
    Ask(u64, Request),
    /// The share of a core that it may use from now on.
    Share(f64),
}

/// From a worker to the supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkerMessage {
    /// It has opened a domain, whose file comes with this message.
    Domain,
    /// It works.
    Ready,
    /// It cannot work, and ends.
    Failed(String),
    /// Answers to [`SupervisorMessage::Spaces`], and other reports about spaces.
    Spaces(Vec<SpaceAnswer>),
    /// Merged pages that processes have written since it started.
    Written(u64),
    /// To [`SupervisorMessage::Ask`] of this number.
    Answer(u64, Answer),
}

/// The form of [`SpaceNotice`] in messages.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SpaceNote {
    /// Process, space, kind, age in nanoseconds, whether it can have frames of another group.
    Arrived(u32, u32, u64, u64, bool),
    /// Space, and whether a process still has it.
    Left(u32, bool),
    /// Space.
    Resized(u32),
}

/// The form of [`SpaceReport`] in messages.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SpaceAnswer {
    /// Space.
    Detached(u32),
    /// Space.
    Dead(u32),
}

impl From<SpaceNotice> for SpaceNote {
    fn from(notice: SpaceNotice) -> SpaceNote {
        match notice {
            SpaceNotice::Arrived {
                pid,
                arrival,
                is_mixed,
            } => {
                let SpaceArrival { space, kind, age } = arrival;
                SpaceNote::Arrived(pid, space.0, kind, age, is_mixed)
            }
            SpaceNotice::Left { space, lives } => SpaceNote::Left(space.0, lives),
            SpaceNotice::Resized(space) => SpaceNote::Resized(space.0),
        }
    }
}

impl From<SpaceNote> for SpaceNotice {
    fn from(note: SpaceNote) -> SpaceNotice {
        match note {
            SpaceNote::Arrived(pid, space, kind, age, is_mixed) => {
                let space = SpaceId(space);
                SpaceNotice::Arrived {
                    pid,
                    arrival: SpaceArrival { space, kind, age },
                    is_mixed,
                }
            }
            SpaceNote::Left(space, lives) => {
                let space = SpaceId(space);
                SpaceNotice::Left { space, lives }
            }
            SpaceNote::Resized(space) => SpaceNotice::Resized(SpaceId(space)),
        }
    }
}

impl From<SpaceReport> for SpaceAnswer {
    fn from(report: SpaceReport) -> SpaceAnswer {
        match report {
            SpaceReport::Detached(space) => SpaceAnswer::Detached(space.0),
            SpaceReport::Dead(space) => SpaceAnswer::Dead(space.0),
        }
    }
}

impl From<SpaceAnswer> for SpaceReport {
    fn from(answer: SpaceAnswer) -> SpaceReport {
        match answer {
            SpaceAnswer::Detached(space) => SpaceReport::Detached(SpaceId(space)),
            SpaceAnswer::Dead(space) => SpaceReport::Dead(SpaceId(space)),
        }
    }
}
