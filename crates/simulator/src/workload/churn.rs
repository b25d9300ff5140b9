//! Workloads whose pages are short-lived: rewritten in place, or gone with their process.

use std::collections::VecDeque;

use uksm_policy::command::{Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::mix::SplitMix64;

use super::{SECOND, map};
use crate::layout::{own, pooled};
use crate::{Content, Host, Workload};

/// Time between two writes to a region.
const WRITE_STEP: Nanos = SECOND / 200;

/// A process whose equal pages are rewritten in order again and again (UKSM §5.2: COW-broken).
#[derive(Debug, Clone)]
pub struct Rewritten {
    /// Its pages.
    pub pages: u64,
    /// The time in which all are rewritten once.
    pub cycle: Nanos,
    /// Contents that are written in turn.
    pub contents: u64,
    /// Seed of the position of the mapping.
    pub seed: u64,
    place: Option<(SpaceId, u64)>,
    written: u64,
}

impl Rewritten {
    /// A process that begins with pages of one content.
    #[must_use]
    pub fn new(pages: u64, cycle: Nanos, contents: u64, seed: u64) -> Rewritten {
        Rewritten {
            pages,
            cycle,
            contents,
            seed,
            place: None,
            written: 0,
        }
    }
}

impl Workload for Rewritten {
    fn act(&mut self, host: &mut Host, now: Nanos) -> Option<Nanos> {
        let (space, start) = *self.place.get_or_insert_with(|| {
            let space = host.spawn(2);
            let pages = usize::try_from(self.pages).expect("fits in memory");
            let same = vec![pooled(4, 0); pages];
            let random = &mut SplitMix64::new(self.seed);
            (space, map(host, space, 1, &same, random))
        });
        let due = u128::from(self.pages) * u128::from(now) / u128::from(self.cycle);
        let due = u64::try_from(due).expect("fewer writes than nanoseconds");
        // After a long sleep only the present state counts: older writes are overwritten by later
        // ones.
        self.written = self.written.max(due.saturating_sub(self.pages));
        while self.written < due {
            let address = start + self.written % self.pages * PAGE_SIZE;
            host.write(space, address, pooled(4, self.written % self.contents));
            self.written += 1;
        }
        Some(now + WRITE_STEP)
    }
}

/// Processes that start at a fixed rate, hold equal pages, and end soon.
#[derive(Debug, Clone)]
pub struct ShortLived {
    /// Time between two starts.
    pub interval: Nanos,
    /// Life of each.
    pub life: Nanos,
    /// Pages of each; half of them are equal in all.
    pub pages: u64,
    /// Seed of the positions of mappings.
    pub seed: u64,
    alive: VecDeque<(Nanos, SpaceId)>,
    born: u64,
}

impl ShortLived {
    /// Processes from the start on.
    #[must_use]
    pub fn new(interval: Nanos, life: Nanos, pages: u64, seed: u64) -> ShortLived {
        ShortLived {
            interval,
            life,
            pages,
            seed,
            alive: VecDeque::new(),
            born: 0,
        }
    }
}

impl Workload for ShortLived {
    fn act(&mut self, host: &mut Host, now: Nanos) -> Option<Nanos> {
        while let Some(&(_, space)) = self.alive.front().filter(|(end, _)| *end <= now) {
            host.exit(space);
            self.alive.pop_front();
        }
        if now >= self.born * self.interval {
            self.born += 1;
            let space = host.spawn(3);
            // The numbers of owners are reused after the end of their processes.
            let owner = 1 + self.born % (1 << 20);
            let content = |page| {
                if page < self.pages / 2 {
                    pooled(5, page)
                } else {
                    own(owner, page)
                }
            };
            let contents: Vec<Content> = (0..self.pages).map(content).collect();
            let random = &mut SplitMix64::new(self.seed ^ self.born);
            map(host, space, 1, &contents, random);
            self.alive.push_back((now + self.life, space));
        }
        let death = self.alive.front().map_or(Nanos::MAX, |&(end, _)| end);
        Some(death.min(self.born * self.interval).max(now + 1))
    }
}
