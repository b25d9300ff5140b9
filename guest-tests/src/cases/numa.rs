//! Merging on a machine of two memory nodes.
//!
//! # Problem
//! NUMA balancing takes access rights from page-table entries to find the users of a page, and
//! moves pages between nodes; both meet merged pages.
//!
//! # Approach
//! With balancing at the kernel's highest rate, a peer writes and checks its pages while it changes
//! CPUs, and is merged all the time. Then all its pages are moved by migrate_pages(2). A mapping
//! bound to one node gets its copies there when it is broken, or stays merged. A domain that keeps
//! nodes leaves each page on its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uksm_linux::domain::BreakChoice;
use uksm_linux::module::Configuration;
use uksm_policy::command::{FoldKind, Frame, FrameId, Lines, Reason, Status};

use super::Context;
use crate::fixtures::accounting::{SteadyMarks, events, is_real_time, set, usable_pages};
use crate::fixtures::contents::WORDS;
use crate::fixtures::domain::{Domain, Permit, address, entry};
use crate::fixtures::memory::{BASE, Huge, Memory, answer};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::run_on;

cases! { "numa":
    merging_under_numa_balancing_keeps_contents Normal Numa 90,
    migrating_a_merged_process_keeps_contents Normal Numa 60,
    frames_lie_on_the_node_of_the_pages_that_became_them Normal Numa 60,
    pages_of_two_nodes_are_merged_only_where_nodes_are_not_kept Normal Numa 60,
    hashes_differ_between_nodes_that_are_kept_except_of_zeros Normal Numa 60,
    interleaved_pages_are_merged_on_their_nodes Normal Numa 60,
    copies_lie_on_the_nodes_of_the_frames Normal Numa 60,
    breaking_a_mapping_bound_to_a_full_node_stops_and_kills_nobody Normal Numa 90,
}

pub(super) const PAGES: usize = 1024;
const SEED: u64 = 28;
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";

pub(super) fn nodes() -> usize {
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

fn merging_under_numa_balancing_keeps_contents(context: &mut Context) {
    const SECONDS: u64 = 8;
    assert_eq!(nodes(), 2, "the guest should have two nodes");
    if std::fs::metadata(BALANCING).is_err() {
        // CONFIG_NUMA_BALANCING depends on !PREEMPT_RT, and on nothing that other kernels lack.
        assert!(is_real_time(), "{BALANCING} is missing");
        context.note("a realtime kernel balances no memory: nothing to test");
        return;
    }
    set(BALANCING, "1");
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
            run_on(0, 1 << (round % 2));
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
    // SAFETY: both masks have as many bits as the call is given.
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
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
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

/// Binds memory of this process to a node; pages that are present stay where they are.
fn bind(memory: &Memory, node: u32) {
    const MPOL_BIND: i32 = 2;
    set_policy(memory, MPOL_BIND, 1 << node);
}

/// Sets the policy of memory of this process, for a set of nodes.
fn set_policy(memory: &Memory, mode: i32, mask: u64) {
    let vector = memory.vector(0..memory.pages());
    // SAFETY: the mask has the length given to the call, the range is this process's own.
    let bound = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            vector.iov_base,
            vector.iov_len,
            mode,
            &raw const mask,
            64,
            0,
        )
    };
    assert_eq!(bound, 0, "mbind: {}", std::io::Error::last_os_error());
}

/// The number of the first `pages` pages of a process that lie on a node.
fn pages_on(pid: i32, pages: usize, node: i32) -> usize {
    let places = nodes_of(pid, pages).into_iter();
    places.filter(|&place| place == node).count()
}

/// The nodes of the first `pages` pages of a process.
fn nodes_of(pid: i32, pages: usize) -> Vec<i32> {
    let addresses: Vec<u64> = (0..pages).map(address).collect();
    let mut places = vec![-1i32; pages];
    // SAFETY: both arrays have the length given to the call; without nodes nothing moves.
    let asked = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages,
            addresses.as_ptr(),
            std::ptr::null::<i32>(),
            places.as_mut_ptr(),
            0,
        )
    };
    assert_eq!(asked, 0, "move_pages: {}", std::io::Error::last_os_error());
    places
}

