//! The source of the guest's clock, and a check of it.
//!
//! # Problem
//! On a busy host the CPU time of an emulated guest differs by a quarter between runs.
//!
//! # Approach
//! QEMU can count the guest's instructions and make that number the guest's clock, a nanosecond
//! each. Then every clock in the guest, of CPU time as of the wall, counts instructions, and no
//! measurement here differs. The host names the guest's clock; before a result states it, a loop of
//! known length must have taken the expected time.
//!
//! # Units
//! Nanoseconds of CPU, which are instructions on such a clock.

use std::time::Duration;

use anyhow::{Result, ensure};
use uksm_results::clock::Clock;
use uksm_testkit::instructions::spin;

use super::cpu::CpuClock;

/// Runs of the loop; the least counts, since an occasional interrupt takes long.
const LOOPS: u32 = 5;
/// Rounds of the loop that is counted.
const ROUNDS: u64 = 5_000_000;
/// Instructions of a round.
const INSTRUCTIONS: u64 = 2;
/// Largest error of the loop, in percent: the kernel's timer interrupts it.
const TOLERANCE: u64 = 2;

/// The clock, if this machine's clock is of this kind.
///
/// # Errors
/// It must count instructions and does not. A clock of time is not checked.
pub(crate) fn verified(clock: Clock) -> Result<Clock> {
    if clock == Clock::Instructions {
        let expected = Duration::from_nanos(ROUNDS * INSTRUCTIONS);
        let own = CpuClock::of(std::process::id())?;
        let mut taken = Duration::MAX;
        for _ in 0..LOOPS {
            let begin = own.now()?;
            spin(ROUNDS);
            taken = taken.min(own.now()?.saturating_sub(begin));
        }
        ensure!(
            counts(expected, taken),
            "this machine's clock does not count instructions: {} of them took {} ns; \
             boot it by `uksm-vm run --count instructions`",
            expected.as_nanos(),
            taken.as_nanos()
        );
    }
    Ok(clock)
}

/// Whether this time for this number of instructions shows a clock that counts them.
fn counts(expected: Duration, taken: Duration) -> bool {
    taken.abs_diff(expected).as_nanos() * 100 <= expected.as_nanos() * u128::from(TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_by_more_than_interrupts_does_not_count_instructions() {
        let expected = Duration::from_micros(1000);
        assert!(counts(expected, Duration::from_micros(1019)));
        assert!(counts(expected, Duration::from_micros(981)));
        assert!(!counts(expected, Duration::from_micros(1021)));
        assert!(!counts(expected, Duration::from_micros(500)));
    }
}
