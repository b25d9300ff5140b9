//! Frames whose memory has failed.
//!
//! # Problem
//! The kernel marks a page whose memory the hardware reports as failing. It cannot find the
//! mappings of a frame, so it unmaps none, and a frame has many. Reading it again could stop the
//! machine, and each further mapping would be one more victim.
//!
//! # Approach
//! `hard_offline_page` reports a failure of the page under a frame to the kernel, as a driver of
//! the hardware does. The memory is in fact good, so targets still read the right contents.

use std::thread::sleep;
use std::time::{Duration, Instant};

use uksm_policy::command::{FoldKind, FrameId, PageState, Reason, Status};

use super::Context;
use crate::fixtures::domain::{Domain, LINES, Permit, entry};
use crate::fixtures::fault_switches::{FAIL_COPY, with_faults};
use crate::fixtures::memory_failure::{KPF_HWPOISON, fail, kernel_deals_with_failures};
use crate::fixtures::pagemap::{kernel_flags, pfns};
use crate::fixtures::peer::Peer;

cases! { "failed_memory":
    a_frame_whose_memory_failed_is_left_alone_and_given_up Normal Stock 60,
    a_page_whose_memory_failed_is_left_alone Normal Stock 60,
    a_page_that_fails_while_it_is_copied_becomes_no_frame Normal Faults 60,
}

const PAGES: usize = 16;
const SEED: u64 = 41;

/// Such a page stops the machine only if it is read without care. The failure is reported to the
/// kernel, which takes the page away later; until then its process keeps it.
fn a_page_that_fails_while_it_is_copied_becomes_no_frame(context: &mut Context) {
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = Domain::open();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let number = pfns(peers[0].pid(), 0..1)[0];
    let pair = spaces.map(|space| entry(space, 0, FoldKind::Set(0)));
    let outcomes = with_faults(context, FAIL_COPY, || {
        domain.fold_with_retries(&pair, Permit::default())
    });
    assert_eq!(
        (outcomes[0].status, outcomes[0].reason),
        (Status::Refused, Reason::Poisoned)
    );
    assert_eq!(
        (outcomes[1].status, outcomes[1].reason),
        (Status::Differed, Reason::Alone),
        "a set of one page is not merged"
    );
    let info = domain.info();
    assert_eq!((info.frames, info.frames_made), (0, 0), "{info:?}");
    if kernel_deals_with_failures() {
        let end = Instant::now() + Duration::from_secs(10);
        while kernel_flags(number) >> KPF_HWPOISON & 1 == 0 {
            assert!(Instant::now() < end, "the failure should reach the kernel");
            sleep(Duration::from_millis(10));
        }
    } else {
        assert_eq!(pfns(peers[0].pid(), 0..1)[0], number);
        assert_eq!(peers[0].run(|own| own.memory.changed(SEED, PAGES, 0..1)), 0);
    }
    // The preallocated frame serves the next pages.
    let counts = domain.merge(&spaces, 1..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * (PAGES - 1), "{counts:?}");
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 1..PAGES)), 0);
    }
    assert_eq!(peers[1].run(|own| own.memory.changed(SEED, PAGES, 0..1)), 0);
    drop(peers);
    domain.assert_all_frames_return();
}

fn a_frame_whose_memory_failed_is_left_alone_and_given_up(_: &mut Context) {
    if !kernel_deals_with_failures() {
        return;
    }
    let mut peers = [(); 3].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = Domain::open();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces[..2], 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    let frame = FrameId(domain.sample(spaces[0], 0..1, LINES)[0].frame);
    fail(pfns(peers[0].pid(), 0..1)[0]);

    let seen = domain.sample(spaces[0], 0..2, LINES);
    assert_eq!(
        (seen[0].state, seen[0].hash, seen[0].frame),
        (PageState::Poisoned, 0, 0),
        "a failed page is named and not read"
    );
    assert_eq!(seen[1].state, PageState::Frame);
    let outcome = domain.fold(
        &[
            entry(spaces[2], 0, FoldKind::Frame(frame)),
            entry(spaces[0], 0, FoldKind::Set(0)),
            entry(spaces[2], 0, FoldKind::Set(0)),
        ],
        Permit::default(),
    );
    let words: Vec<_> = outcome.iter().map(|o| (o.status, o.reason)).collect();
    assert_eq!(
        words,
        [
            (Status::Gone, Reason::Poisoned),
            (Status::Refused, Reason::Poisoned),
            (Status::Differed, Reason::Alone),
        ]
    );
    assert_eq!(
        domain.info().poisoned,
        0,
        "nobody asked for it to be given up"
    );

    let listed = domain.frames(LINES, true);
    let failed = listed.iter().find(|listed| listed.frame == frame);
    assert_eq!(
        failed.map(|frame| (frame.hash, frame.sharers)),
        Some((0, 0)),
        "a failed frame is listed as good for nothing"
    );
    let info = domain.info();
    assert_eq!((info.poisoned, info.frames), (1, PAGES as u64 - 1));
    let gone = domain.fold(
        &[entry(spaces[2], 0, FoldKind::Frame(frame))],
        Permit::default(),
    );
    assert_eq!(gone[0].reason, Reason::NoFrame);

    // The other frames go on, and so do the processes that map the failed one, as long as it can be
    // read.
    let counts = domain.merge(&spaces, 1..PAGES, Permit::default());
    assert_eq!(counts.merged(), PAGES - 1, "{counts:?}");
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    for peer in peers {
        peer.exit();
    }
    domain.assert_all_frames_return();
}

fn a_page_whose_memory_failed_is_left_alone(_: &mut Context) {
    if !kernel_deals_with_failures() {
        return;
    }
    let a = Peer::filled(PAGES, SEED, PAGES);
    let b = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    let number = pfns(a.pid(), 0..1)[0];
    fail(number);
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * (PAGES - 1), "{counts:?}");
    // The kernel takes an ordinary page away if possible; pages left there are refused.
    let lost = counts.of(Status::Gone) + counts.with(Status::Refused, Reason::Poisoned);
    assert_eq!(lost, 1, "{counts:?}");
    assert_eq!(
        counts.with(Status::Differed, Reason::Alone),
        1,
        "{counts:?}"
    );
}
