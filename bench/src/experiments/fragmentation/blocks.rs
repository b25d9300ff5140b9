//! Memory in blocks of 2 MiB: free ones, those that can be had, and those with frames.
//!
//! # Problem
//! A huge page needs a block without a page that cannot be moved, and frames are such pages. A few
//! of them in each block would cost the machine its huge pages.
//!
//! # Approach
//! The allocator's lists show free blocks, and the kinds of blocks. What can be had is tried: by
//! faults, as processes do, and by the pool of huge pages, which takes what compaction makes.
//!
//! # Source
//! The kernel's Documentation/filesystems/proc.rst (buddyinfo, pagetypeinfo) and
//! Documentation/admin-guide/mm/hugetlbpage.rst.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use uksm_testkit::{kernel_file, page_flags};

use crate::workload::mapping::{BLOCK_PAGES, Kind, Reservation};

/// The order of a block in the allocator's lists.
const ORDER: usize = 9;
const POOL: &str = "/proc/sys/vm/nr_hugepages";
const POOL_TRIES: usize = 5;

fn text(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// Free blocks of the machine.
pub(super) fn free_blocks() -> Result<u64> {
    const PATH: &str = "/proc/buddyinfo";
    free_of(&text(PATH)?).context(PATH)
}

fn free_of(lists: &str) -> Option<u64> {
    let mut blocks = 0;
    for line in lists.lines() {
        // Node 0, zone DMA32 and a number for each order.
        let numbers = line.split_whitespace().skip(4).skip(ORDER);
        for (doublings, number) in numbers.enumerate() {
            blocks += number.parse::<u64>().ok()? << doublings;
        }
    }
    Some(blocks)
}

/// Blocks that the allocator has given to pages that cannot be moved.
pub(super) fn unmovable_blocks() -> Result<u64> {
    const PATH: &str = "/proc/pagetypeinfo";
    unmovable_of(&text(PATH)?).context(PATH)
}

fn unmovable_of(kinds: &str) -> Option<u64> {
    let (mut column, mut blocks) = (None, 0);
    for line in kinds.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with("Number of blocks type") {
            column = words.iter().position(|&kind| kind == "Unmovable");
        } else if let (Some(column), true) = (column, line.starts_with("Node ")) {
            blocks += words.get(column)?.parse::<u64>().ok()?;
        }
    }
    column.map(|_| blocks)
}

/// The kernel's counts of compactions for an allocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compactions {
    /// Those that made room for it.
    pub successes: u64,
    /// Those that did not.
    pub failures: u64,
}

impl Compactions {
    /// Since the machine was booted.
    pub(super) fn now() -> Result<Compactions> {
        let events = kernel_file::numbers("/proc/vmstat")?;
        let of = |name: &str| {
            let number = events.get(name).copied();
            number.with_context(|| format!("/proc/vmstat: no {name}"))
        };
        Ok(Compactions {
            successes: of("compact_success")?,
            failures: of("compact_fail")?,
        })
    }
}

/// Touches this many huge pages; returns how many the kernel gave at once. All are given back.
pub(super) fn huge_faults(attempts: usize) -> Result<u64> {
    let huge_kib = || kernel_file::number("/proc/self/smaps_rollup", "AnonHugePages");
    let pages = attempts * BLOCK_PAGES;
    let mut reservation = Reservation::for_parts(&[pages])?;
    reservation.align(0);
    let kind = Kind {
        huge: true,
        mergeable: false,
    };
    let mut mapping = reservation.map(pages, kind)?;
    let before = huge_kib()?;
    for block in 0..attempts {
        mapping.page_mut(block * BLOCK_PAGES)[0] = 1;
    }
    Ok(huge_kib()?.saturating_sub(before) / 2048)
}

/// The number of huge pages that the kernel makes if it is asked for this many, until it makes no
/// more. All are given back.
pub(super) fn huge_pool(blocks: u64) -> Result<u64> {
    let mut got = 0;
    // It gives up at the first compaction that fails, which may be by chance.
    for _ in 0..POOL_TRIES {
        kernel_file::write(POOL, &blocks.to_string())?;
        got = kernel_file::value(POOL)?;
    }
    kernel_file::write(POOL, "0")?;
    Ok(got)
}

/// Frames, by the number of the block in which they lie. Compacts all memory.
#[derive(Debug)]
pub(super) struct FrameBlocks(BTreeMap<u64, usize>);

impl FrameBlocks {
    /// Those of the machine.
    pub(super) fn now() -> Result<FrameBlocks> {
        let frames = page_flags::frames()?;
        Ok(FrameBlocks::of(frames.into_iter().map(|(pfn, _)| pfn)))
    }

    fn of(frames: impl Iterator<Item = u64>) -> FrameBlocks {
        let mut blocks = BTreeMap::new();
        for pfn in frames {
            *blocks.entry(pfn / BLOCK_PAGES as u64).or_insert(0) += 1;
        }
        FrameBlocks(blocks)
    }

    /// All frames.
    pub(super) fn frames(&self) -> usize {
        self.0.values().sum()
    }

    /// Blocks in which there is one.
    pub(super) fn blocks(&self) -> usize {
        self.0.len()
    }

    /// Number of blocks with as many frames as each bound or fewer, and more than the one before.
    pub(super) fn histogram(&self) -> Vec<(f64, usize)> {
        let mut least = 0;
        let bounds = [8, 64, 256, BLOCK_PAGES].into_iter();
        let counts = bounds.map(|bound| {
            let lies_in = |&&frames: &&usize| frames > least && frames <= bound;
            let count = self.0.values().filter(lies_in).count();
            least = bound;
            (bound as f64, count)
        });
        counts.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_blocks_are_those_of_the_two_highest_orders() {
        let lists = "Node 0, zone      DMA      1  1  1  1  1  1  1  1  0  1  3\n\
                     Node 0, zone    DMA32      9  9  9  9  9  9  9  9  9  4  0\n";
        assert_eq!(free_of(lists), Some(1 + 2 * 3 + 4));
        assert_eq!(free_of("Node 0, zone DMA 0 0 0 0 0 0 0 0 0 x 0\n"), None);
    }

    #[test]
    fn blocks_of_a_kind_are_summed_over_zones() {
        let kinds = "Pages per block:  512\n\
                     Node    0, zone      DMA, type    Unmovable  7  7\n\
                     Number of blocks type     Unmovable      Movable\n\
                     Node 0, zone      DMA            3            1\n\
                     Node 0, zone    DMA32           20          400\n";
        assert_eq!(unmovable_of(kinds), Some(23));
        assert_eq!(unmovable_of("Pages per block:  512\n"), None);
    }

    #[test]
    fn frames_are_counted_by_block() {
        let frames = (0..512).chain([512, 513, 5000, 5001, 5002]);
        let frames = FrameBlocks::of(frames.chain(10240..10240 + 9));
        assert_eq!((frames.frames(), frames.blocks()), (526, 4));
        let counts = frames.histogram();
        assert_eq!(
            counts,
            [(8.0, 2), (64.0, 1), (256.0, 0), (512.0, 1)],
            "{frames:?}"
        );
    }
}
