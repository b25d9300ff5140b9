//! FOLD reports an outcome for each entry.
//!
//! # Problem
//! The policy learns from outcomes: false candidates, pages to try again, limits that were met. A
//! wrong outcome misleads it for ever.
//!
//! # Approach
//! Small batches, each for one sentence of the contract about kinds, statuses and reasons.
//!
//! # Source
//! `interface/uksm_ioctl.h`, FOLD and FRAMES.

use rustix::io::Errno;
use uksm_linux::module;
use uksm_policy::command::{
    FoldBatch, FoldEntry, FoldKind, FoldOutcome, FrameId, Lines, PageState, Reason, Status,
};

use super::Context;
use crate::fixtures::contents::Content;
use crate::fixtures::domain::{Domain, OutcomeCounts, Permit, entry};
use crate::fixtures::fold_sets::{
    CONTENT, MERGED, PAGES, SEED, hashed_pair, peer_with, set_of, statuses,
};
use crate::fixtures::memory::BASE;

cases! { "folding":
    the_first_of_a_set_becomes_its_frame Normal Stock 30,
    a_page_unlike_the_first_of_its_set_differs Normal Stock 30,
    a_page_alone_in_its_set_makes_no_frame Normal Stock 30,
    a_set_without_equals_costs_at_most_one_frame Normal Stock 30,
    one_batch_holds_many_sets_and_kinds Normal Stock 30,
    a_page_changed_after_sampling_is_not_merged Normal Stock 30,
    a_page_with_the_expected_hash_is_merged Normal Stock 30,
    a_merged_page_is_already_merged Normal Stock 30,
    only_zeros_become_the_zero_page Normal Stock 30,
    a_page_named_twice_maps_its_frame_once Normal Stock 30,
    addresses_beyond_user_space_are_refused Normal Stock 30,
}

const STATES: Lines = Lines { from: 0, to: 0 };

fn counts_of(outcomes: &[FoldOutcome]) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    counts.add(outcomes);
    counts
}

const ALONE: (Status, Reason) = (Status::Differed, Reason::Alone);
const STALE: (Status, Reason) = (Status::Differed, Reason::Stale);

fn the_first_of_a_set_becomes_its_frame(_: &mut Context) {
    let mut domain = Domain::open();
    let (mut peer, space) = peer_with(&domain, [7; 8]);
    let pages: Vec<usize> = (0..8).collect();
    let outcomes = domain.fold_with_retries(&set_of(space, &pages), Permit::default());
    assert_eq!(statuses(&outcomes), vec![MERGED; 8]);
    let frame = outcomes[0].frame;
    assert!(
        frame != 0 && outcomes.iter().all(|outcome| outcome.frame == frame),
        "{outcomes:?}"
    );
    assert_eq!(domain.sharers(FrameId(frame)), Some(8));
    let states = domain.sample(space, 0..8, STATES);
    assert!(
        states
            .iter()
            .all(|page| page.state == PageState::Frame && page.frame == frame)
    );
    let wrong = peer.run(|own| {
        (0..8)
            .filter(|&page| !own.memory.holds(page, Content::new(SEED, 7)))
            .count()
    });
    assert_eq!(wrong, 0);
    assert_eq!(domain.info().frames_made, 1, "one frame for eight pages");
}

fn a_page_unlike_the_first_of_its_set_differs(_: &mut Context) {
    let mut domain = Domain::open();
    let (_peer, space) = peer_with(&domain, [1, 1, 2, 1]);
    let outcomes = domain.fold_with_retries(&set_of(space, &[0, 1, 2, 3]), Permit::default());
    assert_eq!(statuses(&outcomes), [MERGED, MERGED, CONTENT, MERGED]);
    assert_eq!(outcomes[2].frame, 0, "a page that differed maps no frame");
    assert_eq!(domain.in_state(space, 0..4, PageState::Anon), 1);
}

fn a_page_alone_in_its_set_makes_no_frame(_: &mut Context) {
    let mut domain = Domain::open();
    let (mut peer, space) = peer_with(&domain, [1, 2]);
    let outcomes = domain.fold_with_retries(&set_of(space, &[0]), Permit::default());
    assert_eq!(statuses(&outcomes), [ALONE]);
    // The last page of a set whose others are gone is alone, too.
    peer.run(|own| {
        own.memory
            .advise(0..1, libc::MADV_DONTNEED)
            .expect("MADV_DONTNEED");
    });
    let outcomes = domain.fold_with_retries(&set_of(space, &[0, 1]), Permit::default());
    assert_eq!(
        statuses(&outcomes),
        [(Status::Gone, Reason::Unmapped), ALONE]
    );
    assert_eq!(domain.in_state(space, 1..2, PageState::Anon), 1);
    assert_eq!(domain.info().merged, 0);
    domain.assert_all_frames_return();
}

