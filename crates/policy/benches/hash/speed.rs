//! Time a cold page takes.
//!
//! A pass hashes 65,536 pages of a gibibyte in a random order. Between passes the whole gibibyte
//! is read, so that no line of a page is in any cache when its turn comes. Pages are 4 KiB in the
//! page table, so each time holds a miss of the TLB, the same for all; the kernel's map of memory
//! has it more seldom. The best of the passes counts: what else the machine does only slows them.
//!
//! A page's turn comes when the hash before it is known, as in the kernel, where locks and
//! reference counts between two pages let a core look no further. Without that a core starts on the
//! next pages while it waits, and a hash of little work looks faster than it is.

use crate::PageBytes;
use crate::reference::{WORDS, WordHash, lines, super_fast_hash};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use uksm_policy::command::{Lines, PAGE_LINES};
use uksm_policy::hash::LineHash;
use uksm_policy::mix::SplitMix64;
use uksm_policy::region::permutation::Permutation;
use xxhash_rust::{xxh3::xxh3_64, xxh64::xxh64};

const PAGES: usize = 1 << 18;
const PASS: u64 = 1 << 16;
const PASSES: u64 = 5;

/// A page where pages lie, so that its lines are the lines of the cache.
#[derive(Clone)]
#[repr(align(4096))]
struct Aligned(PageBytes);

/// Processor time of this thread: what other programs take of a core is not in it.
fn processor_nanos() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

struct ColdPages {
    pages: Vec<Aligned>,
    key: u64,
}

impl ColdPages {
    fn new() -> ColdPages {
        let mut random = SplitMix64::new(5);
        let mut pages = vec![Aligned([0; 4096]); PAGES];
        for word in pages
            .iter_mut()
            .flat_map(|page| page.0.as_chunks_mut::<8>().0)
        {
            *word = random.next_u64().to_le_bytes();
        }
        ColdPages { pages, key: 0 }
    }

    /// Nanoseconds a cold page.
    fn time(&mut self, mut hash: impl FnMut(&PageBytes) -> u64) -> f64 {
        // The place of the next page hangs on these bits of the last hash. There are none, which
        // neither the compiler nor the core knows.
        let none = black_box(0);
        let times: Vec<f64> = (0..PASSES)
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
                let start = processor_nanos();
                let mut last = 0;
                for &at in &places {
                    let at = at + usize::try_from(last & none).expect("there are no bits");
                    last = hash(&self.pages[at].0);
                    black_box(last);
                }
                (processor_nanos() - start) / PASS as f64
            })
            .collect();
        times.into_iter().fold(f64::INFINITY, f64::min)
    }
}

/// Prints the tables.
pub(crate) fn print() {
    let line_hash = LineHash::new(7);
    let words = WordHash::new(7);
    let mut memory = ColdPages::new();
    println!("\nspeed: ns a cold page of a GiB, best of {PASSES} passes over {PASS} pages");
    println!("\n| strength | line hash | word hash, as many words | word hash, as many bytes |");
    println!("|---:|---:|---:|---:|");
    for strength in [1u16, 4, 16, 64] {
        let few = usize::from(strength);
        let line = memory.time(|page| lines(&line_hash, page, strength));
        let as_many = memory.time(|page| u64::from(words.page(page, few)));
        let as_much = memory.time(|page| u64::from(words.page(page, few * 16)));
        println!("| {strength} | {line:.0} | {as_many:.0} | {as_much:.0} |");
    }

    let rows = [
        (
            "line hash",
            memory.time(|page| lines(&line_hash, page, PAGE_LINES)),
        ),
        (
            "word hash",
            memory.time(|page| u64::from(words.page(page, WORDS))),
        ),
        (
            "SuperFastHash",
            memory.time(|page| u64::from(super_fast_hash(page))),
        ),
        ("xxh64", memory.time(|page| xxh64(page, 7))),
        ("xxh3", memory.time(|page| xxh3_64(page))),
    ];
    println!("\n| whole page | ns | of the line hash |\n|---|---:|---:|");
    for (name, nanos) in rows {
        println!("| {name} | {nanos:.0} | {:.2} |", nanos / rows[0].1);
    }

    let line = Lines { from: 16, to: 17 };
    let rows = [
        (
            "16 lines to 17",
            memory.time(|page| 1u64.wrapping_add(line_hash.page(page, line))),
        ),
        (
            "17 lines to 16",
            memory.time(|page| 1u64.wrapping_sub(line_hash.page(page, line))),
        ),
        (
            "256 words to 272",
            memory.time(|page| u64::from(words.step(page, 1, 256, 272))),
        ),
        (
            "272 words to 256",
            memory.time(|page| u64::from(words.step(page, 1, 272, 256))),
        ),
    ];
    println!("\n| change of strength, 64 bytes | ns |\n|---|---:|");
    for (name, nanos) in rows {
        println!("| {name} | {nanos:.0} |");
    }
}
