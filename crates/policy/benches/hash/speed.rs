//! Time a cold page takes.
//!
//! A pass hashes 65,536 pages of a gibibyte in a random order. Between passes the whole gibibyte
//! is read, so that no line of a page is in any cache when its turn comes. Pages are 4 KiB in the
//! page table, so each time holds a miss of the TLB, the same for all; the kernel's map of memory
//! has it more seldom.
//!
//! *Apart* means that a page's turn comes when the hash before it is known, as in the kernel, where
//! locks and reference counts between two pages let a core look no further. *Overlapped* means
//! that the core may start on the next pages while it waits.

use crate::Page;
use crate::reference::{WORDS, WordHash, lines, super_fast_hash};
use std::hint::black_box;
use std::time::Instant;
use uksm_policy::command::{Lines, PAGE_LINES};
use uksm_policy::hash::{LineHash, SplitMix64};
use uksm_policy::permutation::Permutation;
use xxhash_rust::{xxh3::xxh3_64, xxh64::xxh64};

const PAGES: usize = 1 << 18;
const PASS: u64 = 1 << 16;
const PASSES: u64 = 5;

/// A page where pages lie, so that its lines are the lines of the cache.
#[derive(Clone)]
#[repr(align(4096))]
struct Aligned(Page);

struct Memory {
    pages: Vec<Aligned>,
    key: u64,
}

impl Memory {
    fn new() -> Memory {
        let mut random = SplitMix64::new(5);
        let mut pages = vec![Aligned([0; 4096]); PAGES];
        for word in pages
            .iter_mut()
            .flat_map(|page| page.0.as_chunks_mut::<8>().0)
        {
            *word = random.next_u64().to_le_bytes();
        }
        Memory { pages, key: 0 }
    }

    /// Median nanoseconds a cold page, apart.
    fn apart(&mut self, hash: impl FnMut(&Page) -> u64) -> f64 {
        self.time::<true>(hash)
    }

    /// Median nanoseconds a cold page, overlapped.
    fn overlapped(&mut self, hash: impl FnMut(&Page) -> u64) -> f64 {
        self.time::<false>(hash)
    }

    fn time<const APART: bool>(&mut self, mut hash: impl FnMut(&Page) -> u64) -> f64 {
        // The place of the next page hangs on these bits of the last hash. There are none, which
        // neither the compiler nor the core knows.
        let bits = if APART { black_box(0) } else { 0 };
        let mut times: Vec<f64> = (0..PASSES)
            .map(|_| {
                let lines = self
                    .pages
                    .iter()
                    .flat_map(|page| page.0.as_chunks::<64>().0);
                black_box(lines.fold(0u64, |sum, line| sum + u64::from(line[0])));
                self.key += 1;
                let order = Permutation::new(PAGES as u64, self.key);
                let places: Vec<usize> = (0..PASS)
                    .map(|i| usize::try_from(order.at(i)).expect("a page of the buffer"))
                    .collect();
                let start = Instant::now();
                let mut last = 0;
                for &at in &places {
                    let at = at + usize::try_from(last & bits).expect("there are no bits");
                    last = hash(&self.pages[at].0);
                    black_box(last);
                }
                start.elapsed().as_secs_f64() * 1e9 / PASS as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}

/// Prints the tables.
pub fn print() {
    let line_hash = LineHash::new(7);
    let words = WordHash::new(7);
    let mut memory = Memory::new();
    println!("\nspeed: ns a cold page of a GiB, median of {PASSES} passes over {PASS} pages");
    println!(
        "\n| strength | line hash | word hash, as many words | word hash, as many bytes | overlapped: lines | words |"
    );
    println!("|---:|---:|---:|---:|---:|---:|");
    for strength in [1u16, 4, 16, 64] {
        let few = usize::from(strength);
        let line = memory.apart(|page| lines(&line_hash, page, strength));
        let as_many = memory.apart(|page| u64::from(words.page(page, few)));
        let as_much = memory.apart(|page| u64::from(words.page(page, few * 16)));
        let line_over = memory.overlapped(|page| lines(&line_hash, page, strength));
        let words_over = memory.overlapped(|page| u64::from(words.page(page, few)));
        println!(
            "| {strength} | {line:.0} | {as_many:.0} | {as_much:.0} | {line_over:.0} | {words_over:.0} |"
        );
    }

    let rows = [
        (
            "line hash",
            memory.apart(|page| lines(&line_hash, page, PAGE_LINES)),
        ),
        (
            "word hash",
            memory.apart(|page| u64::from(words.page(page, WORDS))),
        ),
        (
            "SuperFastHash",
            memory.apart(|page| u64::from(super_fast_hash(page))),
        ),
        ("xxh64", memory.apart(|page| xxh64(page, 7))),
        ("xxh3", memory.apart(|page| xxh3_64(page))),
    ];
    println!("\n| whole page | ns | of the line hash |\n|---|---:|---:|");
    for (name, nanos) in rows {
        println!("| {name} | {nanos:.0} | {:.2} |", nanos / rows[0].1);
    }

    let line = Lines { from: 16, to: 17 };
    let rows = [
        (
            "16 lines to 17",
            memory.apart(|page| 1u64.wrapping_add(line_hash.page(page, line))),
        ),
        (
            "17 lines to 16",
            memory.apart(|page| 1u64.wrapping_sub(line_hash.page(page, line))),
        ),
        (
            "256 words to 272",
            memory.apart(|page| u64::from(words.step(page, 1, 256, 272))),
        ),
        (
            "272 words to 256",
            memory.apart(|page| u64::from(words.step(page, 1, 272, 256))),
        ),
    ];
    println!("\n| change of strength, 64 bytes | ns |\n|---|---:|");
    for (name, nanos) in rows {
        println!("| {name} | {nanos:.0} |");
    }
}
