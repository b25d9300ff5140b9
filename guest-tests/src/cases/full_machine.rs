//! Calls on a machine whose memory is used up.
//!
//! # Problem
//! Merging is needed most when memory is short, and its own memory (requests, frames, spaces,
//! domains) then competes with the processes that it should help. No process may be killed for it.
//!
//! # Approach
//! A hog takes memory until next to nothing is left above the marks at which the kernel's ordinary
//! allocations begin to kill; there is no swap and hardly a file to reclaim. It goes on taking the
//! memory that merging gives back. Many callers at once then make the largest calls there are. Many
//! more are stuck in the middle of a call, because the page for their answer never comes: they hold
//! all memory that the module allocates for a request. All memory of the callers was touched
//! before, so later allocations are the module's, or so small that the rest suffices.
//!
//! The hog's own pages are ordinary allocations: calls that take the rest between the hog's check
//! and its allocation make the kernel kill for the hog. The kernel's log names the requesting
//! process, and the hog has a name of its own. A machine filled too far by the hog proves nothing
//! and is filled again; a request of any other process fails the test.

use std::ffi::CStr;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use uksm_linux::module::{Device, Error, raw};
use uksm_policy::command::{FoldBatch, FoldKind, FrameId, Page, Reason, Run, SpaceId, Status};

use super::Context;
use crate::fixtures::accounting::{SteadyMarks, events, usable_pages};
use crate::fixtures::domain::{Domain, LINES, Permit, address, entry};
use crate::fixtures::memory::{BASE, Huge, Memory};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, pause, pidfd, pipe, signal, wait};
use crate::fixtures::userfault::page_that_is_never_written;

cases! { "full_machine":
    calls_on_a_full_machine_fail_and_kill_nobody Normal Stock 600,
}

const PAGES: usize = 4096;
const SEED: u64 = 47;
/// Processes that call at once.
const CALLERS: usize = 16;
/// Pages of each target that a caller folds: as many as one call takes.
const SHARE: usize = PAGES / CALLERS;
/// Processes that are stuck in a call.
const STUCK: usize = 96;
/// Number of times that each caller makes all calls.
const ROUNDS: usize = 20;
/// Pages that the hog leaves to ordinary allocations. The requests of all stuck processes are four
/// times as much, if the module copies each as a whole.
const LEFT: u64 = 640;
/// Addresses of the own memory of the hog and the callers.
const OTHER: u64 = BASE + (1 << 33);
/// Name of the process that takes the memory.
const HOG: &CStr = c"hog";
/// Number of times that the hog may itself take the last page.
const TRIES: usize = 4;

/// Takes memory whenever more than [`LEFT`] pages are usable, until it is killed.
fn hog() -> ! {
    // SAFETY: the name is a string that outlives the call.
    let named = unsafe { libc::prctl(libc::PR_SET_NAME, HOG.as_ptr()) };
    assert_eq!(named, 0, "a name for the hog");
    const STEP: usize = 16;
    let pages = 1 << 20;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let mut memory = Memory::at(OTHER, pages, flags, -1);
    memory.advise_huge(Huge::Never);
    let mut taken = 0;
    loop {
        let more = usable_pages(None).saturating_sub(LEFT);
        // Large steps while the end is far.
        let step = if more > 8192 { 4096 } else { STEP };
        if more < STEP as u64 {
            sleep(Duration::from_millis(2));
            continue;
        }
        for page in taken..taken + step {
            memory.set_word(page, 0, page as u64);
        }
        taken += step;
    }
}

