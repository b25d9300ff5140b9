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
use crate::fixtures::memory::Memory;
use crate::fixtures::pagemap::entries;
use crate::fixtures::peer::{Own, Peer};

cases! { "userfault":
    pages_copied_from_one_snapshot_merge Normal Stock 60,
    a_merged_page_that_is_dropped_raises_the_event_again Normal Stock 60,
    a_handler_that_never_answers_stops_nobody Normal Stock 60,
    memory_whose_writes_are_tracked_is_refused Normal Stock 60,
    tracking_of_writes_shows_what_was_written_and_nothing_else Normal Stock 60,
}

const PAGES: usize = 128;
const SEED: u64 = 43;

const API: u64 = 0xAA;
/// Modes of registration.
pub(super) const MISSING: u64 = 1;
pub(super) const WRITE_PROTECT: u64 = 2;
/// Tracking without a handler, since 6.7; it needs the feature of unpopulated entries.
pub(super) const WP_UNPOPULATED: u64 = 1 << 13;
pub(super) const WP_ASYNC: u64 = 1 << 15;
const EVENT_PAGEFAULT: u8 = 0x12;

#[repr(C)]
#[derive(Default)]
struct UffdApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct UffdRegister {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdCopy {
    to: u64,
    from: u64,
    length: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
struct UffdWriteProtect {
    start: u64,
    length: u64,
    mode: u64,
}

/// `struct uffd_msg`, of a page fault.
#[repr(C)]
#[derive(Default)]
struct UffdMessage {
    event: u8,
    pad: [u8; 7],
    flags: u64,
    address: u64,
    thread: u64,
}

nix::ioctl_readwrite!(uffd_api, 0xAA, 0x3F, UffdApi);
nix::ioctl_readwrite!(uffd_register, 0xAA, 0x00, UffdRegister);
nix::ioctl_readwrite!(uffd_copy, 0xAA, 0x03, UffdCopy);
nix::ioctl_readwrite!(uffd_write_protect, 0xAA, 0x06, UffdWriteProtect);

/// A userfaultfd of this process with a range registered.
pub(super) struct Watch(OwnedFd);

impl Watch {
    /// Registers the first `pages` pages; `None` if this kernel lacks one of the features.
    pub(super) fn try_new(
        memory: &Memory,
        pages: usize,
        mode: u64,
        features: u64,
    ) -> Option<Watch> {
        // SAFETY: the system call makes a file and touches no memory.
        let file = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let file = i32::try_from(file).expect("file descriptors fit an int");
        assert!(
            file >= 0,
            "userfaultfd: {}",
            std::io::Error::last_os_error()
        );
        // SAFETY: the kernel has just given this descriptor to us.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let mut api = UffdApi {
            api: API,
            features,
            ..UffdApi::default()
        };
        // SAFETY: the structure is the one of the request.
        unsafe { uffd_api(file.as_raw_fd(), &raw mut api) }.ok()?;
        let mut register = UffdRegister {
            start: memory.address(0),
            length: (pages * PAGE) as u64,
            mode,
            ..UffdRegister::default()
        };
        // SAFETY: the structure is the one of the request; the range is this process's own.
        unsafe { uffd_register(file.as_raw_fd(), &raw mut register) }.expect("UFFDIO_REGISTER");
        Some(Watch(file))
    }

    pub(super) fn new(memory: &Memory, pages: usize, mode: u64) -> Watch {
        Watch::try_new(memory, pages, mode, 0).expect("UFFDIO_API")
    }

    /// Copies a page to an empty place.
    pub(super) fn copy(&self, to: u64, content: Content) {
        let bytes = content.bytes();
        let mut copy = UffdCopy {
            to,
            from: bytes.as_ptr() as u64,
            length: PAGE as u64,
            mode: 0,
            copied: 0,
        };
        // SAFETY: `bytes` is a page long; the target range is this process's own and empty.
        unsafe { uffd_copy(self.0.as_raw_fd(), &raw mut copy) }.expect("UFFDIO_COPY");
    }

    pub(super) fn write_protect(&self, memory: &Memory, pages: usize) {
        let mut protect = UffdWriteProtect {
            start: memory.address(0),
            length: (pages * PAGE) as u64,
            mode: 1,
        };
        // SAFETY: the structure is the one of the request; the range is registered.
        unsafe { uffd_write_protect(self.0.as_raw_fd(), &raw mut protect) }
            .expect("UFFDIO_WRITEPROTECT");
    }

    /// Waits for the next event: its kind, and its address.
    fn event(&self) -> (u8, u64) {
        let mut message = UffdMessage::default();
        // SAFETY: the structure is the one that the kernel writes, and outlives the call.
        let read = unsafe {
            libc::read(
                self.0.as_raw_fd(),
                (&raw mut message).cast(),
                size_of::<UffdMessage>(),
            )
        };
        assert_eq!(read, 32, "an event should be read");
        (message.event, message.address)
    }
}

/// Watches all of `memory` for missing pages, as long as this process lives. There is no handler:
/// an access to a missing page waits for ever.
pub(crate) fn watch_for_ever(memory: &Memory) {
    std::mem::forget(Watch::new(memory, memory.pages(), MISSING));
}

/// The address of a watched page of this process that is never provided. Its page table exists: an
/// access to the page waits without having requested memory.
pub(crate) fn page_that_never_comes() -> u64 {
    let mut memory = Memory::anonymous(2, crate::fixtures::memory::Huge::Never);
    // While both pages are one mapping: then the allocations of a first fault are already made.
    memory.set_word(1, 0, 1);
    std::mem::forget(Watch::new(&memory, 1, MISSING));
    memory.address(0)
}

/// A restored virtual machine: each page comes from the snapshot through a handler.
fn restore(own: &mut Own) -> Watch {
    let watch = Watch::new(&own.memory, PAGES, MISSING);
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
        let watch = Watch(unsafe { OwnedFd::from_raw_fd(file) });
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
        a.run(move |own| std::mem::forget(Watch::new(&own.memory, PAGES / 2, mode)));
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
        let watch = Watch::try_new(&own.memory, PAGES, WRITE_PROTECT, features);
        let is_async = watch.is_some();
        let watch = watch.unwrap_or_else(|| Watch::new(&own.memory, PAGES, WRITE_PROTECT));
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
