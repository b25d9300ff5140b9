//! Workloads from reports of users of in-kernel KSM, UKSM or their tuners.
//!
//! # Problem
//! Workloads from production must be merged well, or be left alone cheaply with a reason: clones
//! that come in waves, pages that are almost equal, pinned tables, memory whose writes are tracked,
//! processes restored from one snapshot.
//!
//! # Approach
//! Each test is one such workload, small enough for an emulated machine, beside a daemon.
//! `docs/guest-tests.md` has a table of the cases, with the results.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::accounting::set;
use crate::fixtures::contents::{Content, PAGE, WORDS};
use crate::fixtures::daemon::{Daemon, cpu_time, status_text};
use crate::fixtures::explanation::{await_reason, explain, explanation_text, pages_with_reason};
use crate::fixtures::memory::{BASE, Memory};
use crate::fixtures::pagemap;
use crate::fixtures::peer::{Own, Peer};
use crate::fixtures::pins::FixedBuffers;
use crate::fixtures::userfault::{MISSING, WP_ASYNC, WP_UNPOPULATED, WRITE_PROTECT, WatchedRange};

cases! { "daemon::reported_workloads":
    each_wave_of_clones_is_merged_as_soon_as_the_first Long Stock 240,
    pages_that_differ_in_one_word_cost_little_after_a_while Long Stock 240,
    pinned_equal_tables_cost_little_and_are_merged_when_they_are_let_go Long Stock 240,
    memory_whose_writes_are_tracked_is_told_and_stays_tracked Policy Stock 120,
    clones_restored_by_userfaultfd_are_merged_within_seconds Policy Stock 120,
    what_clones_of_one_file_wrote_alike_is_merged_and_outlives_the_file Policy Stock 180,
}

const SEED: u64 = 71;

/// Waits until `pages` pages of both are one; returns the time it took.
fn await_shared(
    daemon: &mut Daemon,
    pair: (i32, i32),
    of: usize,
    wanted: usize,
    bound: u64,
) -> Duration {
    let begun = Instant::now();
    while pagemap::shared(pair.0, pair.1, of) < wanted {
        daemon.assert_running();
        assert!(
            begun.elapsed() < Duration::from_secs(bound),
            "{} of {wanted} pages are shared: {}{}",
            pagemap::shared(pair.0, pair.1, of),
            explanation_text(pair.0),
            status_text()
        );
        sleep(Duration::from_millis(20));
    }
    begun.elapsed()
}

/// The daemon's share of a core, as soon as it is below `most`, or after `bound` seconds.
fn quiet_share(daemon: &Daemon, most: f64, bound: u64) -> f64 {
    let end = Instant::now() + Duration::from_secs(bound);
    loop {
        let (begun, used) = (Instant::now(), cpu_time(daemon));
        sleep(Duration::from_secs(5));
        let share = (cpu_time(daemon) - used).as_secs_f64() / begun.elapsed().as_secs_f64();
        if share < most || Instant::now() > end {
            return share;
        }
    }
}

/// A daemon that follows every process of this name, as a service follows machines.
fn follower() -> Daemon {
    let arguments = ["--v-life", "off", "--comm", "clone"].map(str::to_owned);
    Daemon::start_with("full", &arguments)
}

/// A process of that name.
fn clone_of(pages: usize) -> Peer {
    let mut peer = Peer::new(pages);
    peer.run(|_| {
        // SAFETY: the kernel copies the name.
        let named = unsafe { libc::prctl(libc::PR_SET_NAME, c"clone".as_ptr()) };
        assert_eq!(named, 0, "PR_SET_NAME");
    });
    peer
}

fn each_wave_of_clones_is_merged_as_soon_as_the_first(context: &mut Context) {
    const PAGES: usize = 2048;
    let mut daemon = follower();
    let mut clones: Vec<Peer> = vec![];
    let mut times = vec![];
    for wave in [2, 2, 4] {
        let first = clones.len();
        for _ in 0..wave {
            clones.push(clone_of(PAGES));
        }
        for clone in &mut clones[first..] {
            clone.run(|own| own.memory.fill(SEED, PAGES));
        }
        let begun = Instant::now();
        for at in first.max(1)..clones.len() {
            let pair = (clones[0].pid(), clones[at].pid());
            await_shared(&mut daemon, pair, PAGES, PAGES * 9 / 10, 60);
        }
        times.push(begun.elapsed().as_secs_f64());
        // Long enough for it to come to rest.
        sleep(Duration::from_secs(15));
    }
    context.note(format!("90 percent of each wave after {times:.2?} s"));
    for time in &times[1..] {
        // The second of the first wave may still have been filled when the first was read.
        assert!(
            *time < 1.5 * times[0] + 2.0,
            "{times:.2?} s: {}",
            status_text()
        );
    }
    daemon.stop();
}

