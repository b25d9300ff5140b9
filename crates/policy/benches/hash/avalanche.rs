//! How evenly a bit of the page flips the bits of the hash (UKSM Figure 6).
//!
//! Of each of 100 random pages each bit is flipped. A point, one for each pair of a page's bit and
//! a hash's bit, goes up when the one flips the other and down when not. Ideal points are sums of
//! 100 fair steps: 10 is their deviation, and beyond 50 (the paper's bound of "bad points") is
//! one in two million. For a 64-bit hash the low 32 bits are looked at, as many as the others have.

use crate::PageBytes;
use crate::reference::{WORDS, WordHash, lines, super_fast_hash};
use uksm_policy::command::PAGE_LINES;
use uksm_policy::hash::LineHash;
use uksm_policy::mix::SplitMix64;
use xxhash_rust::xxh64::xxh64;

const PAGES: u64 = 100;
const BITS: usize = 4096 * 8;
const BAD: i16 = 50;

fn points(hash: impl Fn(&PageBytes) -> u64) -> Vec<[i16; 32]> {
    let mut points = vec![[0i16; 32]; BITS];
    let mut random = SplitMix64::new(6);
    for _ in 0..PAGES {
        let mut page = [0; 4096];
        for word in page.as_chunks_mut::<8>().0 {
            *word = random.next_u64().to_le_bytes();
        }
        let before = hash(&page);
        for (bit, points) in points.iter_mut().enumerate() {
            page[bit / 8] ^= 1 << (bit % 8);
            let flipped = before ^ hash(&page);
            page[bit / 8] ^= 1 << (bit % 8);
            for (output, point) in points.iter_mut().enumerate() {
                *point += if flipped >> output & 1 == 1 { 1 } else { -1 };
            }
        }
    }
    points
}

/// Prints the table.
pub(crate) fn print() {
    let line_hash = LineHash::new(7);
    let words = WordHash::new(7);
    type Row<'a> = (&'a str, Box<dyn Fn(&PageBytes) -> u64 + 'a>);
    let rows: [Row<'_>; 4] = [
        (
            "line hash",
            Box::new(|page| lines(&line_hash, page, PAGE_LINES)),
        ),
        (
            "word hash 19/16",
            Box::new(|page| u64::from(words.page(page, WORDS))),
        ),
        (
            "SuperFastHash",
            Box::new(|page| u64::from(super_fast_hash(page))),
        ),
        ("xxh64", Box::new(|page| xxh64(page, 7))),
    ];
    println!("\navalanche: {PAGES} random pages, {BITS} bits of the page x 32 bits of the hash\n");
    println!("| whole page | bad points (beyond {BAD}) | largest bias |\n|---|---:|---:|");
    for (name, hash) in rows {
        let points = points(hash);
        let all = || points.iter().flatten().map(|point| point.abs());
        let bad = all().filter(|&bias| bias > BAD).count();
        println!(
            "| {name} | {bad} | {} |",
            all().max().expect("there are points")
        );
    }
}
