//! Files on a disk, and accesses to them.

use std::time::Duration;

use crate::disk_machines::SIZES;
use crate::rng::Rng;

/// Starts of ranges of files, in blocks of a page.
pub(super) const SYSTEM_FILES: u64 = 0;
pub(super) const SOURCES: u64 = 1 << 20;
pub(super) const OBJECTS: u64 = 1 << 21;
pub(super) const SERVED_FILES: u64 = 1 << 22;

/// One access to a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::disk_machines) struct Access {
    /// The time since the start.
    pub at: Duration,
    /// The block it begins with.
    pub first: u64,
    /// Number of blocks.
    pub pages: usize,
    /// Whether it writes all of them; else it reads them.
    pub writes: bool,
}

/// Files one behind the other on the disk. Their sizes are 4 to 256 KiB, each power of two as
/// often.
pub(super) struct Files {
    firsts: Vec<u64>,
    sizes: Vec<usize>,
}

impl Files {
    pub(super) fn new(seed: u64, name: u64, mut first: u64, count: usize) -> Files {
        let mut draws = Rng::new(seed, SIZES + name);
        let sizes: Vec<usize> = (0..count).map(|_| draws.in_octaves(&(1..=63))).collect();
        let place = |&pages: &usize| {
            let begin = first;
            first += pages as u64;
            begin
        };
        let firsts = sizes.iter().map(place).collect();
        Files { firsts, sizes }
    }

    pub(super) fn read(&self, file: usize, at: Duration) -> Access {
        Access {
            at,
            first: self.firsts[file],
            pages: self.sizes[file],
            writes: false,
        }
    }
}

/// Moments at such intervals, up to the end.
pub(super) fn every(interval: Duration, end: Duration) -> impl Iterator<Item = Duration> {
    (0_u32..)
        .map(move |n| interval * n)
        .take_while(move |&at| at < end)
}
