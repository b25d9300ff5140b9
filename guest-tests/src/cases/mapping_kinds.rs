//! Kinds of mappings that are merged, and that are refused.
//!
//! # Problem
//! Only private anonymous pages may be merged. Pages of shared, device, hugetlb or droppable
//! mappings must not be touched. (Memory that userfaultfd watches has a file of its own.)
//!
//! # Approach
//! A peer makes a mapping of each kind next to ordinary memory; SAMPLE and FOLD must name it by
//! state and reason, and the page must stay as it is.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use uksm_policy::command::{
    FoldEntry, FoldKind, FoldOutcome, Lines, PageState, Reason, Run, SpaceId, Status,
};

use super::Context;
use crate::fixtures::accounting::{set, value};
use crate::fixtures::contents::{Content, HUGE_PAGES, PAGE, WORDS};
use crate::fixtures::domain::{Domain, Permit, entry};
use crate::fixtures::memory::{BASE, Memory};
use crate::fixtures::peer::Peer;

cases! { "mapping_kinds":
    private_pages_of_a_file_merge_and_survive_a_hole_in_the_file Normal Stock 60,
    zeros_over_a_private_file_survive_a_hole_in_the_file Normal Stock 60,
    unwritten_pages_of_a_private_file_mapping_are_left_alone Normal Stock 60,
    shared_memory_is_refused Normal Stock 30,
    hugetlb_memory_is_refused Normal Stock 30,
    special_mappings_are_refused Normal Stock 30,
    memory_of_a_device_is_refused_and_not_counted Normal Stock 30,
    droppable_memory_is_refused_where_it_exists Normal Stock 30,
    addresses_without_a_mapping_are_gone Normal Stock 30,
}

const PAGES: usize = 64;
const SEED: u64 = 18;

/// Start of second mappings of a peer: behind the first, in another page table.
const OTHER: u64 = BASE + (1 << 30);

/// The state of the page at `address`, and the outcome of folding it as a set of two pages.
fn probe(domain: &mut Domain, space: SpaceId, address: u64) -> (PageState, FoldOutcome) {
    let mut pages = Vec::new();
    let run = Run {
        start: address,
        space,
        count: 1,
        stride: 1,
    };
    domain.sample_patiently(run, Lines { from: 0, to: 0 }, &mut pages);
    let entry = |address| FoldEntry {
        address,
        hash: 0,
        space,
        kind: FoldKind::Set(0),
    };
    let permit = Permit {
        split: true,
        locked: true,
    };
    let outcomes =
        domain.fold_with_retries(&[entry(address), entry(address + PAGE as u64)], permit);
    (pages[0].state, outcomes[0])
}

fn assert_refused(
    domain: &mut Domain,
    space: SpaceId,
    address: u64,
    state: PageState,
    why: Reason,
) {
    let (found, outcome) = probe(domain, space, address);
    assert_eq!(found, state, "state at {address:#x}; FOLD says {outcome:?}");
    assert_eq!(
        (outcome.status, outcome.reason),
        (Status::Refused, why),
        "at {address:#x}"
    );
}

/// A file on tmpfs with one page of contents for each of [`PAGES`].
fn shm_file(name: &str) -> File {
    let path = format!("/dev/shm/{name}");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path);
    let file = file.unwrap_or_else(|error| panic!("{path}: {error}"));
    for page in 0..PAGES {
        let bytes = Content::new(SEED + 1, page as u64).bytes();
        file.write_all_at(&bytes, (page * PAGE) as u64)
            .expect("write to tmpfs");
    }
    file
}

fn map_private_file(own: &mut crate::fixtures::peer::Own) {
    let file = shm_file("private");
    own.memory = Memory::at(BASE, PAGES, libc::MAP_PRIVATE, file.as_raw_fd());
    own.memory.fill(SEED, PAGES);
}

/// Takes all pages out of a file of [`shm_file`], and so out of the processes that map it.
fn punch_hole(name: &str) -> File {
    let file = File::options().write(true).open(format!("/dev/shm/{name}"));
    let file = file.expect("the file");
    let length = i64::try_from(PAGES * PAGE).expect("a small file");
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: fallocate touches the file only.
    let punched = unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, length) };
    assert_eq!(
        punched,
        0,
        "punching a hole: {}",
        std::io::Error::last_os_error()
    );
    file
}

