//! Memory that is plugged into a running machine, and taken out of it again.
//!
//! # Problem
//! Memory is taken out block by block. The kernel moves ordinary pages elsewhere, merged or not; it
//! cannot move a frame. It must be able to take out all memory plugged in for movable pages, while
//! merging goes on there; and if it cannot, it must report that soon.
//!
//! # Approach
//! The machine has memory blocks that are offline at first. Two go online for movable pages and
//! hold most pages of processes that a daemon merges. Frames lie elsewhere.
//!
//! # Source
//! Kernel documentation, `admin-guide/mm/memory-hotplug.rst`.

use std::collections::HashSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::daemon::{Daemon, status_text};
use crate::fixtures::memory_blocks::{Block, EMPTYING_TIMEOUT_S};
use crate::fixtures::pagemap::{pfns, shared};
use crate::fixtures::peer::Peer;

cases! { "daemon::plugged_memory":
    plugged_memory_goes_while_its_pages_are_merged Normal Faults 240,
}

const SEED: u64 = 59;
/// Number of the spare blocks that are plugged in.
const PLUGGED: usize = 2;
/// Pages of each of two peers: together they do not fit into one block.
const PAGES: usize = 24_000;
/// Pages that a third one writes.
const WRITTEN: usize = 2000;

/// Plugs blocks in, for movable pages.
fn plug_in() -> Vec<Block> {
    let mut spare = Block::spare();
    spare.retain(|block| block.try_set("online_movable").is_ok());
    for unused in spare.drain(PLUGGED.min(spare.len())..) {
        assert_eq!(unused.take_offline(), 0, "{unused:?}");
    }
    spare
}

/// Two peers with equal contents, whose pages lie in each of the blocks, and one that writes to
/// pages shared with them.
fn peers_in(blocks: &[Block]) -> [Peer; 3] {
    let pages = [PAGES, PAGES, WRITTEN];
    let peers = pages.map(|pages| Peer::filled(pages, SEED, pages));
    let pfns: Vec<u64> = peers[..2]
        .iter()
        .flat_map(|peer| pfns(peer.pid(), 0..PAGES))
        .collect();
    for block in blocks {
        assert!(block.count(&pfns) > 1000, "{block:?} has few of the pages");
    }
    peers
}

fn await_merged(daemon: &mut Daemon, peers: &[Peer; 3], wanted: usize) {
    let end = Instant::now() + Duration::from_secs(60);
    while shared(peers[0].pid(), peers[1].pid(), PAGES) < wanted {
        daemon.assert_running();
        assert!(
            Instant::now() < end,
            "too little is merged: {}",
            status_text()
        );
        sleep(Duration::from_millis(20));
    }
}

/// Physical pages that the first two map at the same place.
fn frames(peers: &[Peer; 3]) -> Vec<u64> {
    let [one, two] = [0, 1].map(|at: usize| pfns(peers[at].pid(), 0..PAGES));
    let pairs = one.into_iter().zip(two);
    let merged = pairs.filter(|(one, two)| one == two && *one != 0);
    merged.map(|(one, _)| one).collect()
}

fn assert_contents(peers: &mut [Peer; 3]) {
    for peer in &mut peers[..2] {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
    let writer = &mut peers[2];
    assert_eq!(
        writer.run(|own| own.memory.changed(SEED, WRITTEN, 0..WRITTEN)),
        0
    );
}

fn plugged_memory_goes_while_its_pages_are_merged(context: &mut Context) {
    let blocks = plug_in();
    if blocks.is_empty() {
        return;
    }
    assert_eq!(blocks.len(), PLUGGED);
    let mut peers = peers_in(&blocks);
    let mut daemon = Daemon::start_on(&[&peers[0], &peers[1], &peers[2]], &[]);
    await_merged(&mut daemon, &peers, PAGES / 16);
    // Merging goes on meanwhile, and so does a writer.
    let [one, two, writer] = &mut peers;
    let writing = writer.begin(|own| {
        for _ in 0..40 {
            own.memory.flip(0..WRITTEN);
            sleep(Duration::from_millis(50));
        }
    });
    let merged_before = shared(one.pid(), two.pid(), PAGES);
    for block in &blocks {
        let begun = Instant::now();
        assert_eq!(block.take_offline(), 0, "{block:?} has no frame");
        context.note(format!("{block:?} went after {:.1?}", begun.elapsed()));
    }
    let merged_after = shared(one.pid(), two.pid(), PAGES);
    context.note(format!(
        "{merged_before} pages were merged before, {merged_after} after"
    ));
    writing.end();
    await_merged(&mut daemon, &peers, PAGES * 95 / 100);
    assert_contents(&mut peers);

    // A block with frames stays, and the kernel reports it soon. One with a hole in it always
    // stays.
    let before = frames(&peers);
    let mut errors = Vec::new();
    let mut longest = Duration::ZERO;
    for block in Block::of_all(&before) {
        let begun = Instant::now();
        errors.push(block.take_offline());
        longest = longest.max(begun.elapsed());
    }
    context.note(format!(
        "blocks with frames: {errors:?}, at most {longest:.1?} each"
    ));
    assert!(longest < Duration::from_secs(u64::from(EMPTYING_TIMEOUT_S) / 2));
    let is_refused = |error: &i32| [libc::EBUSY, libc::EINVAL].contains(error);
    assert!(
        errors.iter().all(is_refused) && errors.contains(&libc::EBUSY),
        "{errors:?}"
    );
    assert_contents(&mut peers);
    let after: HashSet<u64> = frames(&peers).into_iter().collect();
    let kept = before.iter().filter(|frame| after.contains(frame)).count();
    assert!(
        kept > before.len() * 9 / 10,
        "{kept} of {} frames",
        before.len()
    );
    daemon.assert_running();

    // Memory that is plugged in again takes pages, and no frame.
    daemon.stop();
    drop(peers);
    for block in &blocks {
        block.try_set("online_movable").expect("it goes online");
    }
    let mut peers = peers_in(&blocks);
    let mut daemon = Daemon::start_on(&[&peers[0], &peers[1], &peers[2]], &[]);
    await_merged(&mut daemon, &peers, PAGES * 95 / 100);
    let frames = frames(&peers);
    for block in &blocks {
        assert_eq!(block.count(&frames), 0, "{block:?} has frames");
    }
    assert_contents(&mut peers);
    daemon.stop();
    peers.into_iter().for_each(Peer::exit);
    for block in &blocks {
        assert_eq!(block.take_offline(), 0, "{block:?}");
    }
}
