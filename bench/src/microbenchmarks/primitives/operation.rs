//! Operations of merging systems on pages, each alone, and their pages.
//!
//! Everything is written out, so that it is the same instructions on each processor: a library
//! would choose other code by the processor's features than in an emulated guest.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use anyhow::Result;
use rustix::mm::Advice;
use uksm_policy::command::Lines;
use uksm_policy::hash::line::LineHash;
use uksm_policy::mix::SplitMix64;
use xxhash_rust::xxh64::xxh64;

use super::anonymous::AnonymousMapping;
use crate::contents::PAGE;

/// Words of a page, and of a line.
const WORDS: usize = PAGE / 8;
const LINE: usize = 8;

/// An operation on one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// One word is read, which names the next page: nothing overlaps.
    Follow,
    /// One line is read; the next page is known.
    OneLine,
    /// All lines are read.
    Read,
    /// Four lines are hashed like samples.
    FourLines,
    /// All lines are hashed.
    AllLines,
    /// The page is hashed by the function of in-kernel KSM's checksums.
    Xxh64,
    /// The page is compared with an equal one, a word and a branch at a time, as the kernel does.
    Memcmp,
    /// The same in vectors of 16 bytes, as the module does.
    Compare,
    /// The page is copied to another.
    Copy,
    /// The page is filled with zeros.
    Clear,
}

impl Operation {
    /// All, in an order in which none destroys the input of the next one.
    pub(super) const ALL: [Operation; 10] = [
        Operation::Follow,
        Operation::OneLine,
        Operation::Read,
        Operation::FourLines,
        Operation::AllLines,
        Operation::Xxh64,
        Operation::Memcmp,
        Operation::Compare,
        Operation::Copy,
        Operation::Clear,
    ];

    /// Its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Follow => "follow",
            Operation::OneLine => "one-line",
            Operation::Read => "read",
            Operation::FourLines => "hash-4-lines",
            Operation::AllLines => "hash-64-lines",
            Operation::Xxh64 => "xxh64",
            Operation::Memcmp => "memcmp",
            Operation::Compare => "compare",
            Operation::Copy => "copy",
            Operation::Clear => "clear",
        }
    }
}

/// Pages in two equal halves, page by page, each page at a random place in an order that visits
/// all.
#[derive(Debug)]
pub(super) struct Pages {
    memory: AnonymousMapping,
    each: NonZeroUsize,
    order: Vec<usize>,
    hash: LineHash,
}

impl Pages {
    /// This many pages in each half. They lie in huge pages if there are some, like the kernel's
    /// view of memory.
    ///
    /// # Errors
    /// The machine has too little memory.
    pub(super) fn new(each: NonZeroUsize, seed: u64) -> Result<Pages> {
        let memory = AnonymousMapping::new(2 * each.get() * PAGE, Advice::LinuxHugepage)?;
        let mut order: Vec<usize> = (0..each.get()).collect();
        let mut random = SplitMix64::new(seed);
        for left in (1..order.len()).rev() {
            let other = random.below(left as u64 + 1);
            order.swap(left, usize::try_from(other)?);
        }
        let mut pages = Pages {
            memory,
            each,
            order,
            hash: LineHash::new(seed),
        };
        pages.fill();
        Ok(pages)
    }

    /// Fills all with noise; the first word of each names the next page.
    fn fill(&mut self) {
        let each = self.each.get();
        for place in 0..each {
            let page = self.order[place];
            let following = self.order[(place + 1) % each] as u64;
            for half in [page, page + each] {
                let mut random = SplitMix64::new(page as u64);
                let into = self.page_mut(half);
                into.fill_with(|| random.next_u64());
                into[0] = following;
            }
        }
    }

    fn place(&self, page: usize) -> NonNull<[u64; WORDS]> {
        assert!(page < 2 * self.each.get(), "no page {page}");
        // SAFETY: it lies in the mapping.
        unsafe { self.memory.start().add(page * PAGE) }.cast()
    }

    fn page(&self, page: usize) -> &[u64; WORDS] {
        // SAFETY: a page of the mapping, aligned, and no writer has a reference.
        unsafe { self.place(page).as_ref() }
    }

    /// The page that a page names as the next.
    fn following(&self, page: usize) -> usize {
        usize::try_from(self.page(page)[0]).unwrap_or(usize::MAX)
    }