fn private_pages_of_a_file_merge_and_survive_a_hole_in_the_file(_: &mut Context) {
    let mut a = Peer::new(PAGES);
    let mut b = Peer::filled(PAGES, SEED, PAGES);
    a.run(map_private_file);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");

    punch_hole("private");
    let lost = a.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES));
    assert_eq!(lost, 0, "private copies should survive a hole in the file");
    a.run(|own| own.memory.flip(0..PAGES));
    assert_eq!(b.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}

/// A process zeroes its copy of a file. A zero page there would not count as its own.
fn zeros_over_a_private_file_survive_a_hole_in_the_file(_: &mut Context) {
    const ZERO: [u8; PAGE] = [0; PAGE];
    let mut a = Peer::new(PAGES);
    a.run(|own| {
        let file = shm_file("zeroed");
        own.memory = Memory::at(BASE, PAGES, libc::MAP_PRIVATE, file.as_raw_fd());
        for page in 0..PAGES {
            for word in 0..WORDS {
                own.memory.set_word(page, word, 0);
            }
        }
    });
    let mut domain = Domain::open();
    let space = domain.attach(&a);
    let counts = domain.merge_zero(space, 0..PAGES);
    assert_eq!(
        counts.with(Status::Refused, Reason::Zero),
        PAGES,
        "{counts:?}"
    );
    // As a frame they can be shared: that is the process's own.
    let set: Vec<_> = (0..PAGES)
        .map(|page| entry(space, page, FoldKind::Set(0)))
        .collect();
    let merged = domain.fold_with_retries(&set, Permit::default());
    assert!(merged.iter().all(|page| page.status == Status::Merged));
    let file = punch_hole("zeroed");
    for page in 0..PAGES {
        let written = Content::new(SEED + 2, page as u64).bytes();
        assert_ne!(written, ZERO);
        file.write_all_at(&written, (page * PAGE) as u64)
            .expect("write to tmpfs");
    }
    let lost = a.run(|own| own.memory.nonzero(0..PAGES));
    assert_eq!(lost, 0, "the process zeroed these pages");
    a.exit();
    domain.assert_all_frames_return();
}

fn unwritten_pages_of_a_private_file_mapping_are_left_alone(_: &mut Context) {
    let mut a = Peer::new(PAGES);
    let wrong = a.run(|own| {
        let file = shm_file("unwritten");
        own.memory = Memory::at(BASE, PAGES, libc::MAP_PRIVATE, file.as_raw_fd());
        own.memory.fill_page(PAGES - 1, Content::new(SEED, 0));
        own.memory.changed(SEED + 1, PAGES, 0..PAGES - 1)
    });
    assert_eq!(wrong, 0);
    let mut domain = Domain::open();
    let space = domain.attach(&a);
    assert_refused(&mut domain, space, BASE, PageState::Other, Reason::NotAnon);
    assert_eq!(
        domain.in_state(space, 0..PAGES, PageState::Other),
        PAGES - 1
    );
    assert_eq!(domain.in_state(space, 0..PAGES, PageState::Anon), 1);
}

fn shared_memory_is_refused(_: &mut Context) {
    let mut a = Peer::new(PAGES);
    a.run(|_| {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        Memory::at(OTHER, PAGES, flags, -1).fill(SEED, 1);
    });
    let mut domain = Domain::open();
    let space = domain.attach(&a);
    assert_refused(
        &mut domain,
        space,
        OTHER,
        PageState::Refused,
        Reason::Mapping,
    );
}

