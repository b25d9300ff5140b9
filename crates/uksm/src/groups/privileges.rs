//! What a worker may do: trace the processes of its group, and nothing else that takes a right.
//!
//! # Problem
//! A worker reads what other processes hold. Who takes one over should get no more than it needs.
//!
//! # Approach
//! The device and the kernel's events are opened first. Then all capabilities go but `CAP_SYS_PTRACE`, by which processes are
//! attached and their mappings are read, and those that load programs if hints are on. Without new privileges
//! (`PR_SET_NO_NEW_PRIVS`) no program that it could execute gets them back.
//!
//! Capabilities are a thread's, so that this comes before other threads.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

/// Gives up what a worker does not need from now on.
///
/// # Errors
/// The kernel refuses.
pub(super) fn give_up(are_hints_on: bool) -> io::Result<()> {
    set_no_new_privs(true)?;
    let mut needed = CapabilitySet::SYS_PTRACE;
    if are_hints_on {
        needed |= CapabilitySet::SYS_ADMIN | CapabilitySet::BPF | CapabilitySet::PERFMON;
    }
    let kept = needed & capabilities(None)?.permitted;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}
