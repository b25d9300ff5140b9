//! The memory of the fuzzer's targets, and its changes during calls.
//!
//! # Problem
//! A call is most likely to fail where its target changes at that moment: page tables that are
//! freed under the read side of the mmap lock, huge pages that are split, ranges that move. And the
//! test must distinguish memory that must never change from memory that the target changes itself.
//!
//! # Approach
//! A target has still areas of several kinds (anonymous, of a private file, watched by userfaultfd,
//! hugetlb), which it fills once and never writes, and restless ones, which it maps, fills, checks
//! and unmaps all the time. Now and then it holds the lock of its mappings, while it waits for a
//! file whose server takes its time. Each area is in a gigabyte of its own, so that unmapping one
//! frees its page tables of two levels.
//!
//! Sizes are in pages; a page table holds [`TABLE`] of them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use crate::fixtures::contents::{Content, PAGE, Random};
use crate::fixtures::held_locks::hold_mappings_for_a_moment;
use crate::fixtures::memory::{BASE, Huge, Memory};
use crate::fixtures::peer::{Own, Peer, PendingOrder};
use crate::fixtures::process::{fork, leave, pidfd, wait};
use crate::fixtures::userfault::watch_for_ever;

/// Pages of the first still area, at [`BASE`].
pub(super) const PAGES: usize = 768;
/// Pages of the other still areas.
const FEW: usize = 64;
/// Entries of a page table.
const TABLE: usize = 512;
/// Page tables of the area that comes and goes.
const TABLES: usize = 4;
/// Pages that are touched in each of them.
const TOUCHED: usize = 4;
/// Contents: page `i` holds class `i % DISTINCT`, so that much can merge.
const DISTINCT: usize = 32;
const SEED: u64 = 30;
const GIGABYTE: u64 = 1 << 30;
/// Private pages of a file: half zeros, half contents, of a file that holds something else.
const FILE: u64 = BASE + GIGABYTE;
/// Pages registered with userfaultfd for missing pages, whose handler never answers.
const WATCHED: u64 = BASE + 2 * GIGABYTE;
const HUGETLB: u64 = BASE + 3 * GIGABYTE;
/// Whole page tables that come and go, and behind them those they move to.
const RESTLESS: u64 = BASE + 4 * GIGABYTE;
/// A huge page that is split and gathered again.
const SPLIT: u64 = BASE + 5 * GIGABYTE;
const MADV_COLLAPSE: i32 = 25;
/// One action in this many of a target holds the lock of its mappings for a moment.
const HOLDING: u64 = 16;
const HELD: u64 = HOLDING - 1;
/// Pages of the file that it uses for this; one of them is read each time.
pub(super) const FILE_PAGES: usize = 64;

/// A range of pages at which calls are aimed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    /// Its first byte.
    pub start: u64,
    /// Its length.
    pub pages: usize,
}

/// State of a target beside its memory.
#[derive(Debug, Clone, Copy)]
struct Prepared {
    /// The file of the private mapping.
    file: i32,
    /// The end of the heap.
    heap: u64,
    /// Whether there was a huge page left for it.
    hugetlb: bool,
}

/// A target.
pub(super) struct Target {
    /// The process.
    pub peer: Peer,
    /// Its pidfd.
    pub pidfd: OwnedFd,
    prepared: Prepared,
}

impl Target {
    /// A target, which with `machine` holds a virtual machine and thus an MMU notifier.
    pub(super) fn new(random: &mut Random, machine: bool) -> Target {
        let huge = if random.chance(1, 3) {
            Huge::Always
        } else {
            Huge::Never
        };
        let mut peer = Peer::with(PAGES, huge);
        let prepared = peer.run(move |own| prepare(own, machine));
        let pidfd = pidfd(peer.pid()).expect("a pidfd");
        Target {
            peer,
            pidfd,
            prepared,
        }
    }

