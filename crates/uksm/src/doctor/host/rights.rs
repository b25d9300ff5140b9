//! The rights of this program.

use crate::doctor::probe::{FileContent, Root};

/// Capabilities by bit, and their use.
pub(in crate::doctor) const CAPABILITIES: [(u32, &str, &str); 3] = [
    (21, "CAP_SYS_ADMIN", "to open the device"),
    (19, "CAP_SYS_PTRACE", "to attach processes"),
    (12, "CAP_NET_ADMIN", "to receive events of new processes"),
];

/// The map of the host's own user namespace.
const WHOLE: [&str; 3] = ["0", "0", "4294967295"];

/// The state of rights.
pub(in crate::doctor) struct Rights {
    pub(in crate::doctor) status: FileContent<String>,
    pub(in crate::doctor) users: FileContent<String>,
    pub(in crate::doctor) ptrace_scope: FileContent<String>,
}

impl Rights {
    /// Reads the state.
    pub(in crate::doctor) fn read(root: &Root) -> Rights {
        Rights {
            status: root.text("proc/self/status"),
            users: root.text("proc/self/uid_map"),
            ptrace_scope: root.text("proc/sys/kernel/yama/ptrace_scope"),
        }
    }

    /// The capabilities in effect, a bit each.
    pub(in crate::doctor) fn effective(&self) -> Option<u64> {
        let status = self.status.there()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    }

    pub(in crate::doctor) fn is_in_namespace(&self) -> bool {
        let text = self.users.text();
        !text.is_empty() && !text.split_ascii_whitespace().eq(WHOLE)
    }

    /// Whether this program has the right to open the device.
    pub(in crate::doctor) fn may_open(&self) -> bool {
        let admin = 1 << CAPABILITIES[0].0;
        !self.is_in_namespace() && self.effective().is_some_and(|bits| bits & admin != 0)
    }
}
