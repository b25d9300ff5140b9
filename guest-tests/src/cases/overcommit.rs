//! Memory that was given away is wanted back all at once.
//!
//! # Problem
//! What merging freed is used by others when the merged pages are written, and each of them is two again. Then the host has
//! promised more than it has, and the kernel kills.
//!
//! # Approach
//! Two processes hold the same; a cache is given what that freed, and keeps to its limit as a cache does that watches it: it fills what it
//! may have, and drops what it may not. All other memory is taken, but a margin that is far less than what was freed. Then one of
//! the two writes all its pages. With the guard's marks at 0 the kernel must kill; with the marks as they are it must not.
//!
//! # Units
//! Pages, if nothing is said.

use std::time::Duration;

use super::Context;
use super::daemon::Daemon;
use super::groups::{CONFIGURATION, await_that};
use super::redistribution::told;
use crate::fixtures::accounting::{events, set, usable_pages};
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::memory::{BASE, Huge, Memory};
use crate::fixtures::peer::{Peer, fork, pause, signal, wait};

cases! { "daemon::overcommit":
    the_guard_keeps_what_a_storm_of_writes_needs_and_without_it_the_kernel_kills Normal Stock 300,
}

const MIB: u64 = 256;
/// What each of the two has.
const SHARED: usize = 128 * 256;
/// What the cache has without anything given.
const CACHE: u64 = 64 * MIB;
/// What is left when all that is given is used.
const MARGIN: u64 = 16 * MIB;
/// What may be merged meanwhile, beyond nearly all.
const SLACK: u64 = 10 * MIB;
/// The cache stays so far below its limit, for what else is charged to it.
const BELOW: u64 = 4 * MIB;
const SEED: u64 = 83;
/// Where the cache, and who takes the rest, have their memory.
const OTHER: u64 = BASE + (1 << 33);
/// Most that any of them can have.
const MOST: usize = 1 << 18;

const GROUP: &str = "v_life = \"off\"\n\
    [group.a]\ncgroup = \"/uksm-pair\"\nredistribute = \"equal\"\nredistribute_least = \"1MiB\"\n\
    [group.a.member.cache]\ncgroup = \"/uksm-cache\"\nbase = \"64MiB\"\n";
const NO_GUARD: &str = "headroom_hold = \"0%\"\nheadroom_take = \"0%\"\n\
    pressure_hold = \"100%\"\npressure_take = \"100%\"\n";

fn plenty() -> Memory {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let memory = Memory::at(OTHER, MOST, flags, -1);
    memory.advise_huge(Huge::Never);
    memory
}

/// Has as much as its control group may have.
fn cache(cgroup: &Cgroup) -> ! {
    let mut memory = plenty();
    let mut taken = 0;
    loop {
        let limit = cgroup.high().unwrap_or(0) / 4096;
        let wanted = usize::try_from(limit.saturating_sub(BELOW)).expect("few pages");
        if wanted > taken {
            let end = wanted.min(taken + 1024);
            (taken..end).for_each(|page| memory.set_word(page, 0, page as u64));
            taken = end;
            continue;
        }
        if wanted < taken {
            let dropped = memory.advise(wanted..taken, libc::MADV_DONTNEED);
            dropped.expect("MADV_DONTNEED");
            taken = wanted;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Takes so many pages, and is the first to be killed.
fn take(pages: u64) -> i32 {
    let pages = usize::try_from(pages).expect("few pages");
    let pid = fork(|| {
        let mut memory = plenty();
        (0..pages).for_each(|page| memory.set_word(page, 0, page as u64));
        pause()
    });
    set(&format!("/proc/{pid}/oom_score_adj"), "1000");
    pid
}

/// How often the kernel kills when all is given, used, and wanted back.
fn kills(context: &mut Context, settings: &str, has_guard: bool) -> u64 {
    let [pair_group, cache_group] = ["pair", "cache"].map(Cgroup::new);
    std::fs::write(CONFIGURATION, format!("{settings}{GROUP}")).expect("a configuration");
    let mut daemon = Daemon::start_configured(CONFIGURATION);
    let mut pair: [Peer; 2] = [(); 2].map(|()| {
        let mut peer = Peer::new(SHARED);
        pair_group.take(peer.pid());
        peer.run(|own| own.memory.fill(SEED, SHARED));
        peer
    });
    let nearly_all = SHARED as u64 * 95 / 100;
    await_that(&mut daemon, "all should be merged and given", || {
        let given = cache_group.high().unwrap_or(0) / 4096;
        told().0 / 4096 >= nearly_all && given >= CACHE + nearly_all
    });
    let given = cache_group.high().expect("a limit") / 4096;
    let rest = take(usable_pages(None) - given - MARGIN);
    await_that(&mut daemon, "the rest should be taken", || {
        usable_pages(None) <= given + MARGIN + SLACK
    });
    let before = events("oom_kill");
    let owner = fork(|| cache(&cache_group));
    cache_group.take(owner);
    await_that(
        &mut daemon,
        "the cache should fill what it may have",
        || {
            let has = cache_group.pages();
            if has_guard {
                let limit = cache_group.high().unwrap_or(u64::MAX) / 4096;
                limit == CACHE && has <= CACHE && usable_pages(None) > nearly_all
            } else {
                has + 2 * BELOW >= given
            }
        },
    );
    let left = usable_pages(None);
    pair[0].run(|own| own.memory.flip(0..SHARED));
    let kills = events("oom_kill") - before;
    context.note(format!(
        "{settings:?}: {given} pages are given to who had {CACHE}, {left} are left; {SHARED} are written, {kills} processes killed"
    ));
    pair[0].run(|own| own.memory.flip(0..SHARED));
    for peer in &mut pair {
        assert_eq!(
            peer.run(|own| own.memory.changed(SEED, SHARED, 0..SHARED)),
            0
        );
    }
    for pid in [owner, rest] {
        signal(pid, libc::SIGKILL);
        wait(pid);
    }
    daemon.stop();
    pair.into_iter().for_each(Peer::exit);
    kills
}

fn the_guard_keeps_what_a_storm_of_writes_needs_and_without_it_the_kernel_kills(
    context: &mut Context,
) {
    assert_eq!(kills(context, "", true), 0, "with the guard");
    assert!(kills(context, NO_GUARD, false) > 0, "without the guard");
}