/// Whether a call succeeded; lack of memory is the only other permitted answer.
fn taken<T>(what: &str, result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.errno() == Some(Errno::NOMEM) => None,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// The state of a caller, all of it touched before memory is short.
struct Caller {
    domain: Domain,
    runs: Vec<Run>,
    answer: Vec<Page>,
    batch: FoldBatch,
    spaces: [SpaceId; 2],
    pidfds: [OwnedFd; 2],
    /// For domains of its own, which fold pages of the caller itself.
    own: OwnedFd,
    pages: usize,
}

impl Caller {
    fn new(number: usize, domain: &Domain, peers: &[Peer; 2], spaces: [SpaceId; 2]) -> Caller {
        let share = number * SHARE..(number + 1) * SHARE;
        let entries = spaces.iter().flat_map(|&space| {
            share.clone().map(move |page| {
                let set = u16::try_from(page % SHARE).expect("a small set");
                entry(space, page, FoldKind::Set(set))
            })
        });
        let runs = (0..4096).map(|at| Run {
            start: address(at % (PAGES - 4)),
            space: spaces[at / 2048],
            count: 4,
            stride: 1,
        });
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut memory = Memory::at(OTHER, 32, flags, -1);
        memory.fill(SEED, 1);
        Caller {
            domain: Domain {
                device: domain.device.try_clone().expect("a copy of the file"),
            },
            runs: runs.collect(),
            answer: Vec::new(),
            batch: FoldBatch {
                entries: entries.collect(),
                lines: 0,
                split: false,
                locked: false,
                drain: false,
            },
            spaces,
            pidfds: [0, 1].map(|at: usize| pidfd(peers[at].pid()).expect("a pidfd")),
            own: pidfd(i32::try_from(std::process::id()).expect("a pid")).expect("a pidfd"),
            pages: memory.pages(),
        }
    }

    /// Makes every call while there is memory, without merging pages of the targets, so that
    /// buffers have their size and belong to this process.
    fn warm_up(&mut self) {
        let unknown = FoldKind::Frame(FrameId(u32::MAX >> 1));
        let entries = self.batch.entries.clone();
        self.batch
            .entries
            .iter_mut()
            .for_each(|entry| entry.kind = unknown);
        for _ in 0..2 {
            let _failed = self.round();
        }
        self.batch.entries = entries;
    }

    /// Makes every call once; returns the number that failed for lack of memory.
    fn round(&mut self) -> usize {
        let device = &mut self.domain.device;
        let sampled = device.sample(&self.runs, LINES, &mut self.answer);
        let folded = taken("FOLD", device.fold(&self.batch));
        let full = folded.as_ref().map_or(1, |outcomes| {
            outcomes
                .iter()
                .filter(|page| (page.status, page.reason) == (Status::Full, Reason::Memory))
                .count()
        });
        let attached = self
            .pidfds
            .each_ref()
            .map(|file| taken("ATTACH", device.attach(file.as_fd())).is_none());
        let start = self.batch.entries[0].address;
        let end = start + 16 * 4096;
        let broken = taken("BREAK", device.break_range(self.spaces[0], start, end));
        let listed = taken("FRAMES", device.frames(0, 512, LINES, false));
        let failed = [
            taken("SAMPLE", sampled).is_none(),
            attached.contains(&true),
            broken.is_none_or(|broken| broken.stopped),
            listed.is_none(),
            self.first_fold().is_none(),
        ];
        full + failed.iter().filter(|&&failed| failed).count()
    }

    /// A new domain, its first space and its first FOLD.
    fn first_fold(&mut self) -> Option<()> {
        let mut device = match Device::open() {
            Err(Error::Open { errno, .. }) if errno == Errno::NOMEM => return None,
            other => other.unwrap_or_else(|error| panic!("{error}")),
        };
        let space = taken("ATTACH", device.attach(self.own.as_fd()))?.space;
        let entries = (0..self.pages)
            .map(|page| uksm_policy::command::FoldEntry {
                address: OTHER + (page * 4096) as u64,
                ..entry(space, 0, FoldKind::Set(0))
            })
            .collect();
        let batch = FoldBatch {
            entries,
            lines: 0,
            split: false,
            locked: false,
            drain: false,
        };
        taken("FOLD", device.fold(&batch)).map(drop)
    }
}

/// Makes this process keep its heap, and gives it plenty.
fn keep_heap() {
    const PLENTY: usize = 4 << 20;
    for parameter in [libc::M_TRIM_THRESHOLD, libc::M_MMAP_THRESHOLD] {
        // SAFETY: mallopt changes how the heap grows and shrinks, nothing that is in it.
        let set = unsafe { libc::mallopt(parameter, 1 << 30) };
        assert_eq!(set, 1, "mallopt");
    }
    let mut heap = vec![1u8; PLENTY];
    std::hint::black_box(&mut heap);
}

/// Writes to a pipe without allocating.
fn write_all(pipe: &OwnedFd, bytes: &[u8]) {
    // SAFETY: the bytes outlive the call.
    let written = unsafe { libc::write(pipe.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    assert_eq!(usize::try_from(written), Ok(bytes.len()), "a pipe has room");
}

/// Forks a caller, which reports that it is ready, waits for a byte before it begins, and reports
/// the number of calls that failed for lack of memory.
fn caller(mut caller: impl FnMut() -> Caller, start: &OwnedFd, result: &OwnedFd) -> i32 {
    fork(move || {
        keep_heap();
        let mut caller = caller();
        caller.warm_up();
        write_all(result, &[1]);
        wait_for_the_word(start);
        let failed: usize = (0..ROUNDS).map(|_| caller.round()).sum();
        write_all(result, &failed.to_ne_bytes());
        0
    })
}

/// Forks a process that is stuck in the largest SAMPLE, if it gets that far, until it is killed.
fn stuck(domain: &Domain, space: SpaceId, start: &OwnedFd, result: &OwnedFd) -> i32 {
    fork(|| {
        let answer = page_that_is_never_written();
        let runs: Vec<raw::uksm_run> = (0..raw::UKSM_MAX_RUNS)
            .map(|page| raw::uksm_run {
                start: address(page % PAGES),
                space: space.0,
                count: 1,
                stride: 1,
                pad: 0,
            })
            .collect();
        let count = u32::try_from(runs.len()).expect("a bounded request");
        let mut request = raw::uksm_sample {
            runs: runs.as_ptr() as u64,
            pages: answer,
            nr_runs: count,
            nr_pages: count,
            ..Default::default()
        };
        write_all(result, &[1]);
        wait_for_the_word(start);
        let device = domain.device.as_fd().as_raw_fd();
        // SAFETY: the module reads the runs, which outlive the call, and writes answers to memory
        // of this process that it owns.
        let _no_memory =
            unsafe { libc::ioctl(device, raw::UKSM_IOC_SAMPLE.into(), &raw mut request) };
        pause()
    })
}

fn wait_for_the_word(start: &OwnedFd) {
    let mut byte = 0u8;
    // SAFETY: the byte outlives the call.
    let read = unsafe { libc::read(start.as_raw_fd(), (&raw mut byte).cast(), 1) };
    assert_eq!(read, 1, "the word to begin");
}

/// The lines of the kernel's log on kills for processes other than the hog, each with its trace.
/// Those that a process caused by an access of its own, outside any call, are left out.
fn asked_by_others(log: &[String]) -> Vec<&[String]> {
    const MAX_TRACE_LINES: usize = 100;
    let hog = HOG.to_str().expect("a name in ASCII");
    let asked = |line: &str| line.contains("invoked oom-killer");
    let traces = log
        .iter()
        .enumerate()
        .filter(|(_, line)| asked(line) && !line.starts_with(hog))
        .map(|(at, _)| {
            let lines = &log[at..log.len().min(at + MAX_TRACE_LINES)];
            let end = lines.iter().position(|line| line.contains("</TASK>"));
            &lines[..end.unwrap_or(lines.len())]
        });
    let has = |lines: &[String], name: &str| lines.iter().any(|line| line.contains(name));
    traces
        .filter(|lines| has(lines, "entry_SYSCALL_64") || !has(lines, "asm_exc_page_fault"))
        .collect()
}

fn calls_on_a_full_machine_fail_and_kill_nobody(context: &mut Context) {
    let _marks = SteadyMarks::set();
    for _ in 0..TRIES {
        let kills = events("oom_kill");
        let failed = call_on_a_full_machine();
        let log = context.kernel_log().expect("the kernel's log");
        let asked = asked_by_others(&log);
        assert!(asked.is_empty(), "only the hog may ask: {asked:#?}");
        if events("oom_kill") == kills {
            context.note(format!(
                "{failed} calls and entries failed for want of memory"
            ));
            assert!(failed > 0, "the machine should have been full");
            return;
        }
        context.note("the hog took the last page itself".to_owned());
    }
    panic!("the hog took the last page itself {TRIES} times");
}

/// Fills the machine, makes all calls, and checks that all is well when memory is free again;
/// returns the number of calls that failed for lack of memory.
fn call_on_a_full_machine() -> usize {
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = Domain::open();
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let (start, begin) = pipe();
    let (results, result) = pipe();
    let callers: Vec<i32> = (0..CALLERS)
        .map(|number| {
            caller(
                || Caller::new(number, &domain, &peers, spaces),
                &start,
                &result,
            )
        })
        .collect();
    let stuck: Vec<i32> = (0..STUCK)
        .map(|at| stuck(&domain, spaces[at % 2], &start, &result))
        .collect();
    drop(result);
    let mut results = fs::File::from(results);
    results
        .read_exact(&mut [0; CALLERS + STUCK])
        .expect("callers that are ready");

    let hog = fork(|| hog());
    let bound = Instant::now() + Duration::from_secs(240);
    while usable_pages(None) > LEFT + 64 {
        assert!(Instant::now() < bound, "the hog should take all memory");
        sleep(Duration::from_millis(10));
    }
    write_all(&begin, &[0; CALLERS + STUCK]);
    let statuses: Vec<i32> = callers.into_iter().map(wait).collect();
    let stuck = stuck.into_iter().chain([hog]).filter(|&pid| {
        signal(pid, libc::SIGKILL);
        wait(pid) != libc::SIGKILL
    });
    let ended = stuck.count();

    let mut text = Vec::new();
    results
        .read_to_end(&mut text)
        .expect("the callers' results");
    let failed: usize = text
        .chunks_exact(size_of::<usize>())
        .map(|bytes| usize::from_ne_bytes(bytes.try_into().expect("a number")))
        .sum();
    assert!(
        statuses.iter().all(|&status| status == 0),
        "{statuses:x?} of the callers"
    );
    assert_eq!(ended, 0, "processes ended before they were killed");

    // With memory again, all calls succeed.
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(
        counts.merged() + counts.of(Status::Already),
        2 * PAGES,
        "{counts:?}"
    );
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    assert!(domain.unmerge(spaces[0], 0..PAGES) > 0);
    for peer in peers {
        peer.exit();
    }
    domain.assert_all_frames_return();
    failed
}
