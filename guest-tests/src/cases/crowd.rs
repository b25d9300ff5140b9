//! The daemon on a host full of processes: newcomers are found among hundreds that do nothing.
//!
//! # Problem
//! Examining hundreds of idle processes again and again takes all the time for examining, and two
//! new ones with equal memory wait behind them.
//!
//! # Approach
//! Hundreds of processes with many small mappings sleep, and the daemon may merge every process of
//! the guest. Then two peers come with the same pages. The time is measured from the moment at
//! which their memory is filled until nine tenths of it are merged. Its bounds are those of an
//! emulated machine.

use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::contents::{Content, PAGE};
use crate::fixtures::daemon::{Daemon, cpu_time, status_json, status_text};
use crate::fixtures::memory::{BASE, Memory};
use crate::fixtures::peer::{Peer, pages_shared_by};
use crate::fixtures::process::{IdleProcesses, fork_alone, leave, pause, signal, wait};
use crate::fixtures::speed::{slowness, speed};

cases! { "daemon::crowd":
    newcomers_among_400_idle_processes_are_merged_in_seconds Long Stock 360,
    short_lived_processes_cost_little_and_delay_nobody Long Stock 240,
    lost_events_are_counted_and_newcomers_are_found_all_the_same Normal Stock 240,
    a_daemon_that_is_not_told_says_so_and_finds_newcomers Normal Stock 180,
}

/// 64 MiB.
const PAGES: usize = 16384;
const SEED: u64 = 91;
/// Mappings of an idle process, as one of an interpreter has.
const MAPPINGS: usize = 40;
/// The status of a daemon that receives process events, and of one that does not.
const BY_EVENTS: &str = "new processes are reported by events";
const BY_SEARCH: &str = "new processes are found by listing /proc";

/// Processes that do nothing.
fn crowd_of(processes: usize) -> IdleProcesses {
    let idle = || {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let memory = |number: usize| {
            let place = BASE + (1 << 36) + (2 * number * 8 * PAGE) as u64;
            let mut memory = Memory::at(place, 8, flags, -1);
            // Contents without an equal page in any process.
            let content = Content::new(u64::from(std::process::id()), number as u64);
            memory.fill_page(0, content);
        };
        (0..MAPPINGS).for_each(memory);
        pause()
    };
    IdleProcesses((0..processes).map(|_| fork_alone(idle)).collect())
}

/// Starts two peers with these contents; returns the time from their filling until nine tenths are
/// merged. They keep running: processes that end young teach a daemon to leave similar ones alone
/// for some seconds.
fn merge_newcomers(daemon: &mut Daemon, seed: u64, within: Duration) -> (Duration, [Peer; 2]) {
    let pair = [(); 2].map(|()| Peer::filled(PAGES, seed, PAGES));
    let filled = Instant::now();
    loop {
        let shared = pages_shared_by(&pair, PAGES);
        let time = filled.elapsed();
        if shared >= PAGES * 9 / 10 {
            return (time, pair);
        }
        daemon.assert_running();
        assert!(
            time < within,
            "{shared} of {PAGES} pages are merged after {time:?}; the daemon's status: {}",
            status_text()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The daemon's share of a core over this time.
fn share(daemon: &Daemon, time: Duration) -> f64 {
    let (begun, used) = (Instant::now(), cpu_time(daemon));
    std::thread::sleep(time);
    (cpu_time(daemon) - used).as_secs_f64() / begun.elapsed().as_secs_f64()
}

/// Waits until a daemon with this way of finding processes has listed at least `processes`, and all
/// that it follows.
fn await_listed(how: &str, processes: usize, within: Duration) {
    let end = Instant::now() + within;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let status = status_text();
        let targets = status.lines().find_map(|line| line.strip_prefix("targets"));
        let followed = targets.and_then(|rest| rest.split_whitespace().next());
        // There is no answer before the daemon has started.
        if let Some(followed) = followed.and_then(|number| number.parse::<usize>().ok()) {
            assert!(
                status.contains(how),
                "its status should contain {how:?}: {status}"
            );
            if followed >= processes && !status.contains("not listed yet") {
                return;
            }
        }
        assert!(Instant::now() < end, "the crowd should be listed: {status}");
    }
}

/// Every process but the tests' own, whose merged pages would outlive the test.
fn all() -> Vec<String> {
    let own = [1, std::process::id()];
    let excluded = own.map(|pid| ["--exclude".to_owned(), format!("pid:{pid}")]);
    let all = std::iter::once("--all".to_owned());
    all.chain(excluded.into_iter().flatten()).collect()
}

fn newcomers_among_400_idle_processes_are_merged_in_seconds(context: &mut Context) {
    let crowd = crowd_of(400);
    let mut daemon = Daemon::start_with("full", &all());
    await_listed(BY_EVENTS, 400, Duration::from_secs(60));
    // The better of two: a machine may halt for seconds. The second pair has other contents than
    // the frames of the first.
    let (first, _pair) = merge_newcomers(&mut daemon, SEED, Duration::from_secs(60));
    let (second, _more) = merge_newcomers(&mut daemon, SEED + 1, Duration::from_secs(60));
    let time = first.min(second);
    context.metric("merged after they were filled", time.as_secs_f64(), "s");
    context.note(status_text());
    assert!(time < Duration::from_secs(10), "{first:?}, {second:?}");
    std::thread::sleep(Duration::from_secs(8));
    // Until all new memory is read, and the hash strength found.
    let mut shares = vec![];
    loop {
        let before = status_json();
        let speed_before = speed();
        let used = share(&daemon, Duration::from_secs(10));
        // The faster of two: a machine that halts during the loop would excuse any result.
        let slow = slowness(speed().min(speed_before));
        context.metric("CPU while nothing happens", 100.0 * used, "%");
        shares.push((used, slow));
        if used < 0.05 * slow {
            break;
        }
        assert!(
            shares.len() < 8,
            "the daemon should rest, not use so much of a core on a machine so slow: {shares:?}; before {before}, after {}",
            status_json()
        );
    }
    daemon.stop();
    drop(crowd);
}

/// Starts processes at this rate, each of which lives for a fifth of a second.
fn storm(a_second: u32, time: Duration) {
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < time {
        let due = Duration::from_secs(1) * count / a_second;
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        count += 1;
        // SAFETY: the test process has one thread, so the child may go on as an ordinary process.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            std::thread::sleep(Duration::from_millis(200));
            leave(0);
        }
        // Processes that have ended are reaped.
        let mut status = 0;
        // SAFETY: status outlives the call.
        while unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } > 0 {}
    }
}

