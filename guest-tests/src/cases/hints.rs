//! Hints of I/O: every way to read and write is seen, of followed processes only, and what two of them
//! read is merged at once.
//!
//! # Problem
//! Data of files reaches memory in many ways, and a kernel may have moved the function in which they
//! meet. A way that is not seen is no error anywhere: it is just merged late.
//!
//! # Approach
//! The programs of the daemon are loaded and each way is tried on pages of its own, which must be told.
//! Then a daemon that has little time merges what two peers read from equal files into the middle of
//! memory that it has long been done with.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use uksm_linux::hints::{Hints, Taken};
use uksm_policy::command::{FilePlace, Hint, HintSource, SpaceId};

use super::Context;
use super::crowd::{figures, shared};
use super::daemon::{Daemon, status};
use crate::fixtures::contents::{Content, PAGE};
use crate::fixtures::memory::{Huge, Memory};
use crate::fixtures::peer::{Own, Peer};
use crate::fixtures::pins::{FixedBuffers, tempfile};

cases! { "daemon::hints":
    every_way_to_read_and_to_write_is_told_of_followed_processes_only Normal Stock 60,
    requests_of_many_segments_are_told_whole_and_nothing_between_them Normal Stock 60,
    a_process_that_fills_the_ring_leaves_room_for_others_and_its_losses_are_told_of_it Normal Stock 60,
    what_two_processes_read_is_merged_soon_by_a_daemon_with_little_time Normal Stock 240,
    a_storm_of_io_is_counted_and_bounded_and_starves_nobody Normal Stock 180,
    a_daemon_that_is_told_of_no_io_says_why_and_merges Normal Stock 120,
}

/// Pages of one way.
const PAGES: usize = 8;
const BYTES: usize = PAGES * PAGE;
const SPACE: SpaceId = SpaceId(77);

/// A file of so many pages of contents.
fn file_of(seed: u64, pages: usize) -> File {
    let mut file = tempfile("hints");
    for page in 0..pages {
        let content = Content::new(seed, page as u64);
        file.write_all(&content.bytes()).expect("write the source");
    }
    file.rewind().expect("rewind the source");
    file
}

/// A way to do I/O: with this file, on these pages.
type Way = fn(&File, &Memory, std::ops::Range<usize>) -> isize;

/// The ways to read, and those to write.
const WAYS: [(&str, HintSource, Way); 10] = [
    ("read", HintSource::Read, |file, memory, pages| {
        let at = memory.vector(pages);
        // SAFETY: the vector is memory of this process that is used by number only.
        unsafe { libc::read(file.as_raw_fd(), at.iov_base, at.iov_len) }
    }),
    ("pread64", HintSource::Read, |file, memory, pages| {
        let at = memory.vector(pages);
        // SAFETY: as above.
        unsafe { libc::pread(file.as_raw_fd(), at.iov_base, at.iov_len, 0) }
    }),
    ("readv", HintSource::Read, |file, memory, pages| {
        let at = halves(memory, pages);
        // SAFETY: as above.
        unsafe { libc::readv(file.as_raw_fd(), at.as_ptr(), 2) }
    }),
    ("preadv2", HintSource::Read, |file, memory, pages| {
        let at = halves(memory, pages);
        // SAFETY: as above.
        unsafe { libc::preadv2(file.as_raw_fd(), at.as_ptr(), 2, 0, 0) }
    }),
    ("io_uring read", HintSource::Read, |file, memory, pages| {
        let at = memory.vector(pages);
        let length = u32::try_from(at.iov_len).expect("a few pages");
        let file = types::Fd(file.as_raw_fd());
        submit(&opcode::Read::new(file, at.iov_base.cast(), length).build())
    }),
    ("io_uring readv", HintSource::Read, |file, memory, pages| {
        let at = halves(memory, pages);
        let file = types::Fd(file.as_raw_fd());
        submit(&opcode::Readv::new(file, at.as_ptr(), 2).build())
    }),
    ("write", HintSource::Write, |file, memory, pages| {
        let at = memory.vector(pages);
        // SAFETY: as above.
        unsafe { libc::write(file.as_raw_fd(), at.iov_base, at.iov_len) }
    }),
    ("pwrite64", HintSource::Write, |file, memory, pages| {
        let at = memory.vector(pages);
        // SAFETY: as above.
        unsafe { libc::pwrite(file.as_raw_fd(), at.iov_base, at.iov_len, 0) }
    }),
    ("writev", HintSource::Write, |file, memory, pages| {
        let at = halves(memory, pages);
        // SAFETY: as above.
        unsafe { libc::writev(file.as_raw_fd(), at.as_ptr(), 2) }
    }),
    (
        "io_uring write",
        HintSource::Write,
        |file, memory, pages| {
            let at = memory.vector(pages);
            let length = u32::try_from(at.iov_len).expect("a few pages");
            let file = types::Fd(file.as_raw_fd());
            submit(&opcode::Write::new(file, at.iov_base.cast(), length).build())
        },
    ),
];

