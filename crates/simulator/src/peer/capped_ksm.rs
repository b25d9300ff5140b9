//! KSM capped at a share of a core, as the guest experiments cap it: by its batch.
//!
//! At intervals the batch is made larger or smaller, by the share of its budget that ksmd used; any
//! excess or shortfall since the start is compensated within a few seconds.

use uksm_policy::command::Nanos;

/// Time between two changes.
const INTERVAL: Nanos = 400_000_000;
/// Time in which a shortfall is compensated.
const CATCH_UP: i64 = 3_000_000_000;
/// Largest batch.
const MAX_PAGES: u64 = 100_000;
/// Unit of shares: millionths of a core.
const CORE: i64 = 1_000_000;

/// The regulator of ksmd.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchControl {
    share: i64,
    batch: u64,
    changed: Nanos,
    /// CPU spent at that time.
    spent: Nanos,
}

impl BatchControl {
    /// A regulator for a share in percent, from a batch on.
    pub(super) fn new(percent: u32, pages_to_scan: u64) -> BatchControl {
        BatchControl {
            share: i64::from(percent) * CORE / 100,
            batch: pages_to_scan,
            changed: 0,
            spent: 0,
        }
    }

    /// The next batch, if `spent` was spent since the start.
    pub(super) fn batch(&mut self, now: Nanos, spent: Nanos) -> u64 {
        let wall = signed(now - self.changed);
        if now - self.changed >= INTERVAL {
            let used = signed(spent - self.spent) * CORE / wall;
            let used = used.max(self.share / 100);
            let owed = self.share * (signed(now) / CORE) - signed(spent);
            let aim = self.share + owed * 1000 / (CATCH_UP / 1000);
            let aim = aim.clamp(self.share / 4, self.share * 2);
            let thousandths = (aim * 1000 / used).clamp(500, 2000);
            let batch = self.batch * thousandths.unsigned_abs() / 1000;
            self.batch = batch.clamp(1, MAX_PAGES);
            (self.changed, self.spent) = (now, spent);
        }
        self.batch
    }
}

fn signed(time: Nanos) -> i64 {
    i64::try_from(time).expect("less than centuries")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_grows_while_less_is_used_than_may_be_and_shrinks_afterwards() {
        let mut control = BatchControl::new(10, 200);
        assert_eq!(control.batch(INTERVAL - 1, 0), 200);
        assert_eq!(control.batch(INTERVAL, 4_000_000), 400);
        let all = 5 * INTERVAL;
        assert_eq!(control.batch(2 * INTERVAL, all), 200);
    }
}
