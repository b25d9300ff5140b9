//! Restrictions of a security module hold for the module, too.
//!
//! # Problem
//! The right to trace is not capabilities alone: security modules restrict it further. A process in
//! a sandbox that got an open domain must not learn about outside memory through the module.
//!
//! # Approach
//! Landlock lets any process put itself into a sandbox, whose members may trace only each other. A
//! child in one, with an open domain and every capability, tries to attach a process outside and
//! one inside.
//!
//! # Source
//! Documentation/userspace-api/landlock.rst of the kernel.

use rustix::io::Errno;

use super::Context;
use crate::fixtures::domain::Domain;
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, pause, signal, wait};
use crate::fixtures::requests::attach;

cases! { "sandbox":
    a_sandboxed_caller_attaches_nobody_outside Normal Stock 30,
}

const PAGES: usize = 16;
const SEED: u64 = 53;

/// Puts this process, and all that it forks, into a sandbox of its own.
///
/// # Panics
/// If the kernel has no Landlock.
fn enter_sandbox() {
    const CREATE_RULESET: i64 = 444;
    const RESTRICT_SELF: i64 = 446;
    /// The one right that is restricted: a rule set must have one.
    const MAKE_BLOCK_DEVICE: u64 = 1 << 11;
    let handled: u64 = MAKE_BLOCK_DEVICE;
    // SAFETY: PR_SET_NO_NEW_PRIVS touches no memory.
    let kept = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(kept, 0, "PR_SET_NO_NEW_PRIVS");
    // SAFETY: the attributes outlive the call and have the length given to it.
    let ruleset = unsafe { libc::syscall(CREATE_RULESET, &raw const handled, size_of::<u64>(), 0) };
    let error = std::io::Error::last_os_error();
    assert!(
        ruleset >= 0,
        "landlock_create_ruleset: {error}; is landlock in the kernel's list of security modules?"
    );
    // SAFETY: landlock_restrict_self touches no memory.
    let restricted = unsafe { libc::syscall(RESTRICT_SELF, ruleset, 0) };
    let error = std::io::Error::last_os_error();
    assert_eq!(restricted, 0, "landlock_restrict_self: {error}");
}

fn a_sandboxed_caller_attaches_nobody_outside(_: &mut Context) {
    let outside = Peer::filled(PAGES, SEED, PAGES);
    let domain = Domain::open();
    let try_both = |sandboxed: bool| {
        let child = fork(|| {
            if sandboxed {
                enter_sandbox();
            }
            let inside = fork(|| pause());
            let answers = (attach(&domain, outside.pid()), attach(&domain, inside));
            signal(inside, libc::SIGKILL);
            wait(inside);
            let expected = !sandboxed;
            match answers {
                (Ok(_), Ok(_)) if expected => 0,
                (Err(Errno::PERM), Ok(_)) if !expected => 0,
                other => {
                    eprintln!("attaching outside and inside answered {other:?}");
                    1
                }
            }
        });
        wait(child)
    };
    assert_eq!(try_both(false), 0, "without a sandbox both can be attached");
    // It is already known to this domain, so that even a query of its number takes the right.
    assert_eq!(
        try_both(true),
        0,
        "in a sandbox only what is inside can be attached"
    );
    let fresh = Domain::open();
    drop(domain);
    let child = fork(|| {
        enter_sandbox();
        i32::from(attach(&fresh, outside.pid()) != Err(Errno::PERM))
    });
    assert_eq!(wait(child), 0, "nor anybody that nobody has attached yet");
}
