//! Frames with one mapping, which save nothing, are given back.
//!
//! # Problem
//! When all sharers of a page but one have written to it, the last one still maps the frame: a page
//! that can be neither moved nor swapped, and that another group pays for.
//!
//! # Approach
//! Two processes share pages, one writes to some of them, and BREAK is asked for those that nothing
//! else maps. What the other process has then is looked at from all sides: contents, charge, size,
//! swap. Frames with other mappings must stay, those of a child, too.
//!
//! # Source
//! `interface/uksm_ioctl.h`, `UKSM_BREAK_SINGLE`.

use uksm_linux::domain::BreakChoice;
use uksm_linux::module::raw;
use uksm_policy::command::{Lines, PageState, SpaceId};

use super::Context;
use crate::fixtures::accounting::number;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::domain::{Domain, Permit, domain_with_seed};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, pause, signal, wait};
use crate::fixtures::swapping::{MAX_SWAP_WAIT, page_out};
use crate::fixtures::zram;

cases! { "giving_back":
    a_frame_with_one_mapping_is_given_back_and_charged_to_its_process Normal Stock 60,
    a_frame_that_a_child_maps_stays_until_the_child_is_gone Normal Stock 30,
    an_orphan_with_one_mapping_is_given_back Normal Stock 30,
    pages_that_were_given_back_can_be_swapped_and_merged_again Normal Stock 90,
}

const PAGES: usize = 1024;
/// Pages that the first peer writes.
const WRITTEN: usize = PAGES / 4;
const SEED: u64 = 61;
const STATES: Lines = Lines { from: 0, to: 0 };
/// Charges are kept in batches of 64 pages per CPU.
const BATCHED: u64 = 320;

/// Breaks the pages of a space whose frames nothing else maps; returns their number.
fn give_back(domain: &Domain, space: SpaceId) -> u64 {
    domain.break_pages(space, 0..PAGES, BreakChoice::Single)
}

/// Two peers whose pages are merged with each other, and then the first one writes some.
fn churned(domain: &mut Domain) -> ([Peer; 2], [SpaceId; 2]) {
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    for space in spaces {
        assert_eq!(give_back(domain, space), 0, "each frame has two mappings");
    }
    peers[0].run(|own| {
        own.memory.flip(0..WRITTEN);
        own.memory.flip(0..WRITTEN);
    });
    (peers, spaces)
}

fn assert_contents(peers: &mut [Peer; 2]) {
    for peer in peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}

/// Anonymous pages of a process, merged or not.
fn anonymous_kib(peer: &Peer) -> u64 {
    number(&format!("/proc/{}/smaps_rollup", peer.pid()), "Anonymous")
}

fn a_frame_with_one_mapping_is_given_back_and_charged_to_its_process(_: &mut Context) {
    let (opener, target) = (Cgroup::new("opener"), Cgroup::new("target"));
    let mut domain = opener.within(Domain::open);
    let (mut peers, spaces) = target.within(|| churned(&mut domain));
    let size = anonymous_kib(&peers[1]);
    let before = (opener.pages(), target.pages());
    assert_eq!(give_back(&domain, spaces[0]), 0, "the writer has its own");
    assert_eq!(give_back(&domain, spaces[1]), WRITTEN as u64);
    assert_eq!(
        give_back(&domain, spaces[1]),
        0,
        "there is nothing left to give"
    );
    let info = domain.info();
    assert_eq!(
        (info.given_back, info.broken),
        (WRITTEN as u64, WRITTEN as u64)
    );
    let states = [
        (0..WRITTEN, PageState::Anon),
        (WRITTEN..PAGES, PageState::Frame),
    ];
    for (pages, state) in states {
        assert_eq!(
            domain.in_state(spaces[1], pages.clone(), state),
            pages.len(),
            "{pages:?}"
        );
    }
    assert_contents(&mut peers);
    assert_eq!(
        anonymous_kib(&peers[1]),
        size,
        "an own page for a merged one leaves the process's size"
    );
    let listed = domain.frames(STATES, true);
    let freed = listed.iter().filter(|frame| frame.sharers == 0).count();
    assert_eq!((listed.len(), freed), (PAGES, WRITTEN));
    assert_eq!(domain.info().frames, (PAGES - WRITTEN) as u64);
    let moved = WRITTEN as u64;
    // The pool keeps some of the freed frames for others.
    assert!(
        opener.pages() <= before.0 - moved + BATCHED + raw::UKSM_LOCK_BATCH as u64,
        "{} of {} pages before",
        opener.pages(),
        before.0
    );
    assert!(
        target.pages().abs_diff(before.1 + moved) <= BATCHED,
        "{} after {}",
        target.pages(),
        before.1
    );
}

fn a_frame_that_a_child_maps_stays_until_the_child_is_gone(_: &mut Context) {
    let mut domain = Domain::open();
    let (mut peers, spaces) = churned(&mut domain);
    let child = peers[1].run(|_| fork(|| pause()));
    assert_eq!(give_back(&domain, spaces[1]), 0, "the child maps them");
    signal(child, libc::SIGKILL);
    peers[1].run(move |_| wait(child));
    assert_eq!(give_back(&domain, spaces[1]), WRITTEN as u64);
    assert_contents(&mut peers);
    let [one, two] = peers;
    one.exit();
    two.exit();
    domain.assert_all_frames_return();
}

fn an_orphan_with_one_mapping_is_given_back(_: &mut Context) {
    let mut domain = domain_with_seed(SEED);
    let (mut peers, _) = churned(&mut domain);
    drop(domain);
    let heir = domain_with_seed(SEED + 1);
    let space = heir.attach(&peers[1]);
    assert_eq!(give_back(&heir, space), WRITTEN as u64);
    assert_contents(&mut peers);
}

fn pages_that_were_given_back_can_be_swapped_and_merged_again(context: &mut Context) {
    let _swap = zram::swap(context, 64);
    let mut domain = Domain::open();
    let (mut peers, spaces) = churned(&mut domain);
    assert_eq!(give_back(&domain, spaces[1]), WRITTEN as u64);
    page_out(&mut peers[1], 0..WRITTEN, MAX_SWAP_WAIT).expect("own pages go to swap");
    assert_contents(&mut peers);
    let counts = domain.merge(&spaces, 0..WRITTEN, Permit::default());
    assert_eq!(counts.merged(), 2 * WRITTEN, "{counts:?}");
    assert_contents(&mut peers);
}
