//! Which system calls a worker may make: none that open anything.
//!
//! # Problem
//! A worker that is taken over should reach nothing but the domain whose file it has. Without capabilities it still could open files that
//! everybody may, make sockets, start programs, and signal what belongs to the same user.
//!
//! # Approach
//! A filter (seccomp) that is applied last, to all threads, when everything is open: memory, time, waiting, the files there are, and the verbs of the module.
//! Any other call fails with `EPERM`. It does not kill: a C library that tries a new call and falls back is not taken over.
//! Memory is never made executable.
//!
//! # Source
//! seccomp(2); the crate seccompiler makes the program.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Allowed whatever the arguments are.
const PLAIN: [i64; 40] = [
    // Files that are open, and the channel.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_poll,
    libc::SYS_ppoll,
    // Memory, but for what follows.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Time and waiting.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrusage,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    libc::SYS_getrandom,
    // Its own threads and signals, and its end.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_getaffinity,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// The bits of a request that say whose it is, and the module's.
const TYPE: u64 = 0xff00;
const OURS: u64 = 0xde00;

/// A call of which one argument must have these bits.
fn masked(argument: u8, mask: u64, value: u64) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let operator = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

fn program() -> Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        PLAIN.iter().map(|&call| (call, vec![])).collect();
    rules.insert(libc::SYS_ioctl, masked(1, TYPE, OURS)?);
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, masked(2, executable, 0)?);
    }
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = TargetArch::x86_64;
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch)?;
    Ok(filter.try_into()?)
}

/// From now on all threads of this process may do no more than work on what is open.
///
/// # Errors
/// The kernel has no seccomp, or refuses.
pub(super) fn confine() -> Result<(), seccompiler::Error> {
    seccompiler::apply_filter_all_threads(&program()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write as _;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;

    fn refused<T>(answer: std::io::Result<T>) -> bool {
        answer.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
    }

    #[test]
    fn what_is_open_works_and_nothing_can_be_opened() {
        // The filter is this thread's alone.
        let thread = std::thread::spawn(|| {
            let (mut here, there) = UnixStream::pair().unwrap();
            seccompiler::apply_filter(&program().unwrap()).unwrap();
            let own = std::process::id();
            let refusals = [
                refused(File::open("/dev/null")),
                refused(File::open("/proc/self/maps")),
                refused(UdpSocket::bind("127.0.0.1:0")),
                refused(UnixStream::pair()),
                refused(std::process::Command::new("/bin/true").spawn()),
                uksm_linux::pidfd::open(own).is_err(),
                refused(there.set_nonblocking(true)),
            ];
            let worked = here.write_all(b"x").is_ok() && vec![1u8; 64 << 20].len() == 64 << 20;
            (refusals, worked)
        });
        let (refusals, worked) = thread.join().unwrap();
        assert_eq!(refusals, [true; 7]);
        assert!(worked);
        File::open("/dev/null").unwrap();
    }
}
