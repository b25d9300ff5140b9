//! Turns off one safety step at a time: the damage must be seen.
//!
//! # Problem
//! A test of safety that always passes proves nothing.
//!
//! # Approach
//! The module's test build can leave out single steps of a merge (parameter `faults`). Each control
//! runs one check twice: with the step, when nothing may be damaged, and without it, when something
//! must be. A page that is merged without its flush or its reference check may be freed while a
//! process still writes to it; to keep the kernel itself whole, the pages concerned are also held
//! by a pipe, for which the reference check is left out in both runs.
//!
//! # Source
//! `kernel/faults.h`.

use std::time::{Duration, Instant};

use uksm_policy::command::{FoldKind, Status};

use super::Context;
use super::pinned_pages::lost_after_pinning_before_a_merge;
use crate::fixtures::contents::Content;
use crate::fixtures::domain::{Domain, Permit, entry};
use crate::fixtures::fault_switches::{NO_COMPARE, NO_FLUSH, NO_REFERENCES, with_faults};
use crate::fixtures::memory::{BASE, Huge, Memory};
use crate::fixtures::peer::Peer;
use crate::fixtures::pins::Splice;

cases! { "negative_controls":
    without_the_comparison_different_pages_are_merged NegativeControl Faults 60,
    without_the_reference_check_writes_through_pins_are_lost NegativeControl Faults 60,
    without_the_flush_writes_of_a_running_process_are_lost NegativeControl Faults 90,
}

const SEED: u64 = 27;

/// Offers pages that differ in one bit, each pair as a set; returns the number of damaged pages.
fn damaged_by_merging_different_pages() -> usize {
    const PAGES: usize = 64;
    let mut a = Peer::filled(PAGES, SEED, PAGES);
    let mut b = Peer::filled(PAGES, SEED, PAGES);
    b.run(|own| own.memory.flip(0..PAGES));
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    let _counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    b.run(|own| own.memory.flip(0..PAGES));
    let changed = |peer: &mut Peer| peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES));
    changed(&mut a) + changed(&mut b)
}

fn without_the_comparison_different_pages_are_merged(context: &mut Context) {
    assert_eq!(damaged_by_merging_different_pages(), 0);
    let damaged = with_faults(context, NO_COMPARE, damaged_by_merging_different_pages);
    assert!(damaged > 0, "merging without comparing should be noticed");
    assert_eq!(damaged_by_merging_different_pages(), 0);
}

fn without_the_reference_check_writes_through_pins_are_lost(context: &mut Context) {
    assert_eq!(lost_after_pinning_before_a_merge().1, 0);
    let (counts, lost) = with_faults(context, NO_REFERENCES, lost_after_pinning_before_a_merge);
    assert!(
        lost > 0,
        "merging pinned pages should be noticed: {counts:?}"
    );
    assert_eq!(lost_after_pinning_before_a_merge().1, 0);
}

const WRITER_PAGES: usize = 256;
/// Pages whose protection is changed to empty this CPU's TLB: more than the kernel flushes singly.
const SCRATCH: u64 = BASE + (1 << 30);
const SCRATCH_PAGES: usize = 128;

/// Writes to all pages through the present TLB entries, empties the TLB, and counts missing writes.
/// Then undoes the writes and gives a merger some time.
fn writes_lost_while_merging(memory: &mut Memory, seconds: u64) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let mut scratch = Memory::at(SCRATCH, SCRATCH_PAGES, flags, -1);
    scratch.advise_huge(Huge::Never);
    scratch.fill(SEED, 1);
    let flush = |scratch: &Memory| {
        scratch
            .protect(0..SCRATCH_PAGES, libc::PROT_READ)
            .expect("mprotect");
        let all = libc::PROT_READ | libc::PROT_WRITE;
        scratch.protect(0..SCRATCH_PAGES, all).expect("mprotect");
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut lost, mut round) = (0, 0);
    while Instant::now() < end {
        round += 1;
        let base: Vec<u64> = (0..WRITER_PAGES).map(|page| memory.word(page, 0)).collect();
        for (page, &base) in base.iter().enumerate() {
            memory.set_word(page, 0, base ^ round);
        }
        flush(&scratch);
        for (page, &base) in base.iter().enumerate() {
            lost += usize::from(memory.word(page, 0) != base ^ round);
            memory.set_word(page, 0, base);
        }
        let pause = Instant::now() + Duration::from_millis(3);
        while Instant::now() < pause {
            std::hint::spin_loop();
        }
    }
    lost
}

/// Attempts to meet a loss that depends on chance.
const MAX_TRIES: u32 = 10;

/// Merges the pages of a process that writes all the time, each page once: (merged, writes lost).
fn merge_a_writer() -> (usize, usize) {
    const SECONDS: u64 = 3;
    let mut still = Peer::filled(WRITER_PAGES, SEED, WRITER_PAGES);
    let mut busy = Peer::filled(WRITER_PAGES, SEED, WRITER_PAGES);
    busy.run(|own| own.splice = Some(Splice::new(&own.memory, 0..WRITER_PAGES)));
    let mut domain = Domain::open();
    let spaces = [domain.attach(&still), domain.attach(&busy)];
    let running = busy.begin(|own| writes_lost_while_merging(&mut own.memory, SECONDS));
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let mut merged = vec![false; WRITER_PAGES];
    while Instant::now() < end && merged.contains(&false) {
        for (page, merged) in merged.iter_mut().enumerate() {
            if !*merged {
                let entries = spaces.map(|space| entry(space, page, FoldKind::Set(0)));
                let outcomes = domain.fold_batch(&uksm_policy::command::FoldBatch {
                    entries: entries.to_vec(),
                    ..Default::default()
                });
                *merged = outcomes[1].status == Status::Merged;
            }
        }
    }
    let lost = running.end();
    let wrong = still.run(|own| {
        let memory = &own.memory;
        let content = |page| Content::new(SEED, page as u64);
        (0..WRITER_PAGES)
            .filter(|&page| !memory.holds(page, content(page)))
            .count()
    });
    (
        merged.iter().filter(|&&merged| merged).count(),
        lost + wrong,
    )
}

fn without_the_flush_writes_of_a_running_process_are_lost(context: &mut Context) {
    let (merged, lost) = with_faults(context, NO_REFERENCES, merge_a_writer);
    assert!(
        merged > WRITER_PAGES / 4,
        "only {merged} pages of the writer were merged"
    );
    assert_eq!(
        lost, 0,
        "with the flush no write should be lost, {merged} pages were merged"
    );
    // The writer must write between two steps of a merge, which is a matter of chance.
    let (mut merged, mut lost) = (0, 0);
    for _ in 0..MAX_TRIES {
        let once = with_faults(context, NO_REFERENCES | NO_FLUSH, merge_a_writer);
        (merged, lost) = (merged + once.0, lost + once.1);
        if lost > 0 {
            break;
        }
    }
    context.note(format!(
        "without the flush {lost} writes were lost with {merged} merges"
    ));
    assert!(
        lost > 0,
        "without the flush lost writes should be noticed: {merged} merges"
    );
}
