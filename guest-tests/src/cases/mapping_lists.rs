//! The list of a space's mappings: true, whole, in order, of the right process, and cheap.
//!
//! # Problem
//! The daemon knows only the memory in this list. A mapping that is missing is never merged, and
//! its merged pages are never broken; one that is wrong costs calls for nothing.
//!
//! # Approach
//! The answer of MAPPINGS is compared with `/proc` of the same process, entry by entry, for a
//! process that has every kind of mapping and for one that has 60,000; in one call, in calls of a
//! few entries, and from places inside and between mappings. The list must stay in order while a
//! process changes its mappings all the time. A process that executes another program or exits
//! leaves a space whose list is marked as gone. Wrong requests are refused.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use uksm_linux::mapping_kinds::Kind;
use uksm_linux::mapping_lists;
use uksm_linux::module::{MappingsAnswer, raw};
use uksm_policy::command::SpaceId;

use super::Context;
use crate::fixtures::accounting::{set, value};
use crate::fixtures::contents::{HUGE_PAGES, PAGE};
use crate::fixtures::domain::{Domain, patiently};
use crate::fixtures::memory::{BASE, Memory};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{signal, wait};
use crate::fixtures::requests::send;
use crate::fixtures::sleeper::WillExec;
use crate::fixtures::speed::shortest;

cases! { "mapping_lists":
    every_kind_of_mapping_is_listed_as_proc_says Normal Stock 60,
    a_list_goes_on_from_anywhere_in_parts_of_any_size Normal Stock 60,
    sixty_thousand_mappings_are_listed_whole_and_cheaply Normal Stock 120,
    shared_mappings_are_left_out_at_a_bounded_cost Normal Stock 120,
    mappings_that_change_do_not_disorder_a_list Normal Stock 60,
    lists_of_processes_that_exec_or_exit_say_so Normal Stock 30,
    wrong_requests_for_mappings_are_refused Normal Stock 30,
}

const PAGES: usize = 64;
const SEED: u64 = 43;
const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// Places for mappings of a peer, apart from each other.
const fn place(number: u64) -> u64 {
    BASE + (1 << 32) + (number << 30)
}

/// `(start, end, flags)` of a mapping.
type Entry = (u64, u64, u32);

fn entry(mapping: &raw::uksm_mapping) -> Entry {
    assert_eq!(mapping.pad, 0);
    (mapping.start, mapping.end, mapping.flags)
}

fn page_count(pages: usize) -> u64 {
    (pages * PAGE) as u64
}

/// The list from `start` on, in calls of at most `count`, and the number of calls.
fn list(domain: &Domain, space: SpaceId, start: u64, count: usize) -> (Vec<Entry>, usize) {
    let mut found: Vec<Entry> = Vec::new();
    let (mut next, mut calls) = (start, 0);
    let mut room = vec![raw::uksm_mapping::default(); count];
    loop {
        let mut request = raw::uksm_mappings {
            mappings: room.as_mut_ptr().expose_provenance() as u64,
            start: next,
            space: space.0,
            count: u32::try_from(count).expect("few"),
            ..Default::default()
        };
        match send(domain, raw::UKSM_IOC_MAPPINGS, &mut request) {
            // It held its locks all the time.
            Err(Errno::AGAIN) => continue,
            sent => sent.expect("MAPPINGS"),
        }
        assert_eq!((request.start, request.gone), (next, 0));
        found.extend(room[..request.done as usize].iter().map(entry));
        calls += 1;
        if request.next == 0 {
            return (found, calls);
        }
        assert!(request.next > next, "{request:?}");
        next = request.next;
    }
}

/// The private mappings by `/proc/PID/smaps`, whose `VmFlags` show the kinds that the module
/// refuses.
fn by_smaps(pid: i32) -> Vec<Entry> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("smaps");
    let mut found: Vec<Entry> = Vec::new();
    let mut private = false;
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let refused = |flag| matches!(flag, "io" | "pf" | "mm" | "de" | "ht" | "dp" | "ss");
            if private && flags.split_whitespace().any(refused) {
                found.last_mut().expect("a mapping").2 |= raw::UKSM_MAPPING_REFUSED;
            }
            if private && flags.split_whitespace().any(|flag| flag == "mg") {
                found.last_mut().expect("a mapping").2 |= raw::UKSM_MAPPING_MERGEABLE;
            }
        } else if let Some(entry) = header(line) {
            private = entry.is_some();
            found.extend(entry);
        }
    }
    found
}

