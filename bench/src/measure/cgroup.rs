//! Control groups as a measure: the total of all processes of one, also of those that have ended.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use uksm_testkit::control_group;

/// A control group whose processes have been ended is removed within this time.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Removes a control group whose processes have been ended.
pub(crate) fn remove(folder: &Path) {
    if let Err(error) = control_group::remove(folder, REMOVAL_TIMEOUT) {
        eprintln!("a control group stays: {error}");
    }
}

/// A control group of an application, until it is dropped.
pub(crate) struct AppCgroup(PathBuf);

impl AppCgroup {
    /// Makes it.
    pub(crate) fn make(name: &str) -> Result<AppCgroup> {
        Ok(AppCgroup(control_group::create(name)?))
    }

    /// Runs `start` in it.
    pub(crate) fn start<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        control_group::run_within(&self.0, start)?
    }

    /// Processor time of all processes started in it.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        Ok(control_group::cpu_time(&self.0)?)
    }
}

impl Drop for AppCgroup {
    fn drop(&mut self) {
        remove(&self.0);
    }
}