fn a_set_without_equals_costs_at_most_one_frame(_: &mut Context) {
    let mut domain = Domain::open();
    let (mut peer, space) = peer_with(&domain, [1, 2, 3, 4]);
    let outcomes = domain.fold_with_retries(&set_of(space, &[0, 1, 2, 3]), Permit::default());
    assert_eq!(statuses(&outcomes)[1..], [CONTENT; 3], "{outcomes:?}");
    let frames = domain.frames(STATES, true);
    assert!(
        frames.len() <= 1 && frames.iter().all(|frame| frame.sharers == 1),
        "{frames:?}"
    );
    for page in 0..4 {
        let class = page as u64 + 1;
        assert!(peer.run(move |own| own.memory.holds(page, Content::new(SEED, class))));
    }
    assert_eq!(domain.unmerge(space, 0..4), frames.len() as u64);
    domain.assert_all_frames_return();
}

fn one_batch_holds_many_sets_and_kinds(_: &mut Context) {
    let mut domain = Domain::open();
    let (mut peer, space) = peer_with(&domain, [1, 2, 1, 2, 3, 3, 4, 5]);
    peer.run(|own| {
        own.memory
            .advise(7..8, libc::MADV_DONTNEED)
            .expect("MADV_DONTNEED");
        own.memory.flip(7..8);
        own.memory.flip(7..8);
    });
    let first = domain.fold_with_retries(&set_of(space, &[4, 5]), Permit::default());
    let frame = FrameId(first[0].frame);
    let batch = [
        entry(space, 0, FoldKind::Set(511)),
        entry(space, 1, FoldKind::Set(0)),
        entry(space, 2, FoldKind::Set(511)),
        entry(space, 3, FoldKind::Set(0)),
        entry(space, 6, FoldKind::Frame(frame)),
        entry(space, 7, FoldKind::Zero),
    ];
    let outcomes = domain.fold_with_retries(&batch, Permit::default());
    let zeroed = (Status::Zeroed, Reason::None);
    assert_eq!(
        statuses(&outcomes),
        [MERGED, MERGED, MERGED, MERGED, CONTENT, zeroed]
    );
    assert_eq!(outcomes[0].frame, outcomes[2].frame);
    assert_eq!(outcomes[1].frame, outcomes[3].frame);
    assert_ne!(outcomes[0].frame, outcomes[1].frame);
}

fn a_page_changed_after_sampling_is_not_merged(_: &mut Context) {
    let (mut domain, mut peers, spaces, batch) = hashed_pair(64);
    peers[1].run(|own| own.memory.flip(0..PAGES / 2));
    let outcomes = domain.fold_batch(&batch);
    let stale = &statuses(&outcomes)[PAGES..PAGES + PAGES / 2];
    assert!(stale.iter().all(|&word| word == STALE), "{stale:?}");
    assert_eq!(
        domain.in_state(spaces[1], 0..PAGES, PageState::Frame),
        PAGES / 2
    );
    assert_eq!(
        peers[1].run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        PAGES / 2
    );
    assert_eq!(
        peers[0].run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        0
    );
}

fn a_page_with_the_expected_hash_is_merged(_: &mut Context) {
    for lines in [1, 7, 64] {
        let (mut domain, _peers, _, mut batch) = hashed_pair(lines);
        let outcomes = domain.fold_batch(&batch);
        assert_eq!(
            statuses(&outcomes),
            vec![MERGED; 2 * PAGES],
            "with {lines} lines"
        );
        // The right hash of another strength is a wrong one.
        let (mut domain, _peers, _, other) = hashed_pair(lines);
        batch = FoldBatch {
            lines: lines - lines / 2 + 8 * (lines % 2),
            ..other
        };
        if batch.lines != lines && batch.lines <= 64 {
            let outcomes = domain.fold_batch(&batch);
            let counts = counts_of(&outcomes);
            assert_eq!(
                counts.of(Status::Differed),
                2 * PAGES,
                "{lines} lines: {counts:?}"
            );
            assert!(
                counts.with(Status::Differed, Reason::Stale) >= PAGES,
                "{counts:?}"
            );
        }
    }
}

fn a_merged_page_is_already_merged(_: &mut Context) {
    let mut domain = Domain::open();
    let (_peer, space) = peer_with(&domain, [1; 4]);
    let entries = set_of(space, &[0, 1, 2, 3]);
    let first = domain.fold_with_retries(&entries, Permit::default());
    assert_eq!(statuses(&first), vec![MERGED; 4]);
    let again = domain.fold_with_retries(&entries, Permit::default());
    assert!(
        again
            .iter()
            .all(|outcome| outcome.status == Status::Already),
        "{again:?}"
    );
    assert!(
        again.iter().all(|outcome| outcome.frame == first[0].frame),
        "{again:?}"
    );
    assert_eq!(
        domain.sharers(FrameId(first[0].frame)),
        Some(4),
        "nothing should change"
    );
}

