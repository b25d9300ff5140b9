//! A process of a group: one that reads at random, or one that counts words.
//!
//! # Problem
//! The paper's workloads run in virtual machines, whose memory is their file cache. Here a process
//! must gain from memory as such a machine does.
//!
//! # Approach
//! The data of the machine's cache is anonymous memory, filled at the start, which the kernel swaps
//! out while the control group has too little. Random reads are of whole pages of a data set common
//! to both members (the paper's sysbench on 700 MB); words are counted from the start to the end of
//! a common text, again and again (Hadoop's wordcount on 200 MB). Each member also reads a part of
//! its own that no other has. Every read checks the data. Between batches members pause, as if
//! waiting for answers of others: a lack of memory shows as longer batches.
//!
//! | command | answer | does |
//! |---|---|---|
//! | `go` | `ready` | begins |
//! | `done` | `done PAGES` | reports the number of pages read |
//! | `verify` | `verified PAGES` | ends, and reads every byte |
//!
//! # Source
//! Euro-Par'11 §4.1.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::contents::{self, PAGE, key, mix};
use crate::rng::Rng;
use crate::units::MIB_PAGES;
use crate::workload::mapping::{Kind, Mapping, Reservation};
use crate::workload::protocol::{answer, commands};

/// Pages read between two pauses: about as much work for each, if memory suffices.
const READS: usize = 16;
const COUNTED: usize = 4;
/// A pause, in which others have the processor. Where instructions are counted, it takes no machine
/// time.
const PAUSE: Duration = Duration::from_micros(1500);
/// Contents of the data set, of the text, and of a member's own part.
const DATA: u64 = 0xD0;
const TEXT: u64 = 0xD1;
const OWN: u64 = 0xE0;
/// Words of the text's language.
const WORDS: u64 = 2048;
/// Counters; the hash of a word selects its counter.
const COUNTERS: usize = 1 << 12;

/// The work of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Reads pages at random.
    RandomRead,
    /// Counts words from the start to the end, and again.
    WordCount,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberSpec {
    /// Its work.
    pub work: Work,
    /// The control group that it goes to before it takes memory.
    pub cgroup: PathBuf,
    /// MiB in common with the other member.
    pub equal_mib: usize,
    /// MiB of its own.
    pub own_mib: usize,
    /// Seed of all contents.
    pub seed: u64,
    /// Its number, the seed of its own contents and its draws.
    pub number: u64,
}

/// Its memory, and its progress.
struct Member {
    spec: MemberSpec,
    memory: Mapping,
    draws: Rng,
    done: u64,
    /// Words of the pass under way, by counter.
    counts: Vec<u32>,
    /// The first whole pass, with which all others are compared.
    first: Option<Vec<u32>>,
}

/// Runs a member until its input ends.
pub(crate) fn run(spec: &MemberSpec) -> Result<()> {
    let procs = spec.cgroup.join("cgroup.procs");
    std::fs::write(&procs, "0").with_context(|| procs.display().to_string())?;
    let pages = (spec.equal_mib + spec.own_mib) * MIB_PAGES;
    let mut reservation = Reservation::for_parts(&[pages])?;
    let kind = Kind {
        huge: false,
        mergeable: false,
    };
    let mut member = Member {
        spec: spec.clone(),
        memory: reservation.map(pages, kind)?,
        draws: Rng::new(spec.seed, OWN + spec.number),
        done: 0,
        counts: vec![0; COUNTERS],
        first: None,
    };
    member.fill();
    let commands = commands();
    answer("ready")?;
    let mut is_going = false;
    loop {
        let command = if is_going {
            commands.try_recv()
        } else {
            commands
                .recv_timeout(Duration::from_secs(3600))
                .map_err(|error| match error {
                    RecvTimeoutError::Timeout => TryRecvError::Empty,
                    RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
                })
        };
        match command {
            Err(TryRecvError::Disconnected) => return Ok(()),
            Err(TryRecvError::Empty) if is_going => member.work()?,
            Err(TryRecvError::Empty) => {}
            Ok(command) => match command.as_str() {
                "go" => {
                    is_going = true;
                    answer("ready")?;
                }
                "done" => answer(&format!("done {}", member.done))?,
                "verify" => {
                    is_going = false;
                    answer(&format!("verified {}", member.verify()?))?;
                }
                other => bail!("member: unknown command '{other}'"),
            },
        }
    }
}

impl Member {
    fn pages(&self) -> usize {
        self.memory.pages()
    }

