//! A build of a kernel (XLH §5.2).
//!
//! `bench/traces/linux-build.txt.gz` holds a recorded build of Linux 6.1.192 for x86-64 (defconfig,
//! gcc 12, one job), its first 1663 compiled files: for each its length, the length of its object,
//! and the headers that it was the first to read. It was made of the dependency files of the build
//! (`.*.o.cmd`), in the order of the objects' times. After the last one the list begins again, with
//! other contents. All machines build the same, but each starts later and is slower
//! than the one before it. The reads of linking and the memory of programs are not replayed.

use std::time::Duration;

use super::files::{Access, OBJECTS, SOURCES};
use crate::disk_machines::{HEADERS, Machine};
use crate::rng::Rng;

/// The record: a line for each compiled file, in the order of the build. First the pages of the
/// source, then those of the object, then `PAGESxUSES` for each new header.
const RECORDED: &str = include_str!(concat!(env!("OUT_DIR"), "/linux-build.txt"));

/// Pages that are read for the first time or written, a second: the paper's builds shared this
/// many.
const PAGES_PER_SECOND: f64 = 150.0;

/// Each machine starts this much later than the one before it, in seconds, and is slower by this
/// part.
const START_DELAY_SECONDS: f64 = 3.0;
const SLOWDOWN: f64 = 0.03;

/// Headers are read again by one file in this many, for all of these: pages in the page cache need
/// no disk, and only have to stay there.
const READ_AGAIN_EVERY: usize = 8;

/// A compiled file.
struct Unit {
    source: usize,
    object: usize,
    headers: Vec<HeaderFile>,
}

struct HeaderFile {
    pages: usize,
    /// The number of the recorded files that read it.
    uses: usize,
}

fn recorded() -> Vec<Unit> {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    lines.map(unit).collect()
}

fn unit(line: &str) -> Unit {
    let number = |text: &str| {
        text.parse()
            .unwrap_or_else(|_| panic!("linux-build.txt: {line}"))
    };
    let mut words = line.split(' ');
    let mut next = || words.next().map_or_else(|| number(""), number);
    let (source, object) = (next(), next());
    let header = |word: &str| {
        let (pages, uses) = word.split_once('x').unwrap_or_default();
        HeaderFile {
            pages: number(pages),
            uses: number(uses),
        }
    };
    Unit {
        source,
        object,
        headers: words.map(header).collect(),
    }
}

pub(super) fn accesses(machine: &Machine) -> Vec<Access> {
    let units = recorded();
    let number = machine.number as f64;
    let pace = f64::from(machine.slowness) * (1.0 + SLOWDOWN * number) / PAGES_PER_SECOND;
    let end = machine.length.as_secs_f64();
    let mut draws = Rng::new(machine.seed, HEADERS + machine.number);
    let (mut source, mut object) = (SOURCES, OBJECTS);
    // First block, pages and uses of all headers so far.
    let mut known: Vec<(u64, usize, usize)> = Vec::new();
    let mut accesses = Vec::new();
    let mut seconds = START_DELAY_SECONDS * number;
    for (index, unit) in units.iter().cycle().enumerate() {
        if seconds >= end {
            break;
        }
        let at = Duration::from_secs_f64(seconds);
        let mut read = |first, pages| {
            accesses.push(Access {
                at,
                first,
                pages,
                writes: false,
            });
        };
        let mut place = |pages: usize| {
            let first = source;
            source += pages as u64;
            read(first, pages);
            first
        };
        place(unit.source);
        let before = known.len();
        for header in &unit.headers {
            known.push((place(header.pages), header.pages, header.uses));
        }
        if index % READ_AGAIN_EVERY == 0 {
            for &(first, pages, uses) in &known[..before] {
                if draws.below(units.len()) < uses * READ_AGAIN_EVERY {
                    read(first, pages);
                }
            }
        }
        let new: usize = unit.headers.iter().map(|header| header.pages).sum();
        seconds += (unit.source + new + unit.object) as f64 * pace;
        accesses.push(Access {
            at: Duration::from_secs_f64(seconds),
            first: object,
            pages: unit.object,
            writes: true,
        });
        object += unit.object as u64;
    }
    accesses
}
