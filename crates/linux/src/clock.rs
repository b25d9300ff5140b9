//! The clocks of this host, in the policy's nanoseconds.

use rustix::thread::ClockId;
use uksm_policy::command::Nanos;

/// Time since an arbitrary start; does not jump (`CLOCK_MONOTONIC`).
#[must_use]
pub fn now() -> Nanos {
    read(ClockId::Monotonic)
}

/// Time since the machine was started, sleep included (`CLOCK_BOOTTIME`), which is what the start
/// times of processes count from.
#[must_use]
pub fn since_boot() -> Nanos {
    read(ClockId::Boottime)
}

/// Processor time of the calling thread, user and kernel: what a call into the module took is in.
#[must_use]
pub fn thread_cpu() -> Nanos {
    read(ClockId::ThreadCPUTime)
}

/// Processor time of the whole process, user and kernel.
#[must_use]
pub fn process_cpu() -> Nanos {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Nanos {
    let time = rustix::time::clock_gettime(clock);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
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
}
