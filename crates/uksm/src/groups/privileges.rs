//! What a worker may do: nothing that takes a right.
//!
//! # Problem
//! A worker reads what other processes hold. Who takes one over should get no more than it needs.
//!
//! # Approach
//! The domain is opened first, which is all that takes a right: processes are attached, and programs that tell of I/O loaded, by the supervisor. Then
//! all capabilities go. Without new privileges (`PR_SET_NO_NEW_PRIVS`) no program that it could execute gets them back.
//! What calls are left to it says [`confinement`](super::confinement), later, when all is open.
//!
//! Capabilities are a thread's, so that this comes before other threads.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

/// Gives up what a worker does not need from now on.
///
/// # Errors
/// The kernel refuses.
pub(super) fn give_up() -> io::Result<()> {
    set_no_new_privs(true)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}
