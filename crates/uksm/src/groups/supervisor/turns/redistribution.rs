//! Redistribution: once a second, members of groups get freed memory, by limits and balloons.
//!
//! # Problem
//! The memory that a group freed changes all the time. No worker should be woken to report it, and
//! no worker may be trusted with it.
//!
//! # Approach
//! In each turn the groups with members are read from their domains (`domain_savings.rs`). The
//! supervisor, which is root outside of all groups, moves limits and balloons: no worker may. A
//! changed configuration takes effect with the next turn.
//!
//! # Units
//! Freed memory is in bytes. The memory that a worker takes is not subtracted: its payer is charged
//! for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use uksm_linux::clock;
use uksm_policy::command::{Nanos, PAGE_SIZE};
use uksm_redistribution::status::RedistributionStatus;
use uksm_redistribution::{Freed, FreedBy, Redistribution};

use crate::account::redistributed::{MemberAmounts, RedistributedTotals};
use crate::groups::supervisor::domain_savings::Savings;
use crate::groups::supervisor::original_limits::{log, roots};
use crate::groups::supervisor::worker_process::WorkerProcess;
use crate::setting::DaemonSettings;

/// Time between two turns.
const INTERVAL: Duration = Duration::from_secs(1);

/// Redistribution among all groups.
#[derive(Debug)]
pub(in crate::groups::supervisor) struct GroupRedistribution {
    redistribution: Redistribution,
    held: MemberAmounts,
    next: Instant,
}

impl GroupRedistribution {
    /// For a host whose processes are at `proc_root`, and a daemon with these settings.
    pub(in crate::groups::supervisor) fn new(
        proc_root: &Path,
        daemon: &DaemonSettings,
    ) -> GroupRedistribution {
        GroupRedistribution {
            redistribution: Redistribution::new(roots(proc_root, &daemon.socket), daemon.marks()),
            held: MemberAmounts::default(),
            next: Instant::now(),
        }
    }

    /// Time of the next turn, if there are members.
    pub(in crate::groups::supervisor) fn next(&self) -> Option<Instant> {
        (!self.redistribution.is_idle()).then_some(self.next)
    }

    /// The status, if there are groups with members.
    pub(in crate::groups::supervisor) fn status(&self) -> Option<RedistributionStatus> {
        let status = self.redistribution.status();
        (!status.groups.is_empty()).then_some(status)
    }

    /// Runs a turn, if it is time.
    pub(in crate::groups::supervisor) fn turn(
        &mut self,
        workers: &mut [WorkerProcess],
        now: Instant,
    ) {
        if now < self.next {
            return;
        }
        let settings = workers.iter().filter_map(|w| w.plan.giving.clone());
        let settings: Vec<_> = settings.collect();
        self.redistribution.follow(&settings);
        if self.redistribution.is_idle() {
            return;
        }
        self.next = now + INTERVAL;
        let has_members = |worker: &&mut WorkerProcess| worker.plan.giving.is_some();
        let mut giving: Vec<&mut WorkerProcess> = workers.iter_mut().filter(has_members).collect();
        read_savings(&mut giving);
        let freed = giving.iter().filter_map(|worker| {
            let reading = worker.savings.last.as_ref()?;
            Some((worker.plan.name.clone(), freed(reading)))
        });
        let mut changes = self.distribute(&freed.collect());
        for worker in workers {
            if let Some(change) = changes.remove(&worker.plan.name) {
                worker.account.given.add(change);
            }
        }
    }

    /// Distributes freed memory; answers the changes of members' memory by group.
    fn distribute(&mut self, freed: &Freed) -> BTreeMap<String, RedistributedTotals> {
        log(&self.redistribution.turn(clock::now(), freed));
        self.held.changes(&self.redistribution.status())
    }

    /// Puts all limits and balloons back.
    pub(in crate::groups::supervisor) fn end(&mut self) {
        log(&self.redistribution.release());
    }
}

/// Reads the savings of these groups into `DomainSavings::last` of each.
fn read_savings(workers: &mut [&mut WorkerProcess]) {
    let groups = Nanos::try_from(workers.len()).unwrap_or(Nanos::MAX);
    for worker in workers {
        let read = worker.read(groups);
        worker.savings.last = read.unwrap_or_else(|error| {
            tracing::debug!("group {}: it is not read: {error}", worker.plan.name);
            None
        });
    }
}

fn freed(reading: &Savings) -> FreedBy {
    FreedBy {
        bytes: reading.saved_pages * PAGE_SIZE,
        by_process: reading.by_process.clone(),
        copied: reading.broken_pages * PAGE_SIZE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_members_no_turn_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = DaemonSettings {
            socket: folder.path().join("control"),
            ..DaemonSettings::standard()
        };
        let mut turns = GroupRedistribution::new(Path::new("/proc"), &daemon);
        assert!(turns.status().is_none());
        turns.redistribution.follow(&[]);
        assert!(turns.next().is_none());
    }
}
