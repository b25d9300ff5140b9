//! A process of several threads, each busy in memory of its own: one address space, many faults and
//! flushes at a time.
//!
//! # Problem
//! In a process with one thread no other thread uses the page tables while pages are taken out of
//! them. Threads on other processors have their translations flushed, and wait for the same locks.
//!
//! # Approach
//! Each thread fills its part, and waits. At `work` each reads page after page, drawn at random,
//! and after every eighth writes the sum of all its reads into a page of the first quarter. So the
//! result of the process depends on each byte that was read, and is the same in each run of a seed.

use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::mapping::{Kind, Mapping, Reservation};
use super::protocol::{answer, commands};
use crate::contents::{self, mix};

/// Number of reads before a write.
const READS_A_WRITE: u64 = 8;
/// One page in this many is written.
const WRITTEN: usize = 4;
/// Families of contents; the number of the thread is added.
const FAMILY: u64 = 1 << 44;

/// The configuration of a process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Busy {
    /// Seed of contents and of draws.
    pub seed: u64,
    /// Threads.
    pub threads: usize,
    /// Pages of each.
    pub pages: usize,
    /// Pages that each reads.
    pub reads: u64,
    /// Whether the memory is offered to in-kernel KSM.
    pub mergeable: bool,
}

/// Runs the process until its input ends: reports `ready`, and works on command.
pub(crate) fn run(busy: &Busy) -> Result<()> {
    let mut parts = Vec::new();
    let (answers, answered) = channel();
    std::thread::scope(|scope| {
        for number in 0..busy.threads as u64 {
            let (orders, commands) = channel();
            let answers = answers.clone();
            scope.spawn(move || one(busy, number, &commands, &answers));
            parts.push(orders);
        }
        // The answers of all, in any order.
        let all = || -> Result<u64> {
            let mut digest = 0;
            for _ in 0..busy.threads {
                digest ^= answered.recv().context("a thread ended")??;
            }
            Ok(digest)
        };
        all()?;
        answer("ready")?;
        let commands = commands();
        // Threads end with the channels of their commands.
        let parts = parts;
        while let Ok(command) = commands.recv() {
            ensure!(command == "work", "workload: unknown command '{command}'");
            for part in &parts {
                part.send(()).context("a thread ended")?;
            }
            answer(&format!("worked {}", all()?))?;
        }
        Ok(())
    })
}

/// A thread: answers 0 when its memory is filled, and then with the result of each piece of work.
fn one(busy: &Busy, number: u64, commands: &Receiver<()>, answers: &Sender<Result<u64>>) {
    let mut memory = match ThreadMemory::filled(busy, number) {
        Ok(memory) => memory,
        Err(error) => return drop(answers.send(Err(error))),
    };
    if answers.send(Ok(0)).is_err() {
        return;
    }
    while commands.recv().is_ok() {
        if answers.send(Ok(memory.work(busy.reads))).is_err() {
            return;
        }
    }
}

/// The memory of a thread.
struct ThreadMemory {
    mapping: Mapping,
    /// The sum of all reads.
    sum: u64,
    _reservation: Reservation,
}

impl ThreadMemory {
    fn filled(busy: &Busy, number: u64) -> Result<ThreadMemory> {
        let kind = Kind {
            huge: false,
            mergeable: busy.mergeable,
        };
        let mut reservation = Reservation::for_parts(&[busy.pages])?;
        let mut mapping = reservation.map(busy.pages, kind)?;
        for page in 0..busy.pages {
            let key = contents::key(busy.seed, FAMILY + number, page as u64);
            contents::fill(mapping.page_mut(page), key);
        }
        Ok(ThreadMemory {
            mapping,
            sum: mix(busy.seed ^ number),
            _reservation: reservation,
        })
    }

    /// Reads `reads` pages, and writes into some; returns the sum.
    fn work(&mut self, reads: u64) -> u64 {
        for read in 1..=reads {
            let page = self.sum % self.mapping.pages() as u64;
            let page = usize::try_from(page).unwrap_or_default();
            let words = self.mapping.page(page).iter();
            let found = words.fold(0_u64, |sum, word| sum.rotate_left(1) ^ word);
            self.sum = mix(self.sum ^ found);
            if read.is_multiple_of(READS_A_WRITE) {
                let written = page % self.mapping.pages().div_ceil(WRITTEN);
                self.mapping.page_mut(written)[0] = self.sum;
            }
        }
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::WORDS;

    const BUSY: Busy = Busy {
        seed: 5,
        threads: 2,
        pages: 16,
        reads: 100,
        mergeable: false,
    };

    #[test]
    fn what_it_comes_to_is_that_of_the_seed_and_of_all_that_was_read() {
        let of = |busy: &Busy, number| ThreadMemory::filled(busy, number).unwrap();
        let came = of(&BUSY, 0).work(100);
        assert_eq!(of(&BUSY, 0).work(100), came);
        assert_ne!(of(&BUSY, 1).work(100), came);
        assert_ne!(of(&Busy { seed: 6, ..BUSY }, 0).work(100), came);
        let mut damaged = of(&BUSY, 0);
        for page in 0..BUSY.pages {
            damaged.mapping.page_mut(page)[WORDS - 1] ^= 1;
        }
        assert_ne!(damaged.work(100), came, "a byte that is read counts");
    }
}
