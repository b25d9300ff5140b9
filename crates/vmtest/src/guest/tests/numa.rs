//! Merging on a machine of two memory nodes.
//!
//! # Problem
//! NUMA balancing takes access rights from page-table entries to learn who uses a page, and moves
//! pages between nodes; both meet merged pages.
//!
//! # Approach
//! With balancing as quick as the kernel lets it be, a peer writes and checks its pages while it
//! changes CPUs, and is merged all the time. Then all its pages are moved by migrate_pages(2).

use std::time::{Duration, Instant};

use super::Context;
use super::accounting::{events, set};
use super::domain::{Domain, Permit};
use super::memory::answer;
use super::peer::Peer;

cases! { "numa":
    merging_under_numa_balancing_keeps_contents Normal Numa 90,
    migrating_a_merged_process_keeps_contents Normal Numa 60,
}

const PAGES: usize = 1024;
const SEED: u64 = 28;

fn nodes() -> usize {
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a name")
    };
    let directory = std::fs::read_dir("/sys/devices/system/node").expect("nodes");
    let digits = |name: &String| {
        name.strip_prefix("node")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    directory.map(name).filter(digits).count()
}

fn run_on_cpu(cpu: usize) {
    let mask: u64 = 1 << cpu;
    // SAFETY: the mask is as long as the call is told.
    let set = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, 8, &raw const mask) };
    assert_eq!(
        set,
        0,
        "sched_setaffinity: {}",
        std::io::Error::last_os_error()
    );
}

fn merging_under_numa_balancing_keeps_contents(context: &mut Context) {
    const SECONDS: u64 = 8;
    assert_eq!(nodes(), 2, "the guest should have two nodes");
    set("/proc/sys/kernel/numa_balancing", "1");
    for (name, value) in [
        ("scan_delay_ms", "1"),
        ("scan_period_min_ms", "10"),
        ("scan_period_max_ms", "20"),
    ] {
        set(
            &format!("/sys/kernel/debug/sched/numa_balancing/{name}"),
            value,
        );
    }
    let (updates, faults) = (events("numa_pte_updates"), events("numa_hint_faults"));
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = Domain::open();
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let running = peers[1].begin(|own| {
        let end = Instant::now() + Duration::from_secs(SECONDS);
        let (mut wrong, mut round) = (0, 0);
        while Instant::now() < end {
            run_on_cpu(round % 2);
            wrong += own.memory.changed(SEED, PAGES, 0..PAGES);
            own.memory
                .flip(round % 4 * PAGES / 4..(round % 4 + 1) * PAGES / 4);
            own.memory
                .flip(round % 4 * PAGES / 4..(round % 4 + 1) * PAGES / 4);
            round += 1;
        }
        wrong
    });
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let mut merged = 0;
    while Instant::now() < end {
        merged += domain.merge(&spaces, 0..PAGES, Permit::default()).merged();
    }
    assert_eq!(running.end(), 0, "wrong pages while merging");
    let updates = events("numa_pte_updates") - updates;
    let faults = events("numa_hint_faults") - faults;
    context.note(format!(
        "{merged} merges, {updates} updates, {faults} faults of balancing"
    ));
    assert!(
        updates > 0 && merged > 2 * PAGES,
        "both should be at work: {updates}, {merged}"
    );
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    for peer in peers {
        peer.exit();
    }
    domain.assert_all_frames_return();
}

/// Moves all pages of a process from one node to the other.
fn migrate(pid: i32, from: u32, to: u32) {
    let (from, to): (u64, u64) = (1 << from, 1 << to);
    // SAFETY: both masks have as many bits as the call is told.
    let moved = unsafe {
        libc::syscall(
            libc::SYS_migrate_pages,
            pid,
            64,
            &raw const from,
            &raw const to,
        )
    };
    let moved = i32::try_from(moved).expect("a small count");
    answer(moved).expect("migrate_pages");
}

fn migrating_a_merged_process_keeps_contents(_: &mut Context) {
    assert_eq!(nodes(), 2, "the guest should have two nodes");
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = Domain::open();
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let tally = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(tally.merged(), 2 * PAGES, "{tally:?}");
    for (from, to) in [(0, 1), (1, 0)] {
        migrate(peers[0].pid(), from, to);
        for peer in &mut peers {
            assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
        }
    }
    peers[0].run(|own| own.memory.flip(0..PAGES));
    migrate(peers[0].pid(), 0, 1);
    assert_eq!(
        peers[0].run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        PAGES
    );
    assert_eq!(
        peers[1].run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        0
    );
    for peer in peers {
        peer.exit();
    }
    domain.assert_all_frames_return();
}
