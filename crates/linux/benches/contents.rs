//! The cost of reading pages into a sketch, and of making groups of sketches.
//!
//! `cargo bench -p uksm-linux --bench contents` reads 256 MiB of this process itself, each page as
//! `uksm group suggest` reads those of others, with all of a core. It also proposes groups for
//! processes that share a third of 32 MiB, and a little with all others.

use std::time::Instant;

use uksm_linux::contents::Reader;
use uksm_linux::proc::Proc;
use uksm_sketch::content::{Content, Salt};
use uksm_sketch::grouping::{Worth, propose};
use uksm_sketch::sketch::Sketch;

const PAGE: usize = 4096;

/// Pages to read.
const PAGES: usize = 1 << 16;

/// Pages of a process that is grouped.
const GROUPED: u64 = 8192;

fn main() {
    read();
    for processes in [50, 100, 200, 400] {
        group(processes);
    }
}

fn read() {
    let mut memory = memmap2::MmapMut::map_anon(PAGES * PAGE).expect("memory");
    for (number, page) in memory.chunks_exact_mut(PAGE).enumerate() {
        page[..8].copy_from_slice(&(number as u64 + 1).to_ne_bytes());
    }
    let (proc, pid) = (Proc::default(), std::process::id());
    let stat = proc.stat(pid).expect("this process");
    for _ in 0..5 {
        let before = Instant::now();
        let mut reader = Reader::new(Salt::new(5), u64::MAX, 1.0);
        let contents = reader.read(&proc, pid, &stat).expect("this process");
        let seconds = before.elapsed().as_secs_f64();
        let pages = contents.read as f64;
        println!(
            "read: {pages} pages in {seconds:.3} s: {:.0} pages a second, {:.2} us a page, {} kept",
            pages / seconds,
            seconds / pages * 1e6,
            contents.sketch.len()
        );
    }
}

fn group(processes: u64) {
    let sketch = |process: u64| {
        let mut sketch = Sketch::default();
        for page in 0..GROUPED {
            let owner = match page % 100 {
                0..=1 => u64::MAX,
                2..=34 => process % 10,
                _ => process + 10,
            };
            sketch.add(Content::Hashed(Salt::new(6).mix([owner, page])), false);
        }
        sketch
    };
    let sketches: Vec<Sketch> = (0..processes).map(sketch).collect();
    let worth = Worth {
        least_share: 0.05,
        least_pages: 256.0,
    };
    let before = Instant::now();
    let proposal = propose(&sketches, worth);
    let seconds = before.elapsed().as_secs_f64();
    println!(
        "group: {processes} processes, {} groups, in {seconds:.3} s",
        proposal.groups.len()
    );
}