/// The entry of a line of `/proc/PID/maps`, none if it is shared or no mapping of the process; none
/// at all for another line.
fn header(line: &str) -> Option<Option<Entry>> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).ok());
    let (start, end) = (start?, end?);
    let permissions = fields.next()?;
    let name = fields.nth(3).unwrap_or_default();
    if permissions.ends_with('s') || name == "[vsyscall]" {
        return Some(None);
    }
    let mut flags = 0;
    for (letter, flag) in [
        ('r', raw::UKSM_MAPPING_READ),
        ('w', raw::UKSM_MAPPING_WRITE),
        ('x', raw::UKSM_MAPPING_EXEC),
    ] {
        flags |= if permissions.contains(letter) {
            flag
        } else {
            0
        };
    }
    flags |= match name {
        "[heap]" => raw::UKSM_MAPPING_HEAP,
        "[stack]" => raw::UKSM_MAPPING_STACK,
        name if name.starts_with('/') => raw::UKSM_MAPPING_FILE,
        _ => 0,
    };
    Some(Some((start, end, flags)))
}

fn by_maps(pid: i32) -> Vec<Entry> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    text.lines().filter_map(header).flatten().collect()
}

/// Advice that sets a flag of a mapping, and leaves it as mergeable as it was.
const ADVICE: [i32; 8] = [
    libc::MADV_SEQUENTIAL,
    libc::MADV_RANDOM,
    libc::MADV_DONTFORK,
    libc::MADV_WIPEONFORK,
    libc::MADV_DONTDUMP,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    MADV_GUARD_INSTALL,
];
/// Since 6.13; libc does not have it.
const MADV_GUARD_INSTALL: i32 = 102;
const SYS_MSEAL: i64 = 462;

/// A peer that has a mapping of every kind.
fn of_every_kind() -> Peer {
    let mut peer = Peer::filled(PAGES, SEED, PAGES);
    peer.run(|_| {
        // SAFETY: more heap moves nothing, and is never freed.
        let grown = unsafe { libc::sbrk(1 << 20) };
        assert_ne!(grown.addr(), usize::MAX, "sbrk");
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let map = |number, flags, file| Memory::at(place(number), PAGES, flags, file);
        // Side by side: writable, read-only, without any permission.
        let memory = map(0, anonymous, -1);
        memory.protect(16..32, libc::PROT_READ).expect("mprotect");
        memory.protect(32..48, libc::PROT_NONE).expect("mprotect");
        let _shared = map(1, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1);
        let path = "/dev/shm/listed";
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(path).expect(path);
        file.set_len(page_count(PAGES)).expect("a length");
        let _written = map(2, libc::MAP_PRIVATE, file.as_raw_fd());
        let read = map(3, libc::MAP_PRIVATE, file.as_raw_fd());
        read.protect(0..PAGES, libc::PROT_READ).expect("mprotect");
        let run = map(4, libc::MAP_PRIVATE, file.as_raw_fd());
        let execute = libc::PROT_READ | libc::PROT_EXEC;
        run.protect(0..PAGES, execute).expect("mprotect");
        let _shared = map(5, libc::MAP_SHARED, file.as_raw_fd());
        let _huge = Memory::at(place(6), HUGE_PAGES, anonymous | libc::MAP_HUGETLB, -1);
        let zeros = File::open("/dev/zero").expect("/dev/zero");
        let _zeros = map(7, libc::MAP_PRIVATE, zeros.as_raw_fd());
        let offered = map(8, anonymous, -1);
        let advised = offered.advise(0..PAGES, libc::MADV_MERGEABLE);
        advised.expect("MADV_MERGEABLE");
        for (number, advice) in (9..).zip(ADVICE) {
            // A kernel that does not know it leaves the mapping as it was.
            let _result = map(number, anonymous, -1).advise(0..PAGES, advice);
        }
        let size = PAGES * PAGE;
        let _sealed = map(20, anonymous, -1);
        // SAFETY: nobody changes this mapping afterwards. 6.1 does not have the call.
        let _since_6_10 = unsafe { libc::syscall(SYS_MSEAL, place(20), size, 0_u64) };
        let _locked = map(21, anonymous, -1);
        let on_fault = u64::from(libc::MLOCK_ONFAULT);
        // SAFETY: locking changes no contents.
        let locked = unsafe { libc::syscall(libc::SYS_mlock2, place(21), size, on_fault) };
        assert_eq!(locked, 0, "mlock2");
    });
    peer
}

