//! The sizes of spaces: true, of the right process, and of none that is gone.
//!
//! # Problem
//! A caller that lists mappings only after a change of size finds nothing if a size is wrong, or
//! belongs to another process.
//!
//! # Approach
//! The answer of SIZES is compared with `/proc` of the same process: at rest, after a mapping came,
//! grew and went, and after the heap grew. A process that executes another program or exits leaves
//! a space that is flagged. Wrong requests are refused; an unknown space is no reason to refuse.

use std::fs;

use rustix::io::Errno;
use uksm_linux::module::raw;
use uksm_policy::command::{SpaceId, SpaceSize};

use super::Context;
use crate::fixtures::accounting::{COUNTER_LAG, counters};
use crate::fixtures::domain::Domain;
use crate::fixtures::memory::Memory;
use crate::fixtures::peer::{Own, Peer};
use crate::fixtures::process::{signal, wait};
use crate::fixtures::requests::send;
use crate::fixtures::sleeper::WillExec;

cases! { "sizes":
    sizes_are_what_proc_says Normal Stock 30,
    mappings_that_come_grow_and_go_show Normal Stock 30,
    a_heap_that_grows_shows Normal Stock 30,
    spaces_of_processes_that_exec_or_exit_are_gone Normal Stock 30,
    unknown_spaces_are_flagged_and_the_others_answered Normal Stock 30,
    wrong_requests_for_sizes_are_refused Normal Stock 30,
}

const PAGES: usize = 1024;
const SEED: u64 = 41;
/// Address of an additional mapping of a peer.
const ELSEWHERE: u64 = crate::fixtures::memory::BASE + (1 << 32);

fn size(domain: &mut Domain, space: SpaceId) -> SpaceSize {
    let sizes = domain.device.sizes(&[space]).expect("SIZES");
    assert_eq!((sizes.len(), sizes[0].space), (1, space));
    sizes[0]
}

/// The size of a living process by `/proc`: mappings and pages.
fn of_proc(pid: i32) -> (u64, u64) {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).expect("/proc");
    // The page that the kernel lends every process is in the list and in no address space.
    let maps = read("maps");
    let mappings = maps.lines().filter(|line| !line.contains("[vsyscall]"));
    let statm = read("statm");
    let pages = statm.split(' ').next().and_then(|pages| pages.parse().ok());
    (mappings.count() as u64, pages.expect("a number of pages"))
}

fn assert_of_proc(domain: &mut Domain, space: SpaceId, pid: i32) -> SpaceSize {
    let size = size(domain, space);
    assert!(!size.gone);
    assert_eq!((size.mappings, size.pages), of_proc(pid));
    let anonymous = counters(pid)[0];
    assert!(
        size.anon_pages.abs_diff(anonymous) <= COUNTER_LAG,
        "{} anonymous pages, /proc says {anonymous}",
        size.anon_pages
    );
    size
}

fn sizes_are_what_proc_says(_: &mut Context) {
    let mut domain = Domain::open();
    let peers = [
        Peer::filled(PAGES, SEED, PAGES),
        Peer::new(PAGES),
        Peer::filled(4 * PAGES, SEED, 1),
    ];
    let spaces: Vec<SpaceId> = peers.iter().map(|peer| domain.attach(peer)).collect();
    for (peer, &space) in peers.iter().zip(&spaces) {
        assert_of_proc(&mut domain, space, peer.pid());
    }
    // All in one call, in the given order, one of them twice.
    let asked = [spaces[2], spaces[0], spaces[1], spaces[0]];
    let sizes = domain.device.sizes(&asked).expect("SIZES");
    let found: Vec<SpaceId> = sizes.iter().map(|size| size.space).collect();
    assert_eq!(found, asked);
    for (peer, &space) in peers.iter().zip(&spaces) {
        for size in sizes.iter().filter(|size| size.space == space) {
            assert_eq!((size.mappings, size.pages), of_proc(peer.pid()));
        }
    }
}

