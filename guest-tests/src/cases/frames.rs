//! Frames: found by id, limited in number and in sharers, listed and reaped.
//!
//! # Problem
//! A frame outlives the call that made it; the policy merges into it by its id, follows its
//! mappings, and must get it back when the last one is gone.
//!
//! # Approach
//! Small batches, each for one sentence of the contract about frames.
//!
//! # Source
//! `interface/uksm_ioctl.h`, FOLD (kind FRAME, status FULL), CONFIGURE and FRAMES.

use std::collections::BTreeSet;
use std::time::Duration;

use uksm_linux::module::{Configuration, Device};
use uksm_policy::command::{
    FoldBatch, FoldKind, FoldOutcome, FrameId, Lines, Reason, SpaceId, Status,
};

use super::Context;
use crate::fixtures::domain::{Domain, Permit, entry};
use crate::fixtures::fold_sets::{
    CONTENT, MERGED, PAGES, hashed_pair, peer_with, set_of, statuses,
};
use crate::fixtures::peer::Peer;

cases! { "frames":
    a_page_merges_into_a_frame_by_number Normal Stock 30,
    unknown_and_freed_frames_are_gone Normal Stock 30,
    a_frame_takes_no_more_sharers_than_the_limit Normal Stock 30,
    a_domain_makes_no_more_frames_than_its_limit Normal Stock 30,
    frames_are_listed_in_order_with_hashes_and_reaped_when_unused Normal Stock 30,
    numbers_are_found_again_and_never_given_twice Normal Stock 60,
}

const STATES: Lines = Lines { from: 0, to: 0 };

fn a_page_merges_into_a_frame_by_number(_: &mut Context) {
    let mut domain = Domain::open();
    let (mut peer, space) = peer_with(&domain, [1, 1, 1, 2]);
    let frame =
        FrameId(domain.fold_with_retries(&set_of(space, &[0, 1]), Permit::default())[0].frame);
    let entries = [2, 3].map(|page| entry(space, page, FoldKind::Frame(frame)));
    let outcomes = domain.fold_with_retries(&entries, Permit::default());
    assert_eq!(statuses(&outcomes), [MERGED, CONTENT]);
    assert_eq!((outcomes[0].frame, outcomes[1].frame), (frame.0, 0));
    assert_eq!(domain.sharers(frame), Some(3));
    peer.run(|own| own.memory.flip(0..4));
    domain.assert_all_frames_return();
}

fn unknown_and_freed_frames_are_gone(_: &mut Context) {
    let mut domain = Domain::open();
    let (mut peer, space) = peer_with(&domain, [1, 1, 1]);
    let gone = (Status::Gone, Reason::NoFrame);
    for number in [1, 77, u32::MAX] {
        let outcome = domain.fold(
            &[entry(space, 0, FoldKind::Frame(FrameId(number)))],
            Permit::default(),
        );
        assert_eq!(statuses(&outcome), [gone], "frame {number}");
    }
    let frame =
        FrameId(domain.fold_with_retries(&set_of(space, &[0, 1]), Permit::default())[0].frame);
    peer.run(|own| {
        own.memory.flip(0..2);
        own.memory.flip(0..2);
    });
    domain.assert_all_frames_return();
    let outcome = domain.fold(
        &[entry(space, 2, FoldKind::Frame(frame))],
        Permit::default(),
    );
    assert_eq!(statuses(&outcome), [gone], "a freed frame");
}

