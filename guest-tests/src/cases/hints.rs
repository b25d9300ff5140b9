//! Hints of I/O: pages that two processes read are merged at once, also with little time, in a
//! storm of hints, and without reports.
//!
//! # Approach
//! A daemon merges pages that two peers read from equal files into the middle of memory that it has
//! finished reading long ago.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::Context;
use super::crowd::{figures, shared};
use super::daemon::{Daemon, status};
use crate::fixtures::accounting::resident;
use crate::fixtures::contents::{Content, PAGE};
use crate::fixtures::peer::Peer;
use crate::fixtures::pins::tempfile;

cases! { "daemon::hints":
    what_two_processes_read_is_merged_soon_by_a_daemon_with_little_time Normal Stock 240,
    a_storm_of_io_is_counted_and_bounded_and_starves_nobody Policy Stock 180,
    a_daemon_that_is_told_of_no_io_says_why_and_merges Normal Stock 120,
}

/// A file with this many pages of contents.
pub(super) fn file_of(seed: u64, pages: usize) -> File {
    let mut file = tempfile("hints");
    for page in 0..pages {
        let content = Content::new(seed, page as u64);
        file.write_all(&content.bytes()).expect("write the source");
    }
    file.rewind().expect("rewind the source");
    file
}

/// Pages of a process (64 MiB), and of the part that is read into.
pub(super) const CACHE: usize = 16_384;
pub(super) const READ: usize = 2048;
/// This many neighbouring pages with partners make a region leap.
const LEAP: u64 = 8;

fn what_two_processes_read_is_merged_soon_by_a_daemon_with_little_time(_: &mut Context) {
    let mut pair = [1, 2].map(|seed| Peer::filled(CACHE, seed, CACHE));
    let mut daemon = Daemon::start_with("low", &named(&pair));
    await_programs(&mut daemon);
    // First looks are over, and these regions will be read by thin samples only.
    std::thread::sleep(Duration::from_secs(10));
    // Loading the programs took 12 MiB, which are given back.
    let own = resident(daemon.pid()).anonymous;
    assert!(own * PAGE as u64 <= 5 << 20, "{own} pages are the daemon's");
    let took = read_the_same(&mut pair, &mut daemon, Duration::from_secs(20));
    eprintln!("merged {took:?} after the first read began");
    let status: serde_json::Value = serde_json::from_str(&figures()).expect("JSON");
    // Eight hits in a row make a region leap to the top level, whose reader may overtake the other
    // hints.
    let count = |part: &str, name: &str| status[part][name].as_u64().unwrap_or(0);
    let (merged, leapt) = (count("hints", "merged_pages"), count("promotions", "leapt"));
    let begun = merged >= LEAP && leapt >= 1;
    assert!(merged >= READ as u64 / 2 || begun, "{status}");
    daemon.stop();
}

