//! A process that changes its memory in every way it can, and checks it all the time.
//!
//! # Problem
//! Merging races with everything a process and the kernel do to pages at the same moment. Which
//! pairing breaks is not known in advance.
//!
//! # Approach
//! A worker knows what each of its pages holds (one of a few contents, so that workers have pages
//! in common), picks pages and deeds at random from a seed, and checks what it touches. Its exit
//! status tells whether it ever read a wrong byte; it also says which page, on its standard error.
//!
//! # Units
//! Pages; rare deeds are rare because they cost a thousand times the common ones.

use std::time::{Duration, Instant};

use super::contents::{Content, Random};
use super::memory::{Huge, Memory};
use super::peer::{fork, wait};
use super::pins::Splice;

/// How many contents workers have in common.
pub const CONTENTS: u64 = 48;

/// Pages of a worker: three huge pages.
pub const PAGES: usize = 3 * 512;

/// The seed of all workers' contents.
pub const SEED: u64 = 29;

const MADV_COLLAPSE: i32 = 25;

/// A worker's memory and what each page ought to hold: a class, or nothing for zeros.
struct Worker {
    memory: Memory,
    expected: Vec<Option<u64>>,
    random: Random,
    wrong: usize,
}

/// Works for some time: the exit status, 0 if all was right.
pub fn work(seed: u64, time: Duration, mergeable: bool) -> i32 {
    let mut random = Random::new(seed);
    let huge = if random.chance(1, 2) {
        Huge::Always
    } else {
        Huge::Never
    };
    let memory = Memory::anonymous(PAGES, huge);
    if mergeable {
        memory
            .advise(0..PAGES, libc::MADV_MERGEABLE)
            .expect("MADV_MERGEABLE");
    }
    let mut worker = Worker {
        memory,
        expected: vec![None; PAGES],
        random,
        wrong: 0,
    };
    for page in 0..PAGES {
        worker.rewrite(page);
    }
    let end = Instant::now() + time;
    let mut deeds = 0;
    while Instant::now() < end {
        worker.step();
        deeds += 1;
    }
    for page in 0..PAGES {
        worker.check(page);
    }
    eprintln!(
        "worker {seed:#x}: {deeds} deeds, {} wrong pages",
        worker.wrong
    );
    i32::from(worker.wrong > 0)
}

impl Worker {
    fn rewrite(&mut self, page: usize) {
        let class = self.random.below(CONTENTS);
        self.memory.fill_page(page, Content::new(SEED, class));
        self.expected[page] = Some(class);
    }

    fn is_right(&self, page: usize) -> bool {
        match self.expected[page] {
            Some(class) => self.memory.holds(page, Content::new(SEED, class)),
            None => self.memory.is_zero(page),
        }
    }

    fn check(&mut self, page: usize) {
        if !self.is_right(page) {
            self.wrong += 1;
            let expected = self.expected[page];
            eprintln!(
                "page {page} should hold {expected:?}, its first word is {:#x}",
                self.memory.word(page, 0)
            );
        }
    }

    /// One check and one deed.
    fn step(&mut self) {
        let page = self.random.page(PAGES);
        self.check(page);
        match self.random.below(1000) {
            0..250 => self.rewrite(page),
            250..300 => self.advise(page, libc::MADV_PAGEOUT),
            300..330 => {
                self.advise(page, libc::MADV_DONTNEED);
                self.expected[page] = None;
            }
            330..340 => {
                let (read, all) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
                self.memory.protect(page..page + 1, read).expect("mprotect");
                self.memory.protect(page..page + 1, all).expect("mprotect");
            }
            340..350 => {
                self.memory.lock(page..page + 1).expect("mlock");
                self.memory.unlock(page..page + 1).expect("munlock");
            }
            350..360 => {
                self.memory
                    .relocate(page..page + 1, PAGES + 7)
                    .expect("mremap away");
                self.memory
                    .relocate(PAGES + 7..PAGES + 8, page)
                    .expect("mremap back");
            }
            360..370 => self.splice(page),
            370..374 => self.collapse(page),
            374..376 => self.fork(page),
            _ => {}
        }
    }

    fn advise(&mut self, page: usize, advice: i32) {
        // PAGEOUT may be refused while the page is in use, which is as good.
        let _taken = self.memory.advise(page..page + 1, advice);
    }

    /// Gives a page to a pipe, where it must be what it was, and writes it afterwards. (A page
    /// of one process only is the pipe's, too: written before, it would change there.)
    fn splice(&mut self, page: usize) {
        let Some(class) = self.expected[page] else {
            return;
        };
        let splice = Splice::new(&self.memory, page..page + 1);
        let wrong = splice.changed(|_| Content::new(SEED, class));
        if wrong > 0 {
            eprintln!("page {page} should be of class {class} in a pipe");
        }
        self.wrong += wrong;
        self.rewrite(page);
    }

    fn collapse(&mut self, page: usize) {
        let first = page - page % 512;
        let _refused = self.memory.advise(first..first + 512, MADV_COLLAPSE);
    }

    /// A child must see the same, and what it writes must stay its own.
    fn fork(&mut self, page: usize) {
        let child = fork(|| {
            let wrong = (page % 7..PAGES)
                .step_by(7)
                .filter(|&page| !self.is_right(page))
                .count();
            self.rewrite(page);
            i32::from(wrong > 0)
        });
        let status = wait(child);
        if status != 0 && !libc::WIFSIGNALED(status) {
            eprintln!("a child saw wrong pages");
            self.wrong += 1;
        }
        self.check(page);
    }
}
