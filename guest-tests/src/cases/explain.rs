//! `uksm explain` names the true reason: of a process, of a mapping, of a page.
//!
//! # Problem
//! A wrong reason sends an operator to the wrong setting. Most reasons are derived from the
//! kernel's state at the time of the query, so only a real kernel can show whether they are true.
//!
//! # Approach
//! Peers make each kind of memory, in different amounts, beside a daemon that could merge all of
//! it. The staged amounts are known, so each reason must concern as many pages. Reasons from the
//! settings of a daemon are in `explain_settings.rs`.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Context;
use crate::fixtures::accounting::{set, value};
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::contents::HUGE_PAGES;
use crate::fixtures::daemon::{Daemon, PROGRAM};
use crate::fixtures::explanation::{
    BOUND, await_explanation, await_reason, explain, pages_with_reason, reason_details,
    run_explain, start_idle_daemon,
};
use crate::fixtures::ksm::RunningKsmd;
use crate::fixtures::memory::{BASE, Memory};
use crate::fixtures::peer::{Own, Peer};
use crate::fixtures::pins::{FixedBuffers, tempfile};
use crate::fixtures::process::wait;
use crate::fixtures::two_groups::{peer_in, start_daemon, worker};
use crate::fixtures::userfault::{WRITE_PROTECT, WatchedRange};
use crate::fixtures::zram;

cases! { "daemon::explain":
    memory_that_is_never_looked_at_is_told_by_its_kind Normal Stock 120,
    pages_that_are_refused_are_told_by_who_has_them Normal Stock 180,
    a_process_that_is_not_followed_is_told_why Policy Stock 120,
    a_group_s_process_is_told_of_by_its_worker Policy Stock 120,
    what_cannot_be_explained_is_one_line Policy Stock 60,
    a_process_of_hundreds_of_mappings_is_told_of_in_parts Policy Stock 180,
}

const PAGES: usize = 256;
const SEED: u64 = 53;

/// Asserts as many pages as were staged, and few more: those that every process has.
fn assert_staged(process: &Value, reason: &str, staged: usize) {
    let found = pages_with_reason(process, reason);
    let staged = staged as u64;
    assert!(
        found >= staged && found <= staged + 48,
        "{staged} pages should be {reason}, not {found}: {process:#}"
    );
}

/// Address of another mapping of a peer.
fn place(number: u64) -> u64 {
    BASE + (number << 32)
}

fn private(number: u64, pages: usize) -> Memory {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    Memory::at(place(number), pages, flags, -1)
}

/// Memory of each kind that is never examined; each in another amount.
fn map_each_kind(own: &mut Own) {
    use std::os::fd::AsRawFd;
    let shared = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    Memory::at(place(1), 100, shared, -1).fill(SEED, 100);
    let huge = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    Memory::at(place(2), HUGE_PAGES, huge, -1).fill(SEED, HUGE_PAGES);
    let mut tracked = private(3, 120);
    tracked.fill(SEED, 120);
    std::mem::forget(WatchedRange::new(&tracked, 120, WRITE_PROTECT));
    let mut closed = private(4, 140);
    closed.fill(SEED, 140);
    closed.protect(0..140, libc::PROT_NONE).expect("mprotect");
    let file = tempfile("explained");
    file.set_len(400 * 4096).expect("a file");
    let mut read_only = Memory::at(place(5), 160, libc::MAP_PRIVATE, file.as_raw_fd());
    read_only.fill(SEED, 160);
    read_only
        .protect(0..160, libc::PROT_READ)
        .expect("mprotect");
    // Pages of a file, only read.
    let of_file = Memory::at(place(6), 400, libc::MAP_PRIVATE, file.as_raw_fd());
    assert_eq!(of_file.nonzero(0..400), 0);
    own.memory.fill(SEED, PAGES);
}

