//! Memory with a frame stays online as long as the frame is there, failed or not.
//!
//! # Problem
//! Memory that fails is taken out of a running machine block by block. The kernel skips pages whose
//! memory has failed, since it has unmapped them; it cannot unmap a frame. At a frame whose memory
//! is good it must give up soon.
//!
//! # Approach
//! The machine has memory blocks that are offline at first. One goes online for movable pages, so
//! that all pages but a frame can leave it again, and a switch has one frame made there.
//! `hard_offline_page` marks it as failed. Such a block can never go online again. Another one goes
//! online for all pages: frames lie there first of all, and later nothing may keep it.
//!
//! # Source
//! `kernel/guard_offline.c`.

use std::time::{Duration, Instant};

use uksm_policy::command::{FoldKind, SpaceId};

use super::Context;
use crate::fixtures::accounting::set;
use crate::fixtures::domain::{Domain, Permit, entry};
use crate::fixtures::fault_switches::{MOVABLE_FRAMES, with_faults};
use crate::fixtures::memory_blocks::Block;
use crate::fixtures::memory_failure::fail;
use crate::fixtures::pagemap::{assert_no_merged_page_is_left, pfns};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, signal, wait};

cases! { "offline_memory":
    memory_with_frames_answers_soon_and_keeps_them Normal Faults 90,
    memory_with_a_failed_frame_stays_online_while_it_is_mapped Normal Faults 90,
    memory_with_a_failed_frame_stays_online_while_its_domain_has_it Normal Faults 90,
    memory_with_a_failed_page_of_the_pool_stays_online_while_the_domain_has_it Normal Faults 90,
    without_the_veto_memory_that_is_mapped_goes_offline Normal Faults 90,
}

const VETO: &str = "/sys/module/uksm_guard/parameters/veto";
const SEED: u64 = 58;
/// Pages of a process that shares frames whose memory is good.
const PAGES: usize = 2048;
/// Those of them that stay merged.
const STABLE: usize = PAGES / 2;

/// Takes the block offline while pages are broken and merged again and again; returns the system's
/// error, or 0. The answer must come soon.
fn offline_beside_churn(block: &Block, domain: &mut Domain, spaces: [SpaceId; 2]) -> i32 {
    const MAX_WAIT: Duration = Duration::from_secs(10);
    let churn = fork(|| {
        loop {
            let broken = domain.unmerge(spaces[0], STABLE..PAGES);
            let counts = domain.merge(&spaces, STABLE..PAGES, Permit::default());
            assert!(broken > 0 && counts.merged() > 0, "{broken}, {counts:?}");
        }
    });
    let begun = Instant::now();
    let error = block.take_offline();
    assert!(begun.elapsed() < MAX_WAIT, "after {:?}", begun.elapsed());
    signal(churn, libc::SIGKILL);
    assert_eq!(
        wait(churn),
        libc::SIGKILL,
        "pages should be broken and merged"
    );
    error
}

fn memory_with_frames_answers_soon_and_keeps_them(context: &mut Context) {
    let mut spare = Block::spare().into_iter();
    let Some(block) = spare.find(|block| block.try_set("online_kernel").is_ok()) else {
        return;
    };
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = Domain::open();
    let spaces = [domain.attach(&peers[0]), domain.attach(&peers[1])];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    let frames = pfns(peers[0].pid(), 0..PAGES);
    assert!(block.count(&frames) > PAGES / 2, "frames should lie there");
    assert_eq!(
        offline_beside_churn(&block, &mut domain, spaces),
        libc::EBUSY
    );
    assert!(!block.is_offline());
    let after = peers.each_ref().map(|peer| pfns(peer.pid(), 0..STABLE));
    assert_eq!(after, [&frames[..STABLE]; 2], "frames should stay");
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    peers.into_iter().for_each(Peer::exit);
    domain.assert_all_frames_return();
    drop(domain);
    assert_no_merged_page_is_left();
    // The kernel may have put pages of its own there.
    let error = block.take_offline();
    context.note(format!("{block:?} without frames: {error}"));
    assert!([0, libc::EBUSY].contains(&error), "{error}");
}