fn pages_that_differ_in_one_word_cost_little_after_a_while(context: &mut Context) {
    const PAGES: usize = 2048;
    // In the last line of all, and at changing places.
    for place in [|_: usize| WORDS - 1, |page: usize| page * 37 % WORDS] {
        let pair = [1, 2].map(|own: u64| {
            let mut peer = Peer::new(PAGES);
            peer.run(move |it| {
                for page in 0..PAGES {
                    it.memory.fill_page(page, Content::new(SEED, 0));
                    let value = own << 32 | page as u64;
                    it.memory.set_word(page, place(page), value);
                }
            });
            peer
        });
        let daemon = Daemon::start_on(&[&pair[0], &pair[1]], &[]);
        let share = quiet_share(&daemon, 0.03, 60);
        let explanation = explanation_text(pair[0].pid());
        context.note(format!("{share:.4} of a core"));
        assert!(share < 0.03, "{share}: {explanation}{}", status_text());
        assert_eq!(pagemap::shared(pair[0].pid(), pair[1].pid(), PAGES), 0);
        let process = explain(pair[0].pid(), &[]);
        let equal =
            pages_with_reason(&process, "waits") + pages_with_reason(&process, "being-read");
        assert!(equal < PAGES as u64 / 20, "{explanation}");
        daemon.stop();
    }
}

