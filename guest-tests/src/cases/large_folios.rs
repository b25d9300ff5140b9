//! Large folios that are smaller than a huge page.
//!
//! # Problem
//! Since Linux 6.8 the kernel can give a process folios of 16 KiB to 1 MiB at a fault, mapped page
//! by page. The module must split each before it merges a page of it; a part of a folio may be
//! unmapped; and the daemon, which decides for 2 MiB at a time, must not spend more on them than
//! they are worth.
//!
//! # Approach
//! `hugepages-SIZE/enabled` is set for one size, and nothing else makes large folios. Two processes
//! with equal pages are merged, written, broken and thrown away in parts, with the module alone;
//! and by a daemon, whose CPU time is compared with that for the same memory in small pages. On a
//! kernel without the switch the test reports that.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use uksm_policy::command::{Lines, PageFlags, SpaceId};

use super::Context;
use crate::fixtures::accounting::{number, set};
use crate::fixtures::daemon::{Daemon, cpu_time, status_text};
use crate::fixtures::domain::{Domain, Permit};
use crate::fixtures::memory::{BASE, Memory};
use crate::fixtures::pagemap;
use crate::fixtures::peer::Peer;

cases! { "large_folios":
    folios_of_each_size_are_merged_written_and_broken Normal Stock 120,
    folios_that_are_mapped_in_part_are_merged_and_freed Normal Stock 120,
    a_daemon_merges_large_folios_at_the_cost_of_small_pages Long Stock 240,
}

const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";
const SIZES: [usize; 3] = [16, 64, 1024];
const PAGES: usize = 1024;
const SEED: u64 = 67;

/// Faults bring folios of this size, until this is dropped, and none of 2 MiB.
struct Folios {
    path: String,
    all: String,
}

impl Folios {
    fn of(kib: usize) -> Option<Folios> {
        let path = format!("{FOLDER}/hugepages-{kib}kB/enabled");
        if !Path::new(&path).exists() {
            return None;
        }
        let text = fs::read_to_string(format!("{FOLDER}/enabled")).expect("a setting");
        let (_, rest) = text.split_once('[')?;
        let all = rest.split_once(']')?.0.to_owned();
        set(&format!("{FOLDER}/enabled"), "never");
        set(&path, "always");
        Some(Folios { path, all })
    }
}

impl Drop for Folios {
    fn drop(&mut self) {
        set(&self.path, "never");
        set(&format!("{FOLDER}/enabled"), &self.all);
    }
}

/// A process with equal pages in folios of the kernel's default policy; its own advice would forbid
/// them.
fn peer(pages: usize) -> Peer {
    let mut peer = Peer::new(1);
    peer.run(move |own| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        own.memory = Memory::at(BASE, pages, flags, -1);
        own.memory.fill(SEED, pages);
    });
    peer
}

fn pair() -> ([Peer; 2], Domain, [SpaceId; 2]) {
    let peers = [(); 2].map(|()| peer(PAGES));
    let mut domain = Domain::open();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    for space in spaces {
        let pages = domain.sample(space, 0..PAGES, Lines { from: 0, to: 0 });
        let large = pages.iter().filter(|page| page.flags.any(PageFlags::HUGE));
        let large = large.count();
        assert!(large > PAGES * 9 / 10, "{large} pages are in large folios");
    }
    (peers, domain, spaces)
}

fn assert_intact(peer: &mut Peer, pages: std::ops::Range<usize>) {
    assert_eq!(
        peer.run(move |own| own.memory.changed(SEED, PAGES, pages.start..pages.end)),
        0
    );
}

fn may_split() -> Permit {
    Permit {
        split: true,
        ..Permit::default()
    }
}

