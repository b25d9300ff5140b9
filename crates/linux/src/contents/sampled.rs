//! Reads pages of processes that were chosen by chance.
//!
//! # Problem
//! To read all memory of a host takes minutes of a processor. Which pages are read must not depend on what is in them, nor on which others
//! are, or nothing can be said of the rest.
//!
//! # Approach
//! All places of a process's mappings that have anonymous pages are numbered, and each is chosen with the same probability
//! ([`uksm_sketch::chosen`]); a place that has no page is passed over. Of chosen places in one stretch of address space the kernel is asked together if they are many,
//! and pages that are neighbours are read together. Only the process's *own* pages are read, which nobody else
//! maps: others are shared already, by fork or because they were merged.
//!
//! Nothing but files of `/proc` is opened, all for reading: no process is stopped, attached or advised.
//!
//! # Units
//! Counts in pages, addresses in bytes.
//!
//! # Source
//! proc(5): `/proc/PID/mem`, `/proc/PID/pagemap`.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use uksm_policy::command::PAGE_SIZE;
use uksm_sketch::chosen::Chosen;
use uksm_sketch::content::{Content, PAGE_BYTES, Salt};

use super::pace::Pace;
use super::pagemap::Pagemap;
use super::survey::{Place, Survey};
use super::{BATCH, STRETCH, after, check_still};
use crate::proc::{self, Proc, Stat};

/// So many chosen places of a stretch are asked for together: to ask for one takes as long as for some dozens beside it.
const TOGETHER: usize = 8;

/// Batches between two looks at the clock.
const UNTIMED: u32 = 16;

/// Reads chosen pages.
#[derive(Debug)]
pub struct Sampler {
    salt: Salt,
    pace: Pace,
    untimed: u32,
    buffer: Vec<u8>,
}

impl Sampler {
    /// Keeps this process to this share of a core, from its start on; the salt chooses the pages and hashes what they hold.
    #[must_use]
    pub fn new(salt: Salt, share: f64) -> Sampler {
        Sampler {
            salt,
            pace: Pace::of_process(share),
            untimed: 0,
            buffer: vec![0; PAGE_BYTES * usize::try_from(BATCH).unwrap_or(1)],
        }
    }

    /// Sleeps for all that this process has used and not slept for yet.
    pub fn rest(&mut self) {
        self.pace.keep();
    }

    /// Asks the kernel for the memory of a process. After some mappings it is asked whether to go on.
    ///
    /// # Errors
    /// It ended, or there is no right to read it.
    pub fn survey(
        &mut self,
        proc: &Proc,
        pid: u32,
        go_on: &mut dyn FnMut() -> bool,
    ) -> proc::Result<Survey> {
        let survey = Survey::of(proc, pid, &mut || {
            self.pace.keep();
            go_on()
        });
        self.pace.keep();
        survey
    }

    /// Shows what the own pages of a process hold that are chosen with this probability, and whether in-kernel KSM may merge
    /// them; the process is the one that `stat` was of. Returns how many places were chosen.
    ///
    /// # Errors
    /// It ended, or became another program; or there is no right to read it.
    pub fn sample(
        &mut self,
        proc: &Proc,
        pid: u32,
        stat: &Stat,
        survey: &Survey,
        rate: f64,
        see: &mut dyn FnMut(Content, bool),
    ) -> proc::Result<u64> {
        let memory = proc.open(pid, "mem")?;
        let pagemap = Pagemap::of(proc, pid)?;
        check_still(proc, pid, stat)?;
        let mut chosen = Chosen::new(self.salt, u64::from(pid), rate).peekable();
        let mut passed = 0;
        let mut taken = 0;
        let mut addresses = Vec::new();
        for &Place {
            start,
            end,
            is_offered,
        } in &survey.places
        {
            let places = (end - start) / PAGE_SIZE;
            let mut see = |content| see(content, is_offered);
            while let Some(number) = chosen.next_if(|&number| number < passed + places) {
                let address = start + (number - passed) * PAGE_SIZE;
                let is_near = |&first: &u64| address < after(first, STRETCH);
                if !addresses.first().is_none_or(is_near) {
                    self.read(&memory, &pagemap, &addresses, &mut see)?;
                    addresses.clear();
                }
                addresses.push(address);
                taken += 1;
            }
            self.read(&memory, &pagemap, &addresses, &mut see)?;
            addresses.clear();
            passed += places;
        }
        Ok(taken)
    }

    /// Reads what is there of some pages in one stretch.
    fn read(
        &mut self,
        memory: &File,
        pagemap: &Pagemap,
        chosen: &[u64],
        see: &mut dyn FnMut(Content),
    ) -> proc::Result<()> {
        let own = own(pagemap, chosen)?;
        for run in own.chunk_by(|one, next| one + PAGE_SIZE == *next) {
            for batch in run.chunks(self.buffer.len() / PAGE_BYTES) {
                let bytes = &mut self.buffer[..batch.len() * PAGE_BYTES];
                let mut pages = batch;
                // A page that cannot be read is passed over: it went away, or is a device's.
                while let Some(&first) = pages.first() {
                    let bytes = &mut bytes[..pages.len() * PAGE_BYTES];
                    let filled = memory.read_at(bytes, first).unwrap_or(0) / PAGE_BYTES;
                    for contents in bytes.chunks_exact(PAGE_BYTES).take(filled) {
                        see(self.salt.content(contents));
                    }
                    pages = &pages[(filled + 1).min(pages.len())..];
                }
                self.untimed += 1;
            }
        }
        if self.untimed >= UNTIMED {
            self.untimed = 0;
            self.pace.keep();
        }
        Ok(())
    }
}

/// Those of ascending places that have a page which nobody else maps.
fn own(pagemap: &Pagemap, chosen: &[u64]) -> proc::Result<Vec<u64>> {
    let mut own = Vec::new();
    let mut ask = |start, end, wanted: &[u64]| -> proc::Result<()> {
        let pages = pagemap.private(start, end)?;
        let pages = pages
            .filter(|&(address, is_shared)| !is_shared && wanted.binary_search(&address).is_ok());
        own.extend(pages.map(|(address, _)| address));
        Ok(())
    };
    match *chosen {
        [first, .., last] if chosen.len() >= TOGETHER => ask(first, last + PAGE_SIZE, chosen)?,
        _ => {
            for &address in chosen {
                ask(address, address + PAGE_SIZE, &[address])?;
            }
        }
    }
    Ok(own)
}
