//! Memory that userfaultfd watches.
//!
//! # Problem
//! Virtual machines restored from a snapshot have each page copied into them by a handler
//! (UFFDIO_COPY), so all of them hold the same pages: the largest source of duplicates that
//! no other deduplication reaches. The handler must not notice a merge.
//!
//! # Approach
//! Peers register their memory and fill it as such a handler does. Merged pages must raise the same
//! events as before when they are gone; where writes are tracked no page may be merged, and the
//! tracking must show the same pages as without the module.
//!
//! # Source
//! Documentation/admin-guide/mm/userfaultfd.rst of the kernel.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use uksm_policy::command::{FoldKind, PageState, Reason, Status};

use super::Context;
use crate::fixtures::contents::{Content, PAGE};
use crate::fixtures::domain::{Domain, Permit, entry};
use crate::fixtures::pagemap::entries;
use crate::fixtures::peer::{Own, Peer};
use crate::fixtures::userfault::{MISSING, WP_ASYNC, WP_UNPOPULATED, WRITE_PROTECT, WatchedRange};

cases! { "userfault":
    pages_copied_from_one_snapshot_merge Normal Stock 60,
    a_merged_page_that_is_dropped_raises_the_event_again Normal Stock 60,
    a_handler_that_never_answers_stops_nobody Normal Stock 60,
    memory_whose_writes_are_tracked_is_refused Normal Stock 60,
    tracking_of_writes_shows_what_was_written_and_nothing_else Normal Stock 60,
}

const PAGES: usize = 128;
const SEED: u64 = 43;
const EVENT_PAGEFAULT: u8 = 0x12;

/// A restored virtual machine: each page comes from the snapshot through a handler.
fn restore(own: &mut Own) -> WatchedRange {
    let watch = WatchedRange::new(&own.memory, PAGES, MISSING);
    for page in 0..PAGES {
        watch.copy(own.memory.address(page), Content::new(SEED, page as u64));
    }
    watch
}

fn restored() -> Peer {
    let mut peer = Peer::new(PAGES);
    peer.run(|own| std::mem::forget(restore(own)));
    peer
}

fn pages_copied_from_one_snapshot_merge(_: &mut Context) {
    let mut peers = [restored(), restored()];
    let mut domain = Domain::open();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    peers[0].run(|own| own.memory.flip(0..PAGES));
    assert_eq!(
        peers[1].run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        0
    );
    assert_eq!(domain.unmerge(spaces[1], 0..PAGES), PAGES as u64);
    assert_eq!(
        peers[1].run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        0
    );
    for peer in peers {
        peer.exit();
    }
    domain.assert_all_frames_return();
}

fn a_merged_page_that_is_dropped_raises_the_event_again(_: &mut Context) {
    const DROPPED: usize = 7;
    let mut a = Peer::new(PAGES);
    // The handler's file stays with the peer, for the second order.
    let file = a.run(|own| {
        let watch = restore(own);
        let file = watch.0.as_raw_fd();
        std::mem::forget(watch);
        file
    });
    let b = restored();
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    let right = a.run(move |own| {
        // SAFETY: the descriptor was left open by the order before, and has no other owner.
        let watch = WatchedRange(unsafe { OwnedFd::from_raw_fd(file) });
        let memory = &own.memory;
        memory
            .advise(DROPPED..DROPPED + 1, libc::MADV_DONTNEED)
            .expect("MADV_DONTNEED");
        let handler = std::thread::spawn(move || {
            let (event, address) = watch.event();
            watch.copy(address & !(PAGE as u64 - 1), Content::new(SEED, 999));
            (event, address & !(PAGE as u64 - 1))
        });
        let holds = memory.holds(DROPPED, Content::new(SEED, 999));
        let seen = handler.join().expect("the handler");
        holds && seen == (EVENT_PAGEFAULT, memory.address(DROPPED))
    });
    assert!(right, "the handler should be asked for the page as before");
    let changed = a.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES));
    assert_eq!(changed, 1, "the dropped page, and no other");
}

