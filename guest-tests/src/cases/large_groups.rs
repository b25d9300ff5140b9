//! As many groups as on a large host.
//!
//! # Problem
//! The cost of an idle group must not grow with their number, and none may wait long at the start.
//!
//! # Approach
//! 200 control groups of ten processes each, which hold the same. All workers are booked on one
//! control group, whose CPU time is read over a minute, after a minute and a half, six and eleven
//! minutes of calm, and over all from the first to the last: a worker's share of the bottom level
//! pays for a wake in some five minutes, so that checks of merged pages come in waves. The
//! supervisor's time is added. Beside each minute stands the time of a loop of fixed length at that
//! moment: an emulator's speed changes by a factor of two within an hour, and with it all these
//! times. The bounds are those for the expected time of the loop ([`speed`]).
//!
//! Metrics are read by the program, which waits for an answer of all workers, at intervals longer
//! than an answer is valid. The cost is counted in instructions, from the start of the program to
//! its last line, on a machine whose clock counts them.
//!
//! It takes minutes, so that `make test` leaves it out: `make large-test`.

use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::accounting::{number, set, value};
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::contents::Content;
use crate::fixtures::daemon::{Daemon, cpu_time, program_output, status_json};
use crate::fixtures::memory::Memory;
use crate::fixtures::process::{IdleProcesses, fork_alone, pause};
use crate::fixtures::speed::{slowness, speed};
use crate::fixtures::two_groups::{CONFIGURATION, await_that, group, worker};

cases! { "daemon::large_groups":
    two_hundred_groups_start_in_seconds_and_cost_nothing_in_calm Large Stock 1500,
    a_scrape_of_two_hundred_groups_is_answered_soon Large Counted 300,
}

const GROUPS: usize = 200;
const MEMBERS: usize = 10;
const PAGES: usize = 16;
/// Bounds: of the start, of all in calm from the first minute to the last (0.47 % was measured at
/// the expected time of the loop), and of a worker's own memory. If the loop takes longer, the
/// first two are raised by the same factor.
const START: Duration = Duration::from_secs(10);

const CALM_PERCENT: f64 = 0.5;
/// Seconds of calm before each measured minute.
const CALM: [u64; 3] = [90, 210, 240];
const PRIVATE_KIB: u64 = 3 << 10;
/// Bound of a scrape, in millions of instructions: a processor that does four in a nanosecond takes
/// 50 ms.
const SCRAPE: u128 = 200;
/// Longer than an answer is valid.
const BETWEEN_SCRAPES: Duration = Duration::from_millis(1500);

/// A process of a group: 16 pages that are equal in all.
fn member(cgroup: &Cgroup) -> i32 {
    let idle = || {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut memory = Memory::at(1 << 37, PAGES, flags, -1);
        (0..PAGES).for_each(|page| memory.fill_page(page, Content::new(7, page as u64)));
        pause()
    };
    let pid = fork_alone(idle);
    cgroup.take(pid);
    pid
}

/// Programs are loaded at the same addresses. An emulator translates a program again at each
/// address, which no processor does: a worker is ready after 104 ms of processor time if addresses
/// are random, and after 14 if not.
struct SameAddresses(u64);

const RANDOM_ADDRESSES: &str = "/proc/sys/kernel/randomize_va_space";

impl SameAddresses {
    fn set() -> SameAddresses {
        let before = value(RANDOM_ADDRESSES);
        set(RANDOM_ADDRESSES, "0");
        SameAddresses(before)
    }
}

impl Drop for SameAddresses {
    fn drop(&mut self) {
        set(RANDOM_ADDRESSES, &self.0.to_string());
    }
}

/// Processes followed, and pages merged, of all groups.
fn all() -> (u64, u64) {
    let status: serde_json::Value = serde_json::from_str(&status_json()).unwrap_or_default();
    let groups = status["groups"].as_array().cloned().unwrap_or_default();
    let sum = |path: &str| -> u64 {
        let counts = groups.iter().filter_map(|group| group.pointer(path));
        counts.filter_map(serde_json::Value::as_u64).sum()
    };
    (sum("/status/targets/processes"), sum("/status/merged/now"))
}

/// Processes that the supervisor holds.
fn open_pidfds(daemon: i32) -> usize {
    let folder = format!("/proc/{daemon}/fd");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    names
        .filter(|name| name.to_string_lossy().contains("pidfd"))
        .count()
}

/// The number of sleeps of all workers.
fn sleeps() -> u64 {
    let text = std::fs::read_to_string("/sys/fs/cgroup/uksm-payer/cgroup.procs").expect("workers");
    let status = |pid: &str| number(&format!("/proc/{pid}/status"), "voluntary_ctxt_switches");
    text.lines().map(status).sum()
}

/// CPU seconds of all workers and of the daemon.
fn cpu_seconds(payer: &Cgroup, daemon: &Daemon) -> f64 {
    payer.cpu_seconds() + cpu_time(daemon).as_secs_f64()
}

/// [`GROUPS`] groups with equal numbers of processes.
///
/// Fields are in the order of their drops: a control group is removed when it is empty.
struct Host {
    daemon: Daemon,
    members: IdleProcesses,
    payer: Cgroup,
    _cgroups: Vec<Cgroup>,
    _addresses: SameAddresses,
    /// Start of the daemon.
    begin: Instant,
}

