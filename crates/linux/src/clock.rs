//! The clocks of this host, in the policy's nanoseconds.

use std::mem::MaybeUninit;

use rustix::io::Errno;
use rustix::thread::ClockId;
use uksm_policy::command::Nanos;

/// Time since an arbitrary start; does not jump (`CLOCK_MONOTONIC`).
#[must_use]
pub fn now() -> Nanos {
    read(ClockId::Monotonic)
}

/// Time since the machine's start, including suspension (`CLOCK_BOOTTIME`); start times of
/// processes count from there.
#[must_use]
pub fn since_boot() -> Nanos {
    read(ClockId::Boottime)
}

/// Processor time of the calling thread, user and kernel, including its calls into the module.
#[must_use]
pub fn thread_cpu() -> Nanos {
    read(ClockId::ThreadCPUTime)
}

/// Processor time of the whole process, user and kernel.
#[must_use]
pub fn process_cpu() -> Nanos {
    read(ClockId::ProcessCPUTime)
}

/// Processor time of another process with all its threads, user and kernel, even after its exit
/// until it is waited for.
///
/// # Errors
/// There is no such process.
pub fn process_cpu_of(pid: u32) -> Result<Nanos, Errno> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the call writes one clock id, for which there is room.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if error != 0 {
        return Err(Errno::from_raw_os_error(error));
    }
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call writes one time, for which there is room.
    if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
        return Err(last_error());
    }
    // SAFETY: the call has succeeded, and has written it.
    let time = unsafe { time.assume_init() };
    Ok(nanos(time.tv_sec, time.tv_nsec))
}

/// Processor time of all children that have ended and were waited for, user and kernel. Waiting for
/// a child adds the time of its whole life, as in wait4(2).
///
/// # Errors
/// The kernel refuses the call; no reason is known.
pub fn ended_children_cpu() -> Result<Nanos, Errno> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call writes one structure, for which there is room.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) } != 0 {
        return Err(last_error());
    }
    // SAFETY: the call has succeeded, and has written it.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| nanos(time.tv_sec, 1000 * time.tv_usec);
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

fn read(clock: ClockId) -> Nanos {
    let time = rustix::time::clock_gettime(clock);
    nanos(time.tv_sec, time.tv_nsec)
}

fn nanos(seconds: i64, rest: i64) -> Nanos {
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    part(seconds) * 1_000_000_000 + part(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_on_the_thread_clock_and_sleep_does_not() {
        let (cpu, wall) = (thread_cpu(), now());
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(now() - wall >= 30_000_000);
        let asleep = thread_cpu() - cpu;
        assert!(asleep < 20_000_000, "{asleep} ns of processor time asleep");
        let mut x = 1u64;
        while thread_cpu() - cpu < asleep + 1_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
    }

    #[test]
    fn a_childs_processor_time_is_the_same_while_it_lives_and_when_it_was_waited_for() {
        let work = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let mut child = std::process::Command::new("sh")
            .args(["-c", work])
            .spawn()
            .unwrap();
        let pidfd = crate::pidfd::open(child.id()).unwrap().unwrap();
        while !crate::pidfd::has_exited(&pidfd).unwrap() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let alive = process_cpu_of(child.id()).unwrap();
        // Other tests of this process may wait for their children meanwhile.
        let before = ended_children_cpu().unwrap();
        child.wait().unwrap();
        let ended = ended_children_cpu().unwrap() - before;
        assert!(alive > 1_000_000, "{alive} ns");
        assert!(ended + 2000 >= alive, "{ended} of {alive} ns");
        assert_eq!(process_cpu_of(child.id()), Err(Errno::SRCH));
    }
}
