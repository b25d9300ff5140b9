//! The effects on others while FOLD holds a page.
//!
//! # Problem
//! FOLD clears the page-table entry of a page, compares, and maps the page again or its frame. A
//! page fault reads the entry before it takes the lock. If the entry is empty, the page is missing:
//! the fault then reads the file behind a private mapping, and fails where that fails; it fills
//! holes of tmpfs files, charges a page that the process already has, and waits for a handler of
//! userfaultfd.
//!
//! # Approach
//! The module's test build makes this moment 2 ms long. Processes use pages all the time which FOLD
//! clears, finds to differ from a frame in their last byte, and puts back. None of the above may
//! happen with the PROT_NONE entry that FOLD leaves in the place, and each must happen if it leaves
//! the entry empty instead. Memory failure checks under the lock; it is tried all the same.
//!
//! # Source
//! `clear_pte()` of kernel/candidate.c; `kernel/faults.h`.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use uksm_policy::command::{
    FoldBatch, FoldEntry, FoldKind, FoldOutcome, FrameId, PageState, Reason, Status,
};

use super::Context;
use crate::fixtures::accounting::events;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::contents::{PAGE, WORDS};
use crate::fixtures::domain::{Domain, Permit, entry};
use crate::fixtures::fault_switches::{EMPTY_ENTRY, SLOW_EXCHANGE, with_faults};
use crate::fixtures::fuse::{FuseFile, Reads};
use crate::fixtures::memory::{BASE, Memory};
use crate::fixtures::memory_failure::{HARD_OFFLINE, kernel_deals_with_failures};
use crate::fixtures::pagemap::pfns;
use crate::fixtures::peer::{Own, Peer};
use crate::fixtures::pins::tempfile;
use crate::fixtures::process::{fork, run_on, wait};
use crate::fixtures::symbols::kernel_has;
use crate::fixtures::userfault::watch_for_ever;

cases! { "page_table_entries":
    pages_of_a_file_that_fails_stay_readable NegativeControl Faults 120,
    a_reader_has_no_major_faults NegativeControl Faults 120,
    a_writer_at_the_limit_of_its_group_lives NegativeControl Faults 120,
    a_hole_of_a_file_stays_one NegativeControl Faults 120,
    a_handler_gets_no_event_for_a_page_that_is_there NegativeControl Faults 120,
    a_page_whose_memory_fails_is_taken_from_its_process Normal Faults 90,
}

/// One batch of FOLD, all in one page table.
const PAGES: usize = 32;
const SEED: u64 = 73;
/// Time for which a process uses its pages.
const USE: Duration = Duration::from_secs(2);
/// Time after which a process that has not ended counts as waiting for ever.
const PATIENCE: Duration = Duration::from_secs(5);
/// Limit of the tries of a control.
const MAX_CONTROLS: usize = 10;
/// Limit of the runs with a PROT_NONE entry on a kernel with KASAN, of which one must show nothing.
const MAX_KASAN_RUNS: usize = 3;

/// A domain with a frame that differs from content 0 of [`SEED`] in its last byte.
struct Folder {
    domain: Domain,
    frame: FrameId,
    _donor: Peer,
}

impl Folder {
    fn new() -> Folder {
        let mut donor = Peer::filled(2, SEED, 1);
        donor.run(|own| {
            for page in 0..2 {
                let last = own.memory.word(page, WORDS - 1);
                own.memory.set_word(page, WORDS - 1, last ^ 1 << 63);
            }
        });
        let mut domain = Domain::open();
        let space = domain.attach(&donor);
        let pair = [0, 1].map(|page| entry(space, page, FoldKind::Set(0)));
        let outcomes = domain.fold_with_retries(&pair, Permit::default());
        assert_eq!(outcomes[1].status, Status::Merged, "{outcomes:?}");
        Folder {
            domain,
            frame: FrameId(outcomes[1].frame),
            _donor: donor,
        }
    }