fn pinned_equal_tables_cost_little_and_are_merged_when_they_are_let_go(context: &mut Context) {
    const PAGES: usize = 1024;
    let mut peers = [(); 4].map(|()| {
        let mut peer = Peer::filled(PAGES, SEED, PAGES);
        peer.run(|own| own.buffers = Some(FixedBuffers::new(&own.memory, 0..PAGES)));
        peer
    });
    let all = peers.each_ref();
    let mut daemon = Daemon::start_on(&all, &[]);
    await_reason(&mut daemon, peers[0].pid(), "pinned", PAGES);
    let share = quiet_share(&daemon, 0.03, 60);
    assert!(share < 0.03, "{share}: {}", status_text());
    for at in 1..4 {
        let pair = (peers[0].pid(), peers[at].pid());
        assert_eq!(pagemap::shared(pair.0, pair.1, PAGES), 0);
    }
    for peer in &mut peers {
        peer.run(|own| drop(own.buffers.take()));
    }
    let begun = Instant::now();
    for at in 1..4 {
        let pair = (peers[0].pid(), peers[at].pid());
        await_shared(&mut daemon, pair, PAGES, PAGES * 9 / 10, 90);
    }
    context.note(format!(
        "{share:.4} of a core while pinned; merged {:.1} s after",
        begun.elapsed().as_secs_f64()
    ));
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    daemon.stop();
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct PagemapScan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    max_regions: u64,
    max_pages: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

nix::ioctl_readwrite!(pagemap_scan, b'f', 16, PagemapScan);

const PAGE_IS_WRITTEN: u64 = 1 << 1;

/// The pages that count as written since they were write-protected.
fn written(pid: i32, pages: usize) -> Vec<usize> {
    let path = format!("/proc/{pid}/pagemap");
    let file = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut regions = vec![PageRegion::default(); pages];
    let mut scan = PagemapScan {
        size: size_of::<PagemapScan>() as u64,
        start: BASE,
        end: BASE + (pages * PAGE) as u64,
        regions: regions.as_mut_ptr() as u64,
        max_regions: pages as u64,
        mask: PAGE_IS_WRITTEN,
        returned: PAGE_IS_WRITTEN,
        ..PagemapScan::default()
    };
    // SAFETY: the structures are those of the request, and outlive the call.
    let found = unsafe { pagemap_scan(file.as_raw_fd(), &raw mut scan) }.expect("PAGEMAP_SCAN");
    let found = usize::try_from(found).expect("a count");
    let page = |address: u64| usize::try_from((address - BASE) / PAGE as u64).expect("a page");
    let regions = regions[..found].iter();
    regions
        .flat_map(|one| page(one.start)..page(one.end))
        .collect()
}

fn memory_whose_writes_are_tracked_is_told_and_stays_tracked(context: &mut Context) {
    const PAGES: usize = 1024;
    let mut tracked = Peer::filled(PAGES, SEED, PAGES);
    let other = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let is_async = tracked.run(|own| {
        let mode = MISSING | WRITE_PROTECT;
        let Some(watch) =
            WatchedRange::try_new(&own.memory, PAGES, mode, WP_ASYNC | WP_UNPOPULATED)
        else {
            return false;
        };
        watch.write_protect(&own.memory, PAGES);
        std::mem::forget(watch);
        true
    });
    if !is_async {
        return context.note("this kernel tracks no writes without a handler");
    }
    let all = [&tracked, &other[0], &other[1]];
    let mut daemon = Daemon::start_on(&all, &[]);
    await_shared(
        &mut daemon,
        (other[0].pid(), other[1].pid()),
        PAGES,
        PAGES * 9 / 10,
        60,
    );
    await_reason(&mut daemon, tracked.pid(), "userfault", PAGES);
    assert_eq!(pagemap::shared(tracked.pid(), other[0].pid(), PAGES), 0);
    assert!(written(tracked.pid(), PAGES).is_empty());
    tracked.run(|own| {
        for page in (0..PAGES).step_by(7) {
            own.memory.flip(page..page + 1);
        }
    });
    sleep(Duration::from_secs(2));
    let expected: Vec<usize> = (0..PAGES).step_by(7).collect();
    assert_eq!(written(tracked.pid(), PAGES), expected);
    daemon.stop();
}

fn clones_restored_by_userfaultfd_are_merged_within_seconds(context: &mut Context) {
    const PAGES: usize = 512;
    const CLONES: usize = 8;
    let mut daemon = follower();
    let mut clones: Vec<Peer> = (0..CLONES).map(|_| clone_of(PAGES)).collect();
    for (number, clone) in clones.iter_mut().enumerate() {
        // A tenth of each is its own.
        clone.run(move |own| {
            let watch = WatchedRange::new(&own.memory, PAGES, MISSING);
            for page in 0..PAGES {
                let seed = if page % 10 == 9 {
                    SEED + 1 + number as u64
                } else {
                    SEED
                };
                watch.copy(own.memory.address(page), Content::new(seed, page as u64));
            }
            std::mem::forget(watch);
        });
    }
    let begun = Instant::now();
    for at in 1..CLONES {
        let pair = (clones[0].pid(), clones[at].pid());
        await_shared(&mut daemon, pair, PAGES, PAGES * 9 / 10 * 9 / 10, 30);
    }
    let time = begun.elapsed().as_secs_f64();
    context.metric("nine tenths are merged after", time, "s");
    assert!(time < 15.0, "{time} s: {}", status_text());
    daemon.stop();
}

/// Waits until the pages of all clones together take at most `frames` pages of memory.
fn await_frames(daemon: &mut Daemon, clones: &[Peer], frames: usize, bound: u64) {
    let taken = || {
        let mut pfns = BTreeSet::new();
        let mut moving = 0;
        for clone in clones {
            for entry in pagemap::entries(clone.pid(), 0..OF_FILE) {
                match entry.pfn() {
                    Some(pfn) => drop(pfns.insert(pfn)),
                    None => moving += 1,
                }
            }
        }
        pfns.len() + moving
    };
    let begun = Instant::now();
    while taken() > frames {
        daemon.assert_running();
        assert!(
            begun.elapsed() < Duration::from_secs(bound),
            "{} pages are taken, {frames} would do: {}{}",
            taken(),
            explanation_text(clones[0].pid()),
            status_text()
        );
        sleep(Duration::from_millis(20));
    }
}

/// Pages of the file that clones map.
const OF_FILE: usize = 640;
const SNAPSHOT: &str = "/dev/shm/snapshot";

/// A clone's change of a page of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageWrite {
    Alike,
    Own,
    Back,
    Zeros,
    Never,
}

fn write_of(page: usize) -> PageWrite {
    match page % 20 {
        0..4 => PageWrite::Alike,
        4..6 => PageWrite::Own,
        6 => PageWrite::Back,
        7 => PageWrite::Zeros,
        _ => PageWrite::Never,
    }
}