/// Two segments: the second half, then the first.
fn halves(memory: &Memory, pages: std::ops::Range<usize>) -> [libc::iovec; 2] {
    let middle = pages.start + pages.len() / 2;
    [
        memory.vector(middle..pages.end),
        memory.vector(pages.start..middle),
    ]
}

fn submit(entry: &io_uring::squeue::Entry) -> isize {
    let mut ring = IoUring::new(4).expect("io_uring_setup");
    // SAFETY: file and memory live until the wait below ends.
    unsafe { ring.submission().push(entry) }.expect("room in the ring");
    ring.submit_and_wait(1).expect("io_uring_enter");
    let done = ring.completion().next().expect("one completion");
    isize::try_from(done.result()).expect("64 bits")
}

/// Whether hints of this source tell of all these pages.
fn is_told(hints: &[Hint], source: HintSource, from: u64) -> bool {
    (0..PAGES as u64).all(|page| {
        let address = from + page * PAGE as u64;
        hints.iter().any(|hint| {
            let end = hint.start + hint.length;
            (hint.space, hint.source) == (SPACE, source) && (hint.start..end).contains(&address)
        })
    })
}

fn every_way_to_read_and_to_write_is_told_of_followed_processes_only(_: &mut Context) {
    let mut hints = Hints::open().expect("the programs run here");
    let memory = Memory::anonymous(WAYS.len() * PAGES + PAGES, Huge::Never);
    let try_all = || {
        for (number, (name, _, way)) in WAYS.iter().enumerate() {
            let file = file_of(5, PAGES);
            let done = way(&file, &memory, number * PAGES..(number + 1) * PAGES);
            assert_eq!(usize::try_from(done).ok(), Some(BYTES), "{name}");
        }
    };
    try_all();
    assert_eq!(hints.take().hints, [], "nobody is followed");
    hints.follow(std::process::id(), SPACE);
    try_all();
    let Taken {
        hints: told,
        lost,
        more,
        ..
    } = hints.take();
    assert_eq!((lost, more), (0, false));
    for (number, (name, source, _)) in WAYS.iter().enumerate() {
        let from = memory.address(number * PAGES);
        let count = told.len();
        assert!(is_told(&told, *source, from), "{name} is not among {count}");
        let halves = name.ends_with('v') || *name == "preadv2";
        let turned = if halves { BYTES as u64 / 2 } else { 0 };
        let ours = told
            .iter()
            .filter(|hint| (from..from + BYTES as u64).contains(&hint.start));
        for hint in ours {
            let place = FilePlace {
                file_size: BYTES as u64,
                offset: (hint.start - from + turned) % BYTES as u64,
            };
            assert_eq!(hint.place, Some(place), "{name}: {hint:?}");
        }
    }
    // The pages of a registered buffer are pinned, and cannot be merged.
    let other = hints.counts().other;
    FixedBuffers::new(&memory, WAYS.len() * PAGES..(WAYS.len() + 1) * PAGES).receive(6);
    assert_eq!(hints.counts().other, other + 1, "a registered buffer");

    let _written_to_fill_the_buffer = hints.take();
    hints.forget(std::process::id());
    try_all();
    assert_eq!(hints.take().hints, [], "it is followed no longer");
}

