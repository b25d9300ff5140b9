//! The module next to in-kernel KSM.
//!
//! # Problem
//! Frames look to the kernel like pages of KSM, and ksmd may work on the same mappings.
//!
//! # Approach
//! Peers advise their memory as mergeable. First ksmd alone merges, and the module must recognise
//! its pages as KSM's; then both merge at once while peers write. ksmd is stopped with `run` 0: its
//! `run` 2 can take minutes in an emulated guest, and each peer's exit unmerges anyway.
//!
//! The effect of ksmd on pages that equal a frame is measured by the kernel's copies on write
//! (`cow_ksm`), which break the pages that ksmd has taken over. The daemon must leave all such
//! memory to KSM.

use std::thread::sleep;
use std::time::{Duration, Instant};

use uksm_policy::command::{PageState, Reason, Status};

use super::Context;
use crate::fixtures::accounting::{events, set, value};
use crate::fixtures::daemon::{Daemon, status_text};
use crate::fixtures::domain::{Domain, Permit};
use crate::fixtures::explanation::await_reason;
use crate::fixtures::ksm::{KSM, PAGES, RunningKsmd, SEED, mergeable_peer};
use crate::fixtures::memory::write_and_check;
use crate::fixtures::pagemap;
use crate::fixtures::peer::Peer;

cases! { "beside_ksm":
    pages_merged_by_ksm_are_named_and_refused Normal Stock 90,
    merging_together_with_ksm_keeps_contents Normal Stock 90,
    unmerging_by_ksm_breaks_our_frames_too Normal Stock 60,
    ksm_takes_and_breaks_pages_that_equal_a_frame_again_and_again Normal Stock 120,
    memory_offered_to_ksm_is_left_to_it_while_it_runs Policy Stock 180,
}

fn pages_merged_by_ksm_are_named_and_refused(_: &mut Context) {
    let (mut a, mut b) = (mergeable_peer(), mergeable_peer());
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    {
        let _scanning = RunningKsmd::start();
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

/// Pages that ksmd has broken in thirty scans, after each page was unchanged for some scans.
fn broken_in_scans() -> u64 {
    let scanned = |scans: u64| {
        let (path, end) = (
            format!("{KSM}/full_scans"),
            Instant::now() + Duration::from_secs(60),
        );
        let last = value(&path) + scans;
        while value(&path) < last {
            assert!(Instant::now() < end, "ksmd should scan {scans} times");
            sleep(Duration::from_millis(20));
        }
    };
    let _scanning = RunningKsmd::start();
    scanned(5);
    let before = events("cow_ksm");
    scanned(30);
    events("cow_ksm") - before
}

fn ksm_takes_and_breaks_pages_that_equal_a_frame_again_and_again(context: &mut Context) {
    // Half of the memory offered to KSM is merged, beside equal pages.
    let peers = [(); 3].map(|()| mergeable_peer());
    let mut domain = Domain::open();
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let counts = domain.merge(&spaces, 0..PAGES / 2, Permit::default());
    assert_eq!(counts.merged(), PAGES, "{counts:?}");
    let beside_frames = broken_in_scans();
    drop((domain, peers));
    // The same memory, left to KSM.
    let peers = [(); 3].map(|()| mergeable_peer());
    let alone = broken_in_scans();
    drop(peers);
    context.metric("broken beside frames", as_number(beside_frames), "pages");
    context.metric("broken by KSM alone", as_number(alone), "pages");
    assert!(
        beside_frames > PAGES as u64 && alone < PAGES as u64 / 8,
        "beside frames {beside_frames} pages were broken, {alone} without"
    );
}

fn as_number(count: u64) -> f64 {
    f64::from(u32::try_from(count).expect("few"))
}

fn memory_offered_to_ksm_is_left_to_it_while_it_runs(_: &mut Context) {
    // KSM runs, and ksmd sleeps: all merges are the daemon's.
    let scanning = RunningKsmd;
    set(&format!("{KSM}/sleep_millisecs"), "1000000");
    set(&format!("{KSM}/pages_to_scan"), "1");
    set(&format!("{KSM}/run"), "1");
    let offered = [(); 2].map(|()| mergeable_peer());
    let plain = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let all: Vec<&Peer> = offered.iter().chain(&plain).collect();
    let shared = |pair: &[Peer; 2]| pagemap::shared(pair[0].pid(), pair[1].pid(), PAGES);
    let await_merged = |daemon: &mut Daemon, pair: &[Peer; 2]| {
        let end = Instant::now() + Duration::from_secs(60);
        while shared(pair) < PAGES {
            daemon.assert_running();
            assert!(
                Instant::now() < end,
                "the daemon should merge: {}",
                status_text()
            );
            sleep(Duration::from_millis(20));
        }
    };
    let mut daemon = Daemon::start_on(&all, &[]);
    await_merged(&mut daemon, &plain);
    await_reason(&mut daemon, offered[0].pid(), "left-to-ksm", PAGES);
    assert_eq!(shared(&offered), 0);
    assert_eq!(pagemap::shared(offered[0].pid(), plain[0].pid(), PAGES), 0);
    daemon.stop();
    drop(scanning);
    let mut daemon = Daemon::start_on(&all, &[]);
    await_merged(&mut daemon, &offered);
    daemon.stop();
}

fn merging_together_with_ksm_keeps_contents(_: &mut Context) {
    const SECONDS: u64 = 4;
    let mut peers = [(); 3].map(|()| mergeable_peer());
    let mut domain = Domain::open();
    let spaces: Vec<_> = peers.iter().map(|peer| domain.attach(peer)).collect();
    // Some pages are merged by the domain first: ksmd can be so fast that it would take all others.
    let _first = domain.merge(&spaces, 0..PAGES, Permit::default());
    let _scanning = RunningKsmd::start();
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