fn a_frame_takes_no_more_sharers_than_the_limit(_: &mut Context) {
    const LIMIT: u32 = 4;
    let mut domain = Domain::configured(Configuration {
        sharer_limit: LIMIT,
        ..Configuration::default()
    });
    let (mut peer, space) = peer_with(&domain, [1; 10]);
    let pages: Vec<usize> = (0..6).collect();
    let outcomes = domain.fold_with_retries(&set_of(space, &pages), Permit::default());
    assert_eq!(statuses(&outcomes), [MERGED; 6]);
    let frame = FrameId(outcomes[0].frame);
    let another = FrameId(outcomes[4].frame);
    assert_ne!(frame, another, "the set should go on with another frame");
    assert_eq!(outcomes[3].frame, outcomes[0].frame);
    assert_eq!(outcomes[5].frame, outcomes[4].frame);
    assert_eq!(domain.sharers(frame), Some(LIMIT));
    assert_eq!(domain.sharers(another), Some(2));
    let full = (Status::Full, Reason::Sharers);
    let more = domain.fold_with_retries(
        &[entry(space, 9, FoldKind::Frame(frame))],
        Permit::default(),
    );
    assert_eq!(statuses(&more), [full]);
    // A set whose frame is full does not make another frame for a single page.
    let last = domain.fold_with_retries(&set_of(space, &[0, 6]), Permit::default());
    assert_eq!(statuses(&last), [(Status::Already, Reason::None), full]);
    peer.run(|own| own.memory.flip(0..1));
    let more = domain.fold_with_retries(
        &[entry(space, 9, FoldKind::Frame(frame))],
        Permit::default(),
    );
    assert_eq!(
        statuses(&more),
        [MERGED],
        "a place that became free is taken"
    );
}

fn a_domain_makes_no_more_frames_than_its_limit(_: &mut Context) {
    let mut domain = Domain::configured(Configuration {
        frame_limit: 2,
        ..Configuration::default()
    });
    let (mut peer, space) = peer_with(&domain, [1, 1, 2, 2, 3, 3]);
    let sets = [0, 0, 1, 1, 2, 2];
    let entries: Vec<_> = (0..6)
        .map(|page| entry(space, page, FoldKind::Set(sets[page])))
        .collect();
    let outcomes = domain.fold_with_retries(&entries, Permit::default());
    assert_eq!(statuses(&outcomes)[..4], [MERGED; 4]);
    assert!(
        outcomes[4..]
            .iter()
            .all(|outcome| outcome.status != Status::Merged),
        "{outcomes:?}"
    );
    let full = (Status::Full, Reason::Frames);
    assert!(statuses(&outcomes)[4..].contains(&full), "{outcomes:?}");
    assert_eq!(domain.info().frames, 2);
    peer.run(|own| {
        own.memory.flip(0..2);
        own.memory.flip(0..2);
    });
    assert_eq!(
        domain
            .frames(STATES, true)
            .iter()
            .filter(|frame| frame.sharers == 0)
            .count(),
        1
    );
    let again = domain.fold_with_retries(&entries[4..], Permit::default());
    assert_eq!(statuses(&again), [MERGED; 2], "a freed frame makes room");
}

