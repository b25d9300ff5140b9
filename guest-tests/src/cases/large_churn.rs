//! Groups for minutes: pages that are written, processes that fork and move, workers and
//! supervisors that are killed.
//!
//! Events that occur once in a thousand moves are not found by a test that moves one process. No
//! frame may ever be mapped in two groups, no process may be harmed, and in the end each group must
//! share as before.
//!
//! # Approach
//! Two control groups hold the same, so that every page of one has a twin in the other. In each,
//! two peers stay, and a third moves between them. The test's seed decides the next action. After
//! each step page maps are read: peers that stay share nothing with the other group's, and a moving
//! peer never shares with both. That is read in the order one, other, one, so that a process that
//! is unmerged meanwhile does not fail the test. A child shares its parent's frames by its fork, in
//! either group; it must have given them up some time later.
//!
//! These take minutes, so that `make test` leaves them out: `make large-test`.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::contents::Random;
use crate::fixtures::daemon::{Daemon, program_output};
use crate::fixtures::fd_store::FdStore;
use crate::fixtures::pagemap::assert_no_merged_page_is_left;
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, pause, signal, wait};
use crate::fixtures::two_groups::{
    CONFIGURATION, NEARLY_ALL, PAGES, TwoGroups, assert_intact, await_that, peer_in, shared, worker,
};

cases! { "daemon::large_churn":
    minutes_of_writes_forks_and_moves_share_no_frame_between_groups Large Stock 600,
    minutes_of_kills_lose_no_sharing_and_harm_nobody Large Stock 600,
}

const LONG: Duration = Duration::from_secs(180);
const NAMES: [&str; 2] = ["a", "b"];
/// Longest time until a child in the other group shares nothing with its parent's group.
const PARTED: Duration = Duration::from_secs(40);
/// Limit of the children at a time.
const CHILDREN: usize = 3;

/// A child of a peer.
struct Child {
    pid: i32,
    /// The peer that is its parent, and when it was born.
    parent: usize,
    born: Instant,
    /// The group that it was put into.
    group: usize,
}

/// The daemon, its groups and all processes.
struct World {
    daemon: Daemon,
    cgroups: [Cgroup; 2],
    store: FdStore,
    /// Two that stay in a, two that stay in b, one that was in a at first, one that was in b.
    peers: Vec<Peer>,
    /// The present group of each.
    places: Vec<usize>,
    children: Vec<Child>,
    random: Random,
    moves: u32,
    forks: u32,
    writes: u32,
    kills: [u32; 2],
}

impl World {
    fn new(seed: u64) -> World {
        let store = FdStore::new();
        let host = TwoGroups::prepared(|command| store.serve(command));
        let TwoGroups { daemon, a, b } = host;
        let cgroups = [a, b];
        let places = vec![0, 0, 1, 1, 0, 1];
        let peers = places.iter().map(|&at| peer_in(&cgroups[at])).collect();
        World {
            daemon,
            cgroups,
            store,
            peers,
            places,
            children: Vec::new(),
            random: Random::new(seed),
            moves: 0,
            forks: 0,
            writes: 0,
            kills: [0; 2],
        }
    }

    fn pid(&self, peer: usize) -> i32 {
        self.peers[peer].pid()
    }

    /// Waits until each group's peers share nearly all.
    fn await_merged(&mut self) {
        let pids: Vec<i32> = self.peers.iter().map(Peer::pid).collect();
        let places = self.places.clone();
        await_that(&mut self.daemon, "each group should share", || {
            let of = |group: usize| (0..pids.len()).filter(move |&peer| peer / 2 == group);
            (0..2).all(|group| {
                let stays: Vec<usize> = of(group).collect();
                let others = (4..pids.len()).filter(|&peer| places[peer] == group);
                stays.iter().copied().chain(others).all(|peer| {
                    let with = stays.iter().copied().find(|&other| other != peer);
                    with.is_some_and(|with| shared(pids[peer], pids[with]) >= NEARLY_ALL)
                })
            })
        });
    }

    /// Writes some pages of a peer, and their old contents some time later.
    fn write(&mut self) {
        let peer = self.random.page(self.peers.len());
        let first = self.random.page(PAGES);
        let end = PAGES.min(first + 1 + self.random.page(256));
        let pause = Duration::from_millis(self.random.page(60) as u64);
        self.peers[peer].run(move |own| own.memory.flip(first..end));
        sleep(pause);
        self.peers[peer].run(move |own| own.memory.flip(first..end));
        self.writes += 1;
    }

    /// Moves one of the moving peers to the other group.
    fn move_one(&mut self) {
        let peer = 4 + self.random.page(2);
        self.places[peer] ^= 1;
        self.cgroups[self.places[peer]].take(self.pid(peer));
        self.moves += 1;
    }

