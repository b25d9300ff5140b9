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

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use uksm_policy::command::FoldKind;

use super::Context;
use super::failed_memory::{fail, kernel_deals_with_failures};
use super::negative_controls::{MOVABLE_FRAMES, with_faults};
use crate::fixtures::accounting::set;
use crate::fixtures::domain::{Domain, Permit, entry};
use crate::fixtures::pagemap::pfns;
use crate::fixtures::peer::{Peer, fork, wait};

cases! { "offline_memory":
    memory_with_a_failed_frame_stays_online_while_it_is_mapped Normal Faults 90,
    memory_with_a_failed_frame_stays_online_while_its_domain_has_it Normal Faults 90,
    without_the_veto_memory_that_is_mapped_goes_offline Normal Faults 90,
}

const FOLDER: &str = "/sys/devices/system/memory";
const VETO: &str = "/sys/module/uksm_guard/parameters/veto";
const SEED: u64 = 58;
/// Seconds after which the kernel gives up emptying the block.
pub(super) const PATIENCE: u32 = 30;

/// A block of memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block(PathBuf);

impl Block {
    /// The offline blocks, in the order of their addresses; none if this kernel takes no memory
    /// offline.
    pub(super) fn spare() -> Vec<Block> {
        let Ok(entries) = fs::read_dir(FOLDER) else {
            println!("this kernel takes no memory offline: nothing to test");
            return vec![];
        };
        let paths = entries.map(|entry| entry.expect(FOLDER).path());
        let mut spare: Vec<PathBuf> = paths
            .filter(|path| {
                let state = fs::read_to_string(path.join("state"));
                state.is_ok_and(|state| state.trim() == "offline")
            })
            .collect();
        spare.sort();
        assert!(!spare.is_empty(), "some memory should be offline");
        spare.into_iter().map(Block).collect()
    }

    /// The first block that goes online for movable pages: one with failed memory does not. `None`
    /// if this kernel marks no failures.
    fn for_a_failure() -> Option<Block> {
        if !kernel_deals_with_failures() {
            return None;
        }
        let mut spare = Block::spare().into_iter();
        spare.find(|block| block.try_set("online_movable").is_ok())
    }

    /// The blocks in which some of these pages lie.
    pub(super) fn of_all(pfns: &[u64]) -> Vec<Block> {
        let size = block_size();
        let numbers: BTreeSet<u64> = pfns.iter().map(|pfn| (pfn << 12) / size).collect();
        let path = |number: &u64| Block(format!("{FOLDER}/memory{number}").into());
        numbers.iter().map(path).collect()
    }

    fn is_offline(&self) -> bool {
        let state = fs::read_to_string(self.0.join("state")).expect("state");
        state.trim() == "offline"
    }

    pub(super) fn try_set(&self, state: &str) -> io::Result<()> {
        fs::write(self.0.join("state"), state)
    }

    /// Takes it offline; returns the system's error, or 0.
    pub(super) fn take_offline(&self) -> i32 {
        let path = self.0.join("state");
        let status = wait(fork(|| {
            // SAFETY: alarm touches no memory.
            unsafe { libc::alarm(PATIENCE) };
            let error = fs::write(&path, "offline").err();
            error.map_or(0, |error| error.raw_os_error().unwrap_or(255))
        }));
        assert!(libc::WIFEXITED(status), "the kernel did not give up");
        libc::WEXITSTATUS(status)
    }

    fn has(&self, pfn: u64) -> bool {
        self.count(&[pfn]) == 1
    }

    /// The number of these pages that lie in it.
    pub(super) fn count(&self, pfns: &[u64]) -> usize {
        let index = fs::read_to_string(self.0.join("phys_index")).expect("an index");
        let index = u64::from_str_radix(index.trim(), 16).expect("a number");
        let size = block_size();
        let lies_in = |pfn: &&u64| (**pfn << 12) / size == index;
        pfns.iter().filter(lies_in).count()
    }
}

fn block_size() -> u64 {
    let size = fs::read_to_string(format!("{FOLDER}/block_size_bytes")).expect("a size");
    u64::from_str_radix(size.trim(), 16).expect("a number")
}

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
