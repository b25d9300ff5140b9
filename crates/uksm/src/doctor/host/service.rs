//! The service: its rights, and the frames that systemd stores for it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use uksm_linux::selection::Cgroup;

use super::configuration::HostConfiguration;
use crate::config::Config;
use crate::control::Answer;
use crate::doctor::probe::Root;

const UNITS: [&str; 3] = [
    "etc/systemd/system/uksm.service",
    "usr/lib/systemd/system/uksm.service",
    "lib/systemd/system/uksm.service",
];

/// Folders of the unit's drop-ins; the first has the highest priority.
const DROP_INS: [&str; 5] = [
    "etc/systemd/system/uksm.service.d",
    "run/systemd/system/uksm.service.d",
    "usr/local/lib/systemd/system/uksm.service.d",
    "usr/lib/systemd/system/uksm.service.d",
    "lib/systemd/system/uksm.service.d",
];

/// The state of the service.
pub(in crate::doctor) struct Service {
    /// Capabilities of the running daemon, if it has groups.
    pub(in crate::doctor) capabilities: Option<u64>,
    /// Rules whose groups depend on a variable of the environment.
    pub(in crate::doctor) by_environment: Vec<String>,
    /// Groups that are booked to a control group of another user.
    pub(in crate::doctor) elsewhere: Vec<String>,
    /// Maximum number of groups.
    pub(in crate::doctor) max_groups: u64,
    /// Maximum number of files that systemd stores; none without a unit.
    pub(in crate::doctor) max_files: Option<u64>,
}

impl Service {
    /// Reads the state.
    pub(in crate::doctor) fn read(root: &Root, configured: &HostConfiguration) -> Service {
        let config = configured.config();
        let rules = || config.into_iter().flat_map(|all| &all.rules);
        let by_environment = rules().filter(|rule| rule.is_by_environment());
        let most = rules()
            .map(crate::config::rules::RuleConfig::most)
            .sum::<u64>();
        let named = config.map_or(0, |all| all.groups.len() as u64);
        Service {
            capabilities: match configured.answer() {
                Some(Answer::Groups(status)) => capabilities(root, status.pid),
                _ => None,
            },
            by_environment: by_environment.map(|rule| rule.name.clone()).collect(),
            elsewhere: config.map_or_else(Vec::new, |all| elsewhere(root, all)),
            max_groups: named + most,
            max_files: max_files(root),
        }
    }
}

pub(in crate::doctor) fn capabilities(root: &Root, pid: u32) -> Option<u64> {
    let status = root.text(&format!("proc/{pid}/status"));
    let status = status.text();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Groups whose payer belongs to a user other than root.
pub(in crate::doctor) fn elsewhere(root: &Root, config: &Config) -> Vec<String> {
    let is_elsewhere = |cgroup: &Cgroup| {
        let file = format!("{}/cgroup.procs", cgroup.folder());
        let found = root.at(Path::new(&file)).metadata();
        found.is_ok_and(|found| found.uid() != 0)
    };
    let groups = config.groups.iter();
    let booked = groups.filter(|group| group.book.as_ref().is_some_and(is_elsewhere));
    booked.map(|group| group.name.clone()).collect()
}

/// The setting of the unit, or of its last drop-in that has one.
pub(in crate::doctor) fn max_files(root: &Root) -> Option<u64> {
    let unit = UNITS.into_iter().find(|unit| root.has(unit))?;
    let mut text = root.text(unit).text().to_owned();
    // Of files with the same name, the one in the first folder counts; they are read in the order
    // of their names.
    let mut files = BTreeMap::new();
    for file in DROP_INS.into_iter().flat_map(|folder| root.list(folder)) {
        let Some(name) = file.file_name().map(ToOwned::to_owned) else {
            continue;
        };
        files.entry(name).or_insert(file);
    }
    let is_read = |file: &&PathBuf| file.extension().is_some_and(|kind| kind == "conf");
    for file in files.values().filter(is_read) {
        let name = root.name(file);
        text += "\n";
        text += root.text(name.trim_start_matches('/')).text();
    }
    let mut set = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("FileDescriptorStoreMax="));
    Some(
        set.next_back()
            .and_then(|max| max.trim().parse().ok())
            .unwrap_or(0),
    )
}
