//! Charging of frames to groups; no process is killed for them.
//!
//! # Problem
//! A frame belongs to no process. Uncharged, frames would let a group exceed its limit; charged to
//! a target, merging or breaking could get the target killed.
//!
//! # Approach
//! The domain is opened inside one control group, the targets live in another; charges of both are
//! read, and limits are set low before frames and copies are requested. When BREAK stops at a
//! limit, it must leave a margin, because the target goes on to use memory, page tables included.
//! One machine accounts no kernel memory (cgroup.memory=nokmem): no group can be charged with
//! frames there.

use uksm_linux::module::raw;
use uksm_policy::command::{PageState, Reason, Status};

use super::Context;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::domain::{Domain, Permit, address};
use crate::fixtures::memory::{BASE, Huge, Memory};
use crate::fixtures::peer::Peer;

cases! { "charging":
    frames_are_charged_to_the_opener_and_pages_returned_to_the_target Normal Stock 60,
    a_full_group_of_the_opener_ends_in_full_and_kills_nobody Normal Stock 60,
    breaking_stops_before_it_drives_the_target_out_of_memory Normal Stock 60,
    where_breaking_stops_the_target_can_go_on Normal Stock 90,
    without_kernel_accounting_nobody_is_charged_or_killed Normal NoKmem 90,
    merging_a_target_at_its_limit_kills_nobody Normal Stock 60,
}

const PAGES: usize = 2048;
const SEED: u64 = 19;
/// Pages that other processes touch: fewer than the margin that frames leave.
const FEW: usize = 16;

/// A place where a target has no page tables yet.
const ELSEWHERE: u64 = BASE + (1 << 34);

/// Charges are kept in batches of 64 pages per CPU.
const BATCHED: u64 = 320;

/// Two peers with equal pages, charged to `group`.
fn peers_in(group: &Cgroup) -> [Peer; 2] {
    [(); 2].map(|()| {
        let mut peer = Peer::new(PAGES);
        group.take(peer.pid());
        peer.run(|own| own.memory.fill(SEED, PAGES));
        peer
    })
}

fn assert_intact(peers: &mut [Peer]) {
    for peer in peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}

fn assert_near(what: &str, found: u64, expected: u64) {
    assert!(
        found.abs_diff(expected) <= BATCHED,
        "{what} should be charged with about {expected} pages, it is with {found}"
    );
}

fn frames_are_charged_to_the_opener_and_pages_returned_to_the_target(_: &mut Context) {
    let (opener, target) = (Cgroup::new("opener"), Cgroup::new("target"));
    let mut peers = peers_in(&target);
    let (before_opener, before_target) = (opener.pages(), target.pages());
    let mut domain = opener.within(Domain::open);
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    let pages = PAGES as u64;
    assert_near("the opener's group", opener.pages(), before_opener + pages);
    assert_near(
        "the target's group",
        target.pages(),
        before_target - 2 * pages,
    );

    peers[0].run(|own| own.memory.flip(0..PAGES));
    peers[0].run(|own| own.memory.flip(0..PAGES));
    assert_near(
        "the target's group after its writes",
        target.pages(),
        before_target - pages,
    );
    assert_intact(&mut peers);
    let [a, b] = peers;
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
    assert_near(
        "the opener's group after all",
        opener.pages(),
        before_opener,
    );
}

fn a_full_group_of_the_opener_ends_in_full_and_kills_nobody(_: &mut Context) {
    let (opener, target) = (Cgroup::new("opener"), Cgroup::new("target"));
    let mut peers = peers_in(&target);
    let mut domain = opener.within(Domain::open);
    let mut resident = Peer::new(2 * FEW);
    opener.take(resident.pid());
    // Charges beside those of the pages under test.
    resident.run(|own| own.memory.set_word(0, 0, 1));
    opener.limit_to_current_and(PAGES as u64 / 2);
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    let full = counts.with(Status::Full, Reason::Memory);
    assert!(
        full >= PAGES / 3,
        "frames should end with the opener's limit: {counts:?}"
    );
    assert!(
        counts.merged() > 0,
        "frames within the limit should be made: {counts:?}"
    );
    assert_eq!(
        (opener.kills(), target.kills()),
        (0, 0),
        "nobody should be killed"
    );
    assert_intact(&mut peers);
    resident.run(|own| {
        for page in FEW..2 * FEW {
            own.memory.set_word(page, 0, 1);
        }
    });
    assert_eq!(opener.kills(), 0, "who lives there should be able to go on");
    drop(resident);
    opener.unlimit();
    let again = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(
        again.of(Status::Full),
        0,
        "with the limit gone the rest should merge: {again:?}"
    );
    assert_intact(&mut peers);
    let [a, b] = peers;
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}

