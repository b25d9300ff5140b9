//! Swap on compressed memory, and pages that are on their way there or back.
//!
//! # Problem
//! A page in swap has no page to merge; one in the swap cache has a copy outside; a frame cannot
//! be swapped at all.
//!
//! # Approach
//! Peers page out and in around merges.

use std::time::Duration;

use uksm_policy::command::{PageState, Reason, Status};

use super::Context;
use crate::fixtures::domain::{Domain, Permit};
use crate::fixtures::peer::Peer;
use crate::fixtures::swapping::{MAX_SWAP_WAIT, page_out, swapped};
use crate::fixtures::zram;

cases! { "swap":
    swapped_pages_are_gone_until_they_are_read_and_then_merge Normal Stock 90,
    merged_pages_are_not_swapped Normal Stock 60,
}

const PAGES: usize = 512;
const SEED: u64 = 26;

fn swapped_pages_are_gone_until_they_are_read_and_then_merge(context: &mut Context) {
    let _swap = zram::swap(context, 64);
    let mut a = Peer::filled(PAGES, SEED, PAGES);
    let mut b = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    page_out(&mut a, 0..PAGES, MAX_SWAP_WAIT).expect("MADV_PAGEOUT");
    assert_eq!(domain.in_state(spaces[0], 0..PAGES, PageState::Swap), PAGES);
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(
        counts.with(Status::Gone, Reason::Swapped),
        PAGES,
        "{counts:?}"
    );
    assert_eq!(
        counts.with(Status::Differed, Reason::Alone),
        PAGES,
        "{counts:?}"
    );

    assert_eq!(a.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(
        counts.merged(),
        2 * PAGES,
        "pages read back should merge: {counts:?}"
    );
    for peer in [&mut a, &mut b] {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}

fn merged_pages_are_not_swapped(context: &mut Context) {
    let _swap = zram::swap(context, 64);
    let mut a = Peer::filled(PAGES, SEED, PAGES);
    let mut b = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    page_out(&mut a, 0..PAGES, Duration::from_secs(1)).expect_err("frames should stay in memory");
    assert_eq!(swapped(&a, 0..PAGES), 0);
    assert_eq!(domain.unmerge(spaces[0], 0..PAGES), PAGES as u64);
    page_out(&mut a, 0..PAGES, MAX_SWAP_WAIT).expect("broken pages can be swapped again");
    for peer in [&mut a, &mut b] {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}