impl Host {
    fn start(members: usize) -> Host {
        let cgroups: Vec<Cgroup> = (0..GROUPS).map(|n| Cgroup::new(&format!("g{n}"))).collect();
        let payer = Cgroup::new("payer");
        let processes = cgroups.iter().flat_map(|cgroup| vec![cgroup; members]);
        let members = IdleProcesses(processes.map(member).collect());
        let configured =
            |n| format!("[group.g{n}]\ncgroup = \"/uksm-g{n}\"\nbook = \"/uksm-payer\"\n");
        let text: String = (0..GROUPS).map(configured).collect();
        std::fs::write(CONFIGURATION, text).expect("a configuration");
        let addresses = SameAddresses::set();
        let begin = Instant::now();
        let mut daemon = Daemon::start_configured(CONFIGURATION);
        let pid = daemon.pid();
        let processes = members.0.len();
        // Each process and each worker is held by a pidfd. To ask all workers would take longer
        // than what is waited for.
        await_that(&mut daemon, "all processes should be followed", || {
            std::thread::sleep(Duration::from_secs(1));
            open_pidfds(pid) >= GROUPS + processes
        });
        Host {
            daemon,
            payer,
            _cgroups: cgroups,
            _addresses: addresses,
            members,
            begin,
        }
    }
}

fn a_scrape_of_two_hundred_groups_is_answered_soon(context: &mut Context) {
    let mut host = Host::start(1);
    let (mut all, mut workers) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        std::thread::sleep(BETWEEN_SCRAPES);
        let (begin, before) = (Instant::now(), host.payer.cpu_seconds());
        let text = program_output(&["metrics"]);
        all.push(millions(begin.elapsed()));
        workers.push(millions(Duration::from_secs_f64(
            host.payer.cpu_seconds() - before,
        )));
        let told =
            |n: usize| text.contains(&format!("uksm_saved_bytes{{group=\"g{n}\",by=\"frames\"}}"));
        assert!((0..GROUPS).all(told), "{text}");
    }
    all.sort_unstable();
    workers.sort_unstable();
    context.note(format!(
        "a scrape of {GROUPS} groups takes {} million instructions ({} to {}), {} of them in workers",
        all[2], all[0], all[4], workers[2]
    ));
    host.daemon.assert_running();
    assert!(all[2] <= SCRAPE, "{all:?}");
    host.daemon.stop();
}

/// Millions of instructions: a counted machine executes one in a nanosecond, and waits for nothing.
fn millions(elapsed: Duration) -> u128 {
    elapsed.as_micros() / 1000
}

fn two_hundred_groups_start_in_seconds_and_cost_nothing_in_calm(context: &mut Context) {
    let Host {
        mut daemon,
        payer,
        _cgroups,
        _addresses,
        members,
        begin,
    } = Host::start(MEMBERS);
    let followed = (GROUPS * MEMBERS) as u64;
    let started = begin.elapsed();
    let start_cost = (payer.cpu_seconds(), cpu_time(&daemon).as_secs_f64());
    let nearly_all = followed * PAGES as u64 * 9 / 10;
    await_that(&mut daemon, "all groups should merge", || {
        std::thread::sleep(Duration::from_secs(1));
        let (processes, merged) = all();
        processes == followed && merged >= nearly_all
    });
    let merged = begin.elapsed();
    let mut minutes = Vec::new();
    let mut means = Vec::new();
    let mut speeds = Vec::new();
    let mut first = None;
    for calm in CALM {
        std::thread::sleep(Duration::from_secs(calm));
        let (since, before) = (Instant::now(), cpu_seconds(&payer, &daemon));
        let &mut (first_at, first_used) = first.get_or_insert((since, before));
        let own = cpu_time(&daemon);
        let slept = sleeps();
        std::thread::sleep(Duration::from_secs(60));
        let percent = |cpu: f64, since: Instant| cpu / since.elapsed().as_secs_f64() * 100.0;
        let all = cpu_seconds(&payer, &daemon);
        speeds.push(speed());
        minutes.push(format!(
            "{:.2} % (the supervisor {:.2}, workers sleep {} times; the loop takes {} ms)",
            percent(all - before, since),
            percent((cpu_time(&daemon) - own).as_secs_f64(), since),
            sleeps() - slept,
            speeds.last().unwrap_or(&Duration::ZERO).as_millis(),
        ));
        means.push(percent(all - first_used, first_at));
    }
    let private = number(&format!("/proc/{}/status", worker("g0")), "RssAnon");
    let supervisor = number(&format!("/proc/{}/status", daemon.pid()), "RssAnon");
    context.note(format!(
        "{GROUPS} groups of {MEMBERS}: all are followed after {} ms ({:.1} s of CPU of the workers, {:.1} of the supervisor), nine tenths merged after {} ms; in a minute after 90 s of calm \
         they take {} of a core together, after 6 minutes {}, after 11 minutes {}; from the first on {:.2} % to the second and {:.2} % to the last; a worker has \
         {private} KiB of its own, the supervisor {supervisor}",
        started.as_millis(),
        start_cost.0,
        start_cost.1,
        merged.as_millis(),
        minutes[0],
        minutes[1],
        minutes[2],
        means[1],
        means[2],
    ));
    assert!(group("g199")["pid"].as_i64().is_some());
    assert!(private <= PRIVATE_KIB, "{private} KiB");
    let slow = slowness(speeds.into_iter().max().expect("three minutes"));
    assert!(
        started <= START.mul_f64(slow),
        "{started:?} where the loop takes {slow} of what it should"
    );
    assert!(
        means[2] <= CALM_PERCENT * slow,
        "{} % where the loop takes {slow} of what it should",
        means[2]
    );
    daemon.stop();
    drop(members);
}
