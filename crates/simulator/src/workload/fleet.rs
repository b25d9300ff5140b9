//! Containers of a few images: each container is a few processes that load the same data, grow, and
//! are replaced from time to time.

use uksm_policy::command::{Nanos, SpaceId};
use uksm_policy::mix::SplitMix64;

use super::{SECOND, map};
use crate::layout::{Arrangement, Layout, own};
use crate::{Content, Host, Workload};

/// Processes of a container.
const PROCESSES: u64 = 3;
/// Pages of a process that its twins in other containers share, in percent: several node processes
/// share 3.5 %, redis servers that loaded the same file 68 %.
const SHARES: [u64; 3] = [4, 30, 68];

/// Containers.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// Number of containers.
    pub containers: u64,
    /// Pages of each process.
    pub pages: u64,
    /// Time between two replacements; 0 if none is replaced.
    pub interval: Nanos,
    /// Seed of all random choices.
    pub seed: u64,
    up: Vec<Vec<SpaceId>>,
    started: u64,
}

impl Fleet {
    /// Containers that all start at the start.
    #[must_use]
    pub fn new(containers: u64, pages: u64, interval: Nanos, seed: u64) -> Fleet {
        Fleet {
            containers,
            pages,
            interval,
            seed,
            up: vec![],
            started: 0,
        }
    }

    fn start(&mut self, host: &mut Host) -> Vec<SpaceId> {
        self.started += 1;
        let mut random = SplitMix64::new(self.seed ^ self.started);
        let image = self.started % SHARES.len() as u64;
        let share = SHARES[usize::try_from(image).expect("an image")];
        let spaces = (1..=PROCESSES).map(|process| {
            let owner = 1 + (self.started * PROCESSES + process) % (1 << 20);
            let space = host.spawn(10 + image);
            let heap = Layout {
                pages: self.pages,
                percent: share,
                place: Arrangement::Same,
                pool: 10 + image * PROCESSES + process,
                seed: self.seed,
            };
            map(host, space, 1, &heap.contents(owner), &mut random);
            for stack in 2..10 {
                let pages = 8 * stack..8 * stack + 8;
                let page = |page| own(owner, (1 << 30) + page);
                let contents: Vec<Content> = pages.map(page).collect();
                map(host, space, stack, &contents, &mut random);
            }
            space
        });
        spaces.collect()
    }
}

impl Workload for Fleet {
    fn act(&mut self, host: &mut Host, now: Nanos) -> Option<Nanos> {
        if now == 0 {
            for _ in 0..self.containers {
                let container = self.start(host);
                self.up.push(container);
            }
        } else {
            let oldest = self.started % self.containers;
            let oldest = usize::try_from(oldest).expect("a container");
            let new = self.start(host);
            for space in std::mem::replace(&mut self.up[oldest], new) {
                host.exit(space);
            }
        }
        (self.interval > 0).then_some(now + self.interval.max(SECOND / 1000))
    }
}
