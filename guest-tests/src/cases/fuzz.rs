//! Random calls while targets start, change and end.
//!
//! # Problem
//! The device is open to all processes that may trace; no request may harm the kernel, harm another
//! process, or lose memory, at any moment at which a target forks, unmaps, moves, splits or dies.
//!
//! # Approach
//! Two domains with one seed are called at random (`fuzz/call.rs`) over common targets, which are
//! attached to one or the other; a second caller runs beside each call, and detaches and attaches
//! as well. Targets hold their own locks now and then, so that calls give up on them, or end in
//! part. A domain is closed now and then while its frames are mapped; the next one adopts them. One
//! target at a time changes all that it may change (`fuzz/target.rs`), and targets are killed and
//! replaced. Memory that they never write is checked at the end. At least a third of all calls must
//! have reached page tables: a target that changes its mappings is often locked. The same is done
//! with targets that hold virtual machines, which the kernel must notify of every change (on one
//! CPU, where callers and targets take turns: otherwise an emulated CPU that is nested loses
//! interrupts). [`CALLS_VARIABLE`] in the environment of `/init` (an unknown kernel parameter
//! becomes one) changes the number of calls.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::time::Instant;

use call::{Buffers, Called, Material, VERBS, device};
use target::{FILE_PAGES, Target};
use uksm_linux::module::Configuration;
use uksm_policy::command::SpaceId;

use super::Context;
use crate::fixtures::accounting::{free_or_owned_pages, number, set, value};
use crate::fixtures::contents::Random;
use crate::fixtures::domain::Domain;
use crate::fixtures::fuse::{FuseFile, Reads};
use crate::fixtures::kvm::load_kvm;
use crate::fixtures::pagemap::assert_no_merged_page_is_left;
use crate::fixtures::process::{fork, signal, wait};
use crate::fixtures::requests::attach;
use crate::fixtures::symbols::kernel_has;

mod call;
mod target;

cases! { "fuzz":
    random_calls_harm_nothing_and_lose_nothing Stress Stock 120,
    random_calls_harm_no_virtual_machine Stress Nested 120,
}

/// Calls of a full test run.
pub const CALLS: u32 = 20_000;
/// Changes their number, in the environment of `/init`.
pub const CALLS_VARIABLE: &str = "UKSM_FUZZ_CALLS";
/// Divisor of the number of calls where targets hold virtual machines.
const MACHINES: usize = 10;
const DOMAINS: usize = 2;
const TARGETS: usize = 5;
/// Limit of the targets of a domain: together both want more than there are.
const HELD: usize = 3;
/// Calls during one change of a target.
const BURST: usize = 200;
/// Mean number of calls between two kills of a target, which is then replaced.
const LIFETIME: u64 = 2000;
/// Mean number of bursts between two closings of a domain.
const REIGN: u64 = 24;
/// Limit of the spaces of dead targets.
const SPACES: u32 = 40;
/// Verbs that return EAGAIN for a target that holds its locks.
const MAY_GIVE_UP: [&str; 4] = ["ATTACH", "BREAK", "COUNT", "MAPPINGS"];
/// The file that sets the number of huge pages for hugetlb mappings.
const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// A domain, and its spaces of the targets.
struct Front {
    domain: Domain,
    /// Space of each target; none while another domain has it.
    spaces: [Option<u32>; TARGETS],
}

impl Front {
    fn new(seed: u64) -> Front {
        Front {
            domain: Domain::configured(Configuration {
                hash_seed: seed,
                ..Configuration::default()
            }),
            spaces: [None; TARGETS],
        }
    }

    /// Attaches its former targets, and targets that the other domain has left to it, up to
    /// [`HELD`].
    fn attach(&mut self, pids: [i32; TARGETS]) {
        let mut order: [usize; TARGETS] = std::array::from_fn(|at| at);
        order.sort_by_key(|&at| self.spaces[at].is_none());
        let mut held = 0;
        for at in order {
            self.spaces[at] = (held < HELD)
                .then(|| attach(&self.domain, pids[at]).ok())
                .flatten()
                .map(|space| space.0);
            held += usize::from(self.spaces[at].is_some());
        }
    }

    /// Spaces for calls: at least one.
    fn some_spaces(&self) -> Vec<u32> {
        let known: Vec<u32> = self.spaces.into_iter().flatten().collect();
        if known.is_empty() { vec![1] } else { known }
    }

