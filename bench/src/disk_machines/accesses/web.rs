//! A web server that serves files in an order of its own (XLH §5.2, "Apache").
//!
//! Both servers have the same files, twice as many as fit into a page cache. The same request asks
//! each for another file, so equal files are read at different times; half of the files that one
//! caches are cached by the other.

use std::time::Duration;

use super::files::{Access, Files, SERVED_FILES, every};
use crate::disk_machines::{Machine, REQUESTS};
use crate::rng::Rng;

/// Time between two requests. With the sizes of the files and caches that hold half of them, 240
/// pages a second are read from the disk; the paper's servers read about as many, by their total of
/// shareable pages.
const EVERY: Duration = Duration::from_millis(25);

/// Mean size of a file, in pages.
const MEAN_PAGES: usize = 16;

/// The name of the sizes of these files.
const NAME: u64 = 1;

pub(super) fn accesses(machine: &Machine) -> Vec<Access> {
    let count = (2 * machine.cache_pages()).div_ceil(MEAN_PAGES).max(1);
    let files = Files::new(machine.seed, NAME, SERVED_FILES, count);
    let mut draws = Rng::new(machine.seed, REQUESTS + machine.number);
    every(EVERY * machine.slowness, machine.length)
        .map(|at| files.read(draws.below(count), at))
        .collect()
}
