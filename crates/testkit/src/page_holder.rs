//! A process with pages that the test knows.
//!
//! # Problem
//! Tests read the memory of real processes, and must know the contents of every page.
//!
//! # Approach
//! The process is the test's own program, started to run one ignored test alone, which calls
//! [`hold_pages`].

use std::io::{BufRead as _, BufReader, Read as _};
use std::ops::Range;
use std::process::{Child, Command, Stdio};

use memmap2::{Advice, MmapMut};

use crate::child_process::ChildExit as _;

const PAGE_SIZE: usize = 4096;

/// The variable that lists the pages, as words:
/// - `0..640`: numbers, each on a page; `0..5*100`: each on a hundred pages;
/// - `zero*20`: pages of zeros that were written; `read*20`: pages that were only read; `none*20`:
///   pages that were never touched;
/// - `maps*20`: mappings of one page;
/// - `offered:0..640`: pages that are offered to in-kernel KSM;
/// - `rewritten:0..640`: pages that change every few milliseconds.
const PAGES: &str = "UKSM_TEST_PAGES";

/// A process that is killed with its owner.
#[derive(Debug)]
pub struct PageHolder(Child);

impl PageHolder {
    /// Starts one that runs the ignored test `entry`, with these pages and these variables; returns
    /// when its pages are filled and it sleeps.
    ///
    /// # Panics
    /// If it ends before.
    #[must_use]
    pub fn start(entry: &str, pages: &str, variables: &[(&str, &str)]) -> PageHolder {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", entry, "--ignored", "--nocapture"])
            // With more, another thread reports after a minute that this runs for long, and writes
            // memory of its own.
            .arg("--test-threads=1")
            .env(PAGES, pages)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.any(|line| line.unwrap().contains("ready"));
        assert!(is_ready, "the child did not come so far");
        let holder = PageHolder(child);
        // On its way to sleep it touches memory of its own.
        while !holder.sleeps() {
            std::thread::yield_now();
        }
        holder
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Kills it; it stays a zombie.
    ///
    /// # Panics
    /// If it is reaped already.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// If it is no child of this process.
    pub fn reap(&mut self) {
        self.0.wait().unwrap();
    }

    /// Whether each thread sleeps.
    fn sleeps(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let stats =
            threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")));
        stats
            .flatten()
            .all(|stat| stat.rsplit(") ").next().unwrap().starts_with('S'))
    }
}

impl Drop for PageHolder {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Pages of these numbers, each `times` times. Number 0 is zeros.
fn numbered_pages(numbers: Range<usize>, times: usize) -> MmapMut {
    let mut map = untouched_pages(numbers.len() * times);
    for (page, bytes) in map.chunks_exact_mut(PAGE_SIZE).enumerate() {
        let number = (numbers.start + page / times) as u64;
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&number.to_ne_bytes());
        }
    }
    map
}

fn untouched_pages(count: usize) -> MmapMut {
    MmapMut::map_anon(count * PAGE_SIZE).unwrap()
}

fn read_pages(count: usize) -> MmapMut {
    let map = untouched_pages(count);
    for page in map.chunks_exact(PAGE_SIZE) {
        assert_eq!(std::hint::black_box(page)[9], 0);
    }
    map
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("{PAGES}: '{text}'"))
}

/// The mappings of one word of [`PAGES`], without its prefixes.
fn mappings(word: &str) -> Vec<MmapMut> {
    let (pages, times) = word.split_once('*').unwrap_or((word, "1"));
    let times = number(times);
    match pages.split_once("..") {
        Some((first, end)) => {
            // Number 0 is zeros.
            let numbers = number(first) + 1..number(end) + 1;
            vec![numbered_pages(numbers, times)]
        }
        None if pages == "zero" => vec![numbered_pages(0..1, times)],
        None if pages == "read" => vec![read_pages(times)],
        None if pages == "none" => vec![untouched_pages(times)],
        None => {
            assert_eq!(pages, "maps", "{PAGES}");
            (0..times).map(|_| numbered_pages(1..2, 1)).collect()
        }
    }
}

/// Changes one word of each page again and again, beginning with numbers that no page has.
fn rewrite(mut maps: Vec<MmapMut>) {
    for round in u64::MAX / 2.. {
        for page in maps
            .iter_mut()
            .flat_map(|map| map.chunks_exact_mut(PAGE_SIZE))
        {
            page[..8].copy_from_slice(&round.to_ne_bytes());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Fills the pages that the variable lists and holds them until standard input is closed: the work
/// of the process that [`PageHolder::start`] starts.
///
/// # Panics
/// If another program has started this one.
pub fn hold_pages() {
    let list = std::env::var(PAGES).expect("this is started by the other tests");
    let mut unchanged = Vec::new();
    let mut sealed = Vec::new();
    let mut rewritten = Vec::new();
    for word in list.split(' ') {
        let (word, is_offered) = match word.strip_prefix("offered:") {
            Some(rest) => (rest, true),
            None => (word, false),
        };
        let (word, is_rewritten) = match word.strip_prefix("rewritten:") {
            Some(rest) => (rest, true),
            None => (word, false),
        };
        let is_single = word.starts_with("maps");
        for (position, map) in mappings(word).into_iter().enumerate() {
            if is_offered {
                let _a_kernel_may_have_no_ksm = map.advise(Advice::Mergeable);
            }
            if is_single && position % 2 == 1 {
                // Neighbours of unlike rights stay apart.
                sealed.push(map.make_read_only().unwrap());
            } else if is_rewritten {
                rewritten.push(map);
            } else {
                unchanged.push(map);
            }
        }
    }
    println!("ready");
    if !rewritten.is_empty() {
        std::thread::spawn(move || rewrite(rewritten));
    }
    let _until_it_is_closed = std::io::stdin().read(&mut [0]);
}