/// The most segments of a request, as the kernel's UIO_MAXIOV has it. Guests ask for a page each.
const MOST_SEGMENTS: usize = 1024;
const BYTES_OF_MOST: usize = MOST_SEGMENTS * PAGE;

fn requests_of_many_segments_are_told_whole_and_nothing_between_them(_: &mut Context) {
    let mut hints = Hints::open().expect("the programs run here");
    hints.follow(std::process::id(), SPACE);
    let memory = Memory::anonymous(2 * MOST_SEGMENTS, Huge::Never);
    let file = file_of(5, MOST_SEGMENTS);
    let _written_to_make_it = hints.take();
    // Every other page, in an order that is neither up nor down, then all pages upwards.
    let apart = |index: usize| 2 * (index * 389 % MOST_SEGMENTS);
    let upwards = |index: usize| index;
    let layouts: [(&dyn Fn(usize) -> usize, bool); 2] = [(&apart, false), (&upwards, true)];
    for (page_of, is_joined) in layouts {
        for segments in [17, 32, MOST_SEGMENTS] {
            let at: Vec<libc::iovec> = (0..segments)
                .map(|index| memory.vector(page_of(index)..page_of(index) + 1))
                .collect();
            // The file ends in the middle of the last segment.
            let bytes = segments * PAGE - PAGE / 2;
            file.set_len(bytes as u64).expect("shorten the file");
            let count = i32::try_from(segments).expect("few");
            // SAFETY: the vectors are memory of this process that is used by number only.
            let done = unsafe { libc::preadv(file.as_raw_fd(), at.as_ptr(), count, 0) };
            assert_eq!(usize::try_from(done).ok(), Some(bytes));
            let Taken {
                hints: told,
                lost,
                more,
                ..
            } = hints.take();
            assert_eq!((lost, more), (0, false));
            let mut pages: Vec<u64> = told
                .iter()
                .flat_map(|hint| (hint.start..hint.start + hint.length).step_by(PAGE))
                .collect();
            let mut expected: Vec<u64> = (0..segments)
                .map(|index| memory.address(page_of(index)))
                .collect();
            pages.sort_unstable();
            expected.sort_unstable();
            assert!(
                pages == expected,
                "{segments} segments: {} pages",
                pages.len()
            );
            for hint in &told {
                let place = hint.place.expect("a place in the file");
                let index = usize::try_from(place.offset).expect("small") / PAGE;
                assert_eq!(place.file_size, bytes as u64, "{segments} segments");
                assert_eq!(hint.start, memory.address(page_of(index)), "{segments}");
            }
            let length: u64 = told.iter().map(|hint| hint.length).sum();
            assert_eq!(length, bytes as u64, "{segments} segments");
            assert_eq!(told.len() == 1, is_joined, "{segments} segments: {told:?}");
            file.set_len(BYTES_OF_MOST as u64)
                .expect("lengthen the file");
        }
    }
}

/// 64 MiB, of which a part is read into.
const CACHE: usize = 16_384;
const READ: usize = 2048;

fn what_two_processes_read_is_merged_soon_by_a_daemon_with_little_time(_: &mut Context) {
    let mut pair = [1, 2].map(|seed| Peer::filled(CACHE, seed, CACHE));
    let mut daemon = Daemon::start_with("low", &named(&pair));
    // First looks are over, and nothing of these regions will be read but by thin samples.
    std::thread::sleep(Duration::from_secs(20));
    assert!(
        status().contains("told by programs"),
        "the daemon says: {}",
        status()
    );
    let took = read_the_same(&mut pair, &mut daemon, Duration::from_secs(20));
    eprintln!("merged {took:?} after the first read began");
    let status: serde_json::Value = serde_json::from_str(&figures()).expect("JSON");
    let merged = status["hints"]["merged_pages"].as_u64();
    assert!(merged >= Some(READ as u64 / 2), "{status}");
    daemon.stop();
}

