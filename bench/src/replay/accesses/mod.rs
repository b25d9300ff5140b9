//! What machines do with their files.
//!
//! Disks of all machines hold the same: the system's files, a tree of sources with the objects made from
//! it, and files that are served. Each has a range of blocks of its own.

mod build;
mod web;

use super::{Load, Machine, SIZES, SYSTEM_REQUESTS};
use crate::draws::Draws;
use std::time::Duration;

/// Where a range of files begins, in blocks of a page.
const SYSTEM_FILES: u64 = 0;
const SOURCES: u64 = 1 << 20;
const OBJECTS: u64 = 1 << 21;
const SERVED_FILES: u64 = 1 << 22;

/// One access to a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    /// Since the start.
    pub at: Duration,
    /// The block it begins with.
    pub first: u64,
    /// How many blocks.
    pub pages: usize,
    /// Whether it writes all of them; else it reads them.
    pub writes: bool,
}

/// All accesses of a machine, in the order of time.
pub(super) fn of(machine: &Machine) -> Vec<Access> {
    let mut accesses = match machine.load {
        Load::Build => build::accesses(machine),
        Load::Web => web::accesses(machine),
    };
    accesses.extend(system(machine));
    accesses.retain(|access| access.at < machine.length);
    accesses.sort_by_key(|access| access.at);
    accesses
}

/// Files of the system that any machine reads now and then: programs, libraries, what a timer starts.
const FILES_OF_SYSTEM: usize = 300;
/// One of them is read so often.
const SYSTEM_EVERY: Duration = Duration::from_millis(500);

fn system(machine: &Machine) -> Vec<Access> {
    let files = Files::new(machine.seed, 0, SYSTEM_FILES, FILES_OF_SYSTEM);
    let mut draws = Draws::new(machine.seed, SYSTEM_REQUESTS + machine.number);
    every(SYSTEM_EVERY * machine.slowness, machine.length)
        .map(|at| files.read(draws.below(FILES_OF_SYSTEM), at))
        .collect()
}

/// Files one behind the other on the disk. Their sizes are 4 to 256 KiB, each power of two as often.
struct Files {
    firsts: Vec<u64>,
    sizes: Vec<usize>,
}

impl Files {
    fn new(seed: u64, name: u64, mut first: u64, count: usize) -> Files {
        let mut draws = Draws::new(seed, SIZES + name);
        let sizes: Vec<usize> = (0..count).map(|_| draws.in_octaves(&(1..=63))).collect();
        let place = |&pages: &usize| {
            let begin = first;
            first += pages as u64;
            begin
        };
        let firsts = sizes.iter().map(place).collect();
        Files { firsts, sizes }
    }

    fn read(&self, file: usize, at: Duration) -> Access {
        Access {
            at,
            first: self.firsts[file],
            pages: self.sizes[file],
            writes: false,
        }
    }
}

/// Moments at such intervals, up to the end.
fn every(interval: Duration, end: Duration) -> impl Iterator<Item = Duration> {
    (0_u32..)
        .map(move |n| interval * n)
        .take_while(move |&at| at < end)
}