fn folios_of_each_size_are_merged_written_and_broken(context: &mut Context) {
    for kib in SIZES {
        let Some(_folios) = Folios::of(kib) else {
            return context.note("this kernel gives no large folios below 2 MiB");
        };
        let ([mut a, mut b], mut domain, spaces) = pair();
        let counts = domain.merge(&spaces, 0..PAGES, may_split());
        assert_eq!(counts.merged(), 2 * PAGES, "{kib} KiB: {counts:?}");
        let splits = domain.info().splits;
        let folios = 2 * PAGES * 4 / kib;
        assert!(
            splits <= folios as u64,
            "{kib} KiB: {splits} splits of {folios} folios"
        );
        assert!(
            splits >= folios as u64 * 9 / 10,
            "{kib} KiB: {splits} splits of {folios} folios"
        );
        assert_intact(&mut a, 0..PAGES);
        // One process writes half of it, and only that one sees the writes.
        a.run(|own| own.memory.flip(0..PAGES / 2));
        assert_intact(&mut b, 0..PAGES);
        assert_intact(&mut a, PAGES / 2..PAGES);
        assert_eq!(domain.unmerge(spaces[1], 0..PAGES), PAGES as u64);
        a.run(|own| own.memory.flip(0..PAGES / 2));
        assert_intact(&mut a, 0..PAGES);
        assert_intact(&mut b, 0..PAGES);
        a.exit();
        b.exit();
        domain.assert_all_frames_return();
    }
}

fn folios_that_are_mapped_in_part_are_merged_and_freed(context: &mut Context) {
    for kib in SIZES {
        let Some(_folios) = Folios::of(kib) else {
            return context.note("this kernel gives no large folios below 2 MiB");
        };
        let ([mut a, mut b], mut domain, spaces) = pair();
        // Every fourth page goes, of one process only; and another fourth after it was merged.
        a.run(|own| {
            for page in (0..PAGES).step_by(4) {
                own.memory
                    .advise(page..page + 1, libc::MADV_DONTNEED)
                    .expect("madvise");
            }
        });
        let counts = domain.merge(&spaces, 0..PAGES, may_split());
        assert_eq!(counts.merged(), 2 * PAGES * 3 / 4, "{kib} KiB: {counts:?}");
        a.run(|own| {
            for page in (1..PAGES).step_by(4) {
                own.memory
                    .advise(page..page + 1, libc::MADV_DONTNEED)
                    .expect("madvise");
            }
        });
        let wrong = a.run(|own| {
            let is_gone = |page: usize| page % 4 < 2;
            (0..PAGES)
                .filter(|&page| match is_gone(page) {
                    true => !own.memory.is_zero(page),
                    false => own.memory.changed(SEED, PAGES, page..page + 1) != 0,
                })
                .count()
        });
        assert_eq!(wrong, 0, "{kib} KiB");
        assert_intact(&mut b, 0..PAGES);
        // Nothing is kept of unmapped pages: the process's count is the number of pages that it
        // maps.
        let anonymous =
            |peer: &Peer| number(&format!("/proc/{}/smaps_rollup", peer.pid()), "Anonymous") / 4;
        let of_a = anonymous(&a);
        assert!(of_a <= (PAGES / 2) as u64 + 200, "{kib} KiB: {of_a} pages");
        a.exit();
        b.exit();
        domain.assert_all_frames_return();
    }
}

/// CPU seconds of a daemon until 95 percent of two equal processes are merged and for a while
/// after, and its status then.
fn merged_by_a_daemon(pages: usize) -> (f64, String) {
    let pair = [(); 2].map(|()| peer(pages));
    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], &[]);
    let end = Instant::now() + Duration::from_secs(60);
    while pagemap::shared(pair[0].pid(), pair[1].pid(), pages) < pages * 95 / 100 {
        daemon.assert_running();
        assert!(Instant::now() < end, "{}", status_text());
        sleep(Duration::from_millis(100));
    }
    sleep(Duration::from_secs(8));
    let taken = (cpu_time(&daemon).as_secs_f64(), status_text());
    daemon.stop();
    taken
}

fn a_daemon_merges_large_folios_at_the_cost_of_small_pages(context: &mut Context) {
    const MANY: usize = 8192;
    let Some(folios) = Folios::of(64) else {
        return context.note("this kernel gives no large folios below 2 MiB");
    };
    let mut taken = vec![];
    for _ in 0..5 {
        let (seconds, status) = merged_by_a_daemon(MANY);
        context.note(format!("{seconds:.2} s {status}"));
        taken.push(seconds);
    }
    drop(folios);
    let (small, _) = merged_by_a_daemon(MANY);
    context.note(format!("{taken:?}, small pages {small:.2} s"));
    let most = taken.iter().copied().fold(0.0, f64::max);
    assert!(
        most < 3.0 * small + 0.5,
        "{taken:?} s, and {small} s for small pages"
    );
}