fn every_kind_of_mapping_is_listed_as_proc_says(_: &mut Context) {
    set(POOL, "4");
    assert_eq!(value(POOL), 4, "the guest should have huge pages");
    let peer = of_every_kind();
    let mut domain = Domain::open();
    let space = domain.attach(&peer);
    let (found, _) = list(&domain, space, 0, 4096);
    assert_eq!(found, by_smaps(peer.pid()), "MAPPINGS (left) and /proc");
    for kind in [
        raw::UKSM_MAPPING_HEAP,
        raw::UKSM_MAPPING_STACK,
        raw::UKSM_MAPPING_FILE,
        raw::UKSM_MAPPING_REFUSED,
        raw::UKSM_MAPPING_MERGEABLE,
        raw::UKSM_MAPPING_EXEC,
    ] {
        let has = |(_, _, flags): &Entry| flags & kind != 0;
        assert!(found.iter().any(has), "no mapping with flag {kind:#x}");
    }

    // The mappings that the policy receives.
    let listed = mapping_lists::mergeable(&mut domain.device, space, false).expect("MAPPINGS");
    let listed = listed.expect("a living process");
    let kind_at = |address: u64| {
        let holds = listed
            .iter()
            .find(|m| m.start <= address && address < m.end);
        holds.map(|m| (m.start, m.end, m.kind))
    };
    let pages = |number, pages| place(number) + page_count(pages);
    let anonymous = Kind::Anonymous as u64;
    let writable_and_read_only = (pages(0, 0), pages(0, 32), anonymous);
    assert_eq!(kind_at(place(0)), Some(writable_and_read_only));
    assert_eq!(kind_at(pages(0, 32)), None, "without any permission");
    assert_eq!(
        kind_at(pages(0, 48)),
        Some((pages(0, 48), pages(0, 64), anonymous))
    );
    let file = (place(2), pages(2, PAGES), Kind::File as u64);
    assert_eq!(kind_at(place(2)), Some(file));
    for number in [1, 3, 4, 5, 6] {
        assert_eq!(kind_at(place(number)), None, "place {number}");
    }
    let stack = found.iter().find(|m| m.2 & raw::UKSM_MAPPING_STACK != 0);
    let kind = kind_at(stack.expect("a stack").0).map(|m| m.2);
    assert_eq!(kind, Some(Kind::Stack as u64));
    let heap = found.iter().find(|m| m.2 & raw::UKSM_MAPPING_HEAP != 0);
    let kind = kind_at(heap.expect("a heap").0).map(|m| m.2);
    assert_eq!(kind, Some(Kind::Heap as u64));
    drop(peer);
    set(POOL, "0");
}