/// Two peers that map a failed frame in the block; the frame is an orphan, so no other page of a
/// domain is there.
fn map_failed_frame(context: &Context, block: &Block) -> [Peer; 2] {
    let (peers, domain, frame) = make_frame(context, block);
    fail(frame);
    drop(domain);
    peers
}

/// Two peers that map a frame in the block, its domain and its number.
fn make_frame(context: &Context, block: &Block) -> ([Peer; 2], Domain, u64) {
    let peers = [(); 2].map(|()| Peer::filled(1, SEED, 1));
    let mut domain = Domain::open();
    let set = peers
        .each_ref()
        .map(|peer| entry(domain.attach(peer), 0, FoldKind::Set(0)));
    let outcomes = with_faults(context, MOVABLE_FRAMES, || {
        domain.fold_with_retries(&set, Permit::default())
    });
    let frame = pfns(peers[0].pid(), 0..1)[0];
    assert_eq!(frame, pfns(peers[1].pid(), 0..1)[0], "{outcomes:?}");
    assert!(block.has(frame), "page {frame:#x} is not in the block");
    (peers, domain, frame)
}

fn memory_with_a_failed_frame_stays_online_while_it_is_mapped(context: &mut Context) {
    let Some(block) = Block::for_a_failure() else {
        return;
    };
    let mut peers = map_failed_frame(context, &block);
    assert_eq!(block.take_offline(), libc::EBUSY);
    assert!(!block.is_offline());
    let log = context.kernel_log().expect("the kernel's log");
    assert!(
        log.iter().any(|line| line.contains("stays online")),
        "the reason should be named: {log:?}"
    );
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, 1, 0..1)), 0);
    }
    peers.into_iter().for_each(Peer::exit);
    assert_eq!(block.take_offline(), 0, "nobody maps the frame any more");
    assert!(block.is_offline());
}

fn memory_with_a_failed_frame_stays_online_while_its_domain_has_it(context: &mut Context) {
    let Some(block) = Block::for_a_failure() else {
        return;
    };
    let (peers, domain, frame) = make_frame(context, &block);
    fail(frame);
    peers.into_iter().for_each(Peer::exit);
    assert_stays_until_dropped(context, &block, domain);
}

fn memory_with_a_failed_page_of_the_pool_stays_online_while_the_domain_has_it(
    context: &mut Context,
) {
    let Some(block) = Block::for_a_failure() else {
        return;
    };
    let (peers, mut domain, frame) = make_frame(context, &block);
    peers.into_iter().for_each(Peer::exit);
    domain.assert_all_frames_return();
    fail(frame);
    assert_stays_until_dropped(context, &block, domain);
}

fn assert_stays_until_dropped(context: &Context, block: &Block, domain: Domain) {
    let refused = block.take_offline();
    let log = context.kernel_log().expect("the kernel's log");
    assert_eq!(refused, libc::EBUSY, "{log:?}");
    assert!(
        log.iter().any(|line| line.contains("stays online")),
        "the reason should be named: {log:?}"
    );
    drop(domain);
    assert_eq!(block.take_offline(), 0, "the domain has given it up");
    assert!(block.is_offline());
}

fn without_the_veto_memory_that_is_mapped_goes_offline(context: &mut Context) {
    let Some(block) = Block::for_a_failure() else {
        return;
    };
    let peers = map_failed_frame(context, &block);
    set(VETO, "0");
    let error = block.take_offline();
    set(VETO, "1");
    assert_eq!(error, 0, "the kernel should pass over the frame");
    assert!(block.is_offline());
    for peer in &peers {
        assert!(block.has(pfns(peer.pid(), 0..1)[0]), "it is still mapped");
    }
    peers.into_iter().for_each(Peer::exit);
}
