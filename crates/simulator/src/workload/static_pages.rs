//! Workloads whose pages never change.

use uksm_policy::command::Nanos;
use uksm_policy::mix::{SplitMix64, mix};

use super::map;
use crate::layout::{Layout, own, pooled};
use crate::{Content, Host, Workload};

/// One process with as many identical as random pages (UKSM §8.1.1).
#[derive(Debug, Clone)]
pub struct StaticMixed {
    /// Pages of either kind.
    pub pages: u64,
    /// Whether the identical ones have the lower addresses.
    pub identical_first: bool,
    /// Seed of the positions of the mappings.
    pub seed: u64,
}

impl Workload for StaticMixed {
    fn act(&mut self, host: &mut Host, _: Nanos) -> Option<Nanos> {
        let mut random = SplitMix64::new(self.seed);
        let space = host.spawn(1);
        let random_ones: Vec<Content> = (0..self.pages).map(|page| own(1, page)).collect();
        let (low, high) = if self.identical_first { (2, 1) } else { (1, 2) };
        map(host, space, low, &random_ones, &mut random);
        let identical = usize::try_from(self.pages).expect("fits in memory");
        map(
            host,
            space,
            high,
            &vec![pooled(1, 1); identical],
            &mut random,
        );
        None
    }
}

/// Processes of which a share of the pages is equal, in one layout.
#[derive(Debug, Clone)]
pub struct Scatter {
    /// Number of processes.
    pub processes: u64,
    /// The mapping of each.
    pub layout: Layout,
    /// Time of their start.
    pub begin: Nanos,
}

impl Workload for Scatter {
    fn act(&mut self, host: &mut Host, now: Nanos) -> Option<Nanos> {
        if now < self.begin {
            return Some(self.begin);
        }
        let mut random = SplitMix64::new(self.layout.seed);
        for number in 1..=self.processes {
            let space = host.spawn(1);
            map(host, space, 1, &self.layout.contents(number), &mut random);
        }
        None
    }
}

/// Processes that hold pages of a pool; few contents are held by many processes (Zipf's law).
#[derive(Debug, Clone)]
pub struct Zipf {
    /// Number of processes.
    pub processes: u64,
    /// Pages of each.
    pub pages: u64,
    /// Contents in the pool.
    pub pool: u64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Workload for Zipf {
    fn act(&mut self, host: &mut Host, _: Nanos) -> Option<Nanos> {
        let mut random = SplitMix64::new(self.seed);
        let octaves = u64::from(self.pool.max(2).ilog2());
        for _ in 0..self.processes {
            let space = host.spawn(1);
            // With an exponent of 1 each octave of ranks is drawn equally often.
            let mut draw = |_| {
                let octave = random.below(octaves);
                let rank = (1 << octave) + random.below(1 << octave);
                pooled(2, mix(rank) >> 24)
            };
            let contents: Vec<Content> = (0..self.pages).map(&mut draw).collect();
            map(host, space, 1, &contents, &mut random);
        }
        None
    }
}
