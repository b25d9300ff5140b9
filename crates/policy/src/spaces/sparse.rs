//! Mappings far larger than their contents.
//!
//! # Problem
//! Some programs reserve terabytes and use a thousandth. Cut into regions, these would be millions
//! of empty ones; with even sampling, hardly any other memory would be sampled.
//!
//! # Approach
//! A sparse mapping is probed from its ends inwards in steps that double (programs begin there),
//! and at random beyond that, a few pages a round. Where a page is found, the aligned *part* around
//! it becomes an ordinary region, and the parts beside it are probed next.
//!
//! # Units
//! Addresses are bytes; parts have the size of a region and are counted from the start of the
//! mapping. 24 bytes a part found, at most [`MAX_PARTS`].

use std::collections::{BTreeSet, VecDeque};

use crate::command::{Mapping, Nanos, PAGE_SIZE};
use crate::mix::SplitMix64;

/// Limit of regions made of one sparse mapping.
pub(crate) const MAX_PARTS: usize = 16384;
/// Probes of a neighbouring part before it is believed to be empty.
const LOOKS_BESIDE: u32 = 4;
/// Limit of neighbours that wait to be probed.
const MAX_WAITING: usize = 4096;

/// A part in which a page was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundPart {
    /// First byte.
    pub(crate) start: u64,
    /// One past the last byte.
    pub(crate) end: u64,
    /// The mapping's kind.
    pub(crate) mapping_kind: u64,
    /// When the mapping was found.
    pub(crate) born: Nanos,
}

/// A mapping that is not cut into regions.
#[derive(Debug, Clone)]
pub(crate) struct SparseMapping {
    start: u64,
    end: u64,
    kind: u64,
    /// When it was found.
    born: Nanos,
    part_bytes: u64,
    /// Next page of the doubling steps, from both ends.
    step: u64,
    beside: VecDeque<(u64, u32)>,
    found: BTreeSet<u64>,
    random: SplitMix64,
}

impl SparseMapping {
    /// A mapping that was just found, cut into parts of `part_bytes`. `seed` decides the random
    /// probes.
    pub(crate) fn new(
        start: u64,
        end: u64,
        kind: u64,
        born: Nanos,
        part_bytes: u64,
        seed: u64,
    ) -> SparseMapping {
        SparseMapping {
            start,
            end,
            kind,
            born,
            part_bytes,
            step: 0,
            beside: VecDeque::new(),
            found: BTreeSet::new(),
            random: SplitMix64::new(seed),
        }
    }

    /// The next address to probe, none if no more regions would be made of the mapping.
    pub(crate) fn next_probe(&mut self) -> Option<u64> {
        if self.found.len() >= MAX_PARTS {
            return None;
        }
        if let Some((part, looks)) = self.beside.pop_front() {
            if looks > 1 {
                self.beside.push_back((part, looks - 1));
            }
            let (start, end) = self.part_range(part);
            // A neighbouring part fills from the side of the found part: its first page, then
            // anywhere.
            let page = if looks == LOOKS_BESIDE {
                0
            } else {
                self.random.below((end - start) / PAGE_SIZE)
            };
            return Some(start + page * PAGE_SIZE);
        }
        let pages = (self.end - self.start) / PAGE_SIZE;
        let address = |page: u64| self.start + page * PAGE_SIZE;
        let doublings = u64::from(pages.ilog2());
        let step = self.step;
        self.step += 1;
        Some(if step < 2 * doublings {
            let distance = (1u64 << (step / 2)) - 1;
            if step.is_multiple_of(2) {
                address(distance)
            } else {
                address(pages - 1 - distance)
            }
        } else {
            // The ends are probed again now and then: programs grow from there.
            if self.step > 64 * doublings {
                self.step = 0;
            }
            address(self.random.below(pages))
        })
    }

    /// A page was found at `address`. Returns the part that should become a region, unless it is
    /// one already.
    pub(crate) fn find_part(&mut self, address: u64) -> Option<FoundPart> {
        let part = (address - self.start) / self.part_bytes;
        if self.found.len() >= MAX_PARTS || !self.found.insert(part) {
            return None;
        }
        self.beside.retain(|&(other, _)| other != part);
        let parts = (self.end - self.start).div_ceil(self.part_bytes);
        for beside in [part + 1, part.wrapping_sub(1)] {
            let is_new = beside < parts && !self.found.contains(&beside);
            if is_new
                && self.beside.len() < MAX_WAITING
                && !self.beside.iter().any(|&(p, _)| p == beside)
            {
                self.beside.push_back((beside, LOOKS_BESIDE));
            }
        }
        let (start, end) = self.part_range(part);
        Some(FoundPart {
            start,
            end,
            mapping_kind: self.kind,
            born: self.born,
        })
    }

    /// First byte, and one past the last.
    pub(crate) fn range(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// Whether one of these mappings, by address, still covers it.
    pub(crate) fn is_in(&self, mappings: &[Mapping]) -> bool {
        let at = mappings.partition_point(|mapping| mapping.end < self.end);
        mappings
            .get(at)
            .is_some_and(|m| m.kind == self.kind && m.start <= self.start)
    }

    /// Whether it holds the address.
    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    fn part_range(&self, part: u64) -> (u64, u64) {
        let start = self.start + part * self.part_bytes;
        (start, (start + self.part_bytes).min(self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u64 = 64 << 20;
    const TIB: u64 = 1 << 40;

    /// Probes until regions cover `used`, at most `most` times.
    fn explore(
        sparse_mapping: &mut SparseMapping,
        used: std::ops::Range<u64>,
        most: usize,
    ) -> Vec<(u64, u64)> {
        (0..most)
            .filter_map(|_| {
                let address = sparse_mapping.next_probe()?;
                assert!(sparse_mapping.contains(address) && address.is_multiple_of(PAGE_SIZE));
                if used.contains(&address) {
                    sparse_mapping
                        .find_part(address)
                        .map(|part| (part.start, part.end))
                } else {
                    None
                }
            })
            .collect()
    }

    #[test]
    fn what_is_used_from_the_start_is_found_within_hundreds_of_looks() {
        let mut sparse_mapping = SparseMapping::new(TIB, 33 * TIB, 0, 0, PART, 1);
        let found = explore(&mut sparse_mapping, TIB..TIB + (1 << 30), 400);
        assert_eq!(found.len(), 16, "1 GiB is 16 regions");
    }

    #[test]
    fn what_is_used_at_the_end_is_found() {
        let mut sparse_mapping = SparseMapping::new(TIB, 33 * TIB, 0, 0, PART, 1);
        let found = explore(&mut sparse_mapping, 33 * TIB - (256 << 20)..33 * TIB, 400);
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn a_full_mapping_becomes_regions_that_do_not_overlap() {
        let mut sparse_mapping = SparseMapping::new(0, 80 << 30, 0, 0, PART, 1);
        let mut found = explore(&mut sparse_mapping, 0..80 << 30, 20_000);
        found.sort_unstable();
        assert_eq!(found.len(), 1280);
        assert!(found.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }

    #[test]
    fn regions_of_one_mapping_are_bounded() {
        let mut sparse_mapping = SparseMapping::new(0, 32 * TIB, 0, 0, PART, 1);
        let found = explore(&mut sparse_mapping, 0..32 * TIB, 200_000);
        assert_eq!(found.len(), MAX_PARTS);
        assert_eq!(sparse_mapping.next_probe(), None);
    }
}