    /// The key of a page: of the common part, or its own.
    fn key(&self, page: usize) -> u64 {
        let is_own = page >= self.spec.equal_mib * MIB_PAGES;
        let family = match (is_own, self.spec.work) {
            (true, _) => OWN + self.spec.number,
            (false, Work::RandomRead) => DATA,
            (false, Work::WordCount) => TEXT,
        };
        key(self.spec.seed, family, page as u64)
    }

    fn fill(&mut self) {
        for page in 0..self.pages() {
            let key = self.key(page);
            let words = self.memory.page_mut(page);
            match self.spec.work {
                Work::RandomRead => contents::fill(words, key),
                Work::WordCount => {
                    for (word, bytes) in words.iter_mut().zip(text(key).as_chunks().0) {
                        *word = u64::from_le_bytes(*bytes);
                    }
                }
            }
        }
    }

    /// Reads some pages.
    fn work(&mut self) -> Result<()> {
        let batch = match self.spec.work {
            Work::RandomRead => READS,
            Work::WordCount => COUNTED,
        };
        for _ in 0..batch {
            match self.spec.work {
                Work::RandomRead => {
                    let page = self.draws.below(self.pages());
                    self.check(page)?;
                }
                Work::WordCount => {
                    let page = usize::try_from(self.done % self.pages() as u64)?;
                    count(self.memory.page(page), &mut self.counts);
                    if page + 1 == self.pages() {
                        self.end_pass()?;
                    }
                }
            }
            self.done += 1;
        }
        std::thread::sleep(PAUSE);
        Ok(())
    }

    fn check(&self, page: usize) -> Result<()> {
        let holds = contents::holds(self.memory.page(page), self.key(page));
        ensure!(holds, "page {page} does not hold what was written");
        Ok(())
    }

    /// All passes must have the same words.
    fn end_pass(&mut self) -> Result<()> {
        let counts = std::mem::replace(&mut self.counts, vec![0; COUNTERS]);
        let first = self.first.get_or_insert_with(|| counts.clone());
        ensure!(*first == counts, "a text has other words than before");
        Ok(())
    }

    /// Reads all, and compares each byte with the written one.
    fn verify(&self) -> Result<usize> {
        for page in 0..self.pages() {
            match self.spec.work {
                Work::RandomRead => self.check(page)?,
                Work::WordCount => {
                    let written = text(self.key(page));
                    let read = self
                        .memory
                        .page(page)
                        .iter()
                        .flat_map(|word| word.to_le_bytes());
                    ensure!(
                        read.eq(written),
                        "page {page} does not hold what was written"
                    );
                }
            }
        }
        Ok(self.pages())
    }
}

/// A page of text: words of a language, with a space behind each.
fn text(key: u64) -> [u8; PAGE] {
    let mut page = [b' '; PAGE];
    let (mut at, mut drawn) = (0, 0);
    loop {
        let word = mix(key.wrapping_add(drawn)) % WORDS;
        drawn += 1;
        let letters = mix(word);
        let length = 2 + usize::try_from(letters % 9).unwrap_or(0);
        if at + length >= PAGE {
            return page;
        }
        for letter in 0..length {
            page[at + letter] = b'a' + u8::try_from((letters >> (5 * letter)) % 26).unwrap_or(0);
        }
        at += length + 1;
    }
}

/// Counts the words of a page.
fn count(page: &[u64], counts: &mut [u32]) {
    let mut hash = 0_u64;
    for byte in page.iter().flat_map(|word| word.to_le_bytes()) {
        if byte == b' ' {
            if hash != 0 {
                let at = usize::try_from(mix(hash) % COUNTERS as u64).unwrap_or(0);
                counts[at] = counts[at].wrapping_add(1);
                hash = 0;
            }
        } else {
            hash = hash.wrapping_mul(31).wrapping_add(u64::from(byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(key: u64) -> Vec<u64> {
        let text = text(key);
        let words = text.as_chunks().0.iter();
        words.map(|bytes| u64::from_le_bytes(*bytes)).collect()
    }

    #[test]
    fn all_words_of_a_text_are_counted_and_texts_differ() {
        let mut counts = vec![0; COUNTERS];
        count(&words(7), &mut counts);
        let all: usize = text(7)
            .split(|&byte| byte == b' ')
            .filter(|word| !word.is_empty())
            .count();
        assert_eq!(counts.iter().sum::<u32>() as usize, all);
        assert!(all > 400, "{all}");
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }
}