    /// Leaves one target to the other domain.
    fn give_up_one(&mut self, random: &mut Random) {
        if let Some(space) = self.spaces[random.page(TARGETS)].take() {
            // A random DETACH may have been faster.
            let _gone = self.domain.device.detach(SpaceId(space));
        }
    }

    /// The material of calls: attached targets, and `other`, which may be the other domain's.
    fn material(&self, targets: &[Target], other: usize) -> Material {
        let named = |at: &usize| *at == other || self.spaces[*at].is_some();
        Material {
            spaces: self.some_spaces(),
            pidfds: (0..TARGETS)
                .filter(named)
                .map(|at| targets[at].pidfd.as_raw_fd())
                .collect(),
            areas: targets[other].areas(),
        }
    }
}

/// Forks a caller of the same domain; its calls are not counted.
fn second_caller(domain: &Domain, material: &Material, seed: u64, doomed: Option<i32>) -> i32 {
    fork(|| {
        let mut random = Random::new(seed);
        let mut buffers = Buffers::new();
        let moment = random.page(BURST);
        for at in 0..BURST {
            if let (true, Some(pid)) = (at == moment, doomed) {
                signal(pid, libc::SIGKILL);
            }
            let _called = buffers.call(device(domain), material, &mut random);
        }
        0
    })
}

#[derive(Default)]
struct Count {
    calls: BTreeMap<(usize, i32), usize>,
    reached: [usize; VERBS.len()],
    replaced: usize,
    closed: usize,
    adopted: u64,
    /// Calls that ended because of a target's locks.
    given_up: usize,
}

impl Count {
    fn add(&mut self, called: Called) {
        let name = VERBS[called.verb].name;
        assert!(
            called.errno != libc::EAGAIN || MAY_GIVE_UP.contains(&name),
            "{name} should not be EAGAIN"
        );
        self.given_up += usize::from(called.errno == libc::EAGAIN);
        *self.calls.entry((called.verb, called.errno)).or_default() += 1;
        self.reached[called.verb] += usize::from(called.reached);
    }

    fn note(&self, context: &Context) {
        for (verb, name) in VERBS.iter().map(|verb| verb.name).enumerate() {
            let results: Vec<String> = self
                .calls
                .range((verb, i32::MIN)..=(verb, i32::MAX))
                .map(|((_, errno), count)| match errno {
                    0 => format!("taken {count}"),
                    errno => format!("{:?} {count}", nix::errno::Errno::from_raw(*errno)),
                })
                .collect();
            let reached = self.reached[verb];
            context.note(format!(
                "{name}: {}; reached page tables {reached}",
                results.join(", ")
            ));
        }
    }
}

/// Two domains and their targets while calls are made.
struct Fuzzer {
    random: Random,
    buffers: Buffers,
    fronts: Vec<Front>,
    targets: Vec<Target>,
    hash_seed: u64,
    machines: bool,
    count: Count,
    wrong: usize,
}

impl Fuzzer {
    fn new(seed: u64, machines: bool) -> Fuzzer {
        let mut random = Random::new(seed);
        let hash_seed = random.word() | 1;
        Fuzzer {
            buffers: Buffers::new(),
            fronts: (0..DOMAINS).map(|_| Front::new(hash_seed)).collect(),
            targets: (0..TARGETS)
                .map(|_| Target::new(&mut random, machines))
                .collect(),
            random,
            hash_seed,
            machines,
            count: Count::default(),
            wrong: 0,
        }
    }

    fn pids(&self) -> [i32; TARGETS] {
        std::array::from_fn(|at| self.targets[at].peer.pid())
    }

