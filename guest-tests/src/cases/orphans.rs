//! Frames that outlive their domain, and pages that outlive their frame.
//!
//! # Problem
//! A new daemon finds all merged pages of the daemon before it, as orphans. If it merged them
//! again, it would copy every page; if it took over those of any domain, strangers would share
//! memory.
//!
//! # Approach
//! A domain is closed with its frames mapped. A second one has the same seed or another, and the
//! physical pages that the peers map show whether anything was copied.

use std::collections::BTreeSet;
use std::fs;

use uksm_policy::command::{FoldKind, PageState};

use super::Context;
use crate::fixtures::accounting::{free_pages, signed};
use crate::fixtures::domain::{Domain, Permit, domain_with_seed, entry};
use crate::fixtures::pagemap::pfns;
use crate::fixtures::peer::Peer;

cases! { "orphans":
    a_domain_of_the_same_seed_adopts_orphans_where_they_are Normal Stock 60,
    a_domain_of_another_seed_copies_orphans Normal Stock 60,
    an_orphan_that_somebody_holds_is_not_adopted Normal Stock 60,
    pages_of_freed_frames_become_the_next_frames Normal Stock 60,
    frames_without_mappings_are_freed_when_memory_is_short Normal Stock 60,
}

const PAGES: usize = 256;
const SEED: u64 = 42;
const HASH_SEED: u64 = 4242;

/// Two peers that a domain of [`HASH_SEED`] has merged before it was closed.
fn orphaned_pair() -> [Peer; 2] {
    let peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = domain_with_seed(HASH_SEED);
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    peers
}

fn assert_intact(peers: &mut [Peer]) {
    for peer in peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}

fn a_domain_of_the_same_seed_adopts_orphans_where_they_are(_: &mut Context) {
    let mut peers = orphaned_pair();
    let before = pfns(peers[0].pid(), 0..PAGES);
    let mut domain = domain_with_seed(HASH_SEED);
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    assert_eq!(
        domain.in_state(spaces[0], 0..PAGES, PageState::Orphan),
        PAGES
    );
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    let info = domain.info();
    assert_eq!(
        (info.adopted, info.frames_made, info.frames),
        (PAGES as u64, PAGES as u64, PAGES as u64),
        "{counts:?}"
    );
    for peer in &peers {
        assert_eq!(pfns(peer.pid(), 0..PAGES), before, "no page should move");
    }
    assert_eq!(
        domain.in_state(spaces[1], 0..PAGES, PageState::Frame),
        PAGES
    );

    // They are frames like others: pages of a third process join them, writes leave them.
    let third = Peer::filled(PAGES, SEED, PAGES);
    let all = [spaces[0], domain.attach(&third)];
    let counts = domain.merge(&all, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), PAGES, "{counts:?}");
    assert_eq!(pfns(third.pid(), 0..PAGES), before);
    peers[0].run(|own| own.memory.flip(0..PAGES));
    peers[0].run(|own| own.memory.flip(0..PAGES));
    assert_intact(&mut peers);
    for peer in peers {
        peer.exit();
    }
    third.exit();
    domain.assert_all_frames_return();
}

fn a_domain_of_another_seed_copies_orphans(_: &mut Context) {
    let mut peers = orphaned_pair();
    let before: BTreeSet<u64> = pfns(peers[0].pid(), 0..PAGES).into_iter().collect();
    let mut domain = domain_with_seed(HASH_SEED + 1);
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    assert_eq!(domain.info().adopted, 0);
    let after: BTreeSet<u64> = pfns(peers[0].pid(), 0..PAGES).into_iter().collect();
    assert_eq!(after.len(), PAGES);
    assert!(
        after.is_disjoint(&before),
        "a stranger's frames should be copied"
    );
    assert_intact(&mut peers);
    for peer in peers {
        peer.exit();
    }
    domain.assert_all_frames_return();
}

fn an_orphan_that_somebody_holds_is_not_adopted(_: &mut Context) {
    let mut peers = orphaned_pair();
    peers[0].run(|own| own.splice = Some(crate::fixtures::pins::Splice::new(&own.memory, 0..8)));
    let mut domain = domain_with_seed(HASH_SEED);
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces, 0..8, Permit::default());
    assert_eq!(domain.info().adopted, 0, "{counts:?}");
    let counts = domain.merge(&spaces, 8..16, Permit::default());
    assert_eq!(domain.info().adopted, 8, "{counts:?}");
    peers[0].run(|own| own.splice = None);
    let counts = domain.merge(&spaces, 0..8, Permit::default());
    assert_eq!(domain.info().adopted, 16, "{counts:?}");
    assert_intact(&mut peers);
}

fn pages_of_freed_frames_become_the_next_frames(_: &mut Context) {
    const FEW: usize = 32;
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = Domain::open();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces, 0..FEW, Permit::default());
    assert_eq!(counts.merged(), 2 * FEW, "{counts:?}");
    let first: BTreeSet<u64> = pfns(peers[0].pid(), 0..FEW).into_iter().collect();
    for peer in &mut peers {
        peer.run(|own| own.memory.flip(0..FEW));
        peer.run(|own| own.memory.flip(0..FEW));
    }
    domain.assert_all_frames_return();
    let counts = domain.merge(&spaces, FEW..2 * FEW, Permit::default());
    assert_eq!(counts.merged(), 2 * FEW, "{counts:?}");
    let second: BTreeSet<u64> = pfns(peers[0].pid(), FEW..2 * FEW).into_iter().collect();
    assert_eq!(first, second, "the same physical pages should serve again");
    assert_intact(&mut peers);
    for peer in peers {
        peer.exit();
    }
    domain.assert_all_frames_return();
}

/// The daemon makes no request here: it may be stopped just when memory is short.
fn frames_without_mappings_are_freed_when_memory_is_short(_: &mut Context) {
    const MANY: usize = 4096;
    let peers = [(); 2].map(|()| Peer::filled(MANY, SEED, MANY));
    let mut domain = Domain::open();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces, 0..MANY, Permit::default());
    assert_eq!(counts.merged(), 2 * MANY, "{counts:?}");
    let mut third = Peer::filled(8, SEED, MANY);
    let space = domain.attach(&third);
    let counts = domain.merge(&[spaces[0], space], 0..8, Permit::default());
    assert_eq!(counts.merged(), 8, "{counts:?}");
    for peer in peers {
        peer.exit();
    }
    let free = free_pages();
    assert_eq!(domain.info().frames, MANY as u64, "nobody asked for them");
    // As in reclaim, but now: all shrinkers are called until they find nothing. The last few are
    // too few for one scan, and are deferred.
    for _ in 0..20 {
        fs::write("/proc/sys/vm/drop_caches", "2").expect("drop_caches");
    }
    let info = domain.info();
    assert_eq!(info.frames, 8, "frames in use should stay: {info:?}");
    assert_eq!(info.frames_freed, MANY as u64 - 8);
    let gained = free_pages() - free;
    assert!(
        gained > signed(MANY) * 9 / 10,
        "{MANY} pages should become free, not {gained}"
    );
    assert_eq!(third.run(|own| own.memory.changed(SEED, MANY, 0..8)), 0);
    let known = entry(space, 0, FoldKind::Set(0));
    let outcome = domain.fold(&[known], Permit::default());
    assert_ne!(
        outcome[0].frame, 0,
        "a frame in use is still known: {outcome:?}"
    );
    third.exit();
    domain.assert_all_frames_return();
}
