//! Control groups as a measure: the total of all processes of one.
//!
//! Problem: an application may be several processes, some of which end before a look. Approach: the
//! starting process is in the control group during the start, so that all started processes are as
//! well. The kernel's sum (`cpu.stat`) includes those that have ended.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The mount point of control groups, version 2.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";
/// Control groups are busy until the last of their processes is reaped.
const BUSY: Duration = Duration::from_secs(5);

/// Writes a file of a control group.
pub(crate) fn set(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).with_context(|| format!("{}: cannot write '{value}'", path.display()))
}

/// Processor time of a control group, with all below.
pub(crate) fn cpu(folder: &Path) -> Result<Duration> {
    let path = folder.join("cpu.stat");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut lines = text.lines();
    let micros = lines.find_map(|line| line.strip_prefix("usage_usec "));
    let micros = micros.and_then(|text| text.parse().ok());
    let micros = micros.with_context(|| format!("{}: no usage_usec", path.display()))?;
    Ok(Duration::from_micros(micros))
}

/// Removes a control group whose processes have been ended.
pub(crate) fn remove(folder: &Path) {
    let begin = Instant::now();
    while let Err(error) = fs::remove_dir(folder) {
        if begin.elapsed() > BUSY {
            eprintln!("{}: stays: {error}", folder.display());
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A control group of an application, until it is dropped.
pub(crate) struct Counted(PathBuf);

impl Counted {
    /// Makes it.
    pub(crate) fn make(name: &str) -> Result<Counted> {
        let folder = Path::new(ROOT).join(name);
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Counted(folder))
    }

    /// Runs `start` in it.
    pub(crate) fn start<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        // 0 is the writing process.
        set(&self.0.join("cgroup.procs"), "0")?;
        let started = start();
        set(&Path::new(ROOT).join("cgroup.procs"), "0")?;
        started
    }

    /// Processor time of all processes started in it.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu(&self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        remove(&self.0);
    }
}
