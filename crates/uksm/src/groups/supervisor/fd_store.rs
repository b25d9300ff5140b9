//! The domains of groups outlive the supervisor in systemd's file-descriptor store.
//!
//! # Problem
//! A domain lives as long as its file is open somewhere. When the supervisor ends and is started
//! again, as by an update, its frames would become orphans.
//!
//! # Approach
//! systemd stores files for a service (`FileDescriptorStoreMax=`) and passes them to its next
//! process, by name. Each domain is stored when it is made, and goes back to the group of that name
//! if its constants are those of the group: seed, policy, limits. They can no longer be changed. A
//! domain that does not fit, or whose group is gone, is dropped here and in the store, after all
//! its processes were detached: otherwise they could be attached nowhere. Without systemd nothing
//! is stored.
//!
//! # Source
//! sd_notify(3), sd_listen_fds(3).

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::PathBuf;

use sd_notify::NotifyState;
use uksm_linux::module::{Device, Info};
use uksm_policy::report::counted;

use crate::config::plan::Plan;
use crate::groups::supervisor::audit;

/// Prefix of a group's name, which distinguishes these files from others that systemd stores.
const PREFIX: &str = "domain-";

/// Maximum number of files in the packaged unit (`FileDescriptorStoreMax=`); systemd before 254
/// does not report its limit.
const PACKAGED_MAX_FILES: usize = 1024;

/// The files of domains that systemd has stored, by group.
pub(super) fn stored() -> BTreeMap<String, OwnedFd> {
    let files = match sd_notify::listen_fds_with_names() {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!("cannot take back the frames that systemd stores: {error}");
            return BTreeMap::new();
        }
    };
    let mut stored = BTreeMap::new();
    for (file, name) in files {
        // SAFETY: systemd opened it for this process, and no other code here takes such files.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        if let Some(group) = name.strip_prefix(PREFIX)
            && let Some(other) = stored.insert(group.to_owned(), file)
        {
            // The store removes files by name only: this one stays there, without processes.
            detach(group, other);
        }
    }
    stored
}

/// The domain of a group, if the file is one and has the constants of the group, with which
/// `fresh`, a new domain, could be configured. Processes of an earlier supervisor are detached, and
/// attached again later. Otherwise the file is dropped; pages of its processes stay shared, with a
/// warning if the plan may forbid that.
pub(super) fn of_plan(
    file: OwnedFd,
    (plan, seed): (&Plan, u64),
    fresh: Option<&Info>,
) -> Option<Device> {
    let path = plan.resolved.daemon.device.clone();
    let (why, keeps_policy) = match Device::from_file(file, path) {
        Err(error) => (error.to_string(), true),
        Ok(device) => match fit(&device, plan, seed, fresh) {
            Ok(()) => return Some(device),
            Err(why) => {
                let info = device.info();
                if let Err(error) = device.detach_all() {
                    tracing::warn!("group {}: {error}", plan.name);
                }
                (why, info.is_ok_and(|info| audit::keeps(plan, &info)))
            }
        },
    };
    tracing::info!(
        "group {}: gets a new domain, the one that systemd stored is given up: {why}",
        plan.name
    );
    if !keeps_policy {
        tracing::warn!(
            "{}",
            stays_shared(&plan.name, "was merged by another policy")
        );
    }
    remove(&plan.name);
    None
}

/// Detaches all processes of a domain that fits.
///
/// # Errors
/// It does not fit: the reason, in a few words.
fn fit(device: &Device, plan: &Plan, seed: u64, fresh: Option<&Info>) -> Result<(), String> {
    let info = device.info().map_err(|error| error.to_string())?;
    if info.hash_seed != seed {
        return Err("it has another seed".to_owned());
    }
    if !audit::keeps(plan, &info) {
        return Err("it has another merge, merge_spaces or merge_across_nodes".to_owned());
    }
    if !audit::has_limits(plan, &info, fresh) {
        return Err("it has another max_frames or max_sharers".to_owned());
    }
    device.detach_all().map_err(|error| error.to_string())
}

/// Drops a domain that no group has any more.
pub(super) fn give_up(group: &str, file: OwnedFd) {
    let device = Device::from_file(file, PathBuf::from(PREFIX));
    let given_up = device.and_then(|device| {
        let frames = device.info()?.frames;
        device.detach_all()?;
        Ok(frames)
    });
    match given_up {
        Ok(0) => {}
        Ok(_) => tracing::warn!("{}", stays_shared(group, "is not a group any more")),
        Err(error) => {
            tracing::warn!("group {group}: cannot give up the frames that systemd stores: {error}");
        }
    }
    remove(group);
}

/// The advice about pages that an earlier daemon merged, and that may no longer be shared. They
/// cannot be broken automatically: the processes of the group are not stored.
fn stays_shared(group: &str, why: &str) -> String {
    format!(
        "group {group}: {why}, and its processes share their pages until they write them or end: \
         give them their own pages by `uksm break` (--cgroup, --unit, --comm), then restart the \
         daemon; `uksm reload` breaks such pages by itself"
    )
}

/// Detaches all processes of a domain, even if others have its file.
fn detach(group: &str, file: OwnedFd) {
    let device = Device::from_file(file, PathBuf::from(PREFIX));
    if let Err(error) = device.and_then(|device| device.detach_all()) {
        tracing::warn!("group {group}: cannot give up the frames that systemd stores: {error}");
    }
}

/// The warning that there are more groups than systemd stores frames of.
#[derive(Debug, Default)]
pub(super) struct FullStoreWarning {
    was_logged: bool,
}

impl FullStoreWarning {
    /// Logs it when this number of groups is the first that is too large.
    pub(super) fn check(&mut self, groups: usize) {
        let max_files = max_files().filter(|&max| groups > max);
        if let Some(max) = max_files
            && !self.was_logged
        {
            tracing::warn!(
                "{}, and systemd keeps the frames of {max} over a restart: raise FileDescriptorStoreMax= of the unit, or lower most of a rule",
                counted(groups as u64, "group", "groups")
            );
        }
        self.was_logged = max_files.is_some();
    }
}

/// The maximum number of files that systemd stores; none without systemd.
fn max_files() -> Option<usize> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let reported = std::env::var("FDSTORE").ok();
    Some(
        reported
            .and_then(|text| text.parse().ok())
            .unwrap_or(PACKAGED_MAX_FILES),
    )
}

/// Stores the domain of a group with systemd.
pub(super) fn store(group: &str, file: BorrowedFd<'_>) {
    let name = format!("{PREFIX}{group}");
    let state = [NotifyState::FdStore, NotifyState::FdName(&name)];
    if let Err(error) = sd_notify::notify_with_fds(&state, &[file]) {
        tracing::warn!("group {group}: systemd does not keep its frames: {error}");
    }
}

/// Removes the domain of a group from the store.
pub(super) fn remove(group: &str) {
    let name = format!("{PREFIX}{group}");
    let state = [NotifyState::FdStoreRemove, NotifyState::FdName(&name)];
    if let Err(error) = sd_notify::notify(&state) {
        tracing::debug!("cannot notify systemd: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_about_shared_pages_names_the_remedy() {
        let line = stays_shared("web", "was merged by another policy");
        for words in [
            "group web: ",
            "share their pages",
            "`uksm break`",
            "`uksm reload`",
        ] {
            assert!(line.contains(words), "{line}");
        }
    }
}
