//! Hints of I/O: pages that two processes read are merged at once, also with little time, in a
//! storm of hints, and without reports.
//!
//! # Approach
//! A daemon merges pages that two peers read from equal files into the middle of memory that it has
//! finished reading long ago.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::accounting::resident;
use crate::fixtures::contents::PAGE;
use crate::fixtures::daemon::{Daemon, status_json, status_text};
use crate::fixtures::hinted_reads::{
    CACHE, READ, await_programs, file_of, pid_arguments, read_the_same,
};
use crate::fixtures::peer::{Peer, pages_shared_by};

cases! { "daemon::hints":
    what_two_processes_read_is_merged_soon_by_a_daemon_with_little_time Normal Stock 240,
    a_storm_of_io_is_counted_and_bounded_and_starves_nobody Policy Stock 180,
    a_daemon_that_is_told_of_no_io_says_why_and_merges Normal Stock 120,
}

/// This many neighbouring pages with partners make a region leap.
const LEAP: u64 = 8;

fn what_two_processes_read_is_merged_soon_by_a_daemon_with_little_time(_: &mut Context) {
    let mut pair = [1, 2].map(|seed| Peer::filled(CACHE, seed, CACHE));
    let mut daemon = Daemon::start_with("low", &pid_arguments(&pair));
    await_programs(&mut daemon);
    // First looks are over, and these regions will be read by thin samples only.
    std::thread::sleep(Duration::from_secs(10));
    // Loading the programs took 12 MiB, which are given back. With Debian 12's C library 4 to 5 MiB
    // stay, with Debian 13's 6.6 to 8.4.
    let own = resident(daemon.pid()).anonymous;
    assert!(
        own * PAGE as u64 <= 10 << 20,
        "{own} pages are the daemon's"
    );
    let took = read_the_same(&mut pair, &mut daemon, Duration::from_secs(20));
    eprintln!("merged {took:?} after the first read began");
    let status: serde_json::Value = serde_json::from_str(&status_json()).expect("JSON");
    // Eight hits in a row make a region leap to the top level, whose reader may overtake the other
    // hints.
    let count = |part: &str, name: &str| status[part][name].as_u64().unwrap_or(0);
    let (merged, leapt) = (count("hints", "merged_pages"), count("promotions", "leapt"));
    let begun = merged >= LEAP && leapt >= 1;
    assert!(merged >= READ as u64 / 2 || begun, "{status}");
    daemon.stop();
}

/// The daemon's counts of hints.
fn counts() -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_str(&status_json()).expect("JSON");
    status["hints"].clone()
}

/// A process reads single pages of a file, in random order, as fast as it can.
fn a_storm_of_io_is_counted_and_bounded_and_starves_nobody(context: &mut Context) {
    const STORM: Duration = Duration::from_secs(16);
    const MAX_BYTES: u64 = 16 << 20;
    let mut pair = [1, 2].map(|seed| Peer::filled(CACHE, seed, CACHE));
    let mut noise = Peer::filled(CACHE, 3, CACHE);
    let noisy = ["--pid".to_owned(), noise.pid().to_string()];
    let mut daemon = Daemon::start_with("full", &[pid_arguments(&pair), noisy.into()].concat());
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
    context.note(status_text());
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
        let mut daemon = start(&pid_arguments(&pair));
        let end = Instant::now() + Duration::from_secs(40);
        while pages_shared_by(&pair, READ) < READ * 9 / 10 {
            daemon.assert_running();
            assert!(Instant::now() < end, "{reason}: {}", status_text());
            std::thread::sleep(Duration::from_millis(50));
        }
        while !status_text().contains(reason) {
            assert!(Instant::now() < end, "{reason}: {}", status_text());
            std::thread::sleep(Duration::from_millis(200));
        }
        daemon.stop();
    }
}

/// A way to start a daemon with these arguments.
type Start<'a> = &'a dyn Fn(&[String]) -> Daemon;