    /// All pages of `target`, to be compared with the frame.
    fn pages_of(&self, target: &Peer) -> Vec<FoldEntry> {
        let space = self.domain.attach(target);
        let kind = FoldKind::Frame(self.frame);
        (0..PAGES).map(|page| entry(space, page, kind)).collect()
    }

    /// Makes FOLD clear these pages and put them back, over and over, while `on()`.
    fn clear_and_put_back(&mut self, entries: &[FoldEntry], mut on: impl FnMut() -> bool) {
        let (mut first, mut put_back) = (true, 0);
        while on() {
            let outcomes = self.domain.fold_batch(&FoldBatch {
                entries: entries.to_vec(),
                // Pages just written are in a list of their processor, which has a reference.
                drain: first,
                ..FoldBatch::default()
            });
            first = false;
            let differ = |outcome: &&FoldOutcome| outcome.reason == Reason::Content;
            put_back += outcomes.iter().filter(differ).count();
        }
        assert!(put_back > 0, "no page was cleared and put back");
    }

    /// The same while a process uses its pages.
    fn clear_in_use(&mut self, entries: &[FoldEntry]) {
        let end = Instant::now() + USE;
        self.clear_and_put_back(entries, || Instant::now() < end);
    }
}

/// The counts of a test, with the PROT_NONE entry and then with an empty one. The second shows that
/// the test can fail. It is repeated until it does, since a process on a busy machine may not run
/// while FOLD holds its pages.
///
/// On a kernel with KASAN the first is repeated, too: FOLD empties the entry for two instructions
/// before it stores PROT_NONE, and there a read falls between them once in several runs.
fn with_and_without<R: Default + PartialEq>(
    context: &Context,
    mut count: impl FnMut() -> R,
) -> (R, R) {
    let max_runs = match kernel_has("kasan_report") {
        true => MAX_KASAN_RUNS,
        false => 1,
    };
    let with = with_faults(context, SLOW_EXCHANGE, || {
        until(max_runs, &mut count, |found| *found == R::default())
    });
    let without = with_faults(context, SLOW_EXCHANGE | EMPTY_ENTRY, || {
        until(MAX_CONTROLS, &mut count, |found| *found != with)
    });
    (with, without)
}

/// The first count that is enough, or the last of `max_counts`.
fn until<R>(max_counts: usize, mut count: impl FnMut() -> R, is_enough: impl Fn(&R) -> bool) -> R {
    let mut found = count();
    for _ in 1..max_counts {
        if is_enough(&found) {
            break;
        }
        found = count();
    }
    found
}

/// Uses all pages in turn for some time.
fn use_pages(time: Duration, mut each: impl FnMut(usize)) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        (0..PAGES).for_each(&mut each);
    }
}

fn read_pages(own: &mut Own) {
    use_pages(USE, |page| {
        let _read = own.memory.word(page, 0);
    });
}

/// Makes the memory a private mapping of a file, and writes to all of it.
fn map_private(own: &mut Own, file: &File) {
    own.memory = Memory::at(BASE, PAGES, libc::MAP_PRIVATE, file.as_raw_fd());
    own.memory.fill(SEED, 1);
}

/// A reader of private pages of a file that is not cached.
fn reader_of_the_file() -> Peer {
    let mut reader = Peer::new(PAGES);
    reader.run(|own| map_private(own, &FuseFile::open()));
    FuseFile::drop_cache();
    reader
}

/// Signals SIGBUS to this process.
static BUS_ERRORS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_bus_error(_: i32) {
    BUS_ERRORS.fetch_add(1, Ordering::Relaxed);
}

/// Reads all pages for a while; returns the number of SIGBUS signals. Then the read is tried again.
fn read_and_count_bus_errors(own: &mut Own) -> u64 {
    let handler = SigHandler::Handler(count_bus_error);
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler adds to an atomic, which is safe at any time.
    unsafe { sigaction(Signal::SIGBUS, &action) }.expect("sigaction");
    read_pages(own);
    BUS_ERRORS.load(Ordering::Relaxed)
}