    /// Makes `calls` calls of one domain.
    fn burst(&mut self, calls: usize) {
        let pids = self.pids();
        let random = &mut self.random;
        let front = &mut self.fronts[random.page(DOMAINS)];
        front.attach(pids);
        let restless = random.page(TARGETS);
        let mut material = front.material(&self.targets, restless);
        // Another caller of the same domain, which kills a target during its calls and ours.
        let victim = (restless + 1 + random.page(TARGETS - 1)) % TARGETS;
        let doomed = random.chance(BURST as u64, LIFETIME);
        let doomed_pid = doomed.then_some(pids[victim]);
        let second = second_caller(&front.domain, &material, random.word(), doomed_pid);
        let stirring = self.targets[restless].stir(random.word());
        for at in 0..calls {
            let called = self.buffers.call(device(&front.domain), &material, random);
            self.count.add(called);
            // Random DETACHes, ours and the second caller's, would otherwise leave no target to
            // call.
            if at % 10 == 0 {
                front.attach(pids);
                material.spaces = front.some_spaces();
            }
        }
        self.wrong += stirring.end();
        assert_eq!(wait(second), 0, "the second caller should end well");
        if doomed {
            let fresh = Target::new(random, self.machines);
            // Its space stays attached for a while.
            std::mem::replace(&mut self.targets[victim], fresh)
                .peer
                .kill();
            self.count.replaced += 1;
        }
        front.give_up_one(random);
        if front.domain.info().spaces > SPACES || random.chance(1, REIGN) {
            self.count.adopted += front.domain.info().adopted;
            self.count.closed += 1;
            // Its frames become orphans. It gets some more calls after it can attach no target any
            // longer.
            front.domain.device.seal().expect("SEAL");
            for _ in 0..BURST / 8 {
                let _called = self.buffers.call(device(&front.domain), &material, random);
            }
            *front = Front::new(self.hash_seed);
        }
    }

    /// Checks all that must be unchanged; returns the counts.
    fn end(mut self, seed: u64) -> Count {
        for front in &self.fronts {
            self.count.adopted += front.domain.info().adopted;
        }
        let still: usize = self.targets.iter_mut().map(Target::wrong).sum();
        assert_eq!(
            (still, self.wrong),
            (0, 0),
            "pages that are never written, and what targets read back, were wrong, seed {seed:#x}"
        );
        for target in self.targets {
            target.peer.exit();
        }
        for front in &mut self.fronts {
            front.domain.assert_all_frames_return();
        }
        self.count
    }
}

/// The number of calls: of `make fuzz`, or of a full test run.
fn calls() -> usize {
    let calls = std::env::var(CALLS_VARIABLE).map_or(CALLS, |calls| {
        calls
            .parse()
            .unwrap_or_else(|error| panic!("{CALLS_VARIABLE}={calls}: {error}"))
    });
    usize::try_from(calls).expect("guests are 64-bit")
}

fn fuzz(context: &Context, calls: usize, machines: bool) {
    let seed = context.seed();
    context.note(format!("seed {seed:#x}, {calls} calls"));
    let free = free_or_owned_pages();
    set(POOL, &(TARGETS + 1).to_string());
    assert!(
        value(POOL) >= 1,
        "the guest should have memory for huge pages"
    );
    let mut file = FuseFile::new(context, FILE_PAGES, seed);
    file.set(Reads::Late);
    let begin = Instant::now();
    let mut fuzzer = Fuzzer::new(seed, machines);
    for done in (0..calls).step_by(BURST) {
        fuzzer.burst(BURST.min(calls - done));
    }
    let count = fuzzer.end(seed);
    drop(file);
    set(POOL, "0");
    context.note(format!(
        "{calls} calls, {} new targets, {} domains closed and {} orphans adopted in {:?}",
        count.replaced,
        count.closed,
        count.adopted,
        begin.elapsed()
    ));
    count.note(context);
    // A short run has few such moments, or none.
    assert!(
        count.given_up > 0 || calls < CALLS as usize,
        "some of {calls} calls should meet targets that hold their locks"
    );
    let reached: usize = count.reached.iter().sum();
    assert!(
        reached * 3 >= calls,
        "a third of {calls} calls should reach page tables, {reached} did"
    );
    assert_no_merged_page_is_left();
    let lost = free - free_or_owned_pages();
    assert!(
        lost < 1024 + quarantined(),
        "{lost} pages should not be lost, seed {seed:#x}"
    );
}

/// Pages that KASAN may keep from being reused after they were freed: the part of the memory that
/// mm/kasan/quarantine.c calls `QUARANTINE_FRACTION`, and half as much again in the queues of
/// processors and in slabs.
fn quarantined() -> i64 {
    if !kernel_has("kasan_quarantine_put") {
        return 0;
    }
    let pages = number("/proc/meminfo", "MemTotal") / 4;
    i64::try_from(pages / 32 * 3 / 2).expect("guests are small")
}

fn random_calls_harm_nothing_and_lose_nothing(context: &mut Context) {
    fuzz(context, calls(), false);
}

fn random_calls_harm_no_virtual_machine(context: &mut Context) {
    load_kvm(context);
    fuzz(context, calls() / MACHINES, true);
}
