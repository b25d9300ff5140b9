//! The catalogue of checks, by subject.

use super::check::{Check, Verdict};
use super::host::Host;

pub(in crate::doctor) mod configuration;
pub(in crate::doctor) mod guard;
pub(in crate::doctor) mod kernel;
pub(in crate::doctor) mod machines;
pub(in crate::doctor) mod memory;
pub(in crate::doctor) mod mergeable;
pub(in crate::doctor) mod module_state;
pub(in crate::doctor) mod processes;
pub(in crate::doctor) mod rights;
pub(in crate::doctor) mod service;

/// All checks, by subject.
pub(in crate::doctor) fn catalogue() -> impl Iterator<Item = &'static Check> {
    [
        kernel::CHECKS,
        module_state::CHECKS,
        guard::CHECKS,
        rights::CHECKS,
        memory::CHECKS,
        processes::CHECKS,
        mergeable::CHECKS,
        machines::CHECKS,
        configuration::CHECKS,
        service::CHECKS,
    ]
    .into_iter()
    .flatten()
}

/// Checks of the module, of what only its daemon uses, and of KSM as a rival. They do not apply
/// where uksm drives in-kernel KSM.
pub(in crate::doctor) const OF_MODULE_ONLY: [&str; 20] = [
    "kernel-version",
    "kernel-options",
    "kernel-symbols",
    "lockdown",
    "signature",
    "btf",
    "module-loaded",
    "module-installed",
    "module-current",
    "module-at-start",
    "headers",
    "device",
    "guard",
    "gpu-memory",
    "ptrace-scope",
    "zero-and-hints",
    "stored-frames",
    "ksm",
    "ksm-memory",
    "qemu-mem-merge",
];

/// The verdict of a check.
pub(in crate::doctor) fn judge(check: &Check, host: &Host) -> Verdict {
    if host.configuration.drives_ksm() && OF_MODULE_ONLY.contains(&check.name) {
        return Verdict::not_applicable("uksm drives in-kernel KSM here, without the module");
    }
    (check.judge)(host)
}

/// The catalogue, for help.
#[must_use]
pub(crate) fn checks_in_words() -> String {
    let mut text = "The exit status is 1 if there is an error, which means that uksm cannot merge here, and 0 if there are notes and \
                    warnings only; with --strict also a warning is a failure. It is 2 for a \
                    wrong command line.\n\n\
                    Checks, the worst that each can find, and when:\n"
        .to_owned();
    for check in catalogue() {
        text += &format!("  {} ({}): {}\n", check.name, check.worst, check.finds);
    }
    text
}