fn snapshot_page(page: usize) -> Content {
    Content::new(SEED + 100, page as u64)
}

fn map_snapshot(own: &mut Own, number: u64) {
    let file = File::open(SNAPSHOT).expect("the snapshot");
    own.memory = Memory::at(BASE, OF_FILE, libc::MAP_PRIVATE, file.as_raw_fd());
    for page in 0..OF_FILE {
        match write_of(page) {
            PageWrite::Alike => own.memory.fill_page(page, Content::new(SEED, page as u64)),
            PageWrite::Own => own
                .memory
                .fill_page(page, Content::new(SEED + 1 + number, page as u64)),
            PageWrite::Back => own.memory.fill_page(page, snapshot_page(page)),
            PageWrite::Zeros => (0..WORDS).for_each(|word| own.memory.set_word(page, word, 0)),
            // It is present, as a page of the file.
            PageWrite::Never => assert!(own.memory.holds(page, snapshot_page(page))),
        }
    }
}

/// Pages that differ from the clone's writes, or, where it wrote nothing, do not fulfil `file`.
fn wrong(own: &Own, number: u64, file: fn(&Own, usize) -> bool) -> usize {
    let is_right = |page: usize| match write_of(page) {
        PageWrite::Alike => own.memory.holds(page, Content::new(SEED, page as u64)),
        PageWrite::Own => own
            .memory
            .holds(page, Content::new(SEED + 1 + number, page as u64)),
        PageWrite::Back => own.memory.holds(page, snapshot_page(page)),
        PageWrite::Zeros => own.memory.is_zero(page),
        PageWrite::Never => file(own, page),
    };
    (0..OF_FILE).filter(|&page| !is_right(page)).count()
}

fn what_clones_of_one_file_wrote_alike_is_merged_and_outlives_the_file(_: &mut Context) {
    const CLONES: usize = 12;
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(SNAPSHOT)
        .expect("the snapshot");
    let write = |content: fn(usize) -> Content| {
        for page in 0..OF_FILE {
            let bytes = content(page).bytes();
            file.write_all_at(&bytes, (page * PAGE) as u64)
                .expect("tmpfs");
        }
    };
    write(snapshot_page);
    let mut clones: Vec<Peer> = (0..CLONES as u64)
        .map(|number| {
            let mut peer = Peer::new(1);
            peer.run(move |own| map_snapshot(own, number));
            peer
        })
        .collect();
    let all: Vec<&Peer> = clones.iter().collect();
    let mut daemon = Daemon::start_on(&all, &[]);
    // Pages that were never written are one page of the file for all, before and after. The zero
    // page is not mapped in a file's mapping: zeros take a frame, or two if two clones were merged
    // at once.
    let needed: usize = (0..OF_FILE)
        .map(|page| match write_of(page) {
            PageWrite::Own => CLONES,
            PageWrite::Zeros => 0,
            PageWrite::Alike | PageWrite::Back | PageWrite::Never => 1,
        })
        .sum();
    await_frames(&mut daemon, &clones, needed + 12, 90);
    let check = |clones: &mut Vec<Peer>, what: &str, of_file: fn(&Own, usize) -> bool| {
        for (number, clone) in clones.iter_mut().enumerate() {
            let wrong = clone.run(move |own| wrong(own, number as u64, of_file));
            assert_eq!(wrong, 0, "clone {number} after {what}");
        }
    };
    let is_snapshot = |own: &Own, page: usize| own.memory.holds(page, snapshot_page(page));
    set("/proc/sys/vm/drop_caches", "3");
    check(&mut clones, "drop_caches", is_snapshot);
    write(|page| Content::new(SEED + 200, page as u64));
    check(&mut clones, "overwriting", |own, page| {
        own.memory
            .holds(page, Content::new(SEED + 200, page as u64))
    });
    let length = i64::try_from(OF_FILE * PAGE).expect("a small file");
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: fallocate touches the file only.
    let punched = unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, length) };
    assert_eq!(punched, 0, "punching a hole");
    check(&mut clones, "a hole", |own, page| own.memory.is_zero(page));
    std::fs::remove_file(SNAPSHOT).expect("unlink");
    drop(file);
    check(&mut clones, "unlinking", |own, page| {
        own.memory.is_zero(page)
    });
    daemon.stop();
}