fn only_zeros_become_the_zero_page(_: &mut Context) {
    let mut domain = Domain::open();
    let (mut peer, space) = peer_with(&domain, [1, 1]);
    // All bytes are zero but for the very last.
    peer.run(|own| {
        own.memory
            .advise(1..2, libc::MADV_DONTNEED)
            .expect("MADV_DONTNEED");
        own.memory.set_word(1, 511, 1 << 56);
    });
    let zero = |page| entry(space, page, FoldKind::Zero);
    let outcomes = domain.fold_with_retries(&[zero(0), zero(1)], Permit::default());
    assert_eq!(statuses(&outcomes), [CONTENT, CONTENT]);
    peer.run(|own| own.memory.set_word(1, 511, 0));
    let outcomes = domain.fold_with_retries(&[zero(1)], Permit::default());
    assert_eq!(statuses(&outcomes), [(Status::Zeroed, Reason::None)]);
    assert_eq!(domain.in_state(space, 1..2, PageState::Zero), 1);
}

fn a_page_named_twice_maps_its_frame_once(_: &mut Context) {
    let mut domain = Domain::open();
    let (mut peer, space) = peer_with(&domain, [1, 1]);
    let twice = domain.fold_with_retries(&set_of(space, &[0, 0]), Permit::default());
    assert_ne!(twice[1].status, Status::Merged, "{twice:?}");
    let thrice = domain.fold_with_retries(&set_of(space, &[0, 0, 1]), Permit::default());
    assert_eq!(thrice[2].status, Status::Merged, "{thrice:?}");
    assert_eq!(domain.sharers(FrameId(thrice[2].frame)), Some(2));
    let wrong = peer.run(|own| {
        (0..2)
            .filter(|&page| !own.memory.holds(page, Content::new(SEED, 1)))
            .count()
    });
    assert_eq!(wrong, 0);
}

/// The last page of user space is 4 KiB below 2^47, with four levels of page tables.
const USER_END: u64 = 0x7FFF_FFFF_F000;

fn addresses_beyond_user_space_are_refused(_: &mut Context) {
    let mut domain = Domain::open();
    let (_peer, space) = peer_with(&domain, [1, 1]);
    let sample = |domain: &mut Domain, start| {
        let run = uksm_policy::command::Run {
            start,
            space,
            count: 1,
            stride: 1,
        };
        let mut pages = Vec::new();
        domain
            .device
            .sample(&[run], Lines { from: 0, to: 64 }, &mut pages)
            .map(|()| pages)
    };
    let fold = |address, kind| FoldEntry {
        address,
        hash: 0,
        space,
        kind,
    };
    for address in [0, USER_END - 4096] {
        let entries = [
            fold(address, FoldKind::Set(0)),
            fold(address, FoldKind::Zero),
        ];
        for outcome in domain.fold(&entries, Permit::default()) {
            assert_eq!(outcome.status, Status::Gone, "at {address:#x}: {outcome:?}");
        }
        let pages = sample(&mut domain, address).expect("SAMPLE of user space");
        assert_eq!(pages[0].state, PageState::Unmapped, "at {address:#x}");
    }
    for address in [
        USER_END,
        0x8000_0000_0000,
        0xFFFF_8000_0000_0000,
        u64::MAX - 4095,
    ] {
        let batch = FoldBatch {
            entries: vec![fold(address, FoldKind::Set(0))],
            ..FoldBatch::default()
        };
        let refused = domain.device.fold(&batch).map(|_| ());
        assert_invalid(refused, "FOLD", address);
        assert_invalid(sample(&mut domain, address).map(|_| ()), "SAMPLE", address);
        let end = address.saturating_add(4096) & !4095;
        let counted = domain.device.count(space, BASE, end).map(|_| ());
        assert_invalid(counted, "COUNT", address);
        let broken = domain.device.break_range(space, BASE, end).map(|_| ());
        assert_invalid(broken, "BREAK", address);
    }
    assert!(domain.device.count(space, BASE, USER_END).is_ok());
}

fn assert_invalid(answer: module::Result<()>, verb: &str, address: u64) {
    match answer {
        Err(module::Error::Call { errno, .. }) if errno == Errno::INVAL => {}
        other => panic!("{verb} at {address:#x} should be EINVAL: {other:?}"),
    }
}
