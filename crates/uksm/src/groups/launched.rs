//! The process of a worker, before it is told what to do.
//!
//! # Problem
//! To move a process to another control group the kernel waits for all processors to have passed through the scheduler: tens of
//! milliseconds each, unless the last move was just before. With hundreds of workers that are started one after the other, that is most of the start.
//!
//! # Approach
//! Many are started first, at most [`TOGETHER`], and then moved one right after the other. A process that was started waits
//! for the first order before it does anything that costs.
//!
//! # Source
//! `cgroup_attach_lock()`, kernel/cgroup/cgroup.c; the option `favordynmods` of the control groups' file system.

use std::io;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;

use super::channel::Channel;

/// So many are started before they are moved: they wait for that, and not for ever.
pub(super) const TOGETHER: usize = 64;

/// Where a worker is booked if its control group has others below it, which forbids processes in it.
const CHILD: &str = "uksm";

/// A process that waits to be told what to do.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) child: Child,
    pub(super) channel: Channel,
}

impl Launched {
    /// Starts one.
    ///
    /// # Errors
    /// The kernel has no process or no descriptor for it.
    pub(super) fn start() -> io::Result<Launched> {
        let (channel, theirs) = Channel::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg("worker")
            // systemd speaks with the supervisor.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::from(theirs.into_file()))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Launched { child, channel })
    }
}

/// Moves a process into a control group; if that has others below it, into one of our own there.
///
/// # Errors
/// There is no such control group, or it takes no process.
pub(super) fn place(pid: u32, folder: &str) -> io::Result<()> {
    let into = |folder: &str| std::fs::write(format!("{folder}/cgroup.procs"), pid.to_string());
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{folder}: {error}"));
    match into(folder) {
        // Control groups that hand resources down hold no processes.
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
            let child = format!("{folder}/{CHILD}");
            match std::fs::create_dir(&child) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(named(error));
                }
                _ => {}
            }
            into(&child).map_err(named)
        }
        answer => answer.map_err(named),
    }
}
