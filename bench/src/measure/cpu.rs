//! CPU time of a process, in nanoseconds.
//!
//! # Problem
//! The times `utime` and `stime` come in ticks, and a run of a few seconds is counted against
//! another.
//!
//! # Approach
//! The kernel's CPU clock of a process (`clock_getcpuclockid(3)`) is the scheduler's sum over all
//! its threads, ended ones included; it works for kernel threads as well.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Ticks a second of /proc/PID/stat: USER_HZ.
const TICKS: f64 = 100.0;
/// The kernel's PID_MAX_LIMIT on 64-bit machines.
const PID_LIMIT: u32 = 4 << 20;

/// The CPU clock of one process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuClock {
    clock: libc::clockid_t,
}

impl CpuClock {
    /// The clock of process `pid`.
    pub(crate) fn of(pid: u32) -> Result<CpuClock> {
        // A clock's number holds the process id shifted: one that is too large would name another
        // clock.
        ensure!(pid <= PID_LIMIT, "process {pid}: no such process id");
        let pid_t = libc::pid_t::try_from(pid).context("process id out of range")?;
        let mut clock: libc::clockid_t = 0;
        // SAFETY: clock is a valid place for the answer.
        let error = unsafe { libc::clock_getcpuclockid(pid_t, &raw mut clock) };
        if error != 0 {
            let error = std::io::Error::from_raw_os_error(error);
            bail!("process {pid}: no CPU clock: {error}");
        }
        Ok(CpuClock { clock })
    }

    /// CPU time used so far.
    pub(crate) fn now(self) -> Result<Duration> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: time is a valid place for the answer.
        if unsafe { libc::clock_gettime(self.clock, &raw mut time) } != 0 {
            return Err(std::io::Error::last_os_error()).context("a measured process is gone");
        }
        let seconds = u64::try_from(time.tv_sec).context("negative CPU time")?;
        Ok(Duration::new(
            seconds,
            u32::try_from(time.tv_nsec).context("bad CPU time")?,
        ))
    }
}

/// CPU time of a process in user space and in the kernel, in seconds, to a tick (10 ms). The
/// kernel divides its exact clock by where the ticks fell.
pub(crate) fn split(pid: u32) -> Option<(f64, f64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and parentheses; behind the last one come plain fields.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11);
    let mut seconds = || Some(times.next()?.parse::<f64>().ok()? / TICKS);
    Some((seconds()?, seconds()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_advances_with_work_and_not_with_sleep() {
        let clock = CpuClock::of(std::process::id()).unwrap();
        let start = clock.now().unwrap();
        let mut value = 1_u64;
        while clock.now().unwrap() < start + Duration::from_millis(20) {
            value = crate::contents::mix(value);
        }
        assert_ne!(value, 0);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(CpuClock::of(PID_LIMIT).is_err());
        assert!(CpuClock::of(u32::MAX).is_err());
    }
}
