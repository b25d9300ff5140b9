//! Reads randomly chosen pages of processes.
//!
//! # Problem
//! Reading all memory of a host takes minutes of a processor. The choice of pages must depend
//! neither on their contents nor on the other pages, or it allows no conclusion about the rest.
//!
//! # Approach
//! All places of a process's mappings that have anonymous pages are numbered, and each is chosen
//! with the same probability ([`uksm_sketch::bernoulli_sample`]); a place without a page is
//! skipped. If one stretch of address space has many chosen places, the kernel is asked for them
//! together, and neighbouring pages are read together. Only the process's *own* pages are read,
//! which no other process maps: others are shared already, by fork or because they were merged.
//!
//! Some of them can be read again later, one by one: for a page that is no longer in memory, the
//! same entry of the pagemap shows whether it is swapped out or gone, and it is not touched.
//!
//! Only files of `/proc` are opened, all for reading: no process is stopped, attached or advised.
//!
//! # Units
//! Counts in pages, addresses in bytes.
//!
//! # Source
//! proc(5): `/proc/PID/mem`, `/proc/PID/pagemap`.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use uksm_policy::command::PAGE_SIZE;
use uksm_sketch::bernoulli_sample::BernoulliSample;
use uksm_sketch::content::{Content, PAGE_BYTES, Salt};

use super::pace::Pace;
use super::pagemap::{FILE, PRESENT, Pagemap, SWAPPED};
use super::survey::{Survey, SurveyedMapping};
use super::{BATCH_PAGES, TABLE_PAGES, after, check_still};
use crate::proc::{self, Proc, Stat};

/// From this number of chosen places in a stretch on, the kernel is asked for them together: asking
/// for one takes as long as for some dozens beside it.
const MIN_JOINT_PAGES: usize = 8;

/// Batches between two checks of the clock.
const BATCHES_PER_CLOCK_READ: u32 = 16;

/// An own page of a process that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledPage {
    /// Its address, in bytes.
    pub address: u64,
    /// Its content.
    pub content: Content,
    /// Whether in-kernel KSM may merge it.
    pub is_offered: bool,
}

/// The present state of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PresentState {
    /// It is in memory, with this content.
    Holds(Content),
    /// It is swapped out, or on its way to another frame: its content cannot be read without
    /// bringing it in.
    SwappedOut,
    /// The process gave it back, replaced it, or ended.
    Gone,
}

/// Reads chosen pages.
#[derive(Debug)]
pub struct Sampler {
    salt: Salt,
    pace: Pace,
    untimed: u32,
    buffer: Vec<u8>,
}

impl Sampler {
    /// Limits this process to this share of a core, from its start on; the salt chooses the pages
    /// and hashes their contents.
    #[must_use]
    pub fn new(salt: Salt, share: f64) -> Sampler {
        Sampler {
            salt,
            pace: Pace::of_process(share),
            untimed: 0,
            buffer: vec![0; PAGE_BYTES * usize::try_from(BATCH_PAGES).unwrap_or(1)],
        }
    }

    /// Sleeps for the time used and not yet slept for.
    pub fn rest(&mut self) {
        self.pace.keep();
    }

    /// Asks the kernel for the memory of a process. After some mappings it calls back to ask
    /// whether to go on.
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