fn mappings_that_come_grow_and_go_show(_: &mut Context) {
    const MORE: usize = 2048;
    let mut domain = Domain::open();
    let mut peer = Peer::filled(PAGES, SEED, PAGES);
    let space = domain.attach(&peer);
    let before = assert_of_proc(&mut domain, space, peer.pid());
    peer.run(|_| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let _mapped = Memory::at(ELSEWHERE, MORE, flags, -1);
    });
    let mapped = assert_of_proc(&mut domain, space, peer.pid());
    assert_eq!(mapped.mappings, before.mappings + 1);
    assert_eq!(mapped.pages, before.pages + MORE as u64);
    peer.run(|_| Memory::existing(ELSEWHERE, MORE).fill(SEED, MORE));
    let filled = assert_of_proc(&mut domain, space, peer.pid());
    assert_eq!(
        (filled.mappings, filled.pages),
        (mapped.mappings, mapped.pages)
    );
    let grown = filled.anon_pages.saturating_sub(before.anon_pages);
    assert!(
        grown.abs_diff(MORE as u64) <= COUNTER_LAG,
        "{grown} pages more after {MORE} were written"
    );
    peer.run(|_| {
        Memory::existing(ELSEWHERE, MORE)
            .unmap(0..MORE)
            .expect("munmap");
    });
    let after = assert_of_proc(&mut domain, space, peer.pid());
    assert_eq!(
        (after.mappings, after.pages),
        (before.mappings, before.pages)
    );
    assert!(after.anon_pages < before.anon_pages + COUNTER_LAG);
}

fn a_heap_that_grows_shows(_: &mut Context) {
    const MORE: isize = 300;
    let mut domain = Domain::open();
    let mut peer = Peer::filled(PAGES, SEED, PAGES);
    let space = domain.attach(&peer);
    // There may be no heap yet.
    let grow = |pages: isize| {
        move |_: &mut Own| {
            // SAFETY: more heap moves nothing, and is never freed.
            let grown = unsafe { libc::sbrk(pages * 4096) };
            assert_ne!(grown.addr(), usize::MAX, "sbrk");
        }
    };
    peer.run(grow(1));
    let before = assert_of_proc(&mut domain, space, peer.pid());
    peer.run(grow(MORE));
    let after = assert_of_proc(&mut domain, space, peer.pid());
    assert_eq!(after.mappings, before.mappings);
    assert_eq!(after.pages, before.pages + MORE.unsigned_abs() as u64);
}

fn spaces_of_processes_that_exec_or_exit_are_gone(_: &mut Context) {
    let mut domain = Domain::open();
    let peer = Peer::filled(PAGES, SEED, PAGES);
    let exits = domain.attach(&peer);
    let sleeper = WillExec::new("/tmp/sleeper-of-sizes");
    let pid = sleeper.pid();
    let execs = domain.attach_pid(pid);
    assert!(!size(&mut domain, execs).gone && !size(&mut domain, exits).gone);
    sleeper.exec();
    peer.exit();
    for space in [exits, execs] {
        let gone = size(&mut domain, space);
        let numbers = (gone.mappings, gone.pages, gone.anon_pages);
        assert_eq!((gone.gone, numbers), (true, (0, 0, 0)));
    }
    let new = domain.attach_pid(pid);
    assert_ne!(new, execs);
    let _size = assert_of_proc(&mut domain, new, pid);
    signal(pid, libc::SIGKILL);
    wait(pid);
    assert!(size(&mut domain, new).gone);
}

/// Sends these ids unchanged.
fn ask(domain: &Domain, ids: &[u32]) -> (Result<(), Errno>, Vec<raw::uksm_size>, u32) {
    let entry = |&space: &u32| raw::uksm_size {
        space,
        // Answers only: the caller's values here do not matter.
        flags: u32::MAX,
        mappings: 7,
        pages: 7,
        anon_pages: 7,
    };
    let sizes: Vec<_> = ids.iter().map(entry).collect();
    let mut request = raw::uksm_sizes {
        sizes: sizes.as_ptr().expose_provenance() as u64,
        count: u32::try_from(ids.len()).expect("few"),
        ..Default::default()
    };
    let result = send(domain, raw::UKSM_IOC_SIZES, &mut request);
    (result, sizes, request.done)
}

