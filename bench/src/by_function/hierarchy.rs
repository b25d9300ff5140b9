//! What accesses to memory would cost a processor, by a model.
//!
//! # Problem
//! An instruction that waits for memory takes as long as five hundred others, and a count of instructions does not
//! show it. What a machine has for memory differs by more than a factor of two.
//!
//! # Approach
//! The emulator's plugin says in which level of a modelled processor each access to data ended (`vm/plugin/caches.c`). Time is
//! that of the instructions, all data at hand, and of each access that ended farther away. The latency of memory is not
//! chosen: everything is said for three of them. Of what overlaps, two things are known: lines that a prefetcher asks for, and
//! lines of one page, whose places do not depend on each other. Nothing else does. Where two systems are compared,
//! only what holds for all three is a claim.
//!
//! A line of a page beside others takes a quarter of the latency: measured natively, the module hashes 4 lines of a cold page in
//! 0.16 µs and 64 in 1.44, of which instructions take 0.03 and 0.45.
//!
//! # Units
//! Nanoseconds of a core.

use serde::{Deserialize, Serialize};

/// Latencies of memory: a desktop's, a server's, and that of another socket or of memory behind a bus.
pub(super) const LATENCIES: [f64; 3] = [40.0, 80.0, 160.0];
/// An instruction: two of them in a cycle of a third of a nanosecond.
const INSTRUCTION: f64 = 1.0 / 6.0;
/// A line from the second level, and from the last.
const L2: f64 = 4.0;
const LLC: f64 = 20.0;
/// A line that was asked for ahead: 8 GB a second.
const STREAMED: f64 = 8.0;
/// Lines of one page of which a processor asks at a time.
const TOGETHER: f64 = 4.0;
/// A translation that is in neither level of them.
const WALK: f64 = 10.0;

/// Where accesses to data ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Accesses {
    /// All of them; what is in none of the others was in the first level.
    pub all: u64,
    /// In the second level.
    pub l2: u64,
    /// In the last level.
    pub llc: u64,
    /// In memory, as the next line of a stream.
    pub streamed: u64,
    /// In memory, in a page of which another line had just come from there.
    pub near: u64,
    /// In memory.
    pub memory: u64,
    /// Those whose translation was in no level.
    pub walks: u64,
}

impl Accesses {
    /// These come on top.
    pub(super) fn add(&mut self, more: Accesses) {
        self.all += more.all;
        self.l2 += more.l2;
        self.llc += more.llc;
        self.streamed += more.streamed;
        self.near += more.near;
        self.memory += more.memory;
        self.walks += more.walks;
    }

    /// What they and so many instructions take, where memory has this latency.
    pub(super) fn time(&self, instructions: u64, latency: f64) -> f64 {
        let parts = [
            (instructions, INSTRUCTION),
            (self.l2, L2),
            (self.llc, LLC),
            (self.streamed, STREAMED),
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
            llc: 1,
            streamed: 1,
            near: 1,
            ..one
        });
        assert!((one.time(600, 80.0) - 270.0).abs() < 1e-6);
        assert!((two.time(0, 40.0) - (160.0 + 20.0 + 32.0 + 10.0)).abs() < 1e-6);
    }
}