fn a_handler_that_never_answers_stops_nobody(_: &mut Context) {
    const EMPTY: usize = 5;
    let mut a = Peer::new(PAGES);
    a.run(|own| {
        let watch = restore(own);
        own.memory
            .advise(EMPTY..EMPTY + 1, libc::MADV_DONTNEED)
            .expect("MADV_DONTNEED");
        std::mem::forget(watch);
    });
    let b = restored();
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    // Waits in its fault for ever: the event is not read.
    let waiting = a.begin(|own| own.memory.word(EMPTY, 0));
    std::thread::sleep(std::time::Duration::from_millis(50));
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * (PAGES - 1), "{counts:?}");
    assert_eq!(counts.with(Status::Gone, Reason::Unmapped), 1, "{counts:?}");
    assert_eq!(domain.in_state(spaces[0], 0..PAGES, PageState::None), 1);
    assert_eq!(
        domain.unmerge(spaces[0], 0..PAGES),
        PAGES as u64 - 1,
        "the page that is missing is not asked for"
    );
    let _never = waiting;
    drop(a);
    b.exit();
    domain.assert_all_frames_return();
}

fn memory_whose_writes_are_tracked_is_refused(_: &mut Context) {
    for mode in [WRITE_PROTECT, MISSING | WRITE_PROTECT] {
        let mut a = Peer::filled(PAGES, SEED, PAGES);
        let b = Peer::filled(PAGES, SEED, PAGES);
        a.run(move |own| std::mem::forget(WatchedRange::new(&own.memory, PAGES / 2, mode)));
        let mut domain = Domain::open();
        let spaces = [domain.attach(&a), domain.attach(&b)];
        assert_eq!(
            domain.in_state(spaces[0], 0..PAGES, PageState::Refused),
            PAGES / 2
        );
        let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
        assert_eq!(
            counts.with(Status::Refused, Reason::Userfault),
            PAGES / 2,
            "{counts:?}"
        );
        assert_eq!(
            counts.with(Status::Differed, Reason::Alone),
            PAGES / 2,
            "{counts:?}"
        );
        assert_eq!(counts.merged(), PAGES, "the rest should merge: {counts:?}");
        assert_eq!(a.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}

/// Tracks writes, folds all the time, writes every third page; checks the pages that count as
/// written.
fn tracking_of_writes_shows_what_was_written_and_nothing_else(_: &mut Context) {
    let mut a = Peer::filled(PAGES, SEED, PAGES);
    let b = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    // Pages merged before their tracking begins are tracked like others.
    let counts = domain.merge(&spaces, 0..PAGES / 2, Permit::default());
    assert_eq!(counts.merged(), PAGES, "{counts:?}");
    let is_async = a.run(|own| {
        let features = WP_ASYNC | WP_UNPOPULATED;
        let watch = WatchedRange::try_new(&own.memory, PAGES, WRITE_PROTECT, features);
        let is_async = watch.is_some();
        let watch = watch.unwrap_or_else(|| WatchedRange::new(&own.memory, PAGES, WRITE_PROTECT));
        watch.write_protect(&own.memory, PAGES);
        std::mem::forget(watch);
        is_async
    });
    for page in 0..PAGES {
        for kind in [FoldKind::Set(0), FoldKind::Zero] {
            let outcome = domain.fold(&[entry(spaces[0], page, kind)], Permit::default());
            assert_eq!(outcome[0].reason, Reason::Userfault, "page {page}");
        }
    }
    let written = |page: usize| is_async && page.is_multiple_of(3);
    if is_async {
        a.run(|own| {
            for page in (0..PAGES).step_by(3) {
                own.memory.flip(page..page + 1);
            }
        });
    }
    for (page, entry) in entries(a.pid(), 0..PAGES).iter().enumerate() {
        assert_eq!(
            entry.is_write_protected(),
            !written(page),
            "page {page}, asynchronous: {is_async}"
        );
    }
    // Breaking is a copy, not a write of the program.
    let _broken = domain.unmerge(spaces[0], 0..PAGES);
    for (page, entry) in entries(a.pid(), 0..PAGES).iter().enumerate() {
        assert_eq!(
            entry.is_write_protected(),
            !written(page),
            "page {page} after BREAK, asynchronous: {is_async}"
        );
    }
}