fn short_lived_processes_cost_little_and_delay_nobody(context: &mut Context) {
    let mut daemon = Daemon::start_with("full", &all());
    await_listed(BY_EVENTS, 0, Duration::from_secs(30));
    let (calm, pair) = merge_newcomers(&mut daemon, SEED, Duration::from_secs(60));
    std::thread::sleep(Duration::from_secs(5));
    drop(pair);
    let quiet = share(&daemon, Duration::from_secs(6));
    let stormy = fork_alone(|| {
        storm(200, Duration::from_secs(18));
        0
    });
    std::thread::sleep(Duration::from_secs(3));
    let noisy = [(); 2].map(|()| share(&daemon, Duration::from_secs(4)));
    let noisy = noisy[0].min(noisy[1]);
    context.metric("CPU in calm", 100.0 * quiet, "%");
    context.metric("CPU in a storm of 200 a second", 100.0 * noisy, "%");
    let (stormed, _pair) = merge_newcomers(&mut daemon, SEED, Duration::from_secs(60));
    context.metric("merged in calm", calm.as_secs_f64(), "s");
    context.metric("merged in the storm", stormed.as_secs_f64(), "s");
    context.note(status_text());
    wait(stormy);
    assert!(
        noisy - quiet < 0.15,
        "{noisy} of a core for a storm, {quiet} in calm"
    );
    daemon.stop();
}

fn lost_events_are_counted_and_newcomers_are_found_all_the_same(context: &mut Context) {
    /// More events than the socket holds.
    const EVENTS: usize = 20_000;
    let mut daemon = Daemon::start_with("full", &all());
    await_listed(BY_EVENTS, 0, Duration::from_secs(30));
    let tells_of_losses =
        |status: &str| status.contains("1 loss of events") || status.contains(" losses of events");
    assert!(!tells_of_losses(&status_text()));
    // The events stay unread meanwhile. A change of name is the cheapest event.
    signal(daemon.pid(), libc::SIGSTOP);
    let begun = Instant::now();
    for number in 0..EVENTS {
        let name = if number % 2 == 0 {
            c"crowd"
        } else {
            c"a crowd"
        };
        // SAFETY: the name is a string that outlives the call.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) }, 0);
    }
    context.metric("events lost in", begun.elapsed().as_secs_f64(), "s");
    let pair = [(); 2].map(|()| Peer::filled(PAGES / 4, SEED, PAGES / 4));
    signal(daemon.pid(), libc::SIGCONT);
    let continued = Instant::now();
    while pages_shared_by(&pair, PAGES / 4) < PAGES / 4 * 9 / 10 {
        daemon.assert_running();
        let status = status_text();
        assert!(continued.elapsed() < Duration::from_secs(60), "{status}");
        std::thread::sleep(Duration::from_millis(100));
    }
    context.metric("merged after", continued.elapsed().as_secs_f64(), "s");
    let status = status_text();
    assert!(tells_of_losses(&status), "{status}");
    daemon.stop();
}

fn a_daemon_that_is_not_told_says_so_and_finds_newcomers(context: &mut Context) {
    let mut daemon = Daemon::start_without_events("full", &all());
    await_listed(BY_SEARCH, 0, Duration::from_secs(30));
    let (time, _pair) = merge_newcomers(&mut daemon, SEED, Duration::from_secs(60));
    context.metric("merged after they were filled", time.as_secs_f64(), "s");
    daemon.stop();
}
