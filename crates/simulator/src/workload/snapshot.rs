//! MicroVMs restored from one snapshot, whose memories diverge.

use uksm_policy::command::{Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::mix::{SplitMix64, mix};

use super::{SECOND, place};
use crate::layout::{own, pooled};
use crate::{Content, Fill, Host, Workload};

/// Share of the pages touched by any clone that all of them touch, in percent.
const TOUCHED_BY_ALL: u64 = 82;
/// Share of the other pages that one clone touches, in percent: then two clones share 93 % of the
/// pages that either touches.
const TOUCHED_BY_ONE: u64 = 60;

/// Clones of a snapshot: pages copied in on a touch are equal at the same offsets; pages written
/// afterwards hold equal contents at offsets of each clone's own.
#[derive(Debug, Clone)]
pub struct Snapshots {
    /// Number of clones.
    pub clones: u64,
    /// Pages that any of them touches.
    pub pages: u64,
    /// Time between two restores.
    pub interval: Nanos,
    /// Pages that each clone writes in a second.
    pub writes: u64,
    /// Seed of all random choices.
    pub seed: u64,
    clones_up: Vec<(SpaceId, u64, SplitMix64)>,
    written: u64,
    wrote_at: Nanos,
}

impl Snapshots {
    /// Clones from the start on.
    #[must_use]
    pub fn new(clones: u64, pages: u64, interval: Nanos, writes: u64, seed: u64) -> Snapshots {
        Snapshots {
            clones,
            pages,
            interval,
            writes,
            seed,
            clones_up: vec![],
            written: 0,
            wrote_at: 0,
        }
    }

    fn restore(&mut self, host: &mut Host) {
        let number = self.clones_up.len() as u64 + 1;
        let mut random = SplitMix64::new(mix(self.seed) ^ number);
        let by_all = |page: u64| mix(self.seed ^ mix(page)) % 100 < TOUCHED_BY_ALL;
        let mut touched: Vec<(u64, Content)> = vec![];
        for page in 0..self.pages {
            if by_all(page) || random.below(100) < TOUCHED_BY_ONE {
                touched.push((page, pooled(7, page)));
            }
        }
        let space = host.spawn(5);
        let start = place(1, &mut random);
        host.map(space, start, self.pages, 1, &Fill::Empty);
        for (page, content) in touched {
            host.write(space, start + page * PAGE_SIZE, content);
        }
        self.clones_up.push((space, start, random));
    }
}

impl Workload for Snapshots {
    fn act(&mut self, host: &mut Host, now: Nanos) -> Option<Nanos> {
        let up = self.clones_up.len() as u64;
        if up < self.clones && now >= up * self.interval {
            self.restore(host);
        }
        // Half of the written pages hold results that every clone computes, at a different place in
        // each.
        let due = self.writes * ((now - self.wrote_at) / 1_000_000) / 1000;
        if due > 0 {
            self.wrote_at = now;
        }
        for (number, (space, start, random)) in (1..).zip(&mut self.clones_up) {
            for write in self.written..self.written + due {
                let address = *start + random.below(self.pages) * PAGE_SIZE;
                let content = if write % 2 == 0 {
                    pooled(8, write)
                } else {
                    own(number, self.pages + write)
                };
                host.write(*space, address, content);
            }
        }
        self.written += due;
        let up = self.clones_up.len() as u64;
        let next_restore = (up < self.clones).then_some(up * self.interval);
        let next_write = (self.writes > 0).then_some(now + SECOND / 10);
        [next_restore, next_write].into_iter().flatten().min()
    }
}
