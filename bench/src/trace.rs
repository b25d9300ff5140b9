//! Traces: memory of real processes, as identities of pages over time.
//!
//! # Problem
//! The positions of equal pages in real memory, their number and their changes decide the cost of
//! finding them. Contents of real processes are private, and far too large to keep.
//!
//! # Approach
//! [`capture`] reads processes at intervals and compares hashes of pages with a salt that is never
//! written. [`writing`] numbers contents in the order in which they were first seen and writes the
//! changes from one moment to the next. A trace keeps of a page only its number and the set of its
//! 64 cache lines that are zeros: pages with few other lines look alike to a hash of some lines
//! only. Number 0 is the page of zeros. Other similarity of pages is not kept: pages that differ do
//! so in every line that is not zeros.
//!
//! # Format
//! Text, a JSON value a line. The first is the [`Header`]. Each further one is a [`Change`]:
//! moment, mapping (counted through all processes), and the new contents of it at that moment, five
//! numbers a run: the first page, the number of pages, the contents of the first, the continuation
//! (0: all the same; 1: each the next number; 2: no page any more), and the lines that are zeros,
//! as bits. Pages that are not named are unchanged.
//!
//! The files are compressed (`traces/NAME.trace.gz`); the build unpacks them (`build.rs`). A
//! workload reads only the lines of the memory that it fills: a whole trace would be memory that no
//! real process had.

pub(crate) mod capture;
mod writing;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Version of the format.
const FORMAT: u32 = 1;

/// The continuation of a run.
const SAME: u64 = 0;
const ASCENDING: u64 = 1;
const GONE: u64 = 2;

/// Numbers of a run in a line.
const FIELDS: usize = 5;

/// A trace that is part of this program.
pub(crate) struct Trace {
    /// Its name.
    pub name: &'static str,
    text: &'static str,
}

/// All traces.
pub(crate) const TRACES: &[Trace] = &[
    Trace {
        name: "redis",
        text: include_str!(concat!(env!("OUT_DIR"), "/redis.trace")),
    },
    Trace {
        name: "python",
        text: include_str!(concat!(env!("OUT_DIR"), "/python.trace")),
    },
    Trace {
        name: "node",
        text: include_str!(concat!(env!("OUT_DIR"), "/node.trace")),
    },
    Trace {
        name: "postgres",
        text: include_str!(concat!(env!("OUT_DIR"), "/postgres.trace")),
    },
    Trace {
        name: "nginx",
        text: include_str!(concat!(env!("OUT_DIR"), "/nginx.trace")),
    },
    Trace {
        name: "desktop",
        text: include_str!(concat!(env!("OUT_DIR"), "/desktop.trace")),
    },
    Trace {
        name: "guests",
        text: include_str!(concat!(env!("OUT_DIR"), "/guests.trace")),
    },
];

/// The description of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Version of the format.
    format: u32,
    /// The captured processes, and the way to repeat the capture.
    pub source: String,
    /// Milliseconds from one moment to the next.
    pub every_ms: u64,
    /// Number of moments.
    pub moments: usize,
    /// The processes, in the order in which they were named.
    pub processes: Vec<CapturedProcess>,
}

/// A process of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CapturedProcess {
    /// Name of its program.
    pub name: String,
    /// Its mappings in which there ever was a page: number of the first page of the address space,
    /// and number of pages.
    pub mappings: Vec<(u64, usize)>,
}

/// The new contents of a mapping at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Change(usize, usize, Vec<u64>);

/// The content of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PageContent {
    /// Pages with equal numbers are equal.
    pub number: u64,
    /// The lines that are zeros, as bits.
    pub zero_lines: u64,
}

impl PageContent {
    /// The page of zeros.
    pub(crate) const ZEROS: PageContent = PageContent {
        number: 0,
        zero_lines: u64::MAX,
    };
}

impl Trace {
    /// The trace of this name.
    ///
    /// # Errors
    /// There is none; the message names the existing ones.
    pub(crate) fn find(name: &str) -> Result<usize> {
        let found = TRACES.iter().position(|trace| trace.name == name);
        found.with_context(|| {
            let names: Vec<&str> = TRACES.iter().map(|trace| trace.name).collect();
            format!("no trace '{name}'; there are {}", names.join(", "))
        })
    }

    /// Its description.
    ///
    /// # Errors
    /// It is no trace of this version.
    pub(crate) fn header(&self) -> Result<Header> {
        header(self.text).with_context(|| format!("trace {}", self.name))
    }

    /// The content of each page of a mapping at a moment, none if there is no page.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn pages(
        &self,
        mapping: usize,
        count: usize,
        moment: usize,
    ) -> Result<Vec<Option<PageContent>>> {
        pages(self.text, mapping, count, moment).with_context(|| format!("trace {}", self.name))
    }
}

fn header(text: &str) -> Result<Header> {
    let line = text.lines().next().context("it is empty")?;
    let header: Header = serde_json::from_str(line).context("line 1")?;
    ensure!(
        header.format == FORMAT,
        "its format is {}, not {FORMAT}",
        header.format
    );
    Ok(header)
}

fn pages(
    text: &str,
    mapping: usize,
    count: usize,
    moment: usize,
) -> Result<Vec<Option<PageContent>>> {
    let mut pages = vec![None; count];
    for (number, line) in (1..).zip(text.lines()).skip(1) {
        // Most lines belong to other mappings, and are long.
        if !is_of(line, mapping) {
            continue;
        }
        let mut read = || -> Result<bool> {
            let Change(at, _, runs) = serde_json::from_str(line)?;
            if at > moment {
                return Ok(false);
            }
            take(&runs, &mut pages)?;
            Ok(true)
        };
        if !read().with_context(|| format!("line {number}"))? {
            break;
        }
    }
    Ok(pages)
}

/// Whether a line belongs to this mapping.
fn is_of(line: &str, mapping: usize) -> bool {
    let second = line.split(',').nth(1);
    second.and_then(|field| field.parse().ok()) == Some(mapping)
}

fn take(runs: &[u64], pages: &mut [Option<PageContent>]) -> Result<()> {
    let runs = runs.chunks_exact(FIELDS);
    ensure!(
        runs.remainder().is_empty(),
        "a run has {FIELDS} numbers, the last one {}",
        runs.remainder().len()
    );
    for run in runs {
        let &[first, count, number, on, zero_lines] = run else {
            continue;
        };
        ensure!(on <= GONE, "a run cannot go on as {on}");
        let range = usize::try_from(first)?..usize::try_from(first + count)?;
        let slots = pages.get_mut(range);
        let slots = slots.with_context(|| format!("no pages {first} to {}", first + count))?;
        for (slot, step) in slots.iter_mut().zip(0..) {
            let number = if on == ASCENDING {
                number + step
            } else {
                number
            };
            *slot = (on != GONE).then_some(PageContent { number, zero_lines });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