fn frames_are_listed_in_order_with_hashes_and_reaped_when_unused(_: &mut Context) {
    let (mut domain, mut peers, spaces, batch) = hashed_pair(8);
    assert_eq!(
        statuses(&domain.fold_batch(&batch)),
        vec![MERGED; 2 * PAGES]
    );
    let lines = Lines { from: 0, to: 8 };
    let listed = domain.frames(lines, false);
    assert_eq!(listed.len(), PAGES);
    assert!(
        listed.windows(2).all(|pair| pair[0].frame < pair[1].frame),
        "ascending"
    );
    let sampled = domain.sample(spaces[0], 0..PAGES, lines);
    for page in &sampled {
        let frame = listed
            .iter()
            .find(|frame| frame.frame.0 == page.frame)
            .expect("listed");
        assert_eq!(frame.hash, page.hash, "a frame hashes as its pages do");
        assert_eq!(frame.sharers, 2);
    }
    // In small parts, the listing is the same.
    let (mut cursor, mut parts) = (0, Vec::new());
    loop {
        let part = domain
            .device
            .frames(cursor, 7, lines, false)
            .expect("FRAMES");
        assert!(part.frames.len() <= 7);
        parts.extend(part.frames);
        cursor = part.cursor;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(parts, listed);

    for peer in &mut peers {
        peer.run(|own| own.memory.flip(0..PAGES / 2));
    }
    assert_eq!(
        domain.info().frames,
        PAGES as u64,
        "unused frames stay until they are reaped"
    );
    let reaped = domain.frames(lines, true);
    assert_eq!(reaped.len(), PAGES, "a freed frame is listed once more");
    assert_eq!(
        reaped.iter().filter(|frame| frame.sharers == 0).count(),
        PAGES / 2
    );
    assert_eq!(domain.info().frames, (PAGES / 2) as u64);
    assert_eq!(domain.frames(lines, true).len(), PAGES / 2);
}

/// Each of `pages` of two spaces is a set of its own.
fn pairs(spaces: &[SpaceId], pages: &[usize]) -> FoldBatch {
    let entries = spaces.iter().flat_map(|&space| {
        pages
            .iter()
            .zip(0..)
            .map(move |(&page, set)| entry(space, page, FoldKind::Set(set)))
    });
    FoldBatch {
        entries: entries.collect(),
        drain: true,
        ..FoldBatch::default()
    }
}

/// Merges all; two calls that contend for one mmap lock delay each other.
fn merge_at_last(device: &mut Device, batch: &FoldBatch) {
    for _ in 0..200 {
        let outcomes = device.fold(batch).expect("FOLD");
        let is_done =
            |outcome: &FoldOutcome| matches!(outcome.status, Status::Merged | Status::Already);
        if outcomes.iter().all(is_done) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("pages stay unmerged: {:?}", device.fold(batch));
}

/// Frames beyond one chunk of numbers in the module, made by two calls at a time.
fn numbers_are_found_again_and_never_given_twice(_: &mut Context) {
    const FRAMES: usize = 600;
    let mut domain = Domain::open();
    let mut peers = [(); 3].map(|()| Peer::filled(FRAMES, 31, FRAMES));
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let mut wanted: Vec<usize> = (0..FRAMES).collect();
    for round in 0..4 {
        let halves = wanted.split_at(wanted.len() / 2);
        std::thread::scope(|scope| {
            for half in [halves.0, halves.1] {
                let mut device = domain.device.try_clone().expect("a descriptor");
                scope.spawn(move || {
                    for pages in half.chunks(100) {
                        merge_at_last(&mut device, &pairs(&spaces[..2], pages));
                    }
                });
            }
        });
        let listed = domain.frames(STATES, false);
        assert_eq!(listed.len(), FRAMES, "round {round}");
        assert!(listed.windows(2).all(|pair| pair[0].frame < pair[1].frame));
        let mapped: BTreeSet<u32> = domain
            .sample(spaces[1], 0..FRAMES, STATES)
            .iter()
            .map(|page| page.frame)
            .collect();
        let numbers: BTreeSet<u32> = listed.iter().map(|frame| frame.frame.0).collect();
        assert_eq!(mapped, numbers, "every number is of one frame");
        // Some frames of each chunk become free, then all of some chunks.
        let is_freed = move |page: &usize| match round {
            0 => page.is_multiple_of(3),
            1 => *page < FRAMES / 2,
            _ => true,
        };
        wanted = (0..FRAMES).filter(is_freed).collect();
        for peer in &mut peers[..2] {
            peer.run(move |own| {
                for page in (0..FRAMES).filter(is_freed) {
                    own.memory.flip(page..page + 1);
                    own.memory.flip(page..page + 1);
                }
            });
        }
        let reaped = domain.frames(STATES, true);
        let gone = reaped.iter().filter(|frame| frame.sharers == 0).count();
        assert_eq!(gone, wanted.len(), "round {round}");
    }
    let outcomes = domain.fold_batch(&pairs(&spaces[..2], &wanted[..200]));
    for (outcome, page) in outcomes[..200].iter().zip(0..) {
        let frame = FoldKind::Frame(FrameId(outcome.frame));
        let third = domain.fold_with_retries(&[entry(spaces[2], page, frame)], Permit::default());
        assert_eq!(statuses(&third), [MERGED], "frame {}", outcome.frame);
    }
    drop(peers);
    domain.assert_all_frames_return();
}