/// Has two peers read equal files into the middle of their memory; how long it takes from then until nine
/// tenths of that are merged.
fn read_the_same(pair: &mut [Peer; 2], daemon: &mut Daemon, within: Duration) -> Duration {
    let begun = Instant::now();
    for (number, peer) in pair.iter_mut().enumerate() {
        peer.run(move |own| {
            let first = 3000 + number * 7000;
            let file = file_of(9, READ);
            for page in (0..READ).step_by(32) {
                let at = own.memory.vector(first + page..first + page + 32);
                // SAFETY: the vector is memory of this process that is used by number only.
                let done = unsafe { libc::read(file.as_raw_fd(), at.iov_base, at.iov_len) };
                assert_eq!(usize::try_from(done).ok(), Some(32 * PAGE), "read");
            }
        });
    }
    loop {
        let (merged, took) = (shared(pair, CACHE), begun.elapsed());
        if merged >= READ * 9 / 10 {
            return took;
        }
        daemon.assert_running();
        let late = took >= within;
        assert!(!late, "{merged} of {READ} pages are merged; {}", figures());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What the daemon counts of hints.
fn counts() -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_str(&figures()).expect("JSON");
    status["hints"].clone()
}

/// Reads of a page, as many calls.
fn read_pages(own: &Own, calls: usize) {
    let file = file_of(8, 1);
    let at = own.memory.vector(0..1);
    for _ in 0..calls {
        // SAFETY: the vector is memory of this process that is used by number only.
        let done = unsafe { libc::pread(file.as_raw_fd(), at.iov_base, PAGE, 0) };
        assert_eq!(usize::try_from(done).ok(), Some(PAGE), "pread");
    }
}

/// Nobody takes hints while one process has far more of them than there is room for.
fn a_process_that_fills_the_ring_leaves_room_for_others_and_its_losses_are_told_of_it(
    context: &mut Context,
) {
    const STORM: usize = 40_000;
    const OTHERS: usize = 500;
    let mut hints = Hints::open().expect("the programs run here");
    let mut peers = [1, 2].map(|seed| Peer::filled(1, seed, 1));
    let spaces = [SpaceId(11), SpaceId(12)];
    for (peer, space) in peers.iter().zip(spaces) {
        hints.follow(u32::try_from(peer.pid()).expect("a process id"), space);
    }
    peers[0].run(|own| read_pages(own, STORM));
    peers[1].run(|own| read_pages(own, OTHERS));
    let mut all = Taken::default();
    loop {
        let taken = hints.take();
        all.hints.extend(taken.hints);
        all.lost_of.extend(taken.lost_of);
        all.lost += taken.lost;
        if !taken.more {
            break;
        }
    }
    // To make its file a peer writes, too.
    let reads = |of| {
        let is_one = |hint: &&Hint| hint.space == of && hint.source == HintSource::Read;
        all.hints.iter().filter(is_one).count()
    };
    let [storm, others] = spaces.map(reads);
    context.metric("hints of the storm", storm as f64, "");
    assert_eq!(others, OTHERS, "{storm} of the storm");
    assert!((8000..20_000).contains(&storm), "{storm} of the storm");
    assert_eq!(all.lost, (STORM - storm) as u64);
    assert_eq!(all.lost_of, [spaces[0]]);
    // What was taken counts no longer.
    peers[0].run(|own| read_pages(own, OTHERS));
    let taken = hints.take();
    let at_least = taken.hints.len() >= OTHERS;
    assert!(
        at_least && taken.lost == 0,
        "{} after it",
        taken.hints.len()
    );
}

/// A process asks for single pages of a file, in no order, as fast as it can.
fn a_storm_of_io_is_counted_and_bounded_and_starves_nobody(context: &mut Context) {
    const STORM: Duration = Duration::from_secs(30);
    const MOST_BYTES: u64 = 16 << 20;
    let mut pair = [1, 2].map(|seed| Peer::filled(CACHE, seed, CACHE));
    let mut noise = Peer::filled(CACHE, 3, CACHE);
    let noisy = ["--pid".to_owned(), noise.pid().to_string()];
    let mut daemon = Daemon::start_with("full", &[named(&pair), noisy.into()].concat());
    std::thread::sleep(Duration::from_secs(15));
    let storm = noise.begin(|own| {
        let file = file_of(8, READ);
        let (begun, mut calls, mut draw) = (Instant::now(), 0_u64, 1_usize);
        while begun.elapsed() < STORM {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005) | 1;
            let (page, offset) = ((draw >> 40) % CACHE, (draw >> 20) % READ * PAGE);
            let at = own.memory.vector(page..page + 1);
            let offset = i64::try_from(offset).expect("a small file");
            // SAFETY: the vector is memory of this process that is used by number only.
            let done = unsafe { libc::pread(file.as_raw_fd(), at.iov_base, PAGE, offset) };
            assert_eq!(usize::try_from(done).ok(), Some(PAGE), "pread");
            calls += 1;
        }
        calls
    });
    std::thread::sleep(Duration::from_secs(3));
    let took = read_the_same(&mut pair, &mut daemon, Duration::from_secs(25));
    let calls = storm.end();
    context.metric("reads", calls as f64 / STORM.as_secs_f64(), "a second");
    context.metric("merged in the storm", took.as_secs_f64(), "s");
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let counts = counts();
        let count = |name: &str| counts[name].as_u64().unwrap_or(0);
        assert!(count("hint_bytes") <= MOST_BYTES, "{counts}");
        // Each call is of one piece of memory.
        if count("calls") >= calls && count("taken") + count("lost") == count("calls") {
            break;
        }
        assert!(Instant::now() < end, "{calls} reads, but {counts}");
        std::thread::sleep(Duration::from_millis(200));
    }
    context.note(status());
    daemon.stop();
}