    fn bytes(&self, page: usize) -> &[u8; PAGE] {
        let words = NonNull::from(self.page(page));
        // SAFETY: a page that is borrowed as words is as many bytes, too.
        unsafe { words.cast().as_ref() }
    }

    fn page_mut(&mut self, page: usize) -> &mut [u64; WORDS] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { self.place(page).as_mut() }
    }

    /// Applies it to `count` pages in their order, from the start again after the end.
    pub(super) fn work(&mut self, operation: Operation, count: usize) {
        let each = self.each.get();
        let mut at = 0;
        let mut following = self.order[0];
        for _ in 0..count {
            let page = self.order[at];
            at = if at + 1 == each { 0 } else { at + 1 };
            match operation {
                Operation::Follow => following = self.following(following),
                Operation::OneLine => {
                    black_box(line(self.page(page), 17));
                }
                Operation::Read => {
                    let page = self.page(page);
                    black_box((0..WORDS / LINE).fold(0, |sum, number| sum ^ line(page, number)));
                }
                Operation::FourLines => {
                    black_box(self.hash.page(self.bytes(page), Lines { from: 0, to: 4 }));
                }
                Operation::AllLines => {
                    black_box(self.hash.page(self.bytes(page), Lines { from: 0, to: 64 }));
                }
                Operation::Xxh64 => {
                    black_box(xxh64(self.bytes(page), 0));
                }
                Operation::Memcmp => {
                    let (one, other) = (self.page(page), self.page(page + each));
                    let mut pairs = one.iter().zip(other);
                    assert!(
                        pairs.all(|(a, b)| black_box(*a) == *b),
                        "page {page} is not equal"
                    );
                }
                Operation::Compare => {
                    let (one, other) = (self.page(page), self.page(page + each));
                    assert!(is_equal(one, other), "page {page} is not equal");
                }
                Operation::Copy => self.copy(page, page + each),
                Operation::Clear => {
                    let into = self.page_mut(page);
                    for word in into {
                        // SAFETY: a reference. Volatile: otherwise it would become a call of a
                        // library's function.
                        unsafe { std::ptr::write_volatile(word, 0) };
                    }
                }
            }
        }
        black_box(following);
    }

    fn copy(&mut self, from: usize, to: usize) {
        assert_ne!(from, to, "a page onto itself");
        let from: *const [u64; WORDS] = self.page(from);
        let to = self.page_mut(to);
        for (word, into) in to.iter_mut().enumerate() {
            // SAFETY: another page of the mapping than the one that is written.
            let value = unsafe { (*from)[word] };
            // SAFETY: a reference. Volatile: otherwise it would become a call of a library's
            // function.
            unsafe { std::ptr::write_volatile(into, value) };
        }
    }
}

/// The hash of a line's words.
fn line(page: &[u64; WORDS], number: usize) -> u64 {
    page[number * LINE..][..LINE]
        .iter()
        .fold(0, |sum, word| sum ^ word)
}

/// Whether two pages hold the same, line by line, as the module compares.
fn is_equal(one: &[u64; WORDS], other: &[u64; WORDS]) -> bool {
    (0..WORDS / LINE).all(|number| {
        let words = number * LINE..(number + 1) * LINE;
        let differ = |sum, (a, b): (&u64, &u64)| sum | (a ^ b);
        let pairs = one[words.clone()].iter().zip(&other[words]);
        pairs.fold(0, differ) == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_works_on_pages_that_are_equal_in_pairs() {
        let mut pages = Pages::new(NonZeroUsize::new(5).unwrap(), 3).unwrap();
        for operation in Operation::ALL {
            pages.work(operation, 12);
        }
        assert!((0..5).all(|page| pages.page(page) == &[0; WORDS]));
        assert!((5..10).all(|page| pages.page(page)[1] != 0));
    }

    #[test]
    fn following_visits_all_pages() {
        let pages = Pages::new(NonZeroUsize::new(7).unwrap(), 1).unwrap();
        let mut seen = [false; 7];
        let mut at = pages.order[0];
        for _ in 0..7 {
            seen[at] = true;
            at = pages.following(at);
        }
        assert!(seen.iter().all(|&is_seen| is_seen));
        assert_eq!(at, pages.order[0]);
    }
}