/// Effects on a reader of private pages of a file: signals SIGBUS, reads of the file, major faults
/// of the machine, faults that count for NUMA balancing.
fn seen_by_a_reader(context: &Context, reads: Reads) -> [u64; 4] {
    let mut file = FuseFile::new(context, PAGES, SEED);
    let mut reader = reader_of_the_file();
    file.set(reads);
    let mut folder = Folder::new();
    let entries = folder.pages_of(&reader);
    let before = ["pgmajfault", "numa_hint_faults"].map(events);
    let asked = file.reads();
    let running = reader.begin(read_and_count_bus_errors);
    folder.clear_in_use(&entries);
    let bus_errors = running.end();
    let after = ["pgmajfault", "numa_hint_faults"].map(events);
    let asked = file.reads() - asked;
    file.set(Reads::Answer);
    assert_eq!(reader.run(|own| own.memory.changed(SEED, 1, 0..PAGES)), 0);
    [
        bus_errors,
        asked,
        after[0] - before[0],
        after[1] - before[1],
    ]
}

fn pages_of_a_file_that_fails_stay_readable(context: &mut Context) {
    let (with, without) = with_and_without(context, || seen_by_a_reader(context, Reads::Fail));
    context.note(format!("an empty entry: SIGBUS and reads {without:?}"));
    assert_eq!(with, [0; 4], "a page that is there should be read");
    assert!(
        without[0] > 0 && without[1] > 0,
        "an empty entry should be noticed: {without:?}"
    );
}

fn a_reader_has_no_major_faults(context: &mut Context) {
    let (with, without) = with_and_without(context, || seen_by_a_reader(context, Reads::Answer));
    context.note(format!(
        "an empty entry: reads and major faults {without:?}"
    ));
    assert_eq!(with, [0; 4], "a page that is there needs no file");
    assert!(
        without[1] > 0 && without[2] > 0,
        "an empty entry should be noticed: {without:?}"
    );
}

/// Writes to pages of a group at its limit; returns the number of times that it was out of memory.
fn shortages_of_a_writer() -> u64 {
    let group = Cgroup::new("writer");
    let mut writer = Peer::new(PAGES);
    group.take(writer.pid());
    let write = |time: Duration| {
        move |own: &mut Own| {
            let words: Vec<u64> = (0..PAGES).map(|page| own.memory.word(page, 1)).collect();
            // It only writes: a read of an empty entry takes no page.
            use_pages(time, |page| own.memory.set_word(page, 1, words[page]));
        }
    };
    writer.run(|own| own.memory.fill(SEED, 1));
    // Takes its other memory first.
    writer.run(write(Duration::from_millis(50)));
    group.limit_to_use();
    let mut limit = group.pages();
    let mut folder = Folder::new();
    let entries = folder.pages_of(&writer);
    let pid = writer.pid();
    let running = writer.begin(write(USE));
    let end = Instant::now() + USE;
    // FOLD does not let the other process run on the processor where it holds a page.
    run_on(0, 1);
    run_on(pid, 2);
    folder.clear_and_put_back(&entries, || {
        // A page that the group gave back, or that a processor held for it, would leave room for
        // ever.
        let pages = group.pages();
        if pages < limit {
            limit = pages;
            group.limit_to(limit);
        }
        Instant::now() < end && group.shortages() == 0
    });
    run_on(0, 3);
    let shortages = group.shortages();
    // Otherwise it was killed.
    if shortages == 0 {
        running.end();
        assert_eq!(writer.run(|own| own.memory.changed(SEED, 1, 0..PAGES)), 0);
    }
    shortages
}

fn a_writer_at_the_limit_of_its_group_lives(context: &mut Context) {
    let (with, without) = with_and_without(context, shortages_of_a_writer);
    assert_eq!(with, 0, "a page that the group has needs no other");
    assert!(without > 0, "an empty entry should be noticed");
}

