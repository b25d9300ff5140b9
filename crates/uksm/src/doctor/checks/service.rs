//! The service that runs the daemon: whether it has the rights and limits that the configuration
//! needs.
//!
//! # Source
//! systemd.unit(5) (drop-ins), systemd.exec(5) (`CapabilityBoundingSet=`), systemd.service(5)
//! (`FileDescriptorStoreMax=`), capabilities(7).

use crate::doctor::check::{Check, Severity, Verdict};
use crate::doctor::host::Host;

pub(in crate::doctor) const CHECKS: &[Check] = &[
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

fn rights(host: &Host) -> Verdict {
    let service = &host.service;
    let Some(own) = service.capabilities else {
        return Verdict::not_applicable("no daemon with groups runs");
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
        None => Verdict::not_applicable("the service is not installed"),
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