    /// Makes the target change its memory for a moment; the answer is the number of errors.
    pub(super) fn stir(&mut self, seed: u64) -> PendingOrder<'_, usize> {
        self.peer.begin(move |own| stir(own, seed))
    }

    /// The number of wrong still pages, the file's after a hole is punched into it.
    pub(super) fn wrong(&mut self) -> usize {
        let prepared = self.prepared;
        self.peer.run(move |own| wrong(own, prepared))
    }

    /// The areas for calls: the still area first, then all others.
    pub(super) fn areas(&self) -> Vec<Area> {
        let mut areas = vec![Area {
            start: BASE,
            pages: PAGES,
        }];
        let few = [FILE, WATCHED];
        areas.extend(few.map(|start| Area { start, pages: FEW }));
        let whole = [HUGETLB, SPLIT];
        areas.extend(whole.map(|start| Area {
            start,
            pages: TABLE,
        }));
        let table = (TABLE * PAGE) as u64;
        let tables = (0..2 * TABLES as u64).map(|at| RESTLESS + at * table);
        let heap = (0..TABLES as u64).map(|at| self.prepared.heap + at * table);
        areas.extend(tables.chain(heap).map(|start| Area {
            start,
            pages: 2 * TOUCHED,
        }));
        areas
    }
}

/// Half zeros, half contents.
fn fill_halves(memory: &mut Memory) {
    for page in 0..memory.pages() / 2 {
        memory.set_word(page, 0, 1);
        for word in 0..PAGE / 8 {
            memory.set_word(page, word, 0);
        }
    }
    for page in memory.pages() / 2..memory.pages() {
        memory.fill_page(page, Content::new(SEED, (page % DISTINCT) as u64));
    }
}

fn wrong_halves(memory: &Memory) -> usize {
    let half = memory.pages() / 2;
    memory.nonzero(0..half) + memory.changed(SEED, DISTINCT, half..memory.pages())
}

fn anonymous(start: u64, pages: usize, huge: Huge) -> Memory {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let memory = Memory::at(start, pages, flags, -1);
    memory.advise_huge(huge);
    memory
}

fn prepare(own: &mut Own, machine: bool) -> Prepared {
    own.memory.fill(SEED, DISTINCT);
    // Some zeros, which the zero page can replace.
    own.memory
        .advise(PAGES - 64..PAGES, libc::MADV_DONTNEED)
        .expect("MADV_DONTNEED");
    for page in PAGES - 64..PAGES {
        own.memory.set_word(page, 0, 0);
    }
    let file = file_of_other_contents();
    fill_halves(&mut Memory::at(
        FILE,
        FEW,
        libc::MAP_PRIVATE,
        file.as_raw_fd(),
    ));
    let mut watched = anonymous(WATCHED, FEW, Huge::Never);
    fill_halves(&mut watched);
    watch_for_ever(&watched);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    let hugetlb = Memory::try_at(HUGETLB, TABLE, flags, -1);
    if hugetlb.is_ok() {
        fill_halves(&mut Memory::existing(HUGETLB, FEW));
    }
    if machine {
        own.hold_machine();
    }
    Prepared {
        file: file.into_raw_fd(),
        heap: heap_end(0).next_multiple_of(PAGE as u64),
        hugetlb: hugetlb.is_ok(),
    }
}

fn wrong(own: &mut Own, prepared: Prepared) -> usize {
    let length = i64::try_from(FEW * PAGE).expect("a small file");
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: fallocate touches the file only, which prepare() left open.
    let punched = unsafe { libc::fallocate(prepared.file, mode, 0, length) };
    assert_eq!(punched, 0, "fallocate: {}", io::Error::last_os_error());
    let mut wrong = own.memory.changed(SEED, DISTINCT, 0..PAGES - 64)
        + own.memory.nonzero(PAGES - 64..PAGES)
        + wrong_halves(&Memory::existing(FILE, FEW))
        + wrong_halves(&Memory::existing(WATCHED, FEW));
    if prepared.hugetlb {
        wrong += wrong_halves(&Memory::existing(HUGETLB, FEW));
    }
    wrong
}

fn file_of_other_contents() -> File {
    let path = format!("/dev/shm/fuzz-{}", std::process::id());
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    std::fs::remove_file(&path).expect("unlink");
    for page in 0..FEW {
        let bytes = Content::new(SEED + 1, page as u64).bytes();
        file.write_all_at(&bytes, (page * PAGE) as u64)
            .expect("write to tmpfs");
    }
    file
}

/// Sets the end of the heap (0: leaves it) and returns it.
fn heap_end(end: u64) -> u64 {
    // SAFETY: callers extend the heap and take back what they added, without allocating between.
    let end = unsafe { libc::syscall(libc::SYS_brk, end) };
    u64::try_from(end).expect("an address")
}

/// Actions of a target, one after the other; returns the number of unexpected reads.
fn stir(own: &mut Own, seed: u64) -> usize {
    const ROUNDS: usize = 4;
    let mut random = Random::new(seed);
    (0..ROUNDS)
        .map(|_| match random.below(HOLDING) {
            // Rarely: each call meanwhile waits for a tenth of a second.
            HELD => {
                hold_mappings_for_a_moment(random.page(FILE_PAGES));
                0
            }
            other => stir_once(own, other % 8, &mut random),
        })
        .sum()
}

