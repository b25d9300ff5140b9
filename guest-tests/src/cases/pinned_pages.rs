//! Pages with references, before and after a merge.
//!
//! # Problem
//! The holder of a reference to a page reads or writes it without the page table. If such a page is
//! merged, writes through the reference are lost; if a merged page is pinned for writing, the
//! writes reach all processes that share it.
//!
//! # Approach
//! vmsplice (references) and io_uring fixed buffers (pins) are taken before a merge, which must
//! leave the page alone, and after one, when the kernel must unshare first. The same functions
//! are used by the negative control that turns the reference check off.

use uksm_policy::command::{Lines, PageFlags, PageState, Reason, Status};

use super::Context;
use crate::fixtures::contents::Content;
use crate::fixtures::domain::{Domain, OutcomeCounts, Permit};
use crate::fixtures::peer::Peer;
use crate::fixtures::pins::{FixedBuffers, Splice};

cases! { "pinned_pages":
    pages_in_a_pipe_are_busy_until_they_are_read Normal Stock 60,
    a_pipe_keeps_the_contents_of_merged_pages_that_are_written Normal Stock 60,
    fixed_buffers_are_busy_and_receive_what_is_read_into_them Normal Stock 60,
    registering_merged_pages_unshares_them Normal Stock 60,
    only_pages_with_references_are_flagged_as_pinned Normal Stock 60,
}

const PAGES: usize = 128;
const PINNED: usize = 32;
const SEED: u64 = 14;
const RECEIVED: u64 = 15;

fn pair() -> (Peer, Peer) {
    (
        Peer::filled(PAGES, SEED, PAGES),
        Peer::filled(PAGES, SEED, PAGES),
    )
}

fn merge(domain: &mut Domain, a: &Peer, b: &Peer) -> OutcomeCounts {
    let spaces = [domain.attach(a), domain.attach(b)];
    domain.merge(&spaces, 0..PAGES, Permit::default())
}

fn assert_intact(peer: &mut Peer, from: usize) {
    assert_eq!(
        peer.run(move |own| own.memory.changed(SEED, PAGES, from..PAGES)),
        0
    );
}

fn pages_in_a_pipe_are_busy_until_they_are_read(_: &mut Context) {
    let (mut a, mut b) = pair();
    let mut domain = Domain::open();
    a.run(|own| own.splice = Some(Splice::new(&own.memory, 0..PINNED)));
    let counts = merge(&mut domain, &a, &b);
    assert_eq!(
        counts.with(Status::Busy, Reason::Pinned),
        PINNED,
        "{counts:?}"
    );
    assert_eq!(
        counts.with(Status::Differed, Reason::Alone),
        PINNED,
        "{counts:?}"
    );
    assert_eq!(counts.merged(), 2 * (PAGES - PINNED), "{counts:?}");
    assert_eq!(a.run(read_pipe), 0, "the pipe should hold the old contents");
    let counts = merge(&mut domain, &a, &b);
    assert_eq!(
        counts.merged(),
        2 * PINNED,
        "without references the pages merge: {counts:?}"
    );
    assert_intact(&mut a, 0);
    assert_intact(&mut b, 0);
}

fn read_pipe(own: &mut crate::fixtures::peer::Own) -> usize {
    let splice = own.splice.take().expect("pages in a pipe");
    splice.changed(|page| Content::new(SEED, page as u64))
}

fn a_pipe_keeps_the_contents_of_merged_pages_that_are_written(_: &mut Context) {
    let (mut a, mut b) = pair();
    let mut domain = Domain::open();
    assert_eq!(merge(&mut domain, &a, &b).merged(), 2 * PAGES);
    a.run(|own| {
        own.splice = Some(Splice::new(&own.memory, 0..PINNED));
        own.memory.flip(0..PINNED);
    });
    assert_eq!(
        a.run(read_pipe),
        0,
        "the pipe should hold what was there when it was filled"
    );
    a.run(|own| own.memory.flip(0..PINNED));
    assert_intact(&mut a, 0);
    assert_intact(&mut b, 0);
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}

/// Pins, merges, and makes the kernel write through the pins; returns the pages that did not
/// receive it.
pub(super) fn lost_after_pinning_before_a_merge() -> (OutcomeCounts, usize) {
    let (a, mut b) = pair();
    let mut domain = Domain::open();
    b.run(|own| own.buffers = Some(FixedBuffers::new(&own.memory, 0..PINNED)));
    let counts = merge(&mut domain, &a, &b);
    (counts, b.run(receive))
}

fn receive(own: &mut crate::fixtures::peer::Own) -> usize {
    own.buffers
        .as_mut()
        .expect("registered buffers")
        .receive(RECEIVED);
    own.memory.changed(RECEIVED, PAGES, 0..PINNED)
}

fn fixed_buffers_are_busy_and_receive_what_is_read_into_them(_: &mut Context) {
    let (counts, lost) = lost_after_pinning_before_a_merge();
    assert_eq!(
        counts.with(Status::Busy, Reason::Pinned),
        PINNED,
        "{counts:?}"
    );
    // Their partners came first and became frames before the pins were met.
    assert_eq!(counts.merged(), 2 * PAGES - PINNED, "{counts:?}");
    assert_eq!(
        lost, 0,
        "what the kernel writes through a pin should be seen by the process"
    );
}

fn registering_merged_pages_unshares_them(_: &mut Context) {
    let (mut a, mut b) = pair();
    let mut domain = Domain::open();
    assert_eq!(merge(&mut domain, &a, &b).merged(), 2 * PAGES);
    a.run(|own| own.buffers = Some(FixedBuffers::new(&own.memory, 0..PINNED)));
    let space = domain.attach(&a);
    assert_eq!(
        domain.in_state(space, 0..PINNED, PageState::Anon),
        PINNED,
        "pins unshare"
    );
    assert_eq!(
        a.run(receive),
        0,
        "what is read into the buffer should be seen"
    );
    assert_intact(&mut a, PINNED);
    assert_intact(&mut b, 0);
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}

fn only_pages_with_references_are_flagged_as_pinned(_: &mut Context) {
    let (mut a, _b) = pair();
    a.run(|own| own.buffers = Some(FixedBuffers::new(&own.memory, 0..PINNED)));
    let mut domain = Domain::open();
    let space = domain.attach(&a);
    // An empty fold with a drain, so that pages on their way to the LRU have no extra reference.
    let _nothing = domain.fold(&[], Permit::default());
    let pages = domain.sample(space, 0..PAGES, Lines { from: 0, to: 0 });
    let pinned = |page: &uksm_policy::command::Page| page.flags.any(PageFlags::PINNED);
    assert!(
        pages[..PINNED].iter().all(pinned),
        "registered pages should be flagged"
    );
    assert!(
        !pages[PINNED..].iter().any(pinned),
        "other pages should not be flagged"
    );
}
