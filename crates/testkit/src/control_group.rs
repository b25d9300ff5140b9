//! Control groups, version 2: made, entered, measured and removed.
//!
//! An application may be several processes, some of which end before a look. The process that
//! starts them is in the control group during the start ([`run_within`]), so all started processes
//! are as well, and the kernel's sum ([`cpu_time`]) includes those that have ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::kernel_file;

/// The mount point.
pub const ROOT: &str = "/sys/fs/cgroup";

const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Makes a group below the root; returns its folder.
///
/// # Errors
/// There is one of this name, or no right.
pub fn create(name: &str) -> io::Result<PathBuf> {
    let folder = Path::new(ROOT).join(name);
    fs::create_dir(&folder).map_err(|error| kernel_file::at_path(&folder, &error))?;
    Ok(folder)
}

/// Does `work` with this process in the group; the process then returns to the root.
///
/// # Errors
/// The process cannot be moved.
pub fn run_within<T>(folder: &Path, work: impl FnOnce() -> T) -> io::Result<T> {
    // 0 is the writing process.
    kernel_file::write(folder.join("cgroup.procs"), "0")?;
    let result = work();
    kernel_file::write(Path::new(ROOT).join("cgroup.procs"), "0")?;
    Ok(result)
}

/// Processor time of a group, with all below.
///
/// # Errors
/// The kernel does not count it.
pub fn cpu_time(folder: &Path) -> io::Result<Duration> {
    let micros = kernel_file::number(folder.join("cpu.stat"), "usage_usec")?;
    Ok(Duration::from_micros(micros))
}

/// Removes a group whose processes have been ended: it is busy until the last of them is reaped and
/// its pages are uncharged.
///
/// # Errors
/// It is still busy after `time_limit`.
pub fn remove(folder: &Path, time_limit: Duration) -> io::Result<()> {
    let begin = Instant::now();
    while let Err(error) = fs::remove_dir(folder) {
        if begin.elapsed() > time_limit {
            return Err(kernel_file::at_path(folder, &error));
        }
        sleep(RETRY_INTERVAL);
    }
    Ok(())
}
