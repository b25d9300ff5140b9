//! Processes of unusual size, and processes that end early: they cost little and have no effect on
//! others.
//!
//! # Problem
//! A process may have tens of thousands of mappings, reserve terabytes, be 32-bit, execute another
//! program or be killed while its pages are being merged.
//!
//! # Approach
//! There is one such process a test. Bounds on calls and seconds of processor time hold the cost
//! down: they suffice on an emulated machine, and are far below the cost of a walk over every page.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use uksm_policy::command::{FoldKind, Lines, PageState, Run, Status};

use super::Context;
use crate::fixtures::contents::{Content, PAGE, Random};
use crate::fixtures::domain::{Domain, Permit, entry};
use crate::fixtures::memory::{BASE, Huge, Memory};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, signal, wait};
use crate::fixtures::requests::attach;
use crate::fixtures::sleeper::{BSS_PAGES, BSS_START, WORD, write_sleeper};
use crate::fixtures::speed::shortest;

cases! { "extremes":
    a_process_of_60000_mappings_is_cheap_to_count_and_sample Normal Stock 120,
    a_sparse_mapping_of_32_tebibytes_is_cheap_to_count Normal Stock 60,
    a_32_bit_process_merges_like_any_other Normal Stock 60,
    an_exec_leaves_a_dead_space_and_a_new_one_to_attach Normal Stock 60,
    killing_a_target_in_the_middle_of_a_fold_harms_nobody Normal Stock 120,
}

const SEED: u64 = 25;
const STATES: Lines = Lines { from: 0, to: 0 };

fn a_process_of_60000_mappings_is_cheap_to_count_and_sample(_: &mut Context) {
    const MAPPINGS: usize = 60_000;
    const BOUND: Duration = Duration::from_secs(10);
    let mut many = Peer::new(MAPPINGS);
    let mut twin = Peer::new(MAPPINGS);
    many.run(|own| {
        // Every other page is read-only: as many mappings as pages.
        for page in (0..MAPPINGS).step_by(2) {
            own.memory
                .protect(page..page + 1, libc::PROT_READ)
                .expect("mprotect");
        }
    });
    for peer in [&mut many, &mut twin] {
        peer.run(|own| {
            for page in (1..MAPPINGS).step_by(2).take(2048) {
                own.memory.fill_page(page, Content::new(SEED, page as u64));
            }
        });
    }
    let maps = fs::read_to_string(format!("/proc/{}/maps", many.pid())).expect("maps");
    assert!(
        maps.lines().count() >= MAPPINGS,
        "{} mappings",
        maps.lines().count()
    );

    let mut domain = Domain::open();
    let spaces = [domain.attach(&many), domain.attach(&twin)];
    let (used, (counted, sampled)) = shortest(|| {
        let counted = domain.count(spaces[0], MAPPINGS);
        (counted, domain.sample(spaces[0], 0..MAPPINGS, STATES))
    });
    assert_eq!(counted.pages[PageState::Anon as usize], 2048, "{counted:?}");
    assert_eq!(
        sampled
            .iter()
            .filter(|page| page.state == PageState::Anon)
            .count(),
        2048
    );
    assert!(used < BOUND, "COUNT and SAMPLE took {used:?}");

    let entries: Vec<_> = spaces
        .iter()
        .flat_map(|&space| {
            (0..256u16).map(move |set| entry(space, usize::from(set) * 2 + 1, FoldKind::Set(set)))
        })
        .collect();
    let outcomes = domain.fold_with_retries(&entries, Permit::default());
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.status == Status::Merged),
        "{outcomes:?}"
    );
    let wrong = many.run(|own| {
        let content = |page: usize| Content::new(SEED, page as u64);
        (1..512)
            .step_by(2)
            .filter(|&page| !own.memory.holds(page, content(page)))
            .count()
    });
    assert_eq!(wrong, 0);
}

fn a_sparse_mapping_of_32_tebibytes_is_cheap_to_count(_: &mut Context) {
    const START: u64 = 0x2000_0000_0000;
    const BYTES: u64 = 32 << 40;
    const TOUCHED: u64 = 64;
    const STEP: u64 = BYTES / TOUCHED;
    const BOUND: Duration = Duration::from_secs(10);
    let mut peer = Peer::new(1);
    peer.run(|_| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let pages = usize::try_from(BYTES).expect("64-bit") / PAGE;
        let mut memory = Memory::at(START, pages, flags, -1);
        memory.advise_huge(Huge::Never);
        for page in (0..pages).step_by(pages / usize::try_from(TOUCHED).expect("64-bit")) {
            memory.fill_page(page, Content::new(SEED, 1));
        }
    });
    let mut domain = Domain::open();
    let space = domain.attach(&peer);
    let (used, (calls, found)) = shortest(|| {
        let (mut next, mut calls, mut found) = (START, 0, 0);
        while next < START + BYTES {
            let part = domain
                .device
                .count(space, next, START + BYTES)
                .expect("COUNT");
            assert!(part.next > next, "{part:?}");
            next = part.next;
            found += part.pages[PageState::Anon as usize];
            calls += 1;
        }
        (calls, found)
    });
    assert_eq!(found, TOUCHED);
    assert!(calls < 1000, "COUNT over holes took {calls} calls");
    assert!(used < BOUND, "COUNT took {used:?}");

    let stride = u32::try_from(STEP / PAGE as u64 / 64).expect("a stride");
    let run = Run {
        start: START,
        space,
        count: 4096,
        stride,
    };
    let mut pages = Vec::new();
    let (used, broken) = shortest(|| {
        domain
            .device
            .sample(&[run], STATES, &mut pages)
            .expect("SAMPLE");
        domain
            .device
            .break_range(space, START, START + BYTES)
            .expect("BREAK")
    });
    let anon = pages
        .iter()
        .filter(|page| page.state == PageState::Anon)
        .count();
    assert_eq!(anon as u64, TOUCHED);
    assert_eq!((broken.pages, broken.stopped), (0, false));
    assert!(used < BOUND, "SAMPLE and BREAK took {used:?}");
}

