//! All kinds of load at once, for a while.
//!
//! # Problem
//! Other tests try each part alone; most faults of memory management show only when reclaim, swap,
//! forks, huge pages, pins and exits meet a merge halfway.
//!
//! # Approach
//! Workers that check themselves run under memory pressure with swap, a process that takes and
//! returns memory, and ksmd on the same mappings, while a merger merges right and wrong candidates;
//! some workers are killed and replaced. Afterwards every worker must have been right all the
//! time, and no frame may be left.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use uksm_policy::command::{SpaceId, Status};

use super::Context;
use crate::fixtures::accounting::{free_or_owned_pages, number, set};
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::contents::{HUGE_PAGES, Random};
use crate::fixtures::domain::Domain;
use crate::fixtures::memory::{BASE, Memory};
use crate::fixtures::merger::Merger;
use crate::fixtures::process::{fork_alone, fork_with, pipe, signal, wait};
use crate::fixtures::worker::{self, PAGES};
use crate::fixtures::zram;

cases! { "stress":
    workers_read_what_they_wrote_while_they_are_merged Stress Stock 240,
    workers_read_what_they_wrote_beside_ksm_with_kills Stress Stock 240,
}

const WORKERS: usize = 4;
/// Time that workers work, and the limit of their restarts, if a slow machine has merged too little
/// by then.
const SECONDS: u64 = 8;
const SPELLS: usize = 5;

struct Load {
    ksm: bool,
    kills: bool,
}

/// Takes and returns memory until it is killed.
fn hog(mebibytes: usize) -> ! {
    let pages = mebibytes * 256;
    loop {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut memory = Memory::at(BASE, pages, flags, -1);
        for page in 0..pages {
            memory.set_word(page, 0, page as u64);
        }
        memory.unmap(0..pages).expect("munmap");
    }
}

struct StressWorker {
    pid: i32,
    space: SpaceId,
}

fn start(group: &Cgroup, domain: &Domain, seed: u64, end: Instant, load: &Load) -> StressWorker {
    let (time, ksm) = (end.saturating_duration_since(Instant::now()), load.ksm);
    let (gate, opener) = pipe();
    let pid = fork_with(gate.as_raw_fd(), move || {
        // On a machine with much else to do its time could be over before it is attached.
        let waited = File::from(gate).read(&mut [0]);
        assert_eq!(waited.expect("the gate"), 0);
        worker::work(seed, time, ksm)
    });
    group.take(pid);
    let space = domain.attach_pid(pid);
    drop(opener);
    StressWorker { pid, space }
}

fn ran(pid: i32) -> bool {
    !std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The results of workers.
#[derive(Default)]
struct Totals {
    rounds: usize,
    kills: usize,
    statuses: Vec<i32>,
}

/// Whether enough pages were merged, and enough were not, for a meaningful result.
fn is_enough(merger: &Merger) -> bool {
    merger.counts.merged() > PAGES && merger.counts.of(Status::Differed) > 0
}

/// Merges workers until their time is up and they have ended; returns their spaces.
fn spell(
    group: &Cgroup,
    merger: &mut Merger,
    random: &mut Random,
    load: &Load,
    totals: &mut Totals,
) -> Vec<SpaceId> {
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let mut workers: Vec<StressWorker> = (0..WORKERS)
        .map(|_| start(group, &merger.domain, random.word(), end, load))
        .collect();
    while workers.iter().any(|worker| !ran(worker.pid)) {
        let spaces: Vec<SpaceId> = workers.iter().map(|worker| worker.space).collect();
        merger.round(&spaces);
        totals.rounds += 1;
        if load.kills && random.chance(1, 6) && Instant::now() + Duration::from_secs(2) < end {
            let victim = random.page(WORKERS);
            signal(workers[victim].pid, libc::SIGKILL);
            wait(workers[victim].pid);
            merger
                .domain
                .device
                .detach(workers[victim].space)
                .expect("DETACH");
            workers[victim] = start(group, &merger.domain, random.word(), end, load);
            totals.kills += 1;
        }
        assert!(
            Instant::now() < end + Duration::from_secs(60),
            "workers should end in time"
        );
    }
    let statuses = workers.iter().map(|worker| wait(worker.pid));
    totals.statuses.extend(statuses);
    workers.iter().map(|worker| worker.space).collect()
}

fn stress(context: &Context, load: &Load) {
    let seed = context.seed();
    context.note(format!("seed {seed:#x}"));
    let mut random = Random::new(seed);
    let _swap = zram::swap(context, 192);
    let free = free_or_owned_pages();
    let group = Cgroup::new("stress");
    // Half of the workers' demand: the rest lives in swap. A worker that collapses pages holds 512
    // of them and a huge one, which cannot be reclaimed; if three did so at a time, one of them
    // would be killed.
    group.limit_to_current_and((WORKERS * (PAGES + HUGE_PAGES) / 2) as u64);
    if load.ksm {
        set("/sys/kernel/mm/ksm/sleep_millisecs", "0");
        set("/sys/kernel/mm/ksm/pages_to_scan", "200");
        set("/sys/kernel/mm/ksm/run", "1");
    }
    let available = usize::try_from(number("/proc/meminfo", "MemAvailable") / 1024).expect("MiB");
    let hog = fork_alone(|| hog(available / 2));

    let mut merger = Merger::new(Domain::open(), PAGES, random.word());
    let mut totals = Totals::default();
    for number in 1..=SPELLS {
        let spaces = spell(&group, &mut merger, &mut random, load, &mut totals);
        if number == SPELLS || is_enough(&merger) {
            break;
        }
        for space in spaces {
            merger.domain.device.detach(space).expect("DETACH");
        }
    }
    signal(hog, libc::SIGKILL);
    wait(hog);
    if load.ksm {
        set("/sys/kernel/mm/ksm/run", "0");
    }
    let Totals {
        rounds,
        kills,
        statuses,
    } = totals;
    context.note(format!(
        "{rounds} rounds, {kills} kills, {:?}",
        merger.counts
    ));
    assert!(
        statuses.iter().all(|&status| status == 0),
        "{statuses:x?}, seed {seed:#x}"
    );
    assert_eq!(
        group.kills(),
        0,
        "nobody should be killed for memory, seed {seed:#x}"
    );
    assert!(merger.counts.merged() > PAGES, "{:?}", merger.counts);
    assert!(
        merger.counts.of(Status::Differed) > 0,
        "{:?}",
        merger.counts
    );
    let _info = merger.domain.info();
    merger.domain.assert_all_frames_return();
    drop(merger);
    let lost = free - free_or_owned_pages();
    assert!(
        lost < 4096,
        "{lost} pages should not be lost, seed {seed:#x}"
    );
}

fn workers_read_what_they_wrote_while_they_are_merged(context: &mut Context) {
    stress(
        context,
        &Load {
            ksm: false,
            kills: false,
        },
    );
}

fn workers_read_what_they_wrote_beside_ksm_with_kills(context: &mut Context) {
    stress(
        context,
        &Load {
            ksm: true,
            kills: true,
        },
    );
}
