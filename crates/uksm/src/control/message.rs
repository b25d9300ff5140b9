//! What a client can ask of the daemon, and what the daemon can answer.
//!
//! Between supervisor and workers the same requests and answers travel as they are here; on the
//! daemon's socket they are calls of a varlink interface (`protocol`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::selectors::SelectorTexts;
use crate::status::Status;
use crate::status::evidence::Evidence;
use crate::status::groups::GroupsStatus;
use crate::status::ksm::KsmStatus;
use crate::status::processes::{Processes, Spaces};

/// Longest time that a client takes for its call, and for its answer. The connection of a slower
/// client is closed, and so is one that is older than this when it has been answered.
pub(super) const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest wait for something to be done: breaking up large processes takes long.
const MAX_DEED: Duration = Duration::from_secs(600);

/// Longest wait for something to be told.
const MAX_ANSWER: Duration = Duration::from_secs(60);

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// How are you?
    Status,
    /// How is the group of this name?
    Group(String),
    /// Write down what has accrued since the last record of the ledger.
    Account,
    /// Read the configuration again.
    Reload,
    /// Add, change or remove a group.
    Change(Change),
    /// Unmerge these, and leave them alone from now on.
    Break(SelectorTexts),
    /// Unmerge these spaces; a supervisor's to its worker.
    BreakSpaces(Vec<u32>),
    /// What is known of a process, from this address on.
    Explain {
        /// Its id.
        pid: u32,
        /// Regions that end before are left out.
        from: u64,
    },
    /// What of each process is merged: of the group of this name, or of a daemon without groups.
    Processes(Option<String>),
    /// The same of spaces; a supervisor's to its worker.
    Spaces,
    /// What is known of a space; a supervisor's to its worker.
    ExplainSpace {
        /// Which.
        space: u32,
        /// As above.
        from: u64,
    },
}

impl Request {
    /// How long the worker may take.
    pub(super) const fn patience(&self) -> Duration {
        match self {
            Request::Break(_) | Request::BreakSpaces(_) | Request::Change(_) | Request::Reload => {
                MAX_DEED
            }
            Request::Status
            | Request::Group(_)
            | Request::Account
            | Request::Explain { .. }
            | Request::Processes(_)
            | Request::Spaces
            | Request::ExplainSpace { .. } => MAX_ANSWER,
        }
    }
}

/// What is to become of a group that no file names. Keys are those of `[group.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    /// It is added.
    Add {
        /// Its name.
        name: String,
        /// What it is.
        keys: BTreeMap<String, String>,
    },
    /// It is changed.
    Set {
        /// Its name.
        name: String,
        /// What is set.
        keys: BTreeMap<String, String>,
        /// What is not set any more.
        unset: Vec<String>,
    },
    /// It is removed.
    Remove {
        /// Its name.
        name: String,
    },
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// To [`Request::Status`] of a daemon without groups, and to [`Request::Group`].
    Status(Box<Status>),
    /// To [`Request::Status`] of one with groups.
    Groups(Box<GroupsStatus>),
    /// To [`Request::Status`] of one that drives in-kernel KSM.
    Ksm(Box<KsmStatus>),
    /// To [`Request::Break`] and [`Request::BreakSpaces`].
    Broken {
        /// Processes looked at.
        processes: u64,
        /// Pages unmerged.
        pages: u64,
        /// Processes in which memory did not suffice.
        stopped: u64,
        /// Processes that held their own locks all the time.
        locked: u64,
    },
    /// To [`Request::Account`].
    Accounted {
        /// The folder of the ledger; none if none is written.
        folder: Option<PathBuf>,
        /// Why it could not be written, in one line.
        fault: Option<String>,
    },
    /// To [`Request::Reload`] and [`Request::Change`].
    Changed {
        /// Groups there are now.
        groups: u64,
    },
    /// To [`Request::Explain`] and [`Request::ExplainSpace`].
    Explained(Box<Evidence>),
    /// To [`Request::Processes`].
    Processes(Box<Processes>),
    /// To [`Request::Spaces`].
    Spaces(Box<Spaces>),
    /// It could not be done.
    Error(String),
}
