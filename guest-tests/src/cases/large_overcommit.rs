//! The demand of all merged memory at once.
//!
//! # Problem
//! Memory freed by merging is used by others when the merged pages are written, and each of them
//! becomes two again. Then the host has promised more than it has, and the kernel kills.
//!
//! # Approach
//! Two processes hold the same; a cache is given the freed memory, and keeps to its limit like a
//! cache that watches it: it fills its limit, and drops pages beyond it. A third takes all other
//! memory but a margin. Then one of the two writes all its pages, some MiB each second. With the
//! guard's marks at 0 the kernel must kill; with the default marks it must not, although the third
//! takes as much.
//!
//! # Units
//! Pages, unless stated otherwise.

use std::thread::sleep;
use std::time::Duration;

use super::Context;
use crate::fixtures::accounting::{events, number, set};
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::memory::{BASE, Huge, Memory};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, pause, signal, wait};
use crate::fixtures::two_groups::{await_that, redistributed_bytes, start_daemon};

cases! { "daemon::large_overcommit":
    the_guard_keeps_what_a_storm_of_writes_needs_and_without_it_the_kernel_kills Large Stock 300,
}

const MIB: usize = 256;
/// Pages of each of the two.
const SHARED: usize = 160 * MIB;
/// Pages of the cache without given memory.
const CACHE: usize = 48 * MIB;
/// Pages available before the storm if nothing comes back: more than the guard's first mark.
const MARGIN: usize = 64 * MIB;
/// Distance of the cache from its limit, for other charges of its group.
const BELOW: usize = 4 * MIB;
/// Pages that the storm writes at a time, and the rest after that.
const GUST: usize = 2 * MIB;
const REST: Duration = Duration::from_millis(200);
const SEED: u64 = 83;
/// Address of the memory of the cache and of the third process.
const OTHER: u64 = BASE + (1 << 33);
/// Limit of the pages of each.
const MAX_PAGES: usize = 1 << 18;
const GROUP: &str = "v_life = \"off\"\n\
    [group.a]\ncgroup = \"/uksm-pair\"\nredistribute = \"equal\"\nredistribute_least = \"1MiB\"\n\
    [group.a.member.cache]\ncgroup = \"/uksm-cache\"\nbase = \"48MiB\"\n";
const NO_GUARD: &str = "headroom_hold = \"0%\"\nheadroom_take = \"0%\"\n\
    pressure_hold = \"100%\"\npressure_take = \"100%\"\n";

fn pages(number: u64) -> usize {
    usize::try_from(number).expect("few pages")
}

fn available() -> usize {
    pages(number("/proc/meminfo", "MemAvailable") / 4)
}

/// The limit of a control group.
fn limit(cgroup: &Cgroup) -> usize {
    pages(cgroup.high().unwrap_or(0) / 4096)
}

fn plenty() -> Memory {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let memory = Memory::at(OTHER, MAX_PAGES, flags, -1);
    memory.advise_huge(Huge::Never);
    memory
}

/// Keeps as many pages as its control group may have.
fn cache(cgroup: &Cgroup) -> ! {
    let mut memory = plenty();
    let mut taken = 0;
    loop {
        let wanted = limit(cgroup).saturating_sub(BELOW);
        if wanted > taken {
            let end = wanted.min(taken + MIB);
            (taken..end).for_each(|page| memory.set_word(page, 0, page as u64));
            taken = end;
            continue;
        }
        if wanted < taken {
            let dropped = memory.advise(wanted..taken, libc::MADV_DONTNEED);
            dropped.expect("MADV_DONTNEED");
            taken = wanted;
        }
        sleep(Duration::from_millis(10));
    }
}

/// Takes this many pages; the kernel kills it first.
fn take(pages: usize) -> i32 {
    let pid = fork(|| {
        let mut memory = plenty();
        (0..pages).for_each(|page| memory.set_word(page, 0, page as u64));
        pause()
    });
    set(&format!("/proc/{pid}/oom_score_adj"), "1000");
    pid
}

/// The results of a storm.
struct Storm {
    /// Pages taken by the third process.
    taken: usize,
    /// Kills by the kernel.
    kills: u64,
    /// Pages of the cache before, and after.
    cache: [usize; 2],
}

/// Gives all freed memory away, has it used, and then demands it back. The third process takes
/// `taken` pages, or all but the margin.
fn storm(settings: &str, taken: Option<usize>) -> Storm {
    let [pair_group, cache_group] = ["pair", "cache"].map(Cgroup::new);
    let mut daemon = start_daemon(&format!("{settings}{GROUP}"));
    let mut pair: [Peer; 2] = [(); 2].map(|()| {
        let mut peer = Peer::new(SHARED);
        pair_group.take(peer.pid());
        peer.run(|own| own.memory.fill(SEED, SHARED));
        peer
    });
    let nearly_all = SHARED * 95 / 100;
    await_that(&mut daemon, "all should be merged and given", || {
        pages(redistributed_bytes().0 / 4096) >= nearly_all
            && limit(&cache_group) >= CACHE + nearly_all
    });
    // The process starts there: its earlier pages would stay charged to the old group.
    let owner = cache_group.within(|| fork(|| cache(&cache_group)));
    let has = || pages(cache_group.pages());
    await_that(&mut daemon, "the cache should be full", || {
        has() + 2 * BELOW >= limit(&cache_group).min(CACHE + nearly_all)
    });
    let taken = taken.unwrap_or_else(|| available() - MARGIN);
    let before = events("oom_kill");
    let rest = take(taken);
    let resident = || pages(number(&format!("/proc/{rest}/status"), "VmRSS") / 4);
    await_that(&mut daemon, "the rest should be taken", || {
        resident() >= taken
    });
    let full = has();
    for from in (0..SHARED).step_by(GUST) {
        pair[0].run(move |own| own.memory.flip(from..from + GUST));
        sleep(REST);
    }
    let kills = events("oom_kill") - before;
    let after = has();
    pair[0].run(|own| own.memory.flip(0..SHARED));
    for peer in &mut pair {
        let changed = peer.run(|own| own.memory.changed(SEED, SHARED, 0..SHARED));
        assert_eq!(changed, 0);
    }
    for pid in [owner, rest] {
        signal(pid, libc::SIGKILL);
        wait(pid);
    }
    daemon.stop();
    pair.into_iter().for_each(Peer::exit);
    Storm {
        taken,
        kills,
        cache: [full, after],
    }
}

fn the_guard_keeps_what_a_storm_of_writes_needs_and_without_it_the_kernel_kills(
    context: &mut Context,
) {
    let without = storm(NO_GUARD, None);
    let with = storm("", Some(without.taken));
    for (name, storm) in [("without", &without), ("with", &with)] {
        context.note(format!(
            "{name} the guard: {SHARED} pages are written, {} are taken by others, a cache has {} and then {}, {} processes killed",
            storm.taken, storm.cache[0], storm.cache[1], storm.kills
        ));
    }
    assert!(without.kills > 0, "without the guard");
    assert_eq!(with.kills, 0, "with the guard");
    assert!(
        with.cache[1] < CACHE + MIB,
        "the cache gave back what it had been given"
    );
}