fn keeping_nodes() -> Domain {
    Domain::configured(Configuration {
        keeps_nodes: true,
        ..Configuration::default()
    })
}

/// Two peers on each node, the first two on node 0; all hold the same.
pub(super) fn two_peers_on_each_node() -> [Peer; 4] {
    [0, 0, 1, 1].map(peer_on)
}

/// A peer whose pages are bound to the node and lie there.
fn peer_on(node: u32) -> Peer {
    let mut peer = Peer::new(PAGES);
    peer.run(move |own| {
        bind(&own.memory, node);
        own.memory.fill(SEED, PAGES);
    });
    peer
}

/// The numbers of pages of each of four peers on node 1.
fn on_node_1(peers: &[Peer; 4]) -> [usize; 4] {
    [0, 1, 2, 3].map(|at: usize| pages_on(peers[at].pid(), PAGES, 1))
}

const APART: [usize; 4] = [0, 0, PAGES, PAGES];

/// Pages of such peers that lie on another node than they did at first.
pub(super) fn strays(peers: &[Peer; 4]) -> usize {
    let of = |at: usize, node| pages_on(peers[at].pid(), PAGES, node);
    of(0, 1) + of(1, 1) + of(2, 0) + of(3, 0)
}

fn pages_of_two_nodes_are_merged_only_where_nodes_are_not_kept(_: &mut Context) {
    assert_eq!(nodes(), 2, "the guest should have two nodes");
    let mut peers = two_peers_on_each_node();
    assert_eq!(on_node_1(&peers), APART);

    let mut domain = keeping_nodes();
    let spaces = [0, 1, 2, 3].map(|at: usize| domain.attach(&peers[at]));
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    let refused = counts.with(Status::Differed, Reason::Node);
    assert_eq!(refused, 2 * PAGES, "{counts:?}");
    // A frame of the other node, named by its id.
    let frame = domain.sample(spaces[0], 0..1, Lines { from: 0, to: 0 })[0].frame;
    let named = entry(spaces[2], 0, FoldKind::Frame(FrameId(frame)));
    let outcome = domain.fold_with_retries(&[named], Permit::default())[0];
    assert_eq!(
        (outcome.status, outcome.reason),
        (Status::Differed, Reason::Node)
    );
    let counts = domain.merge(&spaces[2..], 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    assert_eq!(on_node_1(&peers), APART);
    let lying_on_1 = |frame: &Frame| frame.node == 1;
    let frames = domain.frames(Lines { from: 0, to: 0 }, false);
    assert_eq!(frames.len(), 2 * PAGES);
    assert_eq!(frames.iter().filter(|it| lying_on_1(it)).count(), PAGES);
    for space in spaces {
        assert_eq!(domain.unmerge(space, 0..PAGES), PAGES as u64);
    }
    domain.assert_all_frames_return();
    drop(domain);

    let mut domain = Domain::open();
    let spaces = [0, 1, 2, 3].map(|at: usize| domain.attach(&peers[at]));
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 4 * PAGES, "{counts:?}");
    // Merged pages leave the node that their mapping is bound to, as with KSM.
    let [.., last] = on_node_1(&peers);
    // A batch of the caller's node in each call: 64 of the 128 frames that a call makes.
    assert!(last <= PAGES / 2, "{last} pages are still on node 1");
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}

