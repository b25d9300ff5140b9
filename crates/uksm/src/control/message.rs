//! Requests of clients, and answers of the daemon.
//!
//! Between supervisor and workers the same requests and answers are sent in this form; on the
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
use crate::status::processes::{ProcessList, SpaceList};

/// Timeout of a client's call, and of reading its answer. The connection of a slower client is
/// closed, and so is one that is older than this after its answer.
pub(super) const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a request that changes something: breaking up large processes takes long.
const MAX_DEED: Duration = Duration::from_secs(600);

/// Timeout of a request for information.
const MAX_ANSWER: Duration = Duration::from_secs(60);

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// The status of the daemon.
    Status,
    /// The status of the group of this name.
    Group(String),
    /// Write a record of the amounts since the last record of the ledger.
    Account,
    /// Read the configuration again.
    Reload,
    /// Add, change or remove a group.
    Change(Change),
    /// Unmerge these processes, and leave them alone from now on.
    Break(SelectorTexts),
    /// Unmerge these spaces; sent by a supervisor to its worker.
    BreakSpaces(Vec<u32>),
    /// The evidence on a process, from this address on.
    Explain {
        /// Its id.
        pid: u32,
        /// Regions that end before it are left out.
        from: u64,
    },
    /// Figures of each process: of the group of this name, or of a daemon without groups.
    Processes(Option<String>),
    /// Figures of each space; sent by a supervisor to its worker.
    Spaces,
    /// The evidence on a space; sent by a supervisor to its worker.
    ExplainSpace {
        /// Its number.
        space: u32,
        /// Regions that end before it are left out.
        from: u64,
    },
}

impl Request {
    /// Timeout of the worker.
    pub(super) const fn timeout(&self) -> Duration {
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

/// A change of a group that no file names. Keys are those of `[group.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    /// It is added.
    Add {
        /// Its name.
        name: String,
        /// Its keys.
        keys: BTreeMap<String, String>,
    },
    /// It is changed.
    Set {
        /// Its name.
        name: String,
        /// Keys to set.
        keys: BTreeMap<String, String>,
        /// Keys to remove.
        unset: Vec<String>,
    },
    /// It is removed.
    Remove {
        /// Its name.
        name: String,
    },
}

/// An answer of the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// To [`Request::Status`] of a daemon without groups, and to [`Request::Group`].
    Status(Box<Status>),
    /// To [`Request::Status`] of a daemon with groups.
    Groups(Box<GroupsStatus>),
    /// To [`Request::Status`] of a daemon that drives in-kernel KSM.
    Ksm(Box<KsmStatus>),
    /// To [`Request::Break`] and [`Request::BreakSpaces`].
    Broken {
        /// Processes checked.
        processes: u64,
        /// Pages unmerged.
        pages: u64,
        /// Processes in which memory did not suffice.
        stopped: u64,
        /// Processes that held their own locks at every try.
        locked: u64,
    },
    /// To [`Request::Account`].
    Accounted {
        /// The folder of the ledger; none if no ledger is written.
        folder: Option<PathBuf>,
        /// Why it could not be written, in one line.
        fault: Option<String>,
    },
    /// To [`Request::Reload`] and [`Request::Change`].
    Changed {
        /// Number of groups now.
        groups: u64,
    },
    /// To [`Request::Explain`] and [`Request::ExplainSpace`].
    Explained(Box<Evidence>),
    /// To [`Request::Processes`].
    Processes(Box<ProcessList>),
    /// To [`Request::Spaces`].
    Spaces(Box<SpaceList>),
    /// The request failed.
    Error(String),
}
