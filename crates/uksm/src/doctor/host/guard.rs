//! The kernel's features that the guard needs.

use crate::doctor::probe::{FileContent, Root};

const FTRACE: &str = "proc/sys/kernel/ftrace_enabled";

pub(in crate::doctor) const KPROBES: &str = "sys/kernel/debug/kprobes/enabled";

/// The state of these features.
pub(in crate::doctor) struct GuardState {
    pub(in crate::doctor) gpu_migration: FileContent<String>,
    pub(in crate::doctor) ftrace: FileContent<String>,
    pub(in crate::doctor) kprobes: FileContent<String>,
}

impl GuardState {
    /// Reads the state.
    pub(in crate::doctor) fn read(root: &Root) -> GuardState {
        GuardState {
            gpu_migration: root.text("sys/module/uksm_guard/parameters/gpu_migration"),
            ftrace: root.text(FTRACE),
            kprobes: root.text(KPROBES),
        }
    }
}

/// Whether a file of this name gives access to a GPU to whose memory a range can be migrated.
pub(in crate::doctor) fn migrates(target: &str) -> bool {
    target == "/dev/kfd" || target.starts_with("/dev/nvidia-uvm")
}
