//! Many idle processes, and newcomers among them that hold equal pages.

use uksm_policy::command::{Nanos, PAGE_SIZE, SpaceId};
use uksm_policy::mix::SplitMix64;

use super::map;
use crate::layout::{own, pooled};
use crate::{Content, Fill, Host, Workload};

/// Mappings of an idle process, as a small daemon has them: heap, stacks and the data of libraries.
const MAPPINGS: u64 = 16;
/// Pages in each of them.
const MAPPING_PAGES: u64 = 16;

/// Idle processes and newcomers.
#[derive(Debug, Clone)]
pub struct Crowd {
    /// Idle processes.
    pub idle: u64,
    /// Pages of each of two newcomers, all equal; 0 if none come.
    pub pages: u64,
    /// Time of their start.
    pub begin: Nanos,
    /// Time that each takes to fill its memory.
    pub filling: Nanos,
    /// Seed of the positions of mappings.
    pub seed: u64,
    /// The newcomers and the addresses of their memory, once they are there.
    newcomers: Vec<(SpaceId, u64)>,
    filled: u64,
}

impl Crowd {
    /// A crowd with two newcomers at `begin`.
    #[must_use]
    pub fn new(idle: u64, pages: u64, begin: Nanos, filling: Nanos, seed: u64) -> Crowd {
        Crowd {
            idle,
            pages,
            begin,
            filling,
            seed,
            newcomers: vec![],
            filled: 0,
        }
    }
}

impl Workload for Crowd {
    fn act(&mut self, host: &mut Host, now: Nanos) -> Option<Nanos> {
        let mut random = SplitMix64::new(self.seed);
        if now == 0 {
            for number in 1..=self.idle {
                let space = host.spawn(1 + number % 7);
                for mapping in 1..=MAPPINGS {
                    let first = mapping * MAPPING_PAGES;
                    let pages = first..first + MAPPING_PAGES;
                    let contents: Vec<Content> = pages.map(|page| own(number, page)).collect();
                    map(host, space, mapping, &contents, &mut random);
                }
            }
        }
        if self.pages == 0 {
            return None;
        }
        if now < self.begin {
            return Some(self.begin);
        }
        if self.newcomers.is_empty() {
            for number in 1..=2 {
                let space = host.spawn(99);
                let start = super::place(number, &mut random);
                host.map(space, start, self.pages, 1, &Fill::Empty);
                self.newcomers.push((space, start));
            }
        }
        let passed = (now - self.begin).min(self.filling);
        let due = self.pages * passed / self.filling.max(1);
        for page in self.filled..due {
            for &(space, start) in &self.newcomers {
                host.write(space, start + page * PAGE_SIZE, pooled(3, page));
            }
        }
        self.filled = due;
        (due < self.pages).then_some(now + (self.filling / 64).max(1))
    }
}
