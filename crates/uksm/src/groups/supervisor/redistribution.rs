//! Redistribution among the members of groups: limits, balloons, and the time of the next turn.
//!
//! # Problem
//! The memory that a group freed changes all the time. No worker should be woken to report it, and
//! no worker may be trusted with it.
//!
//! # Approach
//! In each turn (`turns/redistribution_turn.rs`) the groups with members are read from their
//! domains (`domain_savings.rs`). The supervisor, which is root outside of all groups, moves limits
//! and balloons: no worker may. A changed configuration takes effect with the next turn.
//!
//! # Units
//! Freed memory is in bytes. The memory that a worker takes is not subtracted: its payer is charged
//! for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use uksm_linux::clock;
use uksm_redistribution::status::RedistributionStatus as GivingStatus;
use uksm_redistribution::{Event, Freed, Redistribution, Roots};

use crate::account::redistributed::{MemberAmounts, RedistributedTotals};
use crate::control;
use crate::groups::supervisor::placement::cgroup_tree;
use crate::setting::Daemon;

/// Time between two turns.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Redistribution among all groups.
#[derive(Debug)]
pub(super) struct GroupRedistribution {
    pub(super) redistribution: Redistribution,
    held: MemberAmounts,
    pub(super) next: Instant,
}

impl GroupRedistribution {
    /// For a host whose processes are at `proc_root`, and a daemon with these settings.
    pub(super) fn new(proc_root: &Path, daemon: &Daemon) -> GroupRedistribution {
        GroupRedistribution {
            redistribution: Redistribution::new(roots(proc_root, &daemon.socket), daemon.marks()),
            held: MemberAmounts::default(),
            next: Instant::now(),
        }
    }

    /// Time of the next turn, if there are members.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.redistribution.is_idle()).then_some(self.next)
    }

    /// The status, if there are groups with members.
    pub(super) fn status(&self) -> Option<GivingStatus> {
        let status = self.redistribution.status();
        (!status.groups.is_empty()).then_some(status)
    }

    /// Runs a turn; answers the changes of members' memory by group.
    pub(super) fn turn(&mut self, freed: &Freed) -> BTreeMap<String, RedistributedTotals> {
        log(&self.redistribution.turn(clock::now(), freed));
        self.held.changes(&self.redistribution.status())
    }

    /// Puts all limits and balloons back.
    pub(super) fn end(&mut self) {
        log(&self.redistribution.release());
    }
}

/// The original values are stored beside the control socket, in a folder that does not outlive the
/// machine either.
fn roots(proc_root: &Path, socket: &Path) -> Roots {
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

fn log(events: &[Event]) {
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
    fn nobody_to_give_anything_wakes_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = Daemon {
            socket: folder.path().join("control"),
            ..Daemon::standard()
        };
        let mut turns = GroupRedistribution::new(Path::new("/proc"), &daemon);
        assert!(turns.status().is_none());
        turns.redistribution.follow(&[]);
        assert!(turns.next().is_none());
    }

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
