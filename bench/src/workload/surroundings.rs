//! The environment of an unchanged program, set up before its start.

use crate::system::ksm::offer_all;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The environment of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings {
    /// Its memory is offered to in-kernel KSM.
    pub mergeable: bool,
    /// It has namespaces of its own, as in a container: mounts, host name, IPC, network, control
    /// groups. It has no namespace of process ids: that needs a process between, and the merging
    /// system sees the host's numbers anyway.
    pub contained: bool,
}

impl Surroundings {
    /// A process of the host.
    pub(crate) fn host(mergeable: bool) -> Surroundings {
        Surroundings {
            mergeable,
            contained: false,
        }
    }

    /// Makes the program start in this environment.
    pub(crate) fn set(self, command: &mut Command) {
        if self.mergeable {
            offer_all(command);
        }
        if self.contained {
            // SAFETY: contain only makes a system call, which a forked child may.
            unsafe {
                command.pre_exec(contain);
            }
        }
    }
}

fn contain() -> io::Result<()> {
    let kinds = libc::CLONE_NEWNS
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWCGROUP;
    // SAFETY: this call takes numbers only.
    match unsafe { libc::unshare(kinds) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