fn unknown_spaces_are_flagged_and_the_others_answered(_: &mut Context) {
    let domain = Domain::open();
    let peers = [Peer::new(PAGES), Peer::new(PAGES), Peer::new(PAGES)];
    let [detached, known, other] = [&peers[0], &peers[1], &peers[2]];
    let detached = domain.attach(detached);
    let known = domain.attach(known);
    domain.device.detach(detached).expect("DETACH");
    let elsewhere = Domain::open();
    let foreign = (0..10).map(|_| elsewhere.attach(other)).next_back();
    assert!(foreign.is_some(), "a space that only another domain has");
    let ids = [0, known.0, u32::MAX, detached.0, known.0, 99];
    let (result, sizes, done) = ask(&domain, &ids);
    assert_eq!((result, done), (Ok(()), 6));
    let flags: Vec<u32> = sizes.iter().map(|size| size.flags).collect();
    let unknown = raw::UKSM_SIZE_UNKNOWN;
    assert_eq!(flags, [unknown, 0, unknown, unknown, 0, unknown]);
    for size in &sizes {
        let numbers = [size.mappings, size.pages, size.anon_pages];
        assert_eq!(size.flags == 0, numbers[1] > 0, "{numbers:?}");
        assert!(size.flags == 0 || numbers == [0; 3], "{numbers:?}");
    }
    let found: Vec<u32> = sizes.iter().map(|size| size.space).collect();
    assert_eq!(found, ids);
    // A whole batch of one space, and of an unknown one.
    for (id, flag) in [(known.0, 0), (77_777, unknown)] {
        let (result, sizes, done) = ask(&domain, &[id; raw::UKSM_MAX_SIZES]);
        assert_eq!((result, done), (Ok(()), 4096));
        assert!(sizes.iter().all(|size| size.flags == flag));
    }
}

fn wrong_requests_for_sizes_are_refused(_: &mut Context) {
    let (domain, peer) = (Domain::open(), Peer::new(PAGES));
    let space = domain.attach(&peer).0;
    let (result, _, done) = ask(&domain, &[space; raw::UKSM_MAX_SIZES + 1]);
    assert_eq!((result, done), (Err(Errno::TOOBIG), 0));
    assert_eq!(ask(&domain, &[]).0, Ok(()));
    let mut sizes = [raw::uksm_size {
        space,
        ..Default::default()
    }; 4];
    let good = raw::uksm_sizes {
        sizes: sizes.as_mut_ptr().expose_provenance() as u64,
        count: 4,
        ..Default::default()
    };
    let refused = |change: fn(&mut raw::uksm_sizes)| {
        let mut request = good;
        change(&mut request);
        send(&domain, raw::UKSM_IOC_SIZES, &mut request)
    };
    assert_eq!(refused(|_| ()), Ok(()));
    assert_eq!(refused(|request| request.flags = 1), Err(Errno::INVAL));
    assert_eq!(refused(|request| request.pad = 1), Err(Errno::INVAL));
    for nowhere in [0, 1, 0x7FFF_FFFF_F000, 1 << 63, u64::MAX] {
        let mut request = good;
        request.sizes = nowhere;
        let result = send(&domain, raw::UKSM_IOC_SIZES, &mut request);
        assert_eq!(result, Err(Errno::FAULT), "an array at {nowhere:#x}");
    }
    // An array that ends where memory ends: the page behind it is not mapped.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let page = Memory::at(ELSEWHERE, 1, flags, -1);
    let mut request = good;
    request.sizes = page.address(1) - 64;
    let result = send(&domain, raw::UKSM_IOC_SIZES, &mut request);
    assert_eq!(result, Err(Errno::FAULT), "an array that is cut off");
    page.unmap(0..1).expect("munmap");
}
