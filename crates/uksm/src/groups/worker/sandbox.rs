//! The sandbox of a worker: no capabilities, and a filter of system calls that allows only its
//! memory, its time, its open files and the calls of the module.
//!
//! # Problem
//! A worker reads the memory of other processes. A compromised worker must reach nothing but the
//! domain whose file it has. Without capabilities it is still of user 0. It could open files that
//! everybody may open, make sockets, start programs, and end every process of root. By
//! `fcntl(F_SETOWN)` the kernel would even send SIGKILL on its behalf to processes of all users:
//! `sigio_perm()` asks user 0 for no capability.
//!
//! # Approach
//! The domain is opened first, which is all that takes a capability: the supervisor attaches
//! processes and loads programs that report I/O. Then all capabilities go. Without new privileges
//! (`PR_SET_NO_NEW_PRIVS`) no program that the worker could execute gets them back. Capabilities
//! belong to a thread, so they go before other threads start.
//!
//! A filter (seccomp) is applied last, to all threads, when everything is open. A call that is not
//! listed fails with `EPERM`, and so does a listed call whose arguments ([`Arguments`]) lead out of
//! the process. The filter does not kill: a C library may try a new call and fall back. Memory is
//! never made executable.
//!
//! Messages leave by sendto(2) without an address: sendmsg(2) can carry an address, credentials and
//! files, which a filter cannot see.
//!
//! # Source
//! seccomp(2); the crate seccompiler makes the program.

use std::collections::BTreeMap;
use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};
use uksm_linux::module::WORKER_CALLS;

/// Gives up all capabilities of this thread, before others start.
///
/// # Errors
/// The kernel refuses.
pub(super) fn give_up_capabilities() -> io::Result<()> {
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

/// Calls that are allowed with any arguments.
const PLAIN: [i64; 30] = [
    // Open files, and the channel.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_close,
    libc::SYS_poll,
    libc::SYS_ppoll,
    // Memory, except for calls below.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    // Time and waiting.
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrusage,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    libc::SYS_getrandom,
    // Its own threads and signals, and its end.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_clock_getres,
];

/// Descriptors are queried and copied. Nothing else of fcntl(2): it can name processes that get a
/// signal (`F_SETOWN`), leases and locks.
const FCNTL: [i32; 4] = [
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_DUPFD_CLOEXEC,
];

/// Waiting and waking, as in the standard and the C library; none of the operations with priorities
/// or two words.
const FUTEX: [i32; 4] = [
    libc::FUTEX_WAIT,
    libc::FUTEX_WAKE,
    libc::FUTEX_WAIT_BITSET,
    libc::FUTEX_WAKE_BITSET,
];

/// Memory given back, and huge pages; no advice that lets in-kernel KSM compare it with other
/// processes.
const MADVISE: [i32; 4] = [
    libc::MADV_DONTNEED,
    libc::MADV_FREE,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
];

/// The last clock that belongs to no process: clocks of other processes and of files have negative
/// numbers.
const LAST_CLOCK: i32 = libc::CLOCK_TAI;

/// A condition on an argument of a call.
enum Arguments {
    /// This argument, without these bits, is one of these numbers.
    OneOf(u8, u32, Vec<u32>),
    /// This argument is at most this number, unsigned.
    AtMost(u8, u32),
    /// This pointer is null.
    Null(u8),
    /// None of these bits in any of these arguments.
    Without(Vec<(u8, i32)>),
}

impl Arguments {
    fn one_of(argument: u8, numbers: &[i32]) -> Arguments {
        Arguments::OneOf(
            argument,
            0,
            numbers.iter().map(|&n| n.cast_unsigned()).collect(),
        )
    }

    fn rules(&self) -> Result<Vec<SeccompRule>, Error> {
        let condition = |argument, operator, value: u32| {
            let length = SeccompCmpArgLen::Dword;
            SeccompCondition::new(argument, length, operator, u64::from(value))
        };
        let masked = |bits: u32| SeccompCmpOp::MaskedEq(u64::from(bits));
        let rule = |conditions: Vec<SeccompCondition>| SeccompRule::new(conditions);
        match self {
            Arguments::OneOf(argument, without, numbers) => numbers
                .iter()
                .map(|&number| Ok(rule(vec![condition(*argument, masked(!without), number)?])?))
                .collect(),
            Arguments::AtMost(argument, most) => Ok(vec![rule(vec![condition(
                *argument,
                SeccompCmpOp::Le,
                *most,
            )?])?]),
            Arguments::Null(argument) => {
                let length = SeccompCmpArgLen::Qword;
                let null = SeccompCondition::new(*argument, length, SeccompCmpOp::Eq, 0)?;
                Ok(vec![rule(vec![null])?])
            }
            Arguments::Without(bits) => {
                let each = bits
                    .iter()
                    .map(|&(argument, bits)| condition(argument, masked(bits.cast_unsigned()), 0));
                Ok(vec![rule(each.collect::<Result<_, _>>()?)?])
            }
        }
    }
}

/// Calls that can lead out of the process, and conditions that prevent it.
fn bounded_calls(own_pid: u32) -> [(i64, Arguments); 11] {
    let flags_of_futex = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME).cast_unsigned();
    let futex = FUTEX.iter().map(|&n| n.cast_unsigned()).collect();
    let clock = || Arguments::AtMost(0, LAST_CLOCK.cast_unsigned());
    // No executable memory, and none of the host's reserves.
    let reserved = libc::MAP_HUGETLB | libc::MAP_LOCKED;
    [
        (
            libc::SYS_ioctl,
            Arguments::OneOf(1, 0, WORKER_CALLS.to_vec()),
        ),
        (libc::SYS_fcntl, Arguments::one_of(1, &FCNTL)),
        (libc::SYS_sendto, Arguments::Null(4)),
        (libc::SYS_tgkill, Arguments::OneOf(0, 0, vec![own_pid])),
        (libc::SYS_futex, Arguments::OneOf(1, flags_of_futex, futex)),
        (libc::SYS_madvise, Arguments::one_of(2, &MADVISE)),
        (
            libc::SYS_mmap,
            Arguments::Without(vec![(2, libc::PROT_EXEC), (3, reserved)]),
        ),
        (
            libc::SYS_mprotect,
            Arguments::Without(vec![(2, libc::PROT_EXEC)]),
        ),
        (libc::SYS_sched_getaffinity, Arguments::one_of(0, &[0])),
        (libc::SYS_clock_gettime, clock()),
        (libc::SYS_clock_nanosleep, clock()),
    ]
}

/// Rules of allowed calls; a call without rules is allowed with any arguments.
type AllowedCalls = BTreeMap<i64, Vec<SeccompRule>>;

/// The calls that the process with this id may make.
fn allowed(own_pid: u32) -> Result<AllowedCalls, Error> {
    let mut allowed: AllowedCalls = PLAIN.iter().map(|&call| (call, vec![])).collect();
    for (call, arguments) in bounded_calls(own_pid) {
        allowed.insert(call, arguments.rules()?);
    }
    Ok(allowed)
}

/// The filter that refuses all other calls.
fn program(allowed: AllowedCalls) -> Result<BpfProgram, Error> {
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = TargetArch::x86_64;
    let filter = SeccompFilter::new(allowed, refuse, SeccompAction::Allow, arch)?;
    Ok(filter.try_into()?)
}

/// Applies the filter to all threads of this process.
///
/// # Errors
/// The kernel has no seccomp, or refuses.
pub(super) fn confine() -> Result<(), Error> {
    seccompiler::apply_filter_all_threads(&program(allowed(std::process::id())?)?)
}

#[cfg(test)]
mod tests;
