//! The service that runs the daemon: whether it has what the configuration asks of it.
//!
//! # Source
//! systemd.unit(5) (drop-ins), systemd.exec(5) (`CapabilityBoundingSet=`), systemd.service(5)
//! (`FileDescriptorStoreMax=`), capabilities(7).

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use uksm_linux::selection::Cgroup;

use super::configuration::Configured;
use super::reading::Root;
use super::{Check, Host, Severity, Verdict};
use crate::config::Config;
use crate::control::Answer;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "daemon-rights",
        finds: "the running daemon lacks a capability that its configuration takes",
        reads: "the configuration, the daemon's status, /proc/PID/status, the owners of control groups",
        worst: Severity::Warning,
        cost: "a rule by env:NAME finds processes of root only; no worker starts in a control group of another user",
        mend: "add CAP_DAC_READ_SEARCH (environments), or CAP_DAC_OVERRIDE (control groups), to the unit",
        judge: rights,
    },
    Check {
        name: "stored-frames",
        finds: "there can be more groups than systemd stores files for",
        reads: "the configuration, uksm.service and its drop-ins",
        worst: Severity::Warning,
        cost: "at a restart of the daemon the frames of some groups become orphans, and are taken over one by one",
        mend: "raise FileDescriptorStoreMax= of the unit, or lower most of a rule",
        judge: stored,
    },
];

/// `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`.
const OVERRIDE: u64 = 1 << 1;
const READ_SEARCH: u64 = 1 << 2;

const UNITS: [&str; 3] = [
    "etc/systemd/system/uksm.service",
    "usr/lib/systemd/system/uksm.service",
    "lib/systemd/system/uksm.service",
];

/// Where drop-ins of the unit lie, the ones that count for more first.
const DROP_INS: [&str; 5] = [
    "etc/systemd/system/uksm.service.d",
    "run/systemd/system/uksm.service.d",
    "usr/local/lib/systemd/system/uksm.service.d",
    "usr/lib/systemd/system/uksm.service.d",
    "lib/systemd/system/uksm.service.d",
];

/// What was read of the service.
pub(super) struct Service {
    /// Capabilities of the daemon that runs, if one with groups does.
    capabilities: Option<u64>,
    /// Rules by a variable of the environment.
    by_environment: Vec<String>,
    /// Groups that are booked on a control group of another user.
    elsewhere: Vec<String>,
    /// Most groups there can be.
    max_groups: u64,
    /// Most files that systemd stores; none if there is no unit.
    max_files: Option<u64>,
}

impl Service {
    /// Reads it.
    pub(super) fn read(root: &Root, configured: &Configured) -> Service {
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

fn capabilities(root: &Root, pid: u32) -> Option<u64> {
    let status = root.text(&format!("proc/{pid}/status"));
    let status = status.text();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Groups whose control group to pay belongs to another user than root.
fn elsewhere(root: &Root, config: &Config) -> Vec<String> {
    let is_elsewhere = |cgroup: &Cgroup| {
        let file = format!("{}/cgroup.procs", cgroup.folder());
        let found = root.at(Path::new(&file)).metadata();
        found.is_ok_and(|found| found.uid() != 0)
    };
    let groups = config.groups.iter();
    let booked = groups.filter(|group| group.book.as_ref().is_some_and(is_elsewhere));
    booked.map(|group| group.name.clone()).collect()
}

/// What the unit says, and what is said over it last.
fn max_files(root: &Root) -> Option<u64> {
    let unit = UNITS.into_iter().find(|unit| root.has(unit))?;
    let mut text = root.text(unit).text().to_owned();
    // Of files of one name the first folder's counts; they are read in the order of their names.
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

fn rights(host: &Host) -> Verdict {
    let service = &host.service;
    let Some(own) = service.capabilities else {
        return Verdict::ok("no daemon with groups runs, whose rights could be read");
    };
    let mut missing = Vec::new();
    let mut names = Vec::new();
    if own & (OVERRIDE | READ_SEARCH) == 0 && !service.by_environment.is_empty() {
        let rules = service.by_environment.join(", ");
        missing.push(format!("CAP_DAC_READ_SEARCH, for rules by env: {rules}"));
        names.push("CAP_DAC_READ_SEARCH");
    }
    if own & OVERRIDE == 0 && !service.elsewhere.is_empty() {
        let groups = service.elsewhere.join(", ");
        missing.push(format!("CAP_DAC_OVERRIDE, for book of groups: {groups}"));
        names.push("CAP_DAC_OVERRIDE");
    }
    match missing.is_empty() {
        true => Verdict::ok("the daemon has the rights that its configuration takes"),
        false => Verdict::warning("the daemon lacks rights that its configuration takes")
            .about(missing)
            .mend("mkdir -p /etc/systemd/system/uksm.service.d")
            .mend(format!(
                "printf '[Service]\\nCapabilityBoundingSet={}\\n' >/etc/systemd/system/uksm.service.d/rights.conf",
                names.join(" ")
            ))
            .mend("systemctl daemon-reload && systemctl restart uksm"),
    }
}

fn stored(host: &Host) -> Verdict {
    let service = &host.service;
    let groups = service.max_groups;
    match service.max_files {
        None => Verdict::ok("there is no service"),
        Some(max) if groups > max => Verdict::warning(format!(
            "there can be {groups} groups, and systemd stores {max} files"
        ))
        .mend("mkdir -p /etc/systemd/system/uksm.service.d")
        .mend(format!(
            "printf '[Service]\\nFileDescriptorStoreMax={groups}\\n' >/etc/systemd/system/uksm.service.d/store.conf"
        ))
        .mend("systemctl daemon-reload && systemctl restart uksm"),
        Some(max) => Verdict::ok(format!("systemd stores {max} files, and there are at most {groups} groups")),
    }
}