fn a_list_goes_on_from_anywhere_in_parts_of_any_size(_: &mut Context) {
    let mut peer = Peer::new(PAGES);
    peer.run(|own| {
        for page in (0..PAGES).step_by(2) {
            own.memory
                .protect(page..page + 1, libc::PROT_READ)
                .expect("mprotect");
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let _apart = Memory::at(place(0), PAGES, flags, -1);
    });
    let domain = Domain::open();
    let space = domain.attach(&peer);
    let whole = by_smaps(peer.pid());
    assert!(whole.len() > PAGES);
    for count in [1, 2, 3, 7, 169, 170, 171, 4096] {
        let (found, calls) = list(&domain, space, 0, count);
        assert_eq!(found, whole, "in parts of {count}");
        assert!(calls <= whole.len().div_ceil(count) + 1, "{calls} calls");
    }
    // The list from every mapping on, from a page inside of it, from its end, and from holes.
    let page = PAGE as u64;
    for &(start, end, _) in &whole {
        for from in [start, (start + end) / 2 / page * page, end - page, end] {
            let expected: Vec<Entry> = (whole.iter())
                .filter(|mapping| mapping.1 > from)
                .map(|&(start, end, flags)| (start.max(from), end, flags))
                .collect();
            assert_eq!(list(&domain, space, from, 5).0, expected, "from {from:#x}");
        }
    }
    let last = whole.last().expect("mappings").1;
    assert_eq!(list(&domain, space, last, 1), (vec![], 1));
}

/// A peer with this many mappings side by side.
fn with_many(mappings: usize, flags: i32) -> Peer {
    let mut peer = Peer::new(1);
    peer.run(move |_| {
        let memory = Memory::at(place(0), mappings, flags | libc::MAP_ANONYMOUS, -1);
        for page in (0..mappings).step_by(2) {
            memory
                .protect(page..page + 1, libc::PROT_READ)
                .expect("mprotect");
        }
    });
    peer
}

fn sixty_thousand_mappings_are_listed_whole_and_cheaply(context: &mut Context) {
    const MAPPINGS: usize = 60_000;
    let peer = with_many(MAPPINGS, libc::MAP_PRIVATE);
    let mut domain = Domain::open();
    let space = domain.attach(&peer);
    let (found, calls) = list(&domain, space, 0, raw::UKSM_MAX_MAPPINGS);
    assert!(found.len() >= MAPPINGS, "{} mappings", found.len());
    assert_eq!(calls, found.len().div_ceil(raw::UKSM_MAX_MAPPINGS));
    let private = by_maps(peer.pid());
    let unrefused = |&(start, end, flags): &Entry| (start, end, flags & !raw::UKSM_MAPPING_REFUSED);
    let facts: Vec<Entry> = found.iter().map(unrefused).collect();
    assert_eq!(facts.len(), private.len());
    let differs = facts.iter().zip(&private).find(|(ours, proc)| ours != proc);
    assert_eq!(differs, None, "MAPPINGS (left) and /proc");

    let maps = format!("/proc/{}/maps", peer.pid());
    let device = &mut domain.device;
    let mut compared = || {
        let (printed, text) = shortest(|| fs::read(&maps).expect("maps"));
        let (listed, mergeable) =
            shortest(|| mapping_lists::mergeable(device, space, false).expect("MAPPINGS"));
        (printed, text, listed, mergeable)
    };
    // Three runs take a twentieth of a second: they are repeated on a machine that is slow for that
    // long.
    let (mut printed, text, mut listed, mergeable) = compared();
    for _ in 0..4 {
        let (again_printed, _, again_listed, _) = compared();
        printed = printed.min(again_printed);
        listed = listed.min(again_listed);
    }
    let of_all = mergeable.expect("a living process").into_iter();
    let here = of_all.filter(|mapping| mapping.start >= place(0) && mapping.end <= place(1));
    let here: Vec<_> = here.map(|mapping| (mapping.start, mapping.end)).collect();
    let one = (place(0), place(0) + page_count(MAPPINGS));
    assert_eq!(here, [one], "all are one for the policy");
    context.note(format!(
        "{} mappings: {listed:?} to list and translate in {calls} calls, {printed:?} to read {} bytes of /proc",
        found.len(),
        text.len()
    ));
    assert!(
        listed * 2 < printed,
        "{listed:?} to list, {printed:?} to read /proc"
    );
}

fn shared_mappings_are_left_out_at_a_bounded_cost(_: &mut Context) {
    const MAPPINGS: usize = 20_000;
    let peer = with_many(MAPPINGS, libc::MAP_SHARED);
    let domain = Domain::open();
    let space = domain.attach(&peer);
    let private = by_smaps(peer.pid());
    assert!(private.len() < 1000);
    let (found, calls) = list(&domain, space, 0, raw::UKSM_MAX_MAPPINGS);
    assert_eq!(found, private);
    assert!(
        (4..=6).contains(&calls),
        "a call looks at some 4,000 mappings, these are {calls}"
    );
}

fn mappings_that_change_do_not_disorder_a_list(context: &mut Context) {
    const CHANGED: usize = 256;
    const TIME: Duration = Duration::from_secs(3);
    let mut peer = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let space = domain.attach(&peer);
    let still = BASE..BASE + page_count(PAGES);
    let running = peer.begin(|_| {
        let begin = Instant::now();
        let mut changes = 0u64;
        while begin.elapsed() < 2 * TIME {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory = Memory::at(place(0), CHANGED, flags, -1);
            for page in (0..CHANGED).step_by(2) {
                memory
                    .protect(page..page + 1, libc::PROT_READ)
                    .expect("mprotect");
            }
            memory.unmap(CHANGED / 4..CHANGED / 2).expect("munmap");
            memory.unmap(0..CHANGED).expect("munmap");
            changes += 1;
        }
        changes
    });
    let (mut lists, mut lengths) = (0u32, std::collections::BTreeSet::new());
    let begin = Instant::now();
    while begin.elapsed() < TIME {
        for count in [3, 170, 4096] {
            let (found, _) = list(&domain, space, 0, count);
            assert!(found.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            let holds = |m: &&Entry| m.0 <= still.start && still.end <= m.1;
            assert!(
                found.iter().find(holds).is_some(),
                "what is still is listed"
            );
            lengths.insert(found.len());
            lists += 1;
        }
        let device = &mut domain.device;
        let listed =
            patiently(|| mapping_lists::mergeable(device, space, false)).expect("MAPPINGS");
        let listed = listed.expect("a living process");
        assert!(listed.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
    let changes = running.end();
    context.note(format!(
        "{lists} lists of {} lengths beside {changes} changes",
        lengths.len()
    ));
    assert!(lengths.len() > 1, "no list saw a change");
}

fn lists_of_processes_that_exec_or_exit_say_so(_: &mut Context) {
    let mut domain = Domain::open();
    let peer = Peer::filled(PAGES, SEED, PAGES);
    let exits = domain.attach(&peer);
    let sleeper = WillExec::new("/tmp/sleeper-of-lists");
    let pid = sleeper.pid();
    let execs = domain.attach_pid(pid);
    for space in [exits, execs] {
        assert!(!list(&domain, space, 0, 64).0.is_empty());
    }
    sleeper.exec();
    peer.exit();
    let mut part = Vec::new();
    for space in [exits, execs] {
        let listed = domain.device.mappings(space, 0, &mut part);
        assert_eq!(
            (listed.expect("MAPPINGS"), part.len()),
            (MappingsAnswer::Gone, 0)
        );
        let found = mapping_lists::breakable(&mut domain.device, space);
        assert_eq!(found.expect("MAPPINGS"), None);
    }
    let new = domain.attach_pid(pid);
    assert_eq!(list(&domain, new, 0, 64).0, by_smaps(pid));
    signal(pid, libc::SIGKILL);
    wait(pid);
    let listed = domain.device.mappings(new, 0, &mut part);
    assert_eq!(listed.expect("MAPPINGS"), MappingsAnswer::Gone);
    domain.device.detach(new).expect("DETACH");
    let error = domain.device.mappings(new, 0, &mut part).expect_err("none");
    assert_eq!(error.errno(), Some(Errno::NOENT));
}

fn wrong_requests_for_mappings_are_refused(_: &mut Context) {
    let (domain, peer) = (Domain::open(), Peer::new(PAGES));
    let mut room = vec![raw::uksm_mapping::default(); raw::UKSM_MAX_MAPPINGS];
    let good = raw::uksm_mappings {
        mappings: room.as_mut_ptr().expose_provenance() as u64,
        space: domain.attach(&peer).0,
        count: 4,
        // Answers only: the caller's values here do not matter.
        next: u64::MAX,
        done: u32::MAX,
        gone: u32::MAX,
        ..Default::default()
    };
    let answer = |change: &dyn Fn(&mut raw::uksm_mappings)| {
        let mut request = good;
        change(&mut request);
        let result = send(&domain, raw::UKSM_IOC_MAPPINGS, &mut request);
        (result, request.done)
    };
    assert_eq!(answer(&|_| ()), (Ok(()), 4));
    let invalid = (Err(Errno::INVAL), u32::MAX);
    assert_eq!(answer(&|request| request.flags = 1), invalid);
    assert_eq!(answer(&|request| request.pad = 1), invalid);
    assert_eq!(answer(&|request| request.count = 0), invalid);
    for start in [1, 4095, 1 << 63, 0xFFFF_FFFF_FF60_0000, 1 << 56] {
        assert_eq!(answer(&|request| request.start = start), invalid);
    }
    let most = u32::try_from(raw::UKSM_MAX_MAPPINGS).expect("few");
    assert_eq!(answer(&|request| request.count = most).0, Ok(()));
    let too_big = (Err(Errno::TOOBIG), u32::MAX);
    assert_eq!(answer(&|request| request.count = most + 1), too_big);
    for space in [0, 77_777, u32::MAX] {
        let nobody = (Err(Errno::NOENT), u32::MAX);
        assert_eq!(answer(&|request| request.space = space), nobody);
    }
    let fault = (Err(Errno::FAULT), u32::MAX);
    for nowhere in [0, 1, 0x7FFF_FFFF_F000, 1 << 63, u64::MAX] {
        assert_eq!(answer(&|request| request.mappings = nowhere), fault);
    }
    // An array that ends where memory ends: the page behind it is not mapped.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let page = Memory::at(place(9), 1, flags, -1);
    let end = page.address(1);
    assert_eq!(answer(&|request| request.mappings = end - 64), fault);
    page.unmap(0..1).expect("munmap");
}