/// Waits until a daemon receives reports of its programs, which it begins to load five seconds
/// after its start.
pub(super) fn await_programs(daemon: &mut Daemon) {
    let end = Instant::now() + Duration::from_secs(60);
    while !status().contains("source: programs") {
        daemon.assert_running();
        assert!(Instant::now() < end, "the daemon says: {}", status());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Makes two peers read equal files into the middle of their memory; returns the time from then
/// until nine tenths of that are merged.
pub(super) fn read_the_same(
    pair: &mut [Peer; 2],
    daemon: &mut Daemon,
    within: Duration,
) -> Duration {
    let begun = Instant::now();
    for (number, peer) in pair.iter_mut().enumerate() {
        peer.run(move |own| {
            let first = 3000 + number * 7000;
            let file = file_of(9, READ);
            for page in (0..READ).step_by(32) {
                let at = own.memory.vector(first + page..first + page + 32);
                // SAFETY: the vector is memory of this process that is used by number only.
                let done = unsafe { libc::read(file.as_raw_fd(), at.iov_base, at.iov_len) };
                assert_eq!(usize::try_from(done).ok(), Some(32 * PAGE), "read");
            }
        });
    }
    loop {
        let (merged, took) = (shared(pair, CACHE), begun.elapsed());
        if merged >= READ * 9 / 10 {
            return took;
        }
        daemon.assert_running();
        let late = took >= within;
        assert!(!late, "{merged} of {READ} pages are merged; {}", figures());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The daemon's counts of hints.
fn counts() -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_str(&figures()).expect("JSON");
    status["hints"].clone()
}

/// A process reads single pages of a file, in random order, as fast as it can.
fn a_storm_of_io_is_counted_and_bounded_and_starves_nobody(context: &mut Context) {
    const STORM: Duration = Duration::from_secs(16);
    const MAX_BYTES: u64 = 16 << 20;
    let mut pair = [1, 2].map(|seed| Peer::filled(CACHE, seed, CACHE));
    let mut noise = Peer::filled(CACHE, 3, CACHE);
    let noisy = ["--pid".to_owned(), noise.pid().to_string()];
    let mut daemon = Daemon::start_with("full", &[named(&pair), noisy.into()].concat());
    // Reads before the programs follow the process are not reported.
    await_programs(&mut daemon);
    let storm = noise.begin(|own| {
        let file = file_of(8, READ);
        let (begun, mut calls, mut draw) = (Instant::now(), 0_u64, 1_usize);
        while begun.elapsed() < STORM {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005) | 1;
            let (page, offset) = ((draw >> 40) % CACHE, (draw >> 20) % READ * PAGE);
            let at = own.memory.vector(page..page + 1);
            let offset = i64::try_from(offset).expect("a small file");
            // SAFETY: the vector is memory of this process that is used by number only.
            let done = unsafe { libc::pread(file.as_raw_fd(), at.iov_base, PAGE, offset) };
            assert_eq!(usize::try_from(done).ok(), Some(PAGE), "pread");
            calls += 1;
        }
        calls
    });
    std::thread::sleep(Duration::from_secs(3));
    let took = read_the_same(&mut pair, &mut daemon, Duration::from_secs(25));
    let calls = storm.end();
    context.metric("reads", calls as f64 / STORM.as_secs_f64(), "a second");
    context.metric("merged in the storm", took.as_secs_f64(), "s");
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let counts = counts();
        let count = |name: &str| counts[name].as_u64().unwrap_or(0);
        assert!(count("hint_bytes") <= MAX_BYTES, "{counts}");
        // Each call reads one piece of memory.
        if count("calls") >= calls && count("taken") + count("lost") == count("calls") {
            break;
        }
        assert!(Instant::now() < end, "{calls} reads, but {counts}");
        std::thread::sleep(Duration::from_millis(200));
    }
    context.note(status());
    daemon.stop();
}

fn a_daemon_that_is_told_of_no_io_says_why_and_merges(_: &mut Context) {
    let turned_off = |arguments: &[String]| {
        let off = [arguments, &["--hint-runs".into(), "0".into()]].concat();
        Daemon::start_with("full", &off)
    };
    let without_btf = |arguments: &[String]| Daemon::start_without_btf("full", arguments);
    let starts: [(&str, Start<'_>); 2] = [
        ("source: nobody: hint_runs is 0", &turned_off),
        ("source: nobody: the kernel has no BTF", &without_btf),
    ];
    for (seed, (reason, start)) in (11..).zip(starts) {
        let pair = [(); 2].map(|()| Peer::filled(READ, seed, READ));
        let mut daemon = start(&named(&pair));
        let end = Instant::now() + Duration::from_secs(40);
        while shared(&pair, READ) < READ * 9 / 10 {
            daemon.assert_running();
            assert!(Instant::now() < end, "{reason}: {}", status());
            std::thread::sleep(Duration::from_millis(50));
        }
        while !status().contains(reason) {
            assert!(Instant::now() < end, "{reason}: {}", status());
            std::thread::sleep(Duration::from_millis(200));
        }
        daemon.stop();
    }
}

/// A way to start a daemon with these arguments.
type Start<'a> = &'a dyn Fn(&[String]) -> Daemon;

/// The arguments that name these peers.
pub(super) fn named(pair: &[Peer; 2]) -> Vec<String> {
    let named = pair
        .iter()
        .flat_map(|peer| ["--pid".to_owned(), peer.pid().to_string()]);
    named.collect()
}