    /// A peer has a child, which writes, and is put into one of the groups.
    fn fork_one(&mut self) {
        if self.children.len() == CHILDREN {
            self.end_child(0);
        }
        let parent = self.random.page(self.peers.len());
        let pid = self.peers[parent].run(|own| {
            let memory = &mut own.memory;
            fork(|| {
                memory.flip(0..32);
                pause()
            })
        });
        let group = self.random.page(2);
        self.cgroups[group].take(pid);
        self.children.push(Child {
            pid,
            parent,
            born: Instant::now(),
            group,
        });
        self.forks += 1;
    }

    fn end_child(&mut self, at: usize) {
        let Child { pid, parent, .. } = self.children.remove(at);
        self.peers[parent].run(move |_| {
            signal(pid, libc::SIGKILL);
            wait(pid)
        });
    }

    fn kill_worker(&mut self) {
        let pid = worker(NAMES[self.random.page(2)]);
        if pid > 1 {
            signal(pid, libc::SIGKILL);
            self.kills[0] += 1;
        }
    }

    fn kill_supervisor(mut self) -> World {
        self.daemon.kill();
        let store = &self.store;
        self.daemon = Daemon::start_prepared(CONFIGURATION, |command| store.serve(command));
        self.kills[1] += 1;
        self
    }

    /// Checks that the daemon runs, and that the groups share nothing.
    fn check(&mut self) {
        // Otherwise the daemon would wait for its messages to be read.
        let _kept = self.store.names();
        self.daemon.assert_running();
        for one in 0..2 {
            for other in 2..4 {
                World::assert_apart(self.pid(one), self.pid(other));
            }
        }
        for peer in 4..6 {
            self.assert_in_one(self.pid(peer));
        }
        for child in &self.children {
            if child.born.elapsed() > PARTED {
                for stays in [0, 1, 2, 3] {
                    if stays / 2 != child.group {
                        World::assert_apart(child.pid, self.pid(stays));
                    }
                }
            }
        }
    }

    /// Page maps are read one after the other, and a page can change hands in between: only sharing
    /// in three reads in succession counts.
    fn assert_apart(one: i32, other: i32) {
        let counts: Vec<usize> = (0..3).map(|_| shared(one, other)).collect();
        assert!(
            counts.contains(&0),
            "{one} and {other} are of two groups and share {counts:?} pages: {}",
            program_output(&["group", "list"])
        );
    }

    /// Checks that a moving peer shares with one group only.
    fn assert_in_one(&self, pid: i32) {
        let with = |group: usize| -> usize {
            let stays = [2 * group, 2 * group + 1];
            stays.map(|peer| shared(pid, self.pid(peer))).iter().sum()
        };
        let counts = [with(0), with(1), with(0)];
        assert!(
            counts.contains(&0),
            "{pid} moves, and shares {} pages with group a, {} with b, and {} with a: {}",
            counts[0],
            counts[1],
            counts[2],
            program_output(&["group", "list"])
        );
    }

    /// All children end, all peers share again, and no process was harmed.
    fn end(mut self, context: &mut Context) {
        while !self.children.is_empty() {
            self.end_child(0);
        }
        self.await_merged();
        self.check();
        assert_intact(&mut self.peers);
        context.note(format!(
            "{} writes, {} moves, {} forks, {} workers and {} supervisors killed",
            self.writes, self.moves, self.forks, self.kills[0], self.kills[1]
        ));
        assert!(self.moves > 10 && self.writes > 100, "too little happened");
        self.daemon.stop();
        drop((self.peers, self.store, self.cgroups));
        assert_no_merged_page_is_left();
    }
}

fn minutes_of_writes_forks_and_moves_share_no_frame_between_groups(context: &mut Context) {
    let mut world = World::new(context.seed());
    world.await_merged();
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        match world.random.page(8) {
            0 => world.move_one(),
            1 => world.fork_one(),
            _ => world.write(),
        }
        world.check();
    }
    assert!(world.forks > 10, "too little happened");
    world.end(context);
}

fn minutes_of_kills_lose_no_sharing_and_harm_nobody(context: &mut Context) {
    let mut world = World::new(context.seed());
    world.await_merged();
    let end = Instant::now() + LONG;
    let mut killed = Instant::now();
    while Instant::now() < end {
        match world.random.page(12) {
            0 => world.move_one(),
            // Both at once in succession, and after they have worked for a while.
            1 => world.kill_worker(),
            2 if killed.elapsed() > Duration::from_secs(5) => {
                world = world.kill_supervisor();
                killed = Instant::now();
            }
            _ => world.write(),
        }
        world.check();
    }
    assert!(
        world.kills[0] > 5 && world.kills[1] > 5,
        "too little happened"
    );
    world.end(context);
}
