//! The positions of pages that several processes share.
//!
//! # Problem
//! The cost of finding duplicates depends on their positions. Two guests of one disk image have the
//! same pages at other places, and in runs: if page i of one equals page j of the other, then most
//! often page i+1 equals page j+1.
//!
//! # Approach
//! The equal pages are numbered, and cut into runs of neighbouring numbers; the cuts are the same
//! in all processes. A process puts these runs and its own pages into an order, which is drawn from
//! the seed. With one order for all, equal pages lie at the same offsets; with an order each, they
//! lie anywhere, and a page that would lie at the offset of its twin is exchanged with another.
//!
//! # Source
//! Run lengths of two Debian guests of 512 MiB that read files in different order.

use std::ops::RangeInclusive;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::rng::{Rng, shuffle};

/// The positions of the equal pages of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Arrangement {
    /// Scattered singly, at the same offsets in all processes.
    Same,
    /// Scattered singly, no page at the offset of its twin.
    Shuffled,
    /// In runs of this many pages, the runs scattered, no page at the offset of its twin.
    Runs(usize),
    /// The same in runs as long as those of guests: see [`GUEST_RUNS`].
    GuestRuns,
}

/// The equal pages among those of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// The index of this process; each has an order and pages of its own.
    pub process: u64,
    /// Pages that all processes have, in percent.
    pub equal_percent: usize,
    /// Their positions.
    pub place: Arrangement,
}

/// Run lengths of guests: percentages of the equal pages in runs of these lengths. So 86 % are in
/// runs of two or more, 77 % in runs of more than eight, and 47 % in runs of more than 128.
const GUEST_RUNS: [(usize, RangeInclusive<usize>); 4] =
    [(47, 129..=1023), (30, 9..=127), (9, 2..=7), (14, 1..=1)];

/// Numbers from here on belong to pages that only one process has: a range of this size each.
const OWN: u64 = 1 << 32;

/// Names of the draws of run lengths, and of orders (the process is added), among the contents.
const LENGTHS: u64 = 1 << 40;
const ORDERS: u64 = 1 << 41;

/// Limit of exchanges of a page at the offset of its twin.
const EXCHANGES: usize = 100;

impl Layout {
    /// The numbers of the pages, by offset. Pages with the same number are equal.
    ///
    /// # Errors
    /// There is no room to put each page elsewhere than its twin.
    pub(crate) fn numbers(&self, seed: u64, pages: usize) -> Result<Vec<u64>> {
        if self.place == Arrangement::Same {
            let mut items = self.items(seed, pages, self.process);
            shuffle(&mut items, &mut Rng::new(seed, ORDERS));
            return Ok(flat(&items));
        }
        // The orders of the processes before this one give the positions of the twins.
        let mut before: Vec<Vec<u64>> = Vec::new();
        for process in 0..=self.process {
            let mut draws = Rng::new(seed, ORDERS + process);
            let mut items = self.items(seed, pages, process);
            shuffle(&mut items, &mut draws);
            let numbers = self.apart(items, &before, &mut draws)?;
            before.push(numbers);
        }
        Ok(before.pop().unwrap_or_default())
    }

    /// Exchanges items until no page lies where one of its twins does.
    fn apart(
        &self,
        mut items: Vec<Item>,
        before: &[Vec<u64>],
        draws: &mut Rng,
    ) -> Result<Vec<u64>> {
        for _ in 0..EXCHANGES {
            let numbers = flat(&items);
            let mut offset = 0;
            let mut close = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let range = offset..offset + item.pages;
                offset = range.end;
                let own = &numbers[range.clone()];
                let meets =
                    |other: &Vec<u64>| own.iter().zip(&other[range.clone()]).any(|(a, b)| a == b);
                if before.iter().any(meets) {
                    close.push(index);
                }
            }
            if close.is_empty() {
                return Ok(numbers);
            }
            for index in close {
                let other = draws.below(items.len());
                items.swap(index, other);
            }
        }
        bail!(
            "{} % of equal pages, {:?}: no room to put each page elsewhere than its twin",
            self.equal_percent,
            self.place
        )
    }

    /// The runs of equal pages in the order of their numbers, then the pages of this process alone.
    fn items(&self, seed: u64, pages: usize, process: u64) -> Vec<Item> {
        let equal = pages * self.equal_percent / 100;
        let mut items = Vec::new();
        let mut first = 0;
        for pages in self.run_lengths(seed, equal) {
            items.push(Item { first, pages });
            first += pages as u64;
        }
        let own = (process + 1) * OWN;
        let alone = (0..(pages - equal) as u64).map(|page| Item {
            first: own + page,
            pages: 1,
        });
        items.extend(alone);
        items
    }

    /// Lengths of the runs; their sum is `equal`.
    fn run_lengths(&self, seed: u64, equal: usize) -> Vec<usize> {
        let length = match self.place {
            Arrangement::Same | Arrangement::Shuffled => 1,
            Arrangement::Runs(length) => length.max(1),
            Arrangement::GuestRuns => return guest_run_lengths(seed, equal),
        };
        (0..equal)
            .step_by(length)
            .map(|at| length.min(equal - at))
            .collect()
    }
}

/// Lengths as in guests, the longest first. If few pages are left for a kind of run, they go to the
/// next shorter kind.
fn guest_run_lengths(seed: u64, equal: usize) -> Vec<usize> {
    let mut draws = Rng::new(seed, LENGTHS);
    let mut lengths = Vec::new();
    let (mut percent, mut placed) = (0, 0);
    for (share, kind) in GUEST_RUNS {
        percent += share;
        let mut left = equal * percent / 100 - placed;
        while left >= *kind.start() {
            let mut length = draws.in_octaves(&kind);
            // The rest behind a run must make another one of this kind.
            if length + kind.start() > left {
                length = if left <= *kind.end() {
                    left
                } else {
                    left - kind.start()
                };
            }
            lengths.push(length);
            left -= length;
            placed += length;
        }
    }
    lengths
}

/// Neighbouring pages that stay together.
#[derive(Debug, Clone, Copy)]
struct Item {
    /// Number of the first.
    first: u64,
    /// Number of pages.
    pages: usize,
}

/// The numbers of all pages, in this order.
fn flat(items: &[Item]) -> Vec<u64> {
    items
        .iter()
        .flat_map(|item| item.first..item.first + item.pages as u64)
        .collect()
}

#[cfg(test)]
mod tests;