fn breaking_stops_before_it_drives_the_target_out_of_memory(_: &mut Context) {
    let target = Cgroup::new("target");
    let mut peers = peers_in(&target);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    target.limit_to_current_and(PAGES as u64 / 4);

    let end = address(PAGES);
    let broken = domain
        .device
        .break_range(spaces[0], address(0), end)
        .expect("BREAK");
    assert!(
        broken.stopped,
        "BREAK should stop at the target's limit: {broken:?}"
    );
    assert!(broken.next < end, "{broken:?}");
    assert_eq!(target.kills(), 0, "the target should not be killed");
    let anon = domain.in_state(spaces[0], 0..PAGES, PageState::Anon);
    assert_eq!(anon as u64, broken.pages, "what BREAK says should be true");
    assert!(anon < PAGES / 2, "{broken:?}");
    assert_intact(&mut peers);

    target.unlimit();
    assert_eq!(domain.unmerge(spaces[0], 0..PAGES), (PAGES - anon) as u64);
    assert_intact(&mut peers);
}

/// Breaks a target's pages until its group has no room for more, then makes it touch new pages in
/// many places; repeated, so that a single lucky run is not enough.
fn break_and_go_on() {
    const SOME: usize = 512;
    const REPETITIONS: usize = 20;
    /// Page tables that the target needs anew, and pages in each.
    const TABLES: usize = 8;
    const TOUCHED: usize = 4;
    const TABLE: usize = 512;
    for repetition in 0..REPETITIONS {
        let target = Cgroup::new("target");
        let mut peers = [(); 2].map(|()| {
            let mut peer = Peer::new(SOME);
            target.take(peer.pid());
            peer.run(|own| own.memory.fill(SEED, SOME));
            peer
        });
        let mut domain = Domain::open();
        let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
        let counts = domain.merge(&spaces, 0..SOME, Permit::default());
        assert_eq!(counts.merged(), 2 * SOME, "{counts:?}");
        // The room is different each time, so that BREAK does not always stop at the same place.
        target.limit_to_current_and((SOME / 4 + 7 * repetition) as u64);
        let broken = domain
            .device
            .break_range(spaces[0], address(0), address(SOME))
            .expect("BREAK");
        assert!(broken.stopped, "BREAK should stop at the limit: {broken:?}");
        let after = (target.kills(), target.shortages());
        peers[0].run(|_| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let mut memory = Memory::at(ELSEWHERE, TABLES * TABLE, flags, -1);
            memory.advise_huge(Huge::Never);
            for page in (0..TABLES).flat_map(|table| table * TABLE..table * TABLE + TOUCHED) {
                memory.set_word(page, 0, 1);
            }
        });
        assert_eq!(
            (after, target.kills()),
            ((0, 0), 0),
            "BREAK should leave the target room to go on, in repetition {repetition}"
        );
        for peer in &mut peers {
            assert_eq!(peer.run(|own| own.memory.changed(SEED, SOME, 0..SOME)), 0);
        }
    }
}

fn where_breaking_stops_the_target_can_go_on(_: &mut Context) {
    break_and_go_on();
}

fn without_kernel_accounting_nobody_is_charged_or_killed(_: &mut Context) {
    let opener = Cgroup::new("opener");
    let mut domain = opener.within(Domain::open);
    assert_eq!(
        domain.info().features & raw::UKSM_FEATURE_CHARGE,
        0,
        "no group is charged with frames here"
    );
    let before = opener.pages();
    let peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    assert_near("the opener's group", opener.pages(), before);
    break_and_go_on();
}

fn merging_a_target_at_its_limit_kills_nobody(_: &mut Context) {
    let target = Cgroup::new("target");
    let mut peers = peers_in(&target);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    target.limit_to_current_and(0);
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    assert_eq!(
        (target.kills(), target.shortages()),
        (0, 0),
        "the limit should not be met"
    );
    assert_intact(&mut peers);
}