/// Makes the memory private pages over a file of tmpfs that has none, and leaves the file.
fn map_hole(own: &mut Own) -> File {
    let file = tempfile("hole");
    let length = (PAGES * PAGE) as u64;
    file.set_len(length).expect("the size of a file");
    map_private(own, &file);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: fallocate touches the file only.
    let punched = unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, length.cast_signed()) };
    assert_eq!(punched, 0, "{}", std::io::Error::last_os_error());
    assert_eq!(file.metadata().expect("a file").blocks(), 0);
    file
}

/// Makes a process use private pages over a hole; returns the filled part of the hole, in units of
/// 512 bytes.
fn blocks_of_a_hole() -> u64 {
    let mut reader = Peer::new(PAGES);
    let file = reader.run(|own| {
        let file = map_hole(own);
        let number = file.as_raw_fd();
        // Stays open for the next order.
        std::mem::forget(file);
        number
    });
    let mut folder = Folder::new();
    let entries = folder.pages_of(&reader);
    let running = reader.begin(read_pages);
    folder.clear_in_use(&entries);
    running.end();
    let file = format!("/proc/{}/fd/{file}", reader.pid());
    fs::metadata(file).expect("the file").blocks()
}

fn a_hole_of_a_file_stays_one(context: &mut Context) {
    let (with, without) = with_and_without(context, blocks_of_a_hole);
    assert_eq!(with, 0, "a page that is there needs none of the file");
    assert!(without > 0, "an empty entry should be noticed");
}

/// Makes a process read pages whose absence userfaultfd would report, to a handler that never
/// answers; returns whether it waits for the handler.
fn waits_for_a_handler() -> bool {
    let mut reader = Peer::new(PAGES);
    reader.run(|own| {
        let _file = map_hole(own);
        watch_for_ever(&own.memory);
    });
    let mut folder = Folder::new();
    let entries = folder.pages_of(&reader);
    let running = reader.begin(read_pages);
    folder.clear_in_use(&entries);
    let end = Instant::now() + PATIENCE;
    while !running.has_ended() && Instant::now() < end {
        sleep(Duration::from_millis(20));
    }
    !running.has_ended()
}

fn a_handler_gets_no_event_for_a_page_that_is_there(context: &mut Context) {
    let (with, without) = with_and_without(context, waits_for_a_handler);
    assert!(!with, "a page that is there raises no event");
    assert!(without, "an empty entry should be noticed");
}

/// Makes memory fail under pages while FOLD holds them; returns the number of pages still mapped.
fn mapped_though_failed() -> usize {
    let target = Peer::filled(PAGES, SEED, 1);
    let mut folder = Folder::new();
    let entries = folder.pages_of(&target);
    let failing = pfns(target.pid(), 0..PAGES);
    let ended = Memory::at(BASE, 1, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1);
    let failure = fork(|| {
        sleep(USE / 10);
        for number in failing {
            // Fails if the page is held just then.
            let _unhandled = fs::write(HARD_OFFLINE, format!("{:#x}", number << 12));
        }
        Memory::existing(BASE, 1).set_word(0, 0, 1);
        0
    });
    let end = Instant::now() + 10 * USE;
    folder.clear_and_put_back(&entries, || ended.word(0, 0) == 0 && Instant::now() < end);
    assert_eq!(wait(failure), 0, "all pages should be reported");
    let space = entries[0].space;
    folder.domain.in_state(space, 0..PAGES, PageState::Poisoned)
}

fn a_page_whose_memory_fails_is_taken_from_its_process(context: &mut Context) {
    if !kernel_deals_with_failures() {
        return;
    }
    let mapped = with_faults(context, SLOW_EXCHANGE, mapped_though_failed);
    assert_eq!(mapped, 0, "a failed page should not stay mapped");
}
