//! Reads the memory contents of processes: all of it, or as much as a sketch needs.
//!
//! # Problem
//! To find shared contents, or to describe real memory, the contents of processes must be read:
//! from outside, without the module, without bringing in a page that is not there, and without
//! keeping a core busy. Processes end, exec, and change their memory meanwhile.
//!
//! # Approach
//! `pagemap` shows which pages of a mapping are present and private. Only these are read, right
//! afterwards, through `/proc/PID/mem`: an open file of it names one address space for good, so
//! that another process is never read in place of one that ended. After the files are opened, the
//! start time of the process is checked; from then on it cannot be another. A page that goes away
//! between the two calls could be brought in: that takes a process that gives back or swaps out the
//! page within some 100 µs, and is the only such case.
//!
//! A process with more pages than a bound is read in stretches of `TABLE_PAGES` pages, chosen by
//! a random number and not by their contents, for each process separately. A stretch is read whole,
//! so that neighbouring pages are read or left out together: where memory is uneven, the error of
//! estimates is larger than stated. Mappings beyond a bound of address space are not read, because
//! even finding the present pages takes time for each.
//!
//! If even that takes too long, [`Survey`] asks the kernel for amounts, and [`Sampler`] reads
//! randomly chosen pages.
//!
//! After some pages `pace` sleeps. Reading counts as use: the kernel considers the pages recently
//! used.
//!
//! # Units
//! Addresses in bytes, counts in pages, ranges half-open.
//!
//! # Source
//! proc(5): `/proc/PID/mem`, `/proc/PID/pagemap`; `/proc/PID/maps`, by [`crate::smaps`].

use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt as _;

use uksm_policy::command::{Mapping, PAGE_SIZE};
use uksm_sketch::content::{PAGE_BYTES, Salt};
use uksm_sketch::sketch::Sketch;

use crate::proc::{self, Proc, Stat};
use crate::smaps::{self, NameKind, SmapsEntries, SmapsEntry};

mod pace;
mod page_sample;
pub(crate) mod pagemap;
mod survey;

use pace::Pace;
pub use page_sample::{PresentState, SampledPage, Sampler};
use pagemap::Pagemap;
pub use survey::Survey;

/// Pages that one page table maps.
const TABLE_PAGES: u64 = 512;

/// Pages read at a time; they and the sketch's data stay in the cache.
const BATCH_PAGES: u64 = 64;

/// Maximum number of pages of address space examined in one process: 256 GiB, for which finding the
/// present pages takes some 2 s.
const MAX_EXAMINED_PAGES: u64 = 1 << 26;

/// The result of reading a process.
#[derive(Debug)]
pub struct Contents {
    /// Its contents.
    pub sketch: Sketch,
    /// Private pages in memory.
    pub present: u64,
    /// The number of them that were read.
    pub read: u64,
    /// Whether it has more address space than the examined part.
    pub is_cut: bool,
}

/// Reads processes.
#[derive(Debug)]
pub struct Reader {
    salt: Salt,
    most_pages: u64,
    pace: Pace,
    buffer: Vec<u8>,
}

/// A private page of a process.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Its address, in bytes.
    pub address: u64,
    /// Whether another process maps it.
    pub is_shared: bool,
    /// Its content.
    pub contents: &'a [u8],
}

/// A process that cannot be mistaken for another any more.
#[derive(Debug)]
struct OpenProcess {
    memory: File,
    pagemap: Pagemap,
    mappings: Vec<Mapping>,
}

/// A part of a mapping, with its number of present pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MappingPart {
    start: u64,
    end: u64,
    present: u64,
}

impl Reader {
    /// Reads at most this many pages of a process, with this share of a core.
    #[must_use]
    pub fn new(salt: Salt, most_pages: u64, share: f64) -> Reader {
        Reader {
            salt,
            most_pages,
            pace: Pace::of_thread(share),
            buffer: vec![0; PAGE_BYTES * usize::try_from(BATCH_PAGES).unwrap_or(1)],
        }
    }

