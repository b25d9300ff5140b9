//! What supervisor and worker tell each other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::control::{Answer, Request};
use crate::selectors::SelectionTexts;

/// What a worker works on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The group's name.
    pub(crate) group: String,
    /// All settings.
    pub(crate) settings: BTreeMap<String, String>,
    /// The group's processes.
    pub(crate) selection: SelectionTexts,
    /// The seed of its domain.
    pub(crate) seed: u64,
    /// The process file system.
    pub(crate) proc_root: PathBuf,
    /// KSM's folder.
    pub(crate) ksm_root: PathBuf,
}

/// From the supervisor to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// First of all. The file of the domain comes with it if there is one already.
    Setup(Box<Setup>),
    /// Answer this; the number tells answers apart that come too late.
    Ask(u64, Request),
}

/// From a worker to the supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Word {
    /// It has opened a domain, whose file comes with this.
    Domain,
    /// It works.
    Ready,
    /// It cannot work, and ends.
    Failed(String),
    /// To [`Order::Ask`] of this number.
    Answer(u64, Answer),
}
