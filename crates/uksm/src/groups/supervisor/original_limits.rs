//! Original limits and balloons of members: where they are stored, and how they are put back
//! without a supervisor.
//!
//! # Problem
//! A daemon that was killed leaves limits that it moved. The next one, or a command, must put them
//! back, even if it has no groups.

use std::ffi::OsString;
use std::path::Path;

use uksm_redistribution::{Event, Redistribution, Roots};

use crate::control;
use crate::groups::supervisor::placement::cgroup_tree;

/// The original values are stored beside the control socket, in a folder that does not outlive the
/// machine either.
pub(super) fn roots(proc_root: &Path, socket: &Path) -> Roots {
    let mut before = OsString::from(socket);
    before.push(".limits");
    Roots {
        proc: proc_root.to_owned(),
        cgroups: cgroup_tree(),
        before: before.into(),
    }
}

/// For a daemon without groups: puts back limits that a killed one with groups left.
pub(crate) fn put_back(proc_root: &Path, socket: &Path) {
    log(&Redistribution::put_back_only(roots(proc_root, socket)));
}

/// Without a daemon: puts back limits that a killed one with groups left, unless one runs at this
/// socket. Answers whether nothing is left.
pub(crate) fn put_back_alone(proc_root: &Path, socket: &Path) -> bool {
    let file = roots(proc_root, socket).before;
    if !file.exists() {
        return true;
    }
    let Ok(_lock) = control::lock(socket) else {
        return true;
    };
    put_back(proc_root, socket);
    !file.exists()
}

/// Logs each of these events.
pub(super) fn log(events: &[Event]) {
    for event in events {
        if event.is_warning() {
            tracing::warn!("{event}");
        } else {
            tracing::info!("{event}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_daemon_lent_is_put_back_where_none_can_run() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control");
        // A machine that is gone needs nothing.
        let left = serde_json::json!([{
            "place": { "machine": { "socket": "/nonexistent/qmp" } },
            "identity": { "inode": 1, "born": null },
            "value": "max",
        }]);
        let file = folder.path().join("control.limits");
        std::fs::write(&file, left.to_string()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).unwrap();
        let proc = Path::new("/proc");

        let running = control::lock(&socket).unwrap();
        assert!(
            put_back_alone(proc, &socket),
            "a daemon runs, which knows better"
        );
        assert!(file.exists());
        drop(running);
        assert!(put_back_alone(proc, &socket));
        assert!(!file.exists());
    }
}
