//! Domains never share memory.
//!
//! # Problem
//! Merging across customers lets one learn the contents of another, by timing a write. A domain is
//! an open file of the device, and the module must keep domains apart for all requests of their
//! programs.
//!
//! # Approach
//! Two domains are filled with the same contents and merged; physical page numbers, read from the
//! kernel's page maps, must not meet. Spaces and frames of one are offered to the other.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use uksm_linux::domain::BreakChoice;
use uksm_policy::command::{
    FoldKind, FrameId, Lines, PageFlags, PageState, Reason, SpaceId, Status,
};

use super::Context;
use crate::fixtures::domain::{Domain, Permit, address, entry};
use crate::fixtures::pagemap::pfns;
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, pause, pidfd, signal, wait};

cases! { "isolation":
    two_domains_full_of_the_same_contents_share_no_frame Normal Stock 60,
    a_space_of_one_domain_is_refused_by_another Normal Stock 30,
    spaces_and_frames_of_one_domain_are_unknown_to_another Normal Stock 30,
    frames_inherited_by_fork_are_foreign_to_another_domain Normal Stock 60,
    nobody_learns_who_else_maps_a_foreign_frame Normal Stock 60,
    all_spaces_can_be_detached_by_who_knows_none Normal Stock 30,
}

const PAGES: usize = 512;
const SEED: u64 = 21;
const STATES: Lines = Lines { from: 0, to: 0 };

/// A domain with two merged peers.
fn merged_domain() -> (Domain, [Peer; 2], [SpaceId; 2]) {
    let peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = Domain::open();
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    (domain, peers, spaces)
}

fn physical(peers: &[Peer]) -> BTreeSet<u64> {
    peers
        .iter()
        .flat_map(|peer| pfns(peer.pid(), 0..PAGES))
        .collect()
}

fn errno(result: Result<impl Sized, uksm_linux::module::Error>) -> Option<i32> {
    result
        .err()
        .and_then(|error| error.errno())
        .map(rustix::io::Errno::raw_os_error)
}

