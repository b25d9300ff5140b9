//! The programs that report I/O: all ways to read and write are reported, of followed processes
//! only, and no process blocks the hints of others.
//!
//! # Problem
//! Data of files reaches memory in many ways, and a kernel may have moved the function common to
//! them. A way that is not reported causes no error: its pages are merged late.
//!
//! # Approach
//! The programs of the daemon are loaded, without a daemon, and each way is tried on pages of its
//! own, which must be reported: on a file, and past the page cache on a block device.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use io_uring::{IoUring, opcode, types};
use uksm_linux::hints::{HintBatch, Hints};
use uksm_policy::command::{FilePlace, Hint, HintSource, SpaceId};

use super::Context;
use crate::fixtures::contents::{Content, PAGE};
use crate::fixtures::hinted_reads::file_of;
use crate::fixtures::memory::{Huge, Memory};
use crate::fixtures::peer::{Own, Peer};
use crate::fixtures::pins::FixedBuffers;
use crate::fixtures::zram;

cases! { "daemon::hints":
    every_way_to_read_and_to_write_is_told_of_followed_processes_only Normal Stock 60,
    every_way_past_the_page_cache_is_told Normal Stock 60,
    requests_of_many_segments_are_told_whole_and_nothing_between_them Normal Stock 60,
    a_process_that_fills_the_ring_leaves_room_for_others_and_its_losses_are_told_of_it Normal Stock 60,
}

/// Pages of one way.
const PAGES: usize = 8;
const BYTES: usize = PAGES * PAGE;
const SPACE: SpaceId = SpaceId(77);

/// A way to do I/O: with this file, on these pages.
type Way = fn(&File, &Memory, std::ops::Range<usize>) -> isize;

