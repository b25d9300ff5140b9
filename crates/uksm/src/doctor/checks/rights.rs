//! The rights of this program, and the kernel's restrictions for all users.
//!
//! The rights are those of this program, not of a service: the packaged unit grants its own.
//!
//! # Source
//! capabilities(7), user_namespaces(7), ptrace(2); `docs/threat-model.md`.

use crate::doctor::check::{Check, Severity, Verdict};
use crate::doctor::host::Host;
use crate::doctor::host::rights::CAPABILITIES;
use crate::doctor::probe::FileContent;

pub(in crate::doctor) const CHECKS: &[Check] = &[
    Check {
        name: "capabilities",
        finds: "the caller lacks a capability, or is in a user namespace",
        reads: "/proc/self/status, /proc/self/uid_map",
        worst: Severity::Warning,
        cost: "the caller cannot run uksm, and sees less of the host; a service has rights of \
               its own",
        mend: "run doctor as root, in the host's own user namespace",
        judge: capabilities,
    },
    Check {
        name: "ptrace-scope",
        finds: "the kernel forbids all tracing",
        reads: "/proc/sys/kernel/yama/ptrace_scope",
        worst: Severity::Error,
        cost: "with ptrace_scope=3 nobody may trace, so no process can be attached",
        mend: "boot with ptrace_scope=2 or less: 3 cannot be taken back while the host runs",
        judge: ptrace_scope,
    },
];

fn capabilities(host: &Host) -> Verdict {
    let rights = &host.rights;
    let Some(bits) = rights.effective() else {
        return Verdict::unknown("/proc/self/status has no CapEff");
    };
    if rights.is_in_namespace() {
        return Verdict::warning(
            "this is a user namespace: capabilities here do not count on the host",
        );
    }
    let missing = CAPABILITIES
        .iter()
        .filter(|(bit, _, _)| bits & (1 << bit) == 0);
    let missing: Vec<String> = missing
        .map(|(_, name, what)| format!("{name}, {what}"))
        .collect();
    match missing.is_empty() {
        true => Verdict::ok("the caller may run uksm"),
        false => Verdict::warning("the caller lacks rights that uksm run needs").about(missing),
    }
}

fn ptrace_scope(host: &Host) -> Verdict {
    match &host.rights.ptrace_scope {
        FileContent::There(text) if text.trim() == "3" => {
            Verdict::error("the kernel forbids all tracing (ptrace_scope is 3)")
                .mend("grep -r ptrace_scope /etc/sysctl.conf /etc/sysctl.d /usr/lib/sysctl.d")
        }
        FileContent::There(text) => Verdict::ok(format!("ptrace_scope is {}", text.trim())),
        FileContent::Absent => Verdict::ok("the kernel has no Yama, which could forbid to trace"),
        FileContent::Unread(why) => Verdict::unknown(why),
    }
}