    /// Reads the process of which `stat` was read.
    ///
    /// # Errors
    /// It ended, or became another program; or there is no right to read it.
    pub fn read(&mut self, proc: &Proc, pid: u32, stat: &Stat) -> proc::Result<Contents> {
        let OpenProcess {
            memory,
            pagemap,
            mappings,
        } = OpenProcess::of(proc, pid, stat)?;
        let (stretches, is_cut) = self.stretches(&pagemap, &mappings)?;
        let present = stretches.iter().map(|stretch| stretch.present).sum();
        let chosen = chosen(stretches, self.most_pages, |start| {
            self.salt.mix([u64::from(pid), start])
        });
        let left_out = present - chosen.iter().map(|stretch| stretch.present).sum::<u64>();
        let mut sketch = Sketch::default();
        let mut read = 0;
        let salt = self.salt;
        for stretch in chosen {
            self.read_stretch(&memory, &pagemap, stretch, &mut |page| {
                sketch.add(salt.content(page.contents), page.is_shared);
                read += 1;
            })?;
        }
        sketch.set_present(read + left_out);
        Ok(Contents {
            sketch,
            present,
            read,
            is_cut,
        })
    }

    /// Calls `see` for every private page in memory of the process of which `stat` was read, in
    /// ascending order; returns its mappings, and whether it has more address space than the
    /// examined part. Changes during the call may be missing.
    ///
    /// # Errors
    /// It ended, or became another program; or there is no right to read it.
    pub fn show(
        &mut self,
        proc: &Proc,
        pid: u32,
        stat: &Stat,
        see: &mut dyn FnMut(Page<'_>),
    ) -> proc::Result<(Vec<Mapping>, bool)> {
        let opened = OpenProcess::of(proc, pid, stat)?;
        let (stretches, is_cut) = self.stretches(&opened.pagemap, &opened.mappings)?;
        for stretch in stretches {
            self.read_stretch(&opened.memory, &opened.pagemap, stretch, see)?;
        }
        Ok((opened.mappings, is_cut))
    }

    /// The stretches with present pages, ascending; and whether some were not examined.
    fn stretches(
        &mut self,
        pagemap: &Pagemap,
        mappings: &[Mapping],
    ) -> proc::Result<(Vec<MappingPart>, bool)> {
        let mut stretches = Vec::new();
        let mut looked_at = 0;
        for mapping in mappings {
            looked_at += (mapping.end - mapping.start) / PAGE_SIZE;
            if looked_at > MAX_EXAMINED_PAGES {
                return Ok((stretches, true));
            }
            let mut start = mapping.start;
            while start < mapping.end {
                let end = after(start, TABLE_PAGES).min(mapping.end);
                let present = pagemap.private(start, end)?.count() as u64;
                if present > 0 {
                    stretches.push(MappingPart {
                        start,
                        end,
                        present,
                    });
                }
                start = end;
                self.pace.keep();
            }
        }
        Ok((stretches, false))
    }

    /// Reads the present pages of a stretch.
    fn read_stretch(
        &mut self,
        memory: &File,
        pagemap: &Pagemap,
        stretch: MappingPart,
        see: &mut dyn FnMut(Page<'_>),
    ) -> proc::Result<()> {
        let mut start = stretch.start;
        while start < stretch.end {
            let end = after(start, BATCH_PAGES).min(stretch.end);
            let pages: Vec<(u64, bool)> = pagemap.private(start, end)?.collect();
            for run in pages.chunk_by(|one, next| one.0 + PAGE_SIZE == next.0) {
                let mut run = run;
                while let Some(&(first, _)) = run.first() {
                    let bytes = &mut self.buffer[..run.len() * PAGE_BYTES];
                    // A page that cannot be read is skipped: it went away, or belongs to a device.
                    let filled = memory.read_at(bytes, first).unwrap_or(0) / PAGE_BYTES;
                    let contents = bytes.chunks_exact(PAGE_BYTES).take(filled);
                    for (contents, &(address, is_shared)) in contents.zip(run) {
                        see(Page {
                            address,
                            is_shared,
                            contents,
                        });
                    }
                    run = &run[(filled + usize::from(filled < run.len())).min(run.len())..];
                }
            }
            self.pace.keep();
            start = end;
        }
        Ok(())
    }
}

impl OpenProcess {
    /// Opens the process of which `stat` was read.
    fn of(proc: &Proc, pid: u32, stat: &Stat) -> proc::Result<OpenProcess> {
        let opened = OpenProcess {
            memory: proc.open(pid, "mem")?,
            pagemap: Pagemap::of(proc, pid)?,
            mappings: private(proc, pid)?,
        };
        check_still(proc, pid, stat)?;
        Ok(opened)
    }
}

/// Checks that the process is still the one of which `stat` was read. If so, files that were opened
/// before belong to it.
///
/// # Errors
/// It is gone.
fn check_still(proc: &Proc, pid: u32, stat: &Stat) -> proc::Result<()> {
    match proc.stat(pid)?.start_ticks == stat.start_ticks {
        true => Ok(()),
        false => Err(proc::Error::Gone { pid }),
    }
}

/// The next address after `start` that is aligned to this number of pages.
fn after(start: u64, pages: u64) -> u64 {
    let bytes = pages * PAGE_SIZE;
    start - start % bytes + bytes
}

/// Stretches with at most `most` pages in total, chosen by their lowest numbers, ascending.
fn chosen(
    mut stretches: Vec<MappingPart>,
    most: u64,
    number: impl Fn(u64) -> u64,
) -> Vec<MappingPart> {
    stretches.sort_by_key(|stretch| (number(stretch.start), stretch.start));
    let mut pages = 0;
    let enough = stretches.iter().position(|stretch| {
        pages += stretch.present;
        pages > most
    });
    // At least one is read.
    stretches.truncate(enough.unwrap_or(stretches.len()).max(1));
    stretches.sort_by_key(|stretch| stretch.start);
    stretches
}

/// The private mappings of a process in which pages can be merged.
///
/// # Errors
/// Gone, unreadable, or malformed.
fn private(proc: &Proc, pid: u32) -> proc::Result<Vec<Mapping>> {
    mappings(proc, pid, holds_pages)
}

/// The mappings of a process for which `is_so` is true.
///
/// # Errors
/// Gone, unreadable, or malformed.
pub(crate) fn mappings(
    proc: &Proc,
    pid: u32,
    is_so: fn(&SmapsEntry) -> bool,
) -> proc::Result<Vec<Mapping>> {
    let file = proc.open(pid, "maps")?;
    let mut mappings = Vec::new();
    for entry in SmapsEntries::of(BufReader::new(file)) {
        let entry = entry.map_err(|fault| unreadable(proc, pid, "maps", fault))?;
        if is_so(&entry) {
            mappings.push(Mapping {
                start: entry.start,
                end: entry.end,
                kind: 0,
            });
        }
    }
    Ok(mappings)
}

/// The error of a list of mappings that cannot be read.
fn unreadable(proc: &Proc, pid: u32, file: &str, fault: smaps::Fault) -> proc::Error {
    let is_gone = fault.is_gone();
    let path = proc.path(pid, file);
    match fault {
        _ if is_gone => proc::Error::Gone { pid },
        smaps::Fault::Read { source, .. } => proc::Error::Read { path, source },
        smaps::Fault::Malformed { line, what } => proc::Error::Parse {
            path,
            line: usize::try_from(line).unwrap_or(usize::MAX),
            what: what.to_owned(),
        },
    }
}

/// Whether a mapping is private, and its pages can be merged.
fn holds_pages(entry: &SmapsEntry) -> bool {
    let can_differ = match entry.name_kind() {
        // The kernel puts this into every process.
        NameKind::Kernel => false,
        // Pages of the file, which are shared already.
        NameKind::File => entry.is_writable(),
        NameKind::Anonymous | NameKind::Heap | NameKind::Stack | NameKind::Named => {
            entry.is_usable()
        }
    };
    entry.is_private() && can_differ
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_end_where_a_page_table_does() {
        assert_eq!(after(0, TABLE_PAGES), 2 << 20);
        assert_eq!(after((2 << 20) - 4096, TABLE_PAGES), 2 << 20);
        assert_eq!(after(2 << 20, TABLE_PAGES), 4 << 20);
    }

    #[test]
    fn no_more_is_chosen_than_the_bound_and_all_that_fits_below_it() {
        let stretches: Vec<MappingPart> = (0..100)
            .map(|n| MappingPart {
                start: n << 21,
                end: (n + 1) << 21,
                present: 10,
            })
            .collect();
        let choose = |most, salt: u64| {
            let number = |start| Salt::new(salt).mix([1, start]);
            chosen(stretches.clone(), most, number)
        };
        assert_eq!(choose(1000, 1), stretches);
        let part = choose(300, 1);
        assert_eq!(part.len(), 30);
        assert!(part.is_sorted_by_key(|stretch| stretch.start));
        assert_ne!(part, choose(300, 2), "by chance");
        assert_eq!(choose(3, 1).len(), 1);
    }
}
