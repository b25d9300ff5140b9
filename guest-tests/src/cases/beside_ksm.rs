//! The module next to in-kernel KSM.
//!
//! # Problem
//! Frames look to the kernel like pages of KSM, and ksmd may work on the same mappings.
//!
//! # Approach
//! Peers advise their memory as mergeable. First ksmd alone merges, and the module must recognise its pages
//! as KSM's; then both merge at once while peers write. ksmd is stopped with `run` 0:
//! its `run` 2 can take minutes in an emulated guest, and each peer's exit unmerges anyway.

use std::thread::sleep;
use std::time::{Duration, Instant};

use uksm_policy::command::{PageState, Reason, Status};

use super::Context;
use super::merging::write_and_check;
use crate::fixtures::accounting::{set, value};
use crate::fixtures::domain::{Domain, Permit};
use crate::fixtures::peer::Peer;

cases! { "beside_ksm":
    pages_merged_by_ksm_are_named_and_refused Normal Stock 90,
    merging_together_with_ksm_keeps_contents Normal Stock 90,
    unmerging_by_ksm_breaks_our_frames_too Normal Stock 60,
}

pub(super) const PAGES: usize = 256;
pub(super) const SEED: u64 = 20;
pub(super) const KSM: &str = "/sys/kernel/mm/ksm";

/// ksmd at full speed, until dropped.
pub(super) struct Scanning;

impl Scanning {
    pub(super) fn start() -> Scanning {
        set(&format!("{KSM}/sleep_millisecs"), "0");
        set(&format!("{KSM}/pages_to_scan"), "1000");
        set(&format!("{KSM}/run"), "1");
        Scanning
    }
}

impl Drop for Scanning {
    fn drop(&mut self) {
        rest();
    }
}

/// KSM rests, and its knobs are as the kernel has them in the beginning.
pub(super) fn rest() {
    set(&format!("{KSM}/run"), "0");
    set(&format!("{KSM}/sleep_millisecs"), "20");
    set(&format!("{KSM}/pages_to_scan"), "100");
}

pub(super) fn mergeable_peer() -> Peer {
    let mut peer = Peer::filled(PAGES, SEED, PAGES);
    peer.run(|own| {
        own.memory
            .advise(0..PAGES, libc::MADV_MERGEABLE)
            .expect("MADV_MERGEABLE");
    });
    peer
}

fn pages_merged_by_ksm_are_named_and_refused(_: &mut Context) {
    let (mut a, mut b) = (mergeable_peer(), mergeable_peer());
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    {
        let _scanning = Scanning::start();
        let end = Instant::now() + Duration::from_secs(60);
        let sharing = format!("{KSM}/pages_sharing");
        while value(&sharing) < PAGES as u64 {
            assert!(Instant::now() < end, "ksmd should merge {PAGES} pairs");
            sleep(Duration::from_millis(50));
        }
    }
    assert_eq!(domain.in_state(spaces[0], 0..PAGES, PageState::Ksm), PAGES);
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(
        counts.with(Status::Refused, Reason::Ksm),
        2 * PAGES,
        "{counts:?}"
    );
    assert_eq!(
        domain.unmerge(spaces[0], 0..PAGES),
        0,
        "BREAK should leave pages of KSM alone"
    );
    for peer in [&mut a, &mut b] {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}

fn merging_together_with_ksm_keeps_contents(_: &mut Context) {
    const SECONDS: u64 = 4;
    let mut peers = [(); 3].map(|()| mergeable_peer());
    let mut domain = Domain::open();
    let spaces: Vec<_> = peers.iter().map(|peer| domain.attach(peer)).collect();
    // What is ours from the start is ours to take apart: ksmd can be so fast that nothing else would be.
    let _first = domain.merge(&spaces, 0..PAGES, Permit::default());
    let _scanning = Scanning::start();
    let running = peers[2].begin(|own| write_and_check(&mut own.memory, SECONDS));
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let mut merged = 0;
    while Instant::now() < end {
        let _broken = domain.unmerge(spaces[0], 0..PAGES / 2);
        merged += domain.merge(&spaces, 0..PAGES, Permit::default()).merged();
    }
    assert_eq!(running.end().1, 0, "a writer saw wrong words");
    assert!(merged > 0, "some pages should have been ours");
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    for peer in peers {
        peer.exit();
    }
    domain.assert_all_frames_return();
}

fn unmerging_by_ksm_breaks_our_frames_too(_: &mut Context) {
    let (mut a, mut b) = (mergeable_peer(), mergeable_peer());
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    a.run(|own| {
        own.memory
            .advise(0..PAGES, libc::MADV_UNMERGEABLE)
            .expect("MADV_UNMERGEABLE");
    });
    assert_eq!(
        domain.in_state(spaces[0], 0..PAGES, PageState::Frame),
        0,
        "an opt-out by KSM"
    );
    for peer in [&mut a, &mut b] {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}