fn memory_that_is_never_looked_at_is_told_by_its_kind(_: &mut Context) {
    const POOL: &str = "/proc/sys/vm/nr_hugepages";
    set(POOL, "4");
    assert_eq!(value(POOL), 4, "memory for huge pages");
    let mut peer = Peer::new(PAGES);
    peer.run(map_each_kind);
    let mut twin = Peer::filled(PAGES, SEED, PAGES);
    let mut daemon = Daemon::start_on(&[&peer, &twin], &[]);
    let is_merged =
        |process: &Value| process["merged_pages"].as_u64() >= Some(PAGES as u64 * 9 / 10);
    let process = await_explanation(
        &mut daemon,
        peer.pid(),
        "what both hold is merged",
        is_merged,
    );
    assert_staged(&process, "shared-mapping", 100);
    assert_staged(&process, "hugetlb", 512);
    assert_staged(&process, "userfault", 120);
    assert_staged(&process, "no-access", 140);
    assert_staged(&process, "read-only-file", 160);
    assert!(
        pages_with_reason(&process, "file-pages") >= 400 - 16,
        "{process:#}"
    );
    for other in ["locked", "dry-run", "left-out", "not-chosen", "too-young"] {
        assert_eq!(
            pages_with_reason(&process, other),
            0,
            "{other}: {process:#}"
        );
    }
    let resident = process["resident_pages"].as_u64();
    let reasons = process["reasons"].as_array().expect("reasons");
    let told: u64 = reasons.iter().filter_map(|why| why["pages"].as_u64()).sum();
    let all = told + process["merged_pages"].as_u64().expect("pages");
    let resident = resident.expect("pages");
    assert!(
        all.abs_diff(resident) <= resident / 50,
        "reasons and merged pages should add up to {resident}, not {all}: {process:#}"
    );
    daemon.stop();
    drop(peer);
    assert_eq!(twin.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    set(POOL, "0");
}

fn pages_that_are_refused_are_told_by_who_has_them(context: &mut Context) {
    let _swap = zram::swap(context, 32);
    let mut peer = Peer::filled(PAGES, SEED, PAGES);
    let twin = Peer::filled(PAGES, SEED, PAGES);
    peer.run(|own| {
        let mut locked = private(1, 100);
        locked.fill(SEED + 1, 100);
        locked.lock(0..100).expect("mlock");
        let mut pinned = private(2, 128);
        pinned.fill(SEED + 2, 128);
        own.buffers = Some(FixedBuffers::new(&pinned, 0..128));
        // KSM also merges equal pages within one process.
        let mut of_ksm = private(3, 160);
        of_ksm.fill(SEED + 3, 80);
        of_ksm
            .advise(0..160, libc::MADV_MERGEABLE)
            .expect("MADV_MERGEABLE");
    });
    {
        let _scanning = RunningKsmd::start();
        let end = Instant::now() + BOUND;
        // The host's counts include pages of processes that are gone.
        let merged = format!("/proc/{}/ksm_merging_pages", peer.pid());
        while value(&merged) < 160 {
            assert!(Instant::now() < end, "ksmd should merge 80 pairs");
            sleep(Duration::from_millis(50));
        }
    }
    let mut daemon = Daemon::start_on(&[&peer, &twin], &[]);
    let is_merged =
        |process: &Value| process["merged_pages"].as_u64() >= Some(PAGES as u64 * 9 / 10);
    let process = await_explanation(&mut daemon, peer.pid(), "the rest is merged", is_merged);
    assert_staged(&process, "locked", 100);
    assert_staged(&process, "pinned", 128);
    assert_staged(&process, "ksm", 160);
    // Some merged pages are given back, and others are swapped out.
    peer.run(|_| {
        let mut out = private(4, 200);
        out.fill(SEED + 4, 200);
        // A page in a list of a processor stays at first.
        for _ in 0..50 {
            out.advise(0..200, libc::MADV_PAGEOUT)
                .expect("MADV_PAGEOUT");
        }
    });
    await_explanation(&mut daemon, peer.pid(), "most is swapped out", |process| {
        pages_with_reason(process, "swapped") >= 150
    });
    daemon.kill();
    // The next daemon finds the merged pages of the last one, and may not examine them yet.
    let mut daemon = start_idle_daemon(&[&peer, &twin]);
    let process = await_reason(&mut daemon, peer.pid(), "earlier-daemon", PAGES);
    assert_staged(&process, "locked", 100);
    daemon.stop();
    // If locked memory may be merged, locking is no reason.
    let mut daemon = Daemon::start_on(&[&peer, &twin], &["--locked"]);
    let is_read = |process: &Value| pages_with_reason(process, "nothing-equal") >= 100;
    let process = await_explanation(&mut daemon, peer.pid(), "locked memory is read", is_read);
    assert_eq!(pages_with_reason(&process, "locked"), 0, "{process:#}");
    daemon.stop();
}

fn a_process_that_is_not_followed_is_told_why(_: &mut Context) {
    let first = Peer::filled(PAGES, SEED, PAGES);
    let [other, excluded] = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut daemon = Daemon::start_on(&[&first], &[]);
    let is_followed = |process: &Value| process["place"] == "followed";
    await_explanation(
        &mut daemon,
        first.pid(),
        "the first should be followed",
        is_followed,
    );
    // A daemon that could merge all but the processes of the first one.
    const SOCKET: &str = "/run/explained";
    let arguments = [
        "--all",
        "--exclude",
        &format!("pid:{}", excluded.pid()),
        // Merged pages of the runner and its parent would stay merged for all later tests.
        "--exclude",
        &format!("pid:{}", std::process::id()),
        "--exclude",
        "pid:1",
        "--v-life",
        "off",
        "--socket",
        SOCKET,
    ];
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    let mut second = Daemon::start_with("full", &arguments);
    let of_first = |pid: i32| explain(pid, &[]);
    let of_second = |pid: i32| explain(pid, &["--socket", SOCKET]);
    let assert_whole = |process: &Value, place: &str, reason: &str, staged: usize| {
        assert_eq!(process["place"], place, "{process:#}");
        let reasons = process["reasons"].as_array().expect("reasons");
        assert_eq!(reasons.len(), 1, "{process:#}");
        assert!(
            pages_with_reason(process, reason) >= staged as u64,
            "{process:#}"
        );
    };
    let end = Instant::now() + BOUND;
    loop {
        let (first, other) = (of_first(first.pid()), of_second(other.pid()));
        if first["place"] == "followed" && other["place"] == "followed" {
            break;
        }
        second.assert_running();
        let (_, _, error) = run_explain(&[&excluded.pid().to_string(), "--socket", SOCKET]);
        assert!(
            Instant::now() < end,
            "the others should be followed: {error} {first:#} {other:#}"
        );
        sleep(Duration::from_millis(50));
    }
    assert_whole(&of_first(other.pid()), "not-chosen", "not-chosen", PAGES);
    assert_whole(&of_first(daemon.pid()), "daemon", "daemon", 1);
    assert_whole(&of_second(second.pid()), "daemon", "daemon", 1);
    assert_whole(&of_second(excluded.pid()), "excluded", "excluded", PAGES);
    let owned = of_second(first.pid());
    assert_whole(&owned, "not-attached", "not-attached", PAGES);
    assert!(
        reason_details(&owned, "not-attached").contains("another running uksm owns its memory"),
        "{owned:#}"
    );
    // kthreadd.
    let kernel_s = of_second(2);
    assert_eq!(kernel_s["place"], "kernel-thread", "{kernel_s:#}");
    second.stop();
    // Processes unmerged by `uksm break` are excluded from then on.
    let broken = Command::new(PROGRAM)
        .args(["break", "--pid", &first.pid().to_string()])
        .status();
    assert!(broken.expect("uksm break").success());
    assert_whole(&of_first(first.pid()), "excluded", "excluded", PAGES);
    daemon.stop();
}

fn a_group_s_process_is_told_of_by_its_worker(_: &mut Context) {
    let a = Cgroup::new("a");
    let text = "v_life = \"off\"\n[group.a]\ncgroup = \"/uksm-a\"\n";
    let mut daemon = start_daemon(text);
    let pair = [(); 2].map(|()| peer_in(&a));
    let alone = Peer::filled(PAGES, SEED, PAGES);
    let is_merged = |process: &Value| process["merged_pages"].as_u64() >= Some(1900);
    let process = await_explanation(&mut daemon, pair[0].pid(), "the pair is merged", is_merged);
    assert_eq!(process["group"], "a", "{process:#}");
    let in_none = explain(alone.pid(), &[]);
    assert_eq!(in_none["place"], "not-chosen", "{in_none:#}");
    assert_eq!(in_none["group"], Value::Null);
    assert_eq!(explain(worker("a"), &[])["place"], "daemon");
    // The processes of a control group are summed up.
    let (status, text, error) = run_explain(&["/uksm-a"]);
    assert_eq!((status, error.as_str()), (Some(0), ""));
    assert!(text.starts_with("2 processes\n"), "{text}");
    let (_, text, _) = run_explain(&["/uksm-a", "--json"]);
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let each = |at: usize| {
        report["processes"][at]["merged_pages"]
            .as_u64()
            .expect("pages")
    };
    assert_eq!(
        report["sum"]["merged_pages"].as_u64(),
        Some(each(0) + each(1))
    );
    daemon.stop();
}

fn what_cannot_be_explained_is_one_line(_: &mut Context) {
    let peer = Peer::new(8);
    let pid = peer.pid().to_string();
    let empty = Cgroup::new("empty");
    let assert_refused = |status: i32, arguments: &[&str], says: &str| {
        let (found, text, error) = run_explain(arguments);
        assert_eq!(
            (found, text.as_str()),
            (Some(status), ""),
            "{arguments:?} {error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(says), "{arguments:?}: {error}");
    };
    assert_refused(1, &[&pid], "no daemon answers");
    let daemon = Daemon::start_on(&[&peer], &[]);
    let end = Instant::now() + BOUND;
    while explain(peer.pid(), &[]).is_null() {
        assert!(Instant::now() < end, "the daemon should answer");
        sleep(Duration::from_millis(20));
    }
    assert_refused(1, &["4194000"], "4194000: no such process");
    assert_refused(1, &[&format!("{pid}@1")], "the id was used again");
    assert_refused(1, &["/uksm-empty"], "no such process with memory");
    assert_refused(
        1,
        &["--comm", "nobody-has-this"],
        "nobody-has-this: no such process",
    );
    assert_refused(2, &["peer"], "'peer' is neither a process id nor a path");
    assert_refused(2, &[], "which process?");
    drop(empty);
    let gone = peer.pid();
    peer.exit();
    assert_refused(1, &[&gone.to_string()], "no such process");
    let ended = crate::fixtures::process::fork(|| 0);
    let zombie = ended.to_string();
    while !std::fs::read_to_string(format!("/proc/{ended}/stat"))
        .expect("stat")
        .contains(") Z ")
    {
        sleep(Duration::from_millis(5));
    }
    assert_refused(1, &[&zombie], "has ended");
    wait(ended);
    daemon.stop();
}

fn a_process_of_hundreds_of_mappings_is_told_of_in_parts(context: &mut Context) {
    const MAPPINGS: usize = 600;
    let mut peer = Peer::new(2 * MAPPINGS);
    peer.run(|own| {
        for page in 0..MAPPINGS {
            own.memory.set_word(2 * page, 0, page as u64 + 1);
        }
        for page in 0..MAPPINGS {
            let behind = 2 * page + 1..2 * page + 2;
            own.memory
                .protect(behind, libc::PROT_NONE)
                .expect("mprotect");
        }
    });
    let mut daemon = Daemon::start_on(&[&peer], &[]);
    let process = await_reason(&mut daemon, peer.pid(), "nothing-equal", MAPPINGS);
    let regions = process["regions"].as_array().expect("regions");
    assert!(regions.len() >= MAPPINGS, "{}", regions.len());
    let starts: Vec<u64> = regions
        .iter()
        .filter_map(|region| region["start"].as_u64())
        .collect();
    assert!(starts.is_sorted_by(|a, b| a < b), "each region once");
    assert_eq!(process["faults"], serde_json::json!([]));
    let begun = Instant::now();
    let _again = explain(peer.pid(), &[]);
    context.note(format!("{MAPPINGS} mappings take {:?}", begun.elapsed()));
    daemon.stop();
    // With a lower limit, the regions beyond it are left out.
    let mut daemon = Daemon::start_on(&[&peer], &["--max-process-regions", "200"]);
    let process = await_reason(&mut daemon, peer.pid(), "left-out", MAPPINGS - 200);
    assert!(
        pages_with_reason(&process, "left-out") < MAPPINGS as u64 - 100,
        "{process:#}"
    );
    daemon.stop();
}