/// Starts the sleeping program and waits until it has filled its memory.
fn start_sleeper(path: &str) -> i32 {
    let path = std::ffi::CString::new(path).expect("a path");
    let pid = fork(|| {
        let _failed = nix::unistd::execv(&path, &[&path]);
        102
    });
    wait_for_sleeper(pid);
    pid
}

/// Waits until the program has filled its memory and sleeps.
fn wait_for_sleeper(pid: i32) {
    let last = u64::from(BSS_START) + (BSS_PAGES * PAGE) as u64 - 4;
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < end, "the 32-bit program should start");
        let mut word = [0; 4];
        let mem = fs::File::open(format!("/proc/{pid}/mem"));
        if mem.is_ok_and(|mem| mem.read_exact_at(&mut word, last).is_ok())
            && word == WORD.to_le_bytes()
        {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn a_32_bit_process_merges_like_any_other(_: &mut Context) {
    let path = "/tmp/sleeper32";
    write_sleeper(path);
    let pids = [start_sleeper(path), start_sleeper(path)];
    let mut domain = Domain::open();
    let spaces = pids.map(|pid| domain.attach_pid(pid));
    let start = u64::from(BSS_START);
    let entries: Vec<_> = spaces
        .iter()
        .flat_map(|&space| {
            (0..BSS_PAGES).map(move |page| uksm_policy::command::FoldEntry {
                address: start + (page * PAGE) as u64,
                hash: 0,
                space,
                kind: FoldKind::Set(0),
            })
        })
        .collect();
    let outcomes = domain.fold_with_retries(&entries, Permit::default());
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.status == Status::Merged),
        "{outcomes:?}"
    );
    for pid in pids {
        let mut bytes = vec![0; BSS_PAGES * PAGE];
        let mem = fs::File::open(format!("/proc/{pid}/mem")).expect("mem");
        mem.read_exact_at(&mut bytes, start)
            .expect("the program's memory");
        assert!(bytes.chunks_exact(4).all(|word| word == WORD.to_le_bytes()));
    }
    for pid in pids {
        signal(pid, libc::SIGKILL);
        wait(pid);
    }
    domain.assert_all_frames_return();
}

fn an_exec_leaves_a_dead_space_and_a_new_one_to_attach(_: &mut Context) {
    const PAGES: usize = 64;
    let path = "/tmp/sleeper-exec";
    write_sleeper(path);
    let mut stays = Peer::filled(PAGES, SEED, PAGES);
    let mut goes = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&stays), domain.attach(&goes)];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");

    let pid = goes.pid();
    let running = goes.begin(|_| {
        let path = c"/tmp/sleeper-exec";
        let _failed = nix::unistd::execv(path, &[path]);
    });
    wait_for_sleeper(pid);
    assert_eq!(domain.in_state(spaces[1], 0..PAGES, PageState::Dead), PAGES);
    let new = attach(&domain, pid).expect("the new program can be attached");
    assert!(!spaces.contains(&new), "a new program is a new space");
    assert_eq!(
        domain.info().spaces,
        3,
        "the dead space stays until it is detached"
    );
    domain.device.detach(spaces[1]).expect("DETACH");
    assert!(
        domain
            .frames(STATES, false)
            .iter()
            .all(|frame| frame.sharers == 1)
    );
    assert_eq!(
        stays.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        0
    );
    drop(running);
    goes.kill();
    stays.exit();
    domain.assert_all_frames_return();
}

fn killing_a_target_in_the_middle_of_a_fold_harms_nobody(context: &mut Context) {
    const ROUNDS: usize = 12;
    const PAGES: usize = 512;
    let mut random = Random::new(context.seed());
    let mut stays = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let first = domain.attach(&stays);
    let mut cut_short = 0;
    for round in 0..ROUNDS {
        let goes = Peer::filled(PAGES, SEED, PAGES);
        let spaces = [first, domain.attach(&goes)];
        let (pid, delay) = (goes.pid(), Duration::from_micros(random.below(30_000)));
        let killer = fork(|| {
            std::thread::sleep(delay);
            signal(pid, libc::SIGKILL);
            0
        });
        let mut counts = crate::fixtures::domain::OutcomeCounts::default();
        while std::path::Path::new(&format!("/proc/{pid}/mem")).exists()
            && counts.of(Status::Gone) == 0
        {
            counts = domain.merge(&spaces, 0..PAGES, Permit::default());
            let _broken = domain.unmerge(first, 0..PAGES);
        }
        cut_short += usize::from(counts.of(Status::Gone) > 0 && counts.of(Status::Gone) < PAGES);
        wait(killer);
        goes.kill();
        let wrong = stays.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES));
        assert_eq!(wrong, 0, "in round {round}, seed {:#x}", context.seed());
        domain.device.detach(spaces[1]).expect("DETACH");
        assert_eq!(domain.in_state(first, 0..1, PageState::Dead), 0);
    }
    context.note(format!(
        "{cut_short} of {ROUNDS} folds were cut short by the kill"
    ));
    stays.exit();
    domain.assert_all_frames_return();
    assert_eq!(BASE, crate::fixtures::domain::address(0));
}