fn hashes_differ_between_nodes_that_are_kept_except_of_zeros(_: &mut Context) {
    const ALL: Lines = Lines { from: 0, to: 64 };
    assert_eq!(nodes(), 2, "the guest should have two nodes");
    let mut peers = two_peers_on_each_node();
    for peer in &mut peers {
        // The last page holds zeros and is in memory.
        peer.run(|own| {
            for word in 0..WORDS {
                own.memory.set_word(PAGES - 1, word, 0);
            }
        });
    }
    for (mut domain, keeps) in [(keeping_nodes(), true), (Domain::open(), false)] {
        let spaces = [0, 1, 2, 3].map(|at: usize| domain.attach(&peers[at]));
        let mut hashes = |space, lines: Lines| -> Vec<u64> {
            let pages = domain.sample(space, 0..PAGES, lines);
            pages.iter().map(|page| page.hash).collect()
        };
        let [here, too, there, _] = spaces.map(|space| hashes(space, ALL));
        assert_eq!(here, too, "one node");
        let differ = here.iter().zip(&there).filter(|(a, b)| a != b).count();
        assert_eq!(differ, if keeps { PAGES - 1 } else { 0 });
        assert_eq!(here[PAGES - 1], there[PAGES - 1], "zeros");
        // A change of strength: the hash of some lines and that of the rest make that of all.
        let some = hashes(spaces[2], Lines { from: 0, to: 9 });
        let rest = hashes(spaces[2], Lines { from: 9, to: 64 });
        let sums = some.iter().zip(&rest).map(|(a, b)| a.wrapping_add(*b));
        assert!(sums.eq(there), "ranges should add up");
    }
    // Zeros of both nodes map the zero page, and a frame has the hash of its pages.
    let mut domain = keeping_nodes();
    let spaces = [0, 1, 2, 3].map(|at: usize| domain.attach(&peers[at]));
    for space in spaces {
        let counts = domain.merge_zero(space, PAGES - 1..PAGES);
        assert_eq!(counts.of(Status::Zeroed), 1, "{counts:?}");
    }
    let before = domain.sample(spaces[2], 0..1, ALL)[0].hash;
    let counts = domain.merge(&spaces[2..], 0..1, Permit::default());
    assert_eq!(counts.merged(), 2, "{counts:?}");
    assert_eq!(domain.frames(ALL, false)[0].hash, before);
    assert_eq!(domain.sample(spaces[3], 0..1, ALL)[0].hash, before);
}

fn interleaved_pages_are_merged_on_their_nodes(context: &mut Context) {
    const MPOL_INTERLEAVE: i32 = 3;
    assert_eq!(nodes(), 2, "the guest should have two nodes");
    let peers = [(); 2].map(|()| {
        let mut peer = Peer::new(PAGES);
        peer.run(|own| {
            set_policy(&own.memory, MPOL_INTERLEAVE, 3);
            own.memory.fill(SEED, PAGES);
        });
        peer
    });
    let before = nodes_of(peers[0].pid(), PAGES);
    assert_eq!(before, nodes_of(peers[1].pid(), PAGES));
    let changes = before.windows(2).filter(|pair| pair[0] != pair[1]).count();
    context.note(format!("{changes} changes of the node"));
    assert!(changes > PAGES / 2, "{changes} changes of the node");
    let mut domain = keeping_nodes();
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    for peer in &peers {
        assert_eq!(nodes_of(peer.pid(), PAGES), before);
    }
    for peer in peers {
        peer.exit();
    }
    domain.assert_all_frames_return();
}

fn copies_lie_on_the_nodes_of_the_frames(_: &mut Context) {
    const MPOL_DEFAULT: i32 = 0;
    assert_eq!(nodes(), 2, "the guest should have two nodes");
    // It would move pages whose mapping has no policy.
    if std::fs::metadata(BALANCING).is_ok() {
        set(BALANCING, "0");
    }
    for choice in [BreakChoice::Own, BreakChoice::Single] {
        for node in [1, 0] {
            let mut peers = [node; 2].map(peer_on);
            for peer in &mut peers {
                peer.run(|own| set_policy(&own.memory, MPOL_DEFAULT, 0));
            }
            let place = i32::try_from(node).expect("0 or 1");
            let mut domain = keeping_nodes();
            let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
            let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
            assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
            if choice == BreakChoice::Single {
                peers[1].run(|own| own.memory.flip(0..PAGES));
            }
            // The call is made on the other node.
            run_on(0, 1 << (1 - node));
            let broken = domain.break_pages(spaces[0], 0..PAGES, choice);
            run_on(0, 3);
            assert_eq!(broken, PAGES as u64);
            assert_eq!(pages_on(peers[0].pid(), PAGES, place), PAGES);
            let wrong = peers[0].run(|own| own.memory.changed(SEED, PAGES, 0..PAGES));
            assert_eq!(wrong, 0);
        }
    }
}