/// The ways to read, and those to write.
const WAYS: [(&str, HintSource, Way); 13] = [
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
    ("libaio pread", HintSource::Read, |file, memory, pages| {
        let at = memory.vector(pages);
        libaio(PREAD, file, at.iov_base, at.iov_len)
    }),
    ("libaio preadv", HintSource::Read, |file, memory, pages| {
        let at = halves(memory, pages);
        libaio(PREADV, file, at.as_ptr().cast(), 2)
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
    ("libaio pwrite", HintSource::Write, |file, memory, pages| {
        let at = memory.vector(pages);
        libaio(PWRITE, file, at.iov_base, at.iov_len)
    }),
];

/// Two segments: the second half, then the first.
fn halves(memory: &Memory, pages: std::ops::Range<usize>) -> [libc::iovec; 2] {
    let middle = pages.start + pages.len() / 2;
    [
        memory.vector(middle..pages.end),
        memory.vector(pages.start..middle),
    ]
}

/// Whether the way of this name has them.
fn is_in_halves(name: &str) -> bool {
    name.ends_with('v') || name == "preadv2"
}

fn submit(entry: &io_uring::squeue::Entry) -> isize {
    let mut ring = IoUring::new(4).expect("io_uring_setup");
    // SAFETY: file and memory live until the wait below ends.
    unsafe { ring.submission().push(entry) }.expect("room in the ring");
    ring.submit_and_wait(1).expect("io_uring_enter");
    let done = ring.completion().next().expect("one completion");
    isize::try_from(done.result()).expect("64 bits")
}

/// Requests of libaio, by the kernel's numbers.
const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const PREADV: u16 = 7;

/// A request of libaio, from `io_setup` to `io_getevents`.
fn libaio(opcode: u16, file: &File, at: *const libc::c_void, length: usize) -> isize {
    const ONE: libc::c_long = 1;
    // SAFETY: all of it is numbers, of which 0 is allowed.
    let mut request: libc::iocb = unsafe { std::mem::zeroed() };
    request.aio_lio_opcode = opcode;
    request.aio_fildes = u32::try_from(file.as_raw_fd()).expect("an open file");
    request.aio_buf = at as u64;
    request.aio_nbytes = length as u64;
    let requests = [std::ptr::from_mut(&mut request)];
    // An io_event of the kernel: data, request, result and a second result.
    let mut event = [0_u64; 4];
    let mut queue: libc::c_ulong = 0;
    // SAFETY: the kernel writes the number of a queue.
    let made = unsafe { libc::syscall(libc::SYS_io_setup, ONE, &raw mut queue) };
    assert_eq!(made, 0, "io_setup");
    // SAFETY: the request and its memory live until its event was taken.
    let put = unsafe { libc::syscall(libc::SYS_io_submit, queue, ONE, requests.as_ptr()) };
    assert_eq!(put, 1, "io_submit");
    let (wait, none) = (ONE, std::ptr::null::<libc::timespec>());
    let to = event.as_mut_ptr();
    // SAFETY: there is room for one event.
    let taken = unsafe { libc::syscall(libc::SYS_io_getevents, queue, wait, ONE, to, none) };
    assert_eq!(taken, 1, "io_getevents");
    // SAFETY: nothing is under way.
    unsafe { libc::syscall(libc::SYS_io_destroy, queue) };
    isize::try_from(event[2].cast_signed()).expect("64 bits")
}

/// Whether hints of this source report all these pages.
fn has_hint(hints: &[Hint], source: HintSource, from: u64) -> bool {
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
    let HintBatch {
        hints: reported,
        lost,
        more,
        ..
    } = hints.take();
    assert_eq!((lost, more), (0, false));
    for (number, (name, source, _)) in WAYS.iter().enumerate() {
        let from = memory.address(number * PAGES);
        let count = reported.len();
        assert!(
            has_hint(&reported, *source, from),
            "{name} is not among {count}"
        );
        let turned = if is_in_halves(name) {
            BYTES as u64 / 2
        } else {
            0
        };
        let ours = reported
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

/// QEMU's `cache=none` reads and writes this way, with threads, libaio or io_uring.
fn every_way_past_the_page_cache_is_told(context: &mut Context) {
    let disk = zram::disk(context, 16);
    let writer = File::options().write(true).open(disk.path());
    let writer = writer.expect("open the disk");
    for page in 0..PAGES {
        let content = Content::new(8, page as u64).bytes();
        writer
            .write_all_at(&content, (page * PAGE) as u64)
            .expect("fill the disk");
    }
    writer.sync_all().expect("fill the disk");
    let mut options = File::options();
    let options = options.read(true).write(true).custom_flags(libc::O_DIRECT);
    let mut hints = Hints::open().expect("the programs run here");
    hints.follow(std::process::id(), SPACE);
    let memory = Memory::anonymous(WAYS.len() * PAGES, Huge::Never);
    for (number, (name, source, way)) in WAYS.iter().enumerate() {
        let file = options.open(disk.path()).expect("open the disk");
        let first = number * PAGES;
        let done = way(&file, &memory, first..first + PAGES);
        assert_eq!(usize::try_from(done).ok(), Some(BYTES), "{name}");
        let reported = hints.take().hints;
        let count = reported.len();
        let from = memory.address(first);
        assert!(
            has_hint(&reported, *source, from),
            "{name} is not among {count}"
        );
        let ours = (from..from + BYTES as u64).step_by(PAGE);
        let is_elsewhere = |hint: &&Hint| !ours.clone().any(|page| page == hint.start);
        assert_eq!(reported.iter().find(is_elsewhere), None, "{name}");
        // The file is not known where pages are taken.
        assert!(
            reported.iter().all(|hint| hint.place.is_none()),
            "{name}: {reported:?}"
        );
        let is_whole = |page| memory.holds(first + page, Content::new(8, page as u64));
        let is_read = *source == HintSource::Read && !is_in_halves(name);
        // Writes come last: then the disk has other contents.
        assert!(!is_read || (0..PAGES).all(is_whole), "{name}");
    }
}

/// The limit of segments of a request, the kernel's UIO_MAXIOV. Guests use one segment a page.
const MAX_SEGMENTS: usize = 1024;
const BYTES_OF_MOST: usize = MAX_SEGMENTS * PAGE;

fn requests_of_many_segments_are_told_whole_and_nothing_between_them(_: &mut Context) {
    let mut hints = Hints::open().expect("the programs run here");
    hints.follow(std::process::id(), SPACE);
    let memory = Memory::anonymous(2 * MAX_SEGMENTS, Huge::Never);
    let file = file_of(5, MAX_SEGMENTS);
    let _written_to_make_it = hints.take();
    // Every other page, in an order that is neither up nor down, then all pages upwards.
    let apart = |index: usize| 2 * (index * 389 % MAX_SEGMENTS);
    let upwards = |index: usize| index;
    let layouts: [(&dyn Fn(usize) -> usize, bool); 2] = [(&apart, false), (&upwards, true)];
    for (page_of, is_joined) in layouts {
        for segments in [17, 32, MAX_SEGMENTS] {
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
            let HintBatch {
                hints: reported,
                lost,
                more,
                ..
            } = hints.take();
            assert_eq!((lost, more), (0, false));
            let mut pages: Vec<u64> = reported
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
            for hint in &reported {
                let place = hint.place.expect("a place in the file");
                let index = usize::try_from(place.offset).expect("small") / PAGE;
                assert_eq!(place.file_size, bytes as u64, "{segments} segments");
                assert_eq!(hint.start, memory.address(page_of(index)), "{segments}");
            }
            let length: u64 = reported.iter().map(|hint| hint.length).sum();
            assert_eq!(length, bytes as u64, "{segments} segments");
            assert_eq!(
                reported.len() == 1,
                is_joined,
                "{segments} segments: {reported:?}"
            );
            file.set_len(BYTES_OF_MOST as u64)
                .expect("lengthen the file");
        }
    }
}

/// Reads of a page, in `calls` calls.
fn read_pages(own: &Own, calls: usize) {
    let file = file_of(8, 1);
    let at = own.memory.vector(0..1);
    for _ in 0..calls {
        // SAFETY: the vector is memory of this process that is used by number only.
        let done = unsafe { libc::pread(file.as_raw_fd(), at.iov_base, PAGE, 0) };
        assert_eq!(usize::try_from(done).ok(), Some(PAGE), "pread");
    }
}

/// Hints are not read while one process has far more of them than the ring has room for.
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
    let mut all = HintBatch::default();
    loop {
        let taken = hints.take();
        all.hints.extend(taken.hints);
        all.lost_of.extend(taken.lost_of);
        all.lost += taken.lost;
        if !taken.more {
            break;
        }
    }
    // A peer also writes to make its file.
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
    // Hints that were read no longer count.
    peers[0].run(|own| read_pages(own, OTHERS));
    let taken = hints.take();
    let at_least = taken.hints.len() >= OTHERS;
    assert!(
        at_least && taken.lost == 0,
        "{} after it",
        taken.hints.len()
    );
}
