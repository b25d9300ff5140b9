//! Contents of real processes are read into sketches.
//!
//! The processes are this program again, started to run [`child`] alone, with pages that the test
//! knows.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use uksm_linux::contents::{Contents, Reader};
use uksm_linux::proc::{self, Proc};
use uksm_sketch::content::Salt;
use uksm_sketch::sharing::{Joint, Which, among, within};

const PAGE: usize = 4096;

/// The variable that names the child's pages.
const PAGES: &str = "UKSM_TEST_PAGES";

/// A process with known pages: numbers as `0..64` are contents, `zero*20` is written zeros,
/// `read*20` is only read, and `none*20` never touched.
struct Known(Child);

impl Known {
    fn start(pages: &str) -> Known {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "contents::child", "--ignored", "--nocapture"])
            .env(PAGES, pages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.any(|line| line.unwrap().contains("ready"));
        assert!(is_ready, "the child did not come so far");
        let child = Known(child);
        // On its way to sleep it touches memory of its own.
        while !child.sleeps() {
            std::thread::yield_now();
        }
        child
    }

    /// Whether each thread does.
    fn sleeps(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let stats =
            threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")));
        stats
            .flatten()
            .all(|stat| stat.rsplit(") ").next().unwrap().starts_with('S'))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn read(&self, most_pages: u64) -> Contents {
        let proc = Proc::default();
        let stat = proc.stat(self.pid()).unwrap();
        let mut reader = Reader::new(Salt::new(11), most_pages, 1.0);
        reader.read(&proc, self.pid(), &stat).unwrap()
    }

    fn resident(&self) -> usize {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.pid())).unwrap();
        number(statm.split(' ').nth(1).unwrap())
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Fills the page of this index.
type Fill = Box<dyn Fn(usize, &mut [u8])>;

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("{PAGES}: '{text}'"))
}

#[test]
#[ignore = "is what the other tests start"]
fn child() {
    let told = std::env::var(PAGES).expect("this is started by the other tests");
    let mut held = Vec::new();
    for part in told.split(' ') {
        let (pages, fill): (usize, Fill) = match part.split_once('*') {
            Some(("none", pages)) => (number(pages), Box::new(|_, _| {})),
            Some(("zero", pages)) => (number(pages), Box::new(|_, page| page.fill(0))),
            Some(("read", pages)) => {
                let read = |_, page: &mut [u8]| assert_eq!(std::hint::black_box(&*page)[9], 0);
                (number(pages), Box::new(read))
            }
            _ => {
                let (first, end) = part.split_once("..").expect("a range");
                let (first, end) = (number(first), number(end));
                let write = move |index: usize, page: &mut [u8]| {
                    for word in page.chunks_exact_mut(8) {
                        word.copy_from_slice(&((first + index + 1) as u64).to_ne_bytes());
                    }
                };
                (end - first, Box::new(write))
            }
        };
        let mut map = memmap2::MmapMut::map_anon(pages * PAGE).unwrap();
        for (index, page) in map.chunks_exact_mut(PAGE).enumerate() {
            fill(index, page);
        }
        held.push(map);
    }
    println!("ready");
    let _until_it_is_closed = std::io::stdin().read(&mut [0]);
}

/// The pages beside the known ones: the program's own memory.
fn besides(contents: &Contents, known: u64) -> f64 {
    assert!(contents.present >= known, "{contents:?}");
    (contents.present - known) as f64
}

fn is_between(found: f64, low: f64, high: f64) {
    assert!(
        found >= low && found <= high,
        "{found}, not {low} to {high}"
    );
}

#[test]
fn copies_and_zeros_within_a_process_are_counted() {
    let child = Known::start("0..600 0..150 zero*40 read*30");
    let contents = child.read(1 << 20);
    let besides = besides(&contents, 790);
    assert!(besides < 400.0, "{contents:?}");
    assert!(!contents.is_cut && contents.read == contents.present);
    let estimate = within(&contents.sketch, Which::All);
    assert_eq!(estimate.error, 0.0);
    is_between(estimate.pages, 150.0, 150.0 + besides);
    is_between(contents.sketch.zero_pages(), 40.0, 40.0 + besides);
    assert_eq!(within(&contents.sketch, Which::SharedAlready).pages, 0.0);
}

#[test]
fn contents_that_processes_have_in_common_are_counted() {
    let one = Known::start("0..500 1000..1700").read(1 << 20);
    let other = Known::start("5000..5300 0..500").read(1 << 20);
    let besides = besides(&one, 1200).min(besides(&other, 800));
    let [one, other] = [one, other].map(|contents| Joint::of(&contents.sketch, Which::All));
    let common = among(&[&one, &other]);
    assert_eq!(common.error, 0.0);
    is_between(common.pages, 500.0, 500.0 + besides);
}

#[test]
fn reading_brings_no_page_in() {
    let child = Known::start("0..100 none*5000 read*100");
    let resident = child.resident();
    let contents = child.read(1 << 20);
    assert!(contents.present < 1000, "{contents:?}");
    // The child itself may touch some on its way to waiting.
    assert!(child.resident() < resident + 100);
}

#[test]
fn of_a_large_process_a_part_is_read_and_stands_for_all() {
    let child = Known::start("0..8192");
    let contents = child.read(2048);
    assert!(contents.present >= 8192);
    assert!((1..=2048).contains(&contents.read), "{contents:?}");
    assert!(contents.sketch.part_read() <= 0.25);
    let (pages, present) = (contents.sketch.pages(), contents.present as f64);
    assert!((pages / present - 1.0).abs() < 0.2, "{pages} of {present}");
}

#[test]
fn a_process_that_ended_or_is_another_is_gone() {
    let proc = Proc::default();
    let mut child = Known::start("0..10");
    let mut stat = proc.stat(child.pid()).unwrap();
    let mut reader = Reader::new(Salt::new(11), 1000, 1.0);
    stat.start_ticks += 1;
    let pid = child.pid();
    let is_gone = |read: proc::Result<Contents>| matches!(read, Err(proc::Error::Gone { pid: gone }) if gone == pid);
    assert!(is_gone(reader.read(&proc, pid, &stat)));
    stat.start_ticks -= 1;
    assert!(reader.read(&proc, pid, &stat).is_ok());
    child.0.kill().unwrap();
    // A zombie has no memory.
    while proc.stat(pid).unwrap().has_memory() {
        std::thread::yield_now();
    }
    assert!(is_gone(reader.read(&proc, pid, &stat)));
    child.0.wait().unwrap();
    assert!(is_gone(reader.read(&proc, pid, &stat)));
}
