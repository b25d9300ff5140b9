//! The cost of memory accesses on a processor, by a model.
//!
//! # Problem
//! An instruction that waits for memory takes as long as five hundred others, and a count of
//! instructions does not show it. The memory of machines differs by more than a factor of two.
//!
//! # Approach
//! The emulator's plugin reports the level of a modelled processor in which each access to data
//! ended (`vm/plugin/caches.c`). Time is that of the instructions, with all data in the first
//! level, and of each access that ended farther away. The latency of memory is not chosen: all
//! results are given for three of them. Two kinds of overlap are modelled: lines that a prefetcher
//! requests, and lines of one page, whose addresses do not depend on each other. Nothing else
//! overlaps. In a comparison of two systems, only a result that holds for all three latencies is a
//! claim.
//!
//! `uksm-bench calibrate-caches` compares the constants with a machine ([`super::primitives`]):
//! they are those of an AMD EPYC 7003 in a virtual machine, whose latency of memory was 150 to 180
//! ns.
//!
//! # Units
//! Nanoseconds of a core.

use serde::{Deserialize, Serialize};

/// Latencies of memory: a desktop's, a server's, and that of another socket or of memory behind a
/// bus.
pub(super) const LATENCIES: [f64; 3] = [40.0, 80.0, 160.0];
/// An instruction of a loop over a page's contents.
const OF_LOOPS: f64 = 0.1;
/// Any other instruction: with branches, locks, and dependences on the one before it.
const OTHER: f64 = 0.3;
/// A line from the second level, and from the last.
const L2: f64 = 2.0;
const LLC: f64 = 10.0;
/// The same for lines beside others of their page: they were requested ahead, or together with
/// these.
const L2_BESIDE: f64 = 0.4;
const LLC_BESIDE: f64 = 1.5;
/// Lines of memory that a processor requests at a time if they follow each other, or lie in one
/// page.
const AHEAD: f64 = 20.0;
const TOGETHER: f64 = 10.0;
/// Lower bound at any latency: a core gets no more than 16 GB/s.
const MIN_STREAMED: f64 = 4.0;
/// A translation that is in neither level of translations.
const WALK: f64 = 10.0;

/// Functions that do the same to each word of a page: the kernel's and the module's.
const LOOPS: [&str; 10] = [
    "xxh64",
    "memcmp",
    "clear_page_rep",
    "clear_page_orig",
    "copy_page",
    "copy_page_regs",
    "uksm_pages_equal",
    "uksm_page_zero",
    "uksm_hash_lines",
    "memset_orig",
];

/// Instructions, by their speed on a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Instructions {
    /// Instructions of loops over a page's contents.
    pub of_loops: u64,
    /// All other instructions.
    pub other: u64,
}

impl Instructions {
    /// The instructions of a function with this name.
    pub(super) fn of(function: &str, count: u64) -> Instructions {
        if LOOPS.contains(&function) {
            Instructions {
                of_loops: count,
                other: 0,
            }
        } else {
            Instructions {
                of_loops: 0,
                other: count,
            }
        }
    }

    /// Adds instructions.
    pub(super) fn add(&mut self, more: Instructions) {
        self.of_loops += more.of_loops;
        self.other += more.other;
    }
}

/// The levels in which accesses to data ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Accesses {
    /// All of them; those in none of the others ended in the first level.
    pub all: u64,
    /// In the second level.
    pub l2: u64,
    /// In the second level, in a page of which another line had just come.
    pub l2_beside: u64,
    /// In the last level.
    pub llc: u64,
    /// In the last level, in a page of which another line had just come.
    pub llc_beside: u64,
    /// In memory, as the next line of a stream.
    pub streamed: u64,
    /// In memory, in a page of which another line had just come from there.
    pub near: u64,
    /// In memory.
    pub memory: u64,
    /// Accesses whose translation was in no level.
    pub walks: u64,
}

impl Accesses {
    /// Adds accesses.
    pub(super) fn add(&mut self, more: Accesses) {
        self.all += more.all;
        self.l2 += more.l2;
        self.l2_beside += more.l2_beside;
        self.llc += more.llc;
        self.llc_beside += more.llc_beside;
        self.streamed += more.streamed;
        self.near += more.near;
        self.memory += more.memory;
        self.walks += more.walks;
    }

    /// The time of these accesses and instructions at this latency of memory.
    pub(super) fn time(&self, instructions: Instructions, latency: f64) -> f64 {
        let parts = [
            (instructions.of_loops, OF_LOOPS),
            (instructions.other, OTHER),
            (self.l2, L2),
            (self.l2_beside, L2_BESIDE),
            (self.llc, LLC),
            (self.llc_beside, LLC_BESIDE),
            (self.streamed, (latency / AHEAD).max(MIN_STREAMED)),
            (self.near, latency / TOGETHER),
            (self.memory, latency),
            (self.walks, WALK),
        ];
        parts.iter().map(|&(count, each)| count as f64 * each).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_of_instructions_and_of_what_is_far_away() {
        let one = Accesses {
            all: 1000,
            memory: 2,
            walks: 1,
            ..Accesses::default()
        };
        let mut two = one;
        two.add(Accesses {
            l2: 1,
            l2_beside: 5,
            llc: 1,
            llc_beside: 2,
            streamed: 1,
            near: 1,
            ..one
        });
        let mut instructions = Instructions::of("xxh64", 600);
        instructions.add(Instructions::of("ksm_do_scan", 100));
        assert!((one.time(instructions, 80.0) - (90.0 + 170.0)).abs() < 1e-6);
        let none = Instructions::default();
        let far = 2.0 + 2.0 + 10.0 + 3.0 + 4.0 + 4.0 + 20.0;
        assert!((two.time(none, 40.0) - (far + 160.0)).abs() < 1e-6);
        // A stream is as fast as memory is near, up to a bound.
        assert!((two.time(none, 160.0) - two.time(none, 80.0) - (4.0 + 8.0 + 320.0)).abs() < 1e-6);
    }
}