fn two_domains_full_of_the_same_contents_share_no_frame(_: &mut Context) {
    let (mut one, mut peers_one, spaces_one) = merged_domain();
    let (mut two, mut peers_two, spaces_two) = merged_domain();
    for _ in 0..2 {
        let (here, there) = (physical(&peers_one), physical(&peers_two));
        assert_eq!(
            (here.len(), there.len()),
            (PAGES, PAGES),
            "each domain merges by itself"
        );
        assert_eq!(
            here.intersection(&there).count(),
            0,
            "domains should share no page"
        );
        let _again = one.merge(&spaces_one, 0..PAGES, Permit::default());
        let _again = two.merge(&spaces_two, 0..PAGES, Permit::default());
    }
    assert_eq!(one.info().frames, PAGES as u64);
    assert_eq!(two.info().frames, PAGES as u64);
    for peer in peers_one.iter_mut().chain(&mut peers_two) {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}

fn a_space_of_one_domain_is_refused_by_another(_: &mut Context) {
    let (one, peers, spaces) = merged_domain();
    let two = Domain::open();
    let pidfd = pidfd(peers[0].pid()).expect("a pidfd");
    let again = one.device.attach(pidfd.as_fd()).expect("attaching again");
    assert_eq!(
        (again.space, again.existing),
        (spaces[0], true),
        "the same space"
    );
    assert_eq!(errno(two.device.attach(pidfd.as_fd())), Some(libc::EBUSY));
    assert_eq!(two.info().spaces, 0);
    one.device.detach(spaces[0]).expect("DETACH");
    two.device
        .attach(pidfd.as_fd())
        .expect("a detached space is free");
    assert_eq!(errno(one.device.attach(pidfd.as_fd())), Some(libc::EBUSY));
    drop(two);
    one.device
        .attach(pidfd.as_fd())
        .expect("a space of a closed domain is free");
}

fn spaces_and_frames_of_one_domain_are_unknown_to_another(_: &mut Context) {
    let (mut one, peers, spaces) = merged_domain();
    let mut two = Domain::open();
    let other = Peer::filled(PAGES, SEED, PAGES);
    let space = two.attach(&other);
    let frame = one.sample(spaces[0], 0..1, STATES)[0].frame;

    let outcome = two.fold(
        &[entry(space, 0, FoldKind::Frame(FrameId(frame)))],
        Permit::default(),
    );
    assert_eq!(
        (outcome[0].status, outcome[0].reason),
        (Status::Gone, Reason::NoFrame)
    );
    assert!(
        two.frames(STATES, false).is_empty(),
        "frames of another domain are not listed"
    );

    let stranger = spaces[0].0.max(spaces[1].0).max(space.0) + 1;
    let foreign = if spaces.contains(&space) {
        SpaceId(stranger)
    } else {
        spaces[0]
    };
    let (start, end) = (address(0), address(PAGES));
    assert_eq!(
        errno(two.device.count(foreign, start, end)),
        Some(libc::ENOENT)
    );
    assert_eq!(
        errno(two.device.break_range(foreign, start, end)),
        Some(libc::ENOENT)
    );
    assert_eq!(errno(two.device.detach(foreign)), Some(libc::ENOENT));
    assert_eq!(peers.len(), 2);
}

fn frames_inherited_by_fork_are_foreign_to_another_domain(_: &mut Context) {
    let (mut one, mut peers, _) = merged_domain();
    let child = peers[0].run(|_| fork(|| pause()));
    let mut two = Domain::open();
    let other = Peer::filled(PAGES, SEED, PAGES);
    let spaces = [two.attach_pid(child), two.attach(&other)];
    assert_eq!(two.in_state(spaces[0], 0..PAGES, PageState::Foreign), PAGES);
    let counts = two.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(
        counts.with(Status::Refused, Reason::Foreign),
        PAGES,
        "{counts:?}"
    );
    assert_eq!(
        counts.with(Status::Differed, Reason::Alone),
        PAGES,
        "{counts:?}"
    );
    assert_eq!(
        two.unmerge(spaces[0], 0..PAGES),
        0,
        "foreign frames are not broken unless that is asked for"
    );
    let (start, end) = (address(0), address(PAGES));
    let foreign = two
        .device
        .break_frames(spaces[1], start, end, BreakChoice::Foreign);
    assert_eq!(foreign.expect("BREAK").pages, 0, "ordinary pages stay");
    let mut sharers = || {
        let frames = one.frames(STATES, false);
        frames
            .iter()
            .map(|frame| frame.sharers as usize)
            .sum::<usize>()
    };
    assert_eq!(sharers(), 3 * PAGES);
    let half = address(PAGES / 2);
    let foreign = two
        .device
        .break_frames(spaces[0], start, half, BreakChoice::Foreign);
    assert_eq!(foreign.expect("BREAK").pages, PAGES as u64 / 2);
    assert_eq!(
        sharers(),
        3 * PAGES - PAGES / 2,
        "the frames' own domain loses mappings"
    );
    assert_eq!(
        two.in_state(spaces[0], 0..PAGES, PageState::Anon),
        PAGES / 2
    );

    drop(one);
    assert_eq!(
        two.in_state(spaces[0], 0..PAGES, PageState::Orphan),
        PAGES / 2
    );
    let counts = two.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(
        counts.merged(),
        2 * PAGES,
        "orphans are nobody's: {counts:?}"
    );
    peers[0].run(move |_| {
        signal(child, libc::SIGKILL);
        wait(child)
    });
    assert_eq!(
        peers[0].run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        0
    );
}

fn nobody_learns_who_else_maps_a_foreign_frame(_: &mut Context) {
    let (mut one, mut peers, _) = merged_domain();
    let child = peers[0].run(|_| fork(|| pause()));
    let mut two = Domain::open();
    let space = two.attach_pid(child);
    let flags = |domain: &mut Domain| -> Vec<PageFlags> {
        let pages = domain.sample(space, 0..PAGES, STATES);
        assert!(pages.iter().all(|page| page.state == PageState::Foreign));
        pages.iter().map(|page| page.flags).collect()
    };
    let with_sharers = flags(&mut two);
    for peer in &mut peers {
        peer.run(|own| own.memory.flip(0..PAGES));
    }
    let pages = one.frames(STATES, false);
    assert!(pages.iter().all(|frame| frame.sharers == 1), "{pages:?}");
    assert_eq!(flags(&mut two), with_sharers);
    peers[0].run(move |_| {
        signal(child, libc::SIGKILL);
        wait(child)
    });
}

fn all_spaces_can_be_detached_by_who_knows_none(_: &mut Context) {
    let (one, mut peers, _) = merged_domain();
    let successor = one.device.try_clone().expect("a handle of the domain");
    successor.detach_all().expect("DETACH");
    assert_eq!((one.info().spaces, one.info().frames), (0, PAGES as u64));
    successor.detach_all().expect("DETACH of none");
    let two = Domain::open();
    let free = two.attach(&peers[0]);
    assert_ne!(free.0, 0);
    drop(two);
    let spaces = [one.attach(&peers[0]), one.attach(&peers[1])];
    for space in spaces {
        assert_eq!(
            one.count(space, PAGES).pages[PageState::Frame as usize],
            PAGES as u64,
            "what was merged is known"
        );
    }
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}
