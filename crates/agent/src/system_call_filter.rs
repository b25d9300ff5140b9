//! Whether a filter of system calls is active for this process.
//!
//! # Problem
//! A filter (seccomp) may kill the process for a system call that the program itself never makes.
//!
//! # Approach
//! Before the thread starts, the process's status is read, with system calls that the dynamic
//! linker has just made. The thread then asks the kernel for its own mode, before each action.
//!
//! # Source
//! `proc_pid_status(5)` (`Seccomp`), seccomp(2).

use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{SecureComputingMode, secure_computing_mode};

/// Whether the program was started with a filter of system calls, or that is unknown. It uses only
/// system calls that the dynamic linker has just made to load this library, which no such filter
/// kills for.
pub(crate) fn starts_filtered() -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = open(c"/proc/self/status", flags, Mode::empty()) else {
        return true;
    };
    let mut text = [0u8; 4096];
    let length = rustix::io::read(&file, &mut text).unwrap_or(0);
    has_filter(text.get(..length).unwrap_or_default())
}

/// Whether a process has a filter, by the beginning of its status, or the status lacks that line.
fn has_filter(status: &[u8]) -> bool {
    let mut lines = status.split(|&byte| byte == b'\n');
    let mode = lines.find_map(|line| line.strip_prefix(b"Seccomp:"));
    mode.is_none_or(|mode| mode.trim_ascii() != b"0")
}

/// Whether a filter of system calls is active for this thread: then nothing more is tried.
pub(crate) fn is_filtered() -> bool {
    !secure_computing_mode().is_ok_and(|mode| mode == SecureComputingMode::Disabled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_from_the_status_of_the_process() {
        assert!(!starts_filtered() || is_filtered());
        assert!(!has_filter(b"Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"));
        assert!(has_filter(b"Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(has_filter(b"Name:\tSeccomp:\t0\nSeccomp:\t1\n"));
        assert!(has_filter(b"Name:\tx\n"), "not known");
    }
}
