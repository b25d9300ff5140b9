//! The domains of groups outlive the supervisor in systemd's file-descriptor store.
//!
//! # Problem
//! A domain lives as long as its file is open somewhere. When the supervisor ends and is started again, as by an update, its
//! frames would become orphans.
//!
//! # Approach
//! systemd keeps files for a service (`FileDescriptorStoreMax=`) and hands them to its next process, by name. Each domain is
//! given to it as it is made, and taken back by the group of that name if it has the same seed: a group that is
//! gone, or that has another seed by now, lets go of it. Without systemd nothing is kept.
//!
//! # Source
//! sd_notify(3), sd_listen_fds(3).

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd};

use sd_notify::NotifyState;
use uksm_linux::module::Device;

use super::{Plan, audit};

/// Stands before a group's name, so that systemd's other files are told apart.
const PREFIX: &str = "domain-";

/// The files of domains that systemd has kept, by group.
pub(super) fn kept() -> BTreeMap<String, OwnedFd> {
    let files = match sd_notify::listen_fds_with_names() {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!("what systemd has kept cannot be had: {error}");
            return BTreeMap::new();
        }
    };
    let mut kept = BTreeMap::new();
    for (file, name) in files {
        // SAFETY: systemd opened it for this process, and nobody else here takes such files.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        if let Some(group) = name.strip_prefix(PREFIX) {
            kept.insert(group.to_owned(), file);
        }
    }
    kept
}

/// The domain of a group, if it is one and has this seed and its policy. What an earlier supervisor had attached this one attaches anew.
pub(super) fn of_plan(file: OwnedFd, plan: &Plan, seed: u64) -> Option<Device> {
    let device = Device::from_file(file, plan.resolved.daemon.device.clone()).ok()?;
    let info = device.info().ok()?;
    let is_same = info.hash_seed == seed && audit::keeps(plan, &info);
    (is_same && device.detach_all().is_ok()).then_some(device)
}

/// Has systemd keep the domain of a group.
pub(super) fn keep(group: &str, file: BorrowedFd<'_>) {
    let name = format!("{PREFIX}{group}");
    let state = [NotifyState::FdStore, NotifyState::FdName(&name)];
    if let Err(error) = sd_notify::notify_with_fds(&state, &[file]) {
        tracing::warn!("group {group}: systemd does not keep its frames: {error}");
    }
}

/// Has systemd let go of the domain of a group.
pub(super) fn let_go(group: &str) {
    let name = format!("{PREFIX}{group}");
    let state = [NotifyState::FdStoreRemove, NotifyState::FdName(&name)];
    if let Err(error) = sd_notify::notify(&state) {
        tracing::debug!("systemd was not told: {error}");
    }
}
