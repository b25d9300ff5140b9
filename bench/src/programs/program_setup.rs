//! The environment of an unchanged program, set up before its start.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `prctl(PR_SET_MEMORY_MERGE)`, Linux 6.4: offers all of a process to in-kernel KSM. It survives
/// exec, so a program needs no change.
const PR_SET_MEMORY_MERGE: libc::c_int = 67;

/// The environment of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramSetup {
    /// Its memory is offered to in-kernel KSM.
    pub mergeable: bool,
    /// It has namespaces of its own, as in a container: mounts, host name, IPC, network, control
    /// groups. It has no namespace of process ids: that needs a process between, and the merging
    /// system sees the host's numbers anyway.
    pub contained: bool,
}

impl ProgramSetup {
    /// A process of the host.
    pub(crate) fn host(mergeable: bool) -> ProgramSetup {
        ProgramSetup {
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

/// Makes a program offer all its memory to in-kernel KSM at its start, as do the processes that it
/// starts.
fn offer_all(command: &mut Command) {
    // SAFETY: offer only makes a system call, which a forked child may.
    unsafe {
        command.pre_exec(offer);
    }
}

fn offer() -> io::Result<()> {
    // SAFETY: this prctl takes numbers only.
    match unsafe { libc::prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