    /// Shows those own pages of a process that are chosen with this probability; the process is the
    /// one of which `stat` was read. Returns the number of chosen places.
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
        see: &mut dyn FnMut(SampledPage),
    ) -> proc::Result<u64> {
        let memory = proc.open(pid, "mem")?;
        let pagemap = Pagemap::of(proc, pid)?;
        check_still(proc, pid, stat)?;
        let mut chosen = BernoulliSample::new(self.salt, u64::from(pid), rate).peekable();
        let mut passed = 0;
        let mut taken = 0;
        let mut addresses = Vec::new();
        for &SurveyedMapping {
            start,
            end,
            is_offered,
        } in &survey.mappings
        {
            let places = (end - start) / PAGE_SIZE;
            let mut see = |address, content| {
                see(SampledPage {
                    address,
                    content,
                    is_offered,
                });
            };
            while let Some(number) = chosen.next_if(|&number| number < passed + places) {
                let address = start + (number - passed) * PAGE_SIZE;
                let is_near = |&first: &u64| address < after(first, TABLE_PAGES);
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

    /// Shows the present state of single pages of the process of which `stat` was read. Pages that
    /// others map meanwhile, by fork or because they were merged, are read as well.
    ///
    /// # Errors
    /// There is no right to read it. A process that ended, or became another program without these
    /// places, is no error: its pages are gone.
    pub fn again(
        &mut self,
        proc: &Proc,
        pid: u32,
        stat: &Stat,
        addresses: &[u64],
        see: &mut dyn FnMut(PresentState),
    ) -> proc::Result<()> {
        let opened = || {
            let opened = (proc.open(pid, "mem")?, Pagemap::of(proc, pid)?);
            check_still(proc, pid, stat)?;
            Ok(opened)
        };
        let mut opened = match opened() {
            Err(proc::Error::Gone { .. }) => None,
            opened => Some(opened?),
        };
        for &address in addresses {
            let now = match &opened {
                None => Ok(PresentState::Gone),
                Some((memory, pagemap)) => self.now(memory, pagemap, address),
            };
            let now = match now {
                Err(proc::Error::Gone { .. }) => {
                    opened = None;
                    PresentState::Gone
                }
                now => now?,
            };
            see(now);
        }
        Ok(())
    }

    /// The present state of a page.
    fn now(
        &mut self,
        memory: &File,
        pagemap: &Pagemap,
        address: u64,
    ) -> proc::Result<PresentState> {
        // Before it, so that the caller has the time of reading.
        self.untimed += 1;
        if self.untimed >= BATCHES_PER_CLOCK_READ {
            self.untimed = 0;
            self.pace.keep();
        }
        let word = pagemap.word(address)?;
        if word & PRESENT == 0 && word & SWAPPED != 0 {
            return Ok(PresentState::SwappedOut);
        }
        if word & PRESENT == 0 || word & FILE != 0 {
            return Ok(PresentState::Gone);
        }
        let bytes = &mut self.buffer[..PAGE_BYTES];
        // It went away since the kernel was asked.
        let is_read = memory.read_exact_at(bytes, address).is_ok();
        let now = match is_read {
            true => PresentState::Holds(self.salt.content(bytes)),
            false => PresentState::Gone,
        };
        Ok(now)
    }

    /// Reads the pages that are present in one stretch.
    fn read(
        &mut self,
        memory: &File,
        pagemap: &Pagemap,
        chosen: &[u64],
        see: &mut dyn FnMut(u64, Content),
    ) -> proc::Result<()> {
        let own = own(pagemap, chosen)?;
        for run in own.chunk_by(|one, next| one + PAGE_SIZE == *next) {
            for batch in run.chunks(self.buffer.len() / PAGE_BYTES) {
                let bytes = &mut self.buffer[..batch.len() * PAGE_BYTES];
                let mut pages = batch;
                // A page that cannot be read is skipped: it went away, or belongs to a device.
                while let Some(&first) = pages.first() {
                    let bytes = &mut bytes[..pages.len() * PAGE_BYTES];
                    let filled = memory.read_at(bytes, first).unwrap_or(0) / PAGE_BYTES;
                    let contents = bytes.chunks_exact(PAGE_BYTES).take(filled);
                    for (contents, &address) in contents.zip(pages) {
                        see(address, self.salt.content(contents));
                    }
                    pages = &pages[(filled + 1).min(pages.len())..];
                }
                self.untimed += 1;
            }
        }
        if self.untimed >= BATCHES_PER_CLOCK_READ {
            self.untimed = 0;
            self.pace.keep();
        }
        Ok(())
    }
}

/// Those of the chosen addresses, ascending, whose page no other process maps.
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
        [first, .., last] if chosen.len() >= MIN_JOINT_PAGES => {
            ask(first, last + PAGE_SIZE, chosen)?;
        }
        _ => {
            for &address in chosen {
                ask(address, address + PAGE_SIZE, &[address])?;
            }
        }
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::super::pagemap::EXCLUSIVE;
    use super::*;

    /// A process 7 with these words of its pages, each of which holds its number in all bytes.
    fn process(words: &[u64], start_ticks: u64) -> (tempfile::TempDir, Proc) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("7");
        std::fs::create_dir(&folder).unwrap();
        let zeros = "0 ".repeat(17);
        let stat = format!("7 (x) S 1 {zeros}{start_ticks} {}", "0 ".repeat(30));
        let bytes: Vec<u8> = words.iter().copied().flat_map(u64::to_le_bytes).collect();
        let memory: Vec<u8> = (0u8..)
            .take(words.len())
            .flat_map(|page| [page; PAGE_BYTES])
            .collect();
        std::fs::write(folder.join("stat"), stat).unwrap();
        std::fs::write(folder.join("pagemap"), bytes).unwrap();
        std::fs::write(folder.join("mem"), memory).unwrap();
        let proc = Proc::at(root.path());
        (root, proc)
    }

    fn again(proc: &Proc, stat: &Stat, pages: &[u64]) -> Vec<PresentState> {
        let addresses: Vec<u64> = pages.iter().map(|page| page * PAGE_SIZE).collect();
        let mut found = Vec::new();
        let mut sampler = Sampler::new(Salt::new(1), 1.0);
        let see = &mut |now| found.push(now);
        sampler.again(proc, 7, stat, &addresses, see).unwrap();
        found
    }

    #[test]
    fn only_what_is_in_memory_is_read_again() {
        let words = [
            PRESENT | EXCLUSIVE,
            SWAPPED,
            0,
            PRESENT | FILE,
            PRESENT | EXCLUSIVE,
            PRESENT,
        ];
        let (_root, proc) = process(&words, 55);
        let stat = proc.stat(7).unwrap();
        let holds = |page| PresentState::Holds(Salt::new(1).content(&[page; PAGE_BYTES]));
        assert_eq!(
            again(&proc, &stat, &[0, 1, 2, 3, 4, 5]),
            [
                PresentState::Holds(Content::Zero),
                PresentState::SwappedOut,
                PresentState::Gone,
                PresentState::Gone,
                holds(4),
                // Merged or forked meanwhile.
                holds(5),
            ]
        );
        // The address space ends before.
        assert_eq!(
            again(&proc, &stat, &[4, 9, 4])[1..],
            [PresentState::Gone, PresentState::Gone]
        );
    }

    #[test]
    fn pages_of_a_process_that_ended_are_gone_whoever_has_its_number() {
        let (root, proc) = process(&[PRESENT | EXCLUSIVE], 55);
        let mut stat = proc.stat(7).unwrap();
        stat.start_ticks -= 1;
        assert_eq!(again(&proc, &stat, &[0]), [PresentState::Gone]);
        std::fs::remove_dir_all(root.path().join("7")).unwrap();
        assert_eq!(
            again(&proc, &stat, &[0, 0]),
            [PresentState::Gone, PresentState::Gone]
        );
    }
}