fn frames_lie_on_the_node_of_the_pages_that_became_them(context: &mut Context) {
    // A batch of the wrong node in each call: 32 of the 256 frames that a call makes.
    const WRONG: usize = PAGES / 8;
    assert_eq!(nodes(), 2, "the guest should have two nodes");
    for node in [1, 0] {
        let peers = [node; 2].map(peer_on);
        let mut domain = Domain::open();
        let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
        let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
        assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
        let place = i32::try_from(node).expect("0 or 1");
        let right = pages_on(peers[0].pid(), PAGES, place);
        context.note(format!("{right} of {PAGES} frames on node {node}"));
        assert!(right >= PAGES - WRONG, "{right} on node {node}");
    }
}

/// Does `work` while another thread moves this one from processor to processor.
fn moved_about<T>(work: impl FnOnce() -> T) -> T {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                run_on(thread, 1);
                run_on(thread, 2);
            }
            run_on(thread, 3);
        });
        let done = work();
        is_done.store(true, Ordering::Relaxed);
        done
    })
}

/// Touches memory of a node, mapped at an address, until that node has `left` pages left or fewer.
fn fill_node(node: u32, left: u64, address: u64) {
    let pages = 1 << 18;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let mut memory = Memory::at(address, pages, flags, -1);
    memory.advise_huge(Huge::Never);
    bind(&memory, node);
    let mut taken = 0;
    loop {
        let usable = usable_pages(Some(node));
        if usable <= left {
            return;
        }
        // Large steps while the end is far.
        let step = if usable > left + 8192 { 4096 } else { 64 };
        for page in taken..taken + step {
            memory.set_word(page, 0, 1);
        }
        taken += step;
    }
}

fn breaking_a_mapping_bound_to_a_full_node_stops_and_kills_nobody(context: &mut Context) {
    const NODE: u32 = 1;
    const ROOM: u64 = 384;
    const ELSEWHERE: u64 = BASE + (1 << 34);
    const TRIES: u64 = 5;
    assert_eq!(nodes(), 2, "the guest should have two nodes");
    let _marks = SteadyMarks::set();
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = Domain::open();
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    peers[0].run(|own| bind(&own.memory, NODE));

    // While the node has room, copies come from there.
    assert_eq!(domain.unmerge(spaces[0], 0..64), 64);
    let copies = pages_on(peers[0].pid(), 64, 1);
    assert_eq!(copies, 64, "copies should be where the mapping is bound to");

    // A hog leaves hardly any. Ended processes may give memory back after that, and BREAK use it:
    // then the node is filled again.
    let mut hog = Peer::new(1);
    let kills = events("oom_kill");
    let end = address(PAGES);
    let stops = (0..TRIES).any(|number| {
        hog.run(move |_| fill_node(NODE, ROOM, ELSEWHERE + (number << 32)));
        // Free pages kept by one processor are not available to the other.
        let broken = moved_about(|| domain.device.break_range(spaces[0], address(64), end));
        let broken = broken.expect("BREAK");
        let left = usable_pages(Some(NODE));
        context.note(format!("{broken:?}; {left} pages of the node are left"));
        if !broken.stopped {
            let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
            assert!(counts.merged() > 0, "{counts:?}");
        }
        broken.stopped
    });
    assert!(
        stops,
        "a node that was filled {TRIES} times should be full once"
    );
    assert_eq!(events("oom_kill"), kills, "nobody should be killed");
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    hog.kill();
    assert!(domain.unmerge(spaces[0], 0..PAGES) > 0);
    for peer in peers {
        peer.exit();
    }
    domain.assert_all_frames_return();
}
