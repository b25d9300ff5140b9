//! Memory with a failed frame stays online as long as a process maps the frame.
//!
//! # Problem
//! Memory that fails is taken out of a running machine block by block. The kernel skips pages whose
//! memory has failed, since it has unmapped them; it cannot unmap a frame.
//!
//! # Approach
//! The machine has memory blocks that are offline at first. One goes online for movable pages, so
//! that all pages but a frame can leave it again, and a switch has one frame made there.
//! `hard_offline_page` marks it as failed. Such a block can never go online again.
//!
//! # Source
//! `kernel/guard_offline.c`.

use uksm_policy::command::FoldKind;

use super::Context;
use crate::fixtures::accounting::set;
use crate::fixtures::domain::{Domain, Permit, entry};
use crate::fixtures::fault_switches::{MOVABLE_FRAMES, with_faults};
use crate::fixtures::memory_blocks::Block;
use crate::fixtures::memory_failure::fail;
use crate::fixtures::pagemap::pfns;
use crate::fixtures::peer::Peer;

cases! { "offline_memory":
    memory_with_a_failed_frame_stays_online_while_it_is_mapped Normal Faults 90,
    memory_with_a_failed_frame_stays_online_while_its_domain_has_it Normal Faults 90,
    without_the_veto_memory_that_is_mapped_goes_offline Normal Faults 90,
}

const VETO: &str = "/sys/module/uksm_guard/parameters/veto";
const SEED: u64 = 58;

/// Two peers that map a failed frame in the block; the frame is an orphan, so no other page of a
/// domain is there.
fn map_failed_frame(context: &Context, block: &Block) -> [Peer; 2] {
    make_failed_frame(context, block).0
}

/// The same, with the frame's domain.
fn make_failed_frame(context: &Context, block: &Block) -> ([Peer; 2], Domain) {
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
    fail(frame);
    (peers, domain)
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
    let (peers, domain) = make_failed_frame(context, &block);
    peers.into_iter().for_each(Peer::exit);
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
