//! The scan-time advisor of in-kernel KSM: it sets the number of pages scanned at a time after each
//! full scan.
//!
//! # Source
//! `mm/ksm.c` of Linux 6.12: `scan_time_advisor`.

use uksm_policy::command::Nanos;

/// The scan-time advisor (`scan_time_advisor`), with the kernel's defaults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Advisor {
    begun: Nanos,
    spent: Nanos,
    scan_seconds: u64,
    change: u64,
}

impl Advisor {
    const TARGET_SECONDS: u64 = 200;
    const MIN_CPU: u64 = 10;
    const MAX_CPU: u64 = 70;
    const MAX_PAGES: u64 = 30_000;
    /// `pages_to_scan` when the advisor begins.
    pub const FIRST_PAGES: u64 = 500;

    /// The next `pages_to_scan`, after a full scan.
    pub(super) fn advise(&mut self, now: Nanos, spent: Nanos, pages: u64) -> u64 {
        let weighted = |before: u64, now: u64| (70 * before + 30 * now) / 100;
        let seconds = ((now - self.begun) / 1_000_000_000).max(1);
        let milliseconds = (spent - self.spent) / 1_000_000;
        let percent = (milliseconds * 100 / (seconds * 1000)).max(1);
        let last = if self.scan_seconds == 0 {
            seconds
        } else {
            self.scan_seconds
        };
        let factor = (Self::TARGET_SECONDS * 100 / seconds).max(1);
        let change = weighted(self.change, (seconds * 100 / last).max(1));
        let a_percent = (pages / percent).max(1);
        *self = Advisor {
            begun: now,
            spent,
            scan_seconds: seconds,
            change,
        };
        let wanted = pages * 100 / factor * change / 100;
        let least = a_percent * Self::MIN_CPU;
        let bounded = wanted.min(a_percent * Self::MAX_CPU).max(least);
        bounded.min(Self::MAX_PAGES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advisor_raises_the_rate_where_a_scan_takes_longer_than_wanted() {
        let mut advisor = Advisor::default();
        let second = 1_000_000_000;
        let mut pages = Advisor::FIRST_PAGES;
        for scan in 1..=8 {
            pages = advisor.advise(scan * 2000 * second, scan * 400 * second, pages);
        }
        assert!(pages > 2 * Advisor::FIRST_PAGES, "{pages}");
    }
}
