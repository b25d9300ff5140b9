//! Programs whose memory in-kernel KSM may merge, without a change to them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `prctl(PR_SET_MEMORY_MERGE)`, Linux 6.4: offers all of a process to in-kernel KSM. It survives
/// exec, so a program needs no change.
const PR_SET_MEMORY_MERGE: libc::c_int = 67;

/// Makes a program offer all its memory to in-kernel KSM at its start, as do the processes that it
/// starts.
pub(crate) fn offer_all(command: &mut Command) {
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