fn hugetlb_memory_is_refused(_: &mut Context) {
    const POOL: &str = "/proc/sys/vm/nr_hugepages";
    set(POOL, "4");
    assert_eq!(
        value(POOL),
        4,
        "the guest should have memory for huge pages"
    );
    let mut a = Peer::new(PAGES);
    a.run(|_| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
        Memory::at(OTHER, HUGE_PAGES, flags, -1).fill(SEED, 1);
    });
    let mut domain = Domain::open();
    let space = domain.attach(&a);
    assert_refused(
        &mut domain,
        space,
        OTHER,
        PageState::Refused,
        Reason::Mapping,
    );
    let end = OTHER + (HUGE_PAGES * PAGE) as u64;
    let counted = domain.device.count(space, OTHER, end).expect("COUNT");
    assert_eq!(counted.next, end, "a hugetlb mapping should not stop COUNT");
    assert_eq!(counted.pages, [0; 16], "{counted:?}");
    assert_eq!(
        domain
            .device
            .break_range(space, OTHER, end)
            .expect("BREAK")
            .pages,
        0
    );
    drop(a);
    set(POOL, "0");
}

fn special_mappings_are_refused(_: &mut Context) {
    let a = Peer::new(PAGES);
    let mut domain = Domain::open();
    let space = domain.attach(&a);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", a.pid())).expect("maps");
    let mut found = 0;
    for line in maps
        .lines()
        .filter(|line| line.ends_with("[vvar]") || line.ends_with("[vdso]"))
    {
        let start = line.split('-').next().expect("a range");
        let start = u64::from_str_radix(start, 16).expect("a hexadecimal address");
        assert_refused(
            &mut domain,
            space,
            start,
            PageState::Refused,
            Reason::Mapping,
        );
        found += 1;
    }
    assert_eq!(found, 2, "a process should have [vvar] and [vdso]: {maps}");
}

fn memory_of_a_device_is_refused_and_not_counted(_: &mut Context) {
    /// The first MiB, which belongs to old devices: /dev/mem maps it on every kernel.
    const FIRST_MIB: usize = 256;
    let mut a = Peer::new(PAGES);
    a.run(|_| {
        let memory = File::options().read(true).write(true).open("/dev/mem");
        let memory = memory.expect("/dev/mem");
        let _mapped = Memory::at(OTHER, FIRST_MIB, libc::MAP_SHARED, memory.as_raw_fd());
    });
    let mut domain = Domain::open();
    let space = domain.attach(&a);
    assert_refused(
        &mut domain,
        space,
        OTHER,
        PageState::Refused,
        Reason::Mapping,
    );
    let end = OTHER + (FIRST_MIB * PAGE) as u64;
    let counted = domain.device.count(space, OTHER, end).expect("COUNT");
    assert_eq!(counted.next, end, "such a mapping should not stop COUNT");
    assert_eq!(counted.pages, [0; 16], "{counted:?}");
}

fn droppable_memory_is_refused_where_it_exists(context: &mut Context) {
    /// MAP_DROPPABLE, since 6.11.
    const DROPPABLE: i32 = 8;
    let mut a = Peer::new(PAGES);
    let mapped = a.run(|_| {
        let mapped = Memory::try_at(OTHER, PAGES, DROPPABLE | libc::MAP_ANONYMOUS, -1);
        mapped.map(|mut memory| memory.fill(SEED, 1)).is_ok()
    });
    let mut numbers = context
        .kernel_release()
        .split(['.', '-'])
        .map(str::parse::<u32>);
    let version = (
        numbers.next().expect("major").ok(),
        numbers.next().expect("minor").ok(),
    );
    assert_eq!(
        mapped,
        version >= (Some(6), Some(11)),
        "droppable memory came with 6.11"
    );
    if mapped {
        let mut domain = Domain::open();
        let space = domain.attach(&a);
        assert_refused(
            &mut domain,
            space,
            OTHER,
            PageState::Refused,
            Reason::Mapping,
        );
    }
}

fn addresses_without_a_mapping_are_gone(_: &mut Context) {
    let a = Peer::new(PAGES);
    let mut domain = Domain::open();
    let space = domain.attach(&a);
    let (state, outcome) = probe(&mut domain, space, OTHER);
    assert_eq!(state, PageState::Unmapped);
    assert_eq!(
        (outcome.status, outcome.reason),
        (Status::Gone, Reason::Unmapped)
    );
    let (state, outcome) = probe(&mut domain, space, BASE);
    assert_eq!(
        state,
        PageState::None,
        "an untouched page is mapped by nothing"
    );
    assert_eq!(
        (outcome.status, outcome.reason),
        (Status::Gone, Reason::Unmapped)
    );
}
