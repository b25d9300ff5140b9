//! A hundred thousand random calls while targets come and go.
//!
//! # Problem
//! The device is open to whoever may trace; no request may harm the kernel, another process, or
//! lose memory, at whatever moment a target forks or dies.
//!
//! # Approach
//! Two domains are called at random ([`fuzz_call`]), each over targets of its own. Targets never
//! write their pages, so that all of them can be checked at the end; a fork storm runs in each, and
//! targets are killed and replaced all the time. At least half of all calls must have reached page
//! tables. `UKSM_FUZZ_CALLS` in the environment of `/init` (an unknown kernel parameter becomes
//! one) changes the number of calls.
//!
//! [`fuzz_call`]: super::fuzz_call

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use super::Context;
use super::accounting::free_pages;
use super::attaching::attach;
use super::contents::Random;
use super::domain::Domain;
use super::fuzz_call::{Buffers, Called, Material, VERBS, device};
use super::memory::Huge;
use super::pagemap::assert_no_merged_page_is_left;
use super::peer::{Peer, Running, fork, leave, pidfd, signal, wait};

cases! { "fuzz":
    random_calls_harm_nothing_and_lose_nothing Stress Stock 240,
}

const CALLS: usize = 100_000;
const DOMAINS: usize = 2;
const TARGETS: usize = 3;
const PAGES: usize = 768;
const DISTINCT: usize = 32;
const SEED: u64 = 30;
/// Calls during one fork storm.
const BURST: usize = 200;
/// A target is killed and replaced about every so many calls.
const LIFETIME: u64 = 2000;

/// A target, in which children are forked and end without pause.
struct Target {
    peer: Peer,
    pidfd: OwnedFd,
}

impl Target {
    fn new(random: &mut Random) -> Target {
        let huge = if random.chance(1, 3) {
            Huge::Always
        } else {
            Huge::Never
        };
        let mut peer = Peer::with(PAGES, huge);
        peer.run(|own| {
            own.memory.fill(SEED, DISTINCT);
            // Some zeros, which the zero page can replace.
            own.memory
                .advise(PAGES - 64..PAGES, libc::MADV_DONTNEED)
                .expect("MADV_DONTNEED");
            for page in PAGES - 64..PAGES {
                own.memory.set_word(page, 0, 0);
            }
        });
        let pidfd = pidfd(peer.pid()).expect("a pidfd");
        Target { peer, pidfd }
    }

    /// Has the target fork for a moment; the children look at some pages.
    fn storm(&mut self) -> Running<'_, usize> {
        self.peer.begin(|own| {
            let children: Vec<i32> = (0..6)
                .map(|child| {
                    let memory = &own.memory;
                    fork(move || {
                        let page = child * 97 % (PAGES - 64);
                        leave(i32::from(
                            memory.changed(SEED, DISTINCT, page..page + 1) > 0,
                        ))
                    })
                })
                .collect();
            children
                .into_iter()
                .filter(|&child| wait(child) != 0)
                .count()
        })
    }

    fn wrong(&mut self) -> usize {
        self.peer.run(|own| {
            own.memory.changed(SEED, DISTINCT, 0..PAGES - 64)
                + own.memory.nonzero(PAGES - 64..PAGES)
        })
    }
}

/// One domain under fire with its targets.
struct Front {
    domain: Domain,
    targets: Vec<Target>,
    spaces: Vec<u32>,
}

impl Front {
    fn new(random: &mut Random) -> Front {
        let domain = Domain::open();
        let targets: Vec<Target> = (0..TARGETS).map(|_| Target::new(random)).collect();
        let spaces = targets
            .iter()
            .map(|target| domain.attach(&target.peer).0)
            .collect();
        Front {
            domain,
            targets,
            spaces,
        }
    }

    /// Takes a new target in place of a killed one, whose space stays attached for a while.
    fn replace(&mut self, at: usize, random: &mut Random) {
        let killed = std::mem::replace(&mut self.targets[at], Target::new(random));
        killed.peer.kill();
        self.spaces[at] = self.domain.attach(&self.targets[at].peer).0;
    }

    fn material(&self) -> Material {
        Material {
            spaces: self.spaces.clone(),
            pidfds: self
                .targets
                .iter()
                .map(|target| target.pidfd.as_raw_fd())
                .collect(),
            pages: PAGES,
        }
    }

