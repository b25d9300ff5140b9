//! Contents of real processes are read into sketches.
//!
//! The processes are this program again, started to run [`child`] alone, with pages that the test
//! knows.

use uksm_linux::contents::{Contents, Reader};
use uksm_linux::proc::{self, Proc};
use uksm_sketch::content::Salt;
use uksm_sketch::sharing::{Joint, Which, among, within};
use uksm_testkit::page_holder::{PageHolder, hold_pages};

fn start(pages: &str) -> PageHolder {
    PageHolder::start("contents::child", pages, &[])
}

#[test]
#[ignore = "is what the other tests start"]
fn child() {
    hold_pages();
}

fn read(holder: &PageHolder, most_pages: u64) -> Contents {
    let proc = Proc::default();
    let stat = proc.stat(holder.pid()).unwrap();
    let mut reader = Reader::new(Salt::new(11), most_pages, 1.0);
    reader.read(&proc, holder.pid(), &stat).unwrap()
}

/// Resident pages.
fn resident(holder: &PageHolder) -> usize {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", holder.pid())).unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
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
    let child = start("0..600 0..150 zero*40 read*30");
    let contents = read(&child, 1 << 20);
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
    let one = read(&start("0..500 1000..1700"), 1 << 20);
    let other = read(&start("5000..5300 0..500"), 1 << 20);
    let besides = besides(&one, 1200).min(besides(&other, 800));
    let [one, other] = [one, other].map(|contents| Joint::of(&contents.sketch, Which::All));
    let common = among(&[&one, &other]);
    assert_eq!(common.error, 0.0);
    is_between(common.pages, 500.0, 500.0 + besides);
}

#[test]
fn reading_brings_no_page_in() {
    let child = start("0..100 none*5000 read*100");
    let before = resident(&child);
    let contents = read(&child, 1 << 20);
    assert!(contents.present < 1000, "{contents:?}");
    // The child itself may touch some on its way to waiting.
    assert!(resident(&child) < before + 100);
}

#[test]
fn of_a_large_process_a_part_is_read_and_stands_for_all() {
    let child = start("0..8192");
    let contents = read(&child, 2048);
    assert!(contents.present >= 8192);
    assert!((1..=2048).contains(&contents.read), "{contents:?}");
    assert!(contents.sketch.part_read() <= 0.25);
    let (pages, present) = (contents.sketch.pages(), contents.present as f64);
    assert!((pages / present - 1.0).abs() < 0.2, "{pages} of {present}");
}

#[test]
fn a_process_that_ended_or_is_another_is_gone() {
    let proc = Proc::default();
    let mut child = start("0..10");
    let mut stat = proc.stat(child.pid()).unwrap();
    let mut reader = Reader::new(Salt::new(11), 1000, 1.0);
    stat.start_ticks += 1;
    let pid = child.pid();
    let is_gone = |read: proc::Result<Contents>| matches!(read, Err(proc::Error::Gone { pid: gone }) if gone == pid);
    assert!(is_gone(reader.read(&proc, pid, &stat)));
    stat.start_ticks -= 1;
    assert!(reader.read(&proc, pid, &stat).is_ok());
    child.kill();
    // A zombie has no memory.
    while proc.stat(pid).unwrap().has_memory() {
        std::thread::yield_now();
    }
    assert!(is_gone(reader.read(&proc, pid, &stat)));
    child.reap();
    assert!(is_gone(reader.read(&proc, pid, &stat)));
}