/// One of the actions.
fn stir_once(own: &mut Own, which: u64, random: &mut Random) -> usize {
    match which {
        0 => fork_and_look(&own.memory),
        1 => split_and_gather(random),
        2 | 3 => move_tables(random),
        4 | 5 => grow_and_shrink_the_heap(),
        _ => map_and_unmap_tables(random),
    }
}

/// Forks children that check some pages.
fn fork_and_look(memory: &Memory) -> usize {
    let children: Vec<i32> = (0..6)
        .map(|child| {
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
}

/// The pages of [`RESTLESS`] that are touched.
fn touched(table: usize) -> Range<usize> {
    table * TABLE..table * TABLE + TOUCHED
}

fn fill_tables() -> Memory {
    let mut memory = anonymous(RESTLESS, TABLES * TABLE, Huge::Never);
    for page in (0..TABLES).flat_map(touched) {
        memory.fill_page(page, Content::new(SEED, (page % DISTINCT) as u64));
    }
    memory
}

fn map_and_unmap_tables(random: &mut Random) -> usize {
    let mut wrong = 0;
    for _ in 0..4 {
        let memory = fill_tables();
        wrong += (0..TABLES)
            .map(|table| memory.changed(SEED, DISTINCT, touched(table)))
            .sum::<usize>();
        if random.chance(1, 2) {
            memory.unmap(0..TABLES * TABLE).expect("munmap");
        } else {
            for table in 0..TABLES {
                let pages = table * TABLE..(table + 1) * TABLE;
                memory.unmap(pages).expect("munmap");
            }
        }
    }
    wrong
}

/// Moves whole page tables, which the kernel does by moving their entries one level up, and cuts
/// off others.
fn move_tables(random: &mut Random) -> usize {
    let mut wrong = 0;
    for _ in 0..4 {
        let memory = fill_tables();
        let table = random.page(TABLES);
        let pages = table * TABLE..(table + 1) * TABLE;
        let there = (TABLES + table) * TABLE;
        memory.relocate(pages, there).expect("mremap");
        wrong += memory.changed(SEED, DISTINCT, there..there + TOUCHED);
        if table > 0 {
            memory.shrink(0..table * TABLE, TOUCHED).expect("mremap");
            wrong += memory.changed(SEED, DISTINCT, 0..TOUCHED);
        }
        memory.unmap(0..2 * TABLES * TABLE).expect("munmap");
    }
    wrong
}

fn grow_and_shrink_the_heap() -> usize {
    let mut wrong = 0;
    for _ in 0..4 {
        let old = heap_end(0);
        let start = old.next_multiple_of(PAGE as u64);
        let pages = TABLES * TABLE;
        let new = start + (pages * PAGE) as u64;
        assert_eq!(heap_end(new), new, "brk");
        let mut memory = Memory::existing(start, pages);
        for page in (0..TABLES).flat_map(touched) {
            memory.fill_page(page, Content::new(SEED, (page % DISTINCT) as u64));
        }
        wrong += (0..TABLES)
            .map(|table| memory.changed(SEED, DISTINCT, touched(table)))
            .sum::<usize>();
        assert_eq!(heap_end(old), old, "brk");
    }
    wrong
}

/// Drops a part of a huge page, which splits its mapping, writes it again, and makes the kernel
/// gather all into a huge page, if it can.
fn split_and_gather(random: &mut Random) -> usize {
    let mut memory = anonymous(SPLIT, TABLE, Huge::Always);
    memory.fill(SEED, DISTINCT);
    let first = random.page(TABLE - 1);
    let part = first..first + 1 + random.page(TABLE - first - 1).min(63);
    memory
        .advise(part.clone(), libc::MADV_DONTNEED)
        .expect("MADV_DONTNEED");
    let mut wrong = memory.nonzero(part.clone())
        + memory.changed(SEED, DISTINCT, 0..part.start)
        + memory.changed(SEED, DISTINCT, part.end..TABLE);
    for page in part {
        memory.fill_page(page, Content::new(SEED, (page % DISTINCT) as u64));
    }
    let _perhaps = memory.advise(0..TABLE, MADV_COLLAPSE);
    wrong += memory.changed(SEED, DISTINCT, 0..TABLE);
    wrong
}