    fn pids(&self) -> [i32; TARGETS] {
        std::array::from_fn(|at| self.targets[at].peer.pid())
    }

    /// Spaces that a random DETACH took are attached again.
    fn attach_again(&mut self) {
        for (at, target) in self.targets.iter().enumerate() {
            self.spaces[at] = self.domain.attach(&target.peer).0;
        }
    }
}

/// Attaches those of the processes that live; one that is attached keeps its space.
fn attach_all(domain: &Domain, pids: [i32; TARGETS], material: &mut Material) {
    for (space, pid) in material.spaces.iter_mut().zip(pids) {
        if let Ok(attached) = attach(domain, pid) {
            *space = attached.0;
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
}

impl Count {
    fn add(&mut self, called: Called) {
        *self.calls.entry((called.verb, called.errno)).or_default() += 1;
        self.reached[called.verb] += usize::from(called.reached);
    }

    fn note(&self, context: &Context) {
        for (verb, (_, name)) in VERBS.iter().enumerate() {
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

fn random_calls_harm_nothing_and_lose_nothing(context: &mut Context) {
    let calls = std::env::var("UKSM_FUZZ_CALLS").map_or(CALLS, |calls| {
        calls.parse().expect("UKSM_FUZZ_CALLS is a number")
    });
    let seed = context.seed();
    context.note(format!("seed {seed:#x}, {calls} calls"));
    let free = free_pages();
    let mut random = Random::new(seed);
    let mut buffers = Buffers::new();
    let mut count = Count::default();
    let (mut wrong, mut replaced) = (0, 0);
    let begin = Instant::now();
    {
        let mut fronts: Vec<Front> = (0..DOMAINS).map(|_| Front::new(&mut random)).collect();
        let mut done = 0;
        while done < calls {
            let front = &mut fronts[random.page(DOMAINS)];
            let stormy = random.page(TARGETS);
            let mut material = front.material();
            let pids = front.pids();
            // Another caller of the same domain, which kills a target in the middle of its calls
            // and of ours.
            let victim = (stormy + 1 + random.page(TARGETS - 1)) % TARGETS;
            let doomed = random
                .chance(BURST as u64, LIFETIME)
                .then_some(pids[victim]);
            let second = second_caller(&front.domain, &material, random.word(), doomed);
            let storm = front.targets[stormy].storm();
            for _ in 0..BURST.min(calls - done) {
                let called = buffers.call(device(&front.domain), &material, &mut random);
                count.add(called);
                // Random DETACHes, ours and the second caller's, would leave nothing to call.
                if done % 10 == 0 {
                    attach_all(&front.domain, pids, &mut material);
                }
                done += 1;
            }
            wrong += storm.end();
            assert_eq!(wait(second), 0, "the second caller should end well");
            if doomed.is_some() {
                front.replace(victim, &mut random);
                replaced += 1;
            }
            if front.domain.info().spaces > 40 {
                // Dead spaces pile up; a new domain leaves orphans behind for all. The old one
                // gets some calls more when it attaches nobody any longer.
                front.domain.device.seal().expect("SEAL");
                for _ in 0..BURST {
                    let _called = buffers.call(device(&front.domain), &material, &mut random);
                }
                front.domain = Domain::open();
            }
            front.attach_again();
        }
        for front in &mut fronts {
            let _balanced = front.domain.info();
            wrong += front.targets.iter_mut().map(Target::wrong).sum::<usize>();
        }
        let elapsed = begin.elapsed();
        context.note(format!(
            "{calls} calls and {replaced} new targets in {elapsed:?}"
        ));
        for mut front in fronts {
            for target in front.targets {
                target.peer.exit();
            }
            front.domain.assert_all_frames_return();
        }
    }
    count.note(context);
    let reached: usize = count.reached.iter().sum();
    assert_eq!(
        wrong, 0,
        "pages or children of targets were wrong, seed {seed:#x}"
    );
    assert!(
        reached * 2 >= calls,
        "half of {calls} calls should reach page tables, {reached} did"
    );
    assert_no_merged_page_is_left();
    let lost = free - free_pages();
    assert!(
        lost < 1024,
        "{lost} pages should not be lost, seed {seed:#x}"
    );
}