fn a_daemon_that_is_told_of_no_io_says_why_and_merges(_: &mut Context) {
    let turned_off = |arguments: &[String]| {
        let off = [arguments, &["--hint-runs".into(), "0".into()]].concat();
        Daemon::start_with("full", &off)
    };
    let without_btf = |arguments: &[String]| Daemon::start_without_btf("full", arguments);
    let starts: [(&str, Start<'_>); 2] = [
        ("told by nobody: hint_runs is 0", &turned_off),
        ("told by nobody: the kernel has no BTF", &without_btf),
    ];
    for (seed, (reason, start)) in (11..).zip(starts) {
        let pair = [(); 2].map(|()| Peer::filled(READ, seed, READ));
        let mut daemon = start(&named(&pair));
        let end = Instant::now() + Duration::from_secs(40);
        while shared(&pair, READ) < READ * 9 / 10 {
            daemon.assert_running();
            assert!(Instant::now() < end, "{reason}: {}", status());
            std::thread::sleep(Duration::from_millis(50));
        }
        while !status().contains(reason) {
            assert!(Instant::now() < end, "{reason}: {}", status());
            std::thread::sleep(Duration::from_millis(200));
        }
        daemon.stop();
    }
}

/// How a daemon is started with these arguments.
type Start<'a> = &'a dyn Fn(&[String]) -> Daemon;

/// The arguments that name these peers.
fn named(pair: &[Peer; 2]) -> Vec<String> {
    let named = pair
        .iter()
        .flat_map(|peer| ["--pid".to_owned(), peer.pid().to_string()]);
    named.collect()
}
