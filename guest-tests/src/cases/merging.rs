//! Merging frees memory, changes nothing else, and loses nothing.
//!
//! # Problem
//! A merge exchanges the page under a process that does not know of it. The machine must gain the
//! page, and the process must lose nothing: not a byte, not a page of its share.
//!
//! # Approach
//! Two peers with equal pages are merged; memory, shares and contents are read before and after,
//! from the kernel's own accounts and not from the module.

use uksm_policy::command::{FoldKind, FrameId, Lines, PageState, Status};

use super::Context;
use crate::fixtures::accounting::{
    COUNTER_LAG, counters, events, free_or_owned_pages, free_pages, resident, signed,
};
use crate::fixtures::domain::{Domain, Permit, entry};
use crate::fixtures::memory::write_and_check;
use crate::fixtures::pagemap;
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, pause, signal, wait};

cases! { "merging":
    merged_pages_become_free_memory_and_nothing_else_changes Normal Stock 60,
    merging_over_and_over_leaks_nothing Normal Stock 60,
    frames_of_a_closed_domain_are_freed_with_their_last_mapping Normal Stock 60,
    a_write_to_a_merged_page_is_seen_by_the_writer_only Normal Stock 60,
    merging_keeps_soft_dirty_bits Normal Stock 60,
    forked_children_read_and_write_merged_pages_as_their_own Normal Stock 60,
    pages_shared_by_fork_merge_in_parent_and_child Normal Stock 60,
    zero_pages_are_mapped_to_the_zero_page Normal Stock 60,
    merged_pages_of_one_process_count_as_self_shared Normal Stock 60,
    broken_pages_keep_their_contents_and_free_their_frames Normal Stock 60,
    a_process_writing_all_the_time_loses_no_write_to_merging Normal Stock 60,
}

const PAGES: usize = 2048;
const SEED: u64 = 11;
/// Noise of free memory between two readings of a quiet guest.
const FREE_NOISE: i64 = 192;

/// Two peers with equal pages, merged.
fn merged_pair(pages: usize) -> (Peer, Peer, Domain) {
    let (a, b) = (
        Peer::filled(pages, SEED, pages),
        Peer::filled(pages, SEED, pages),
    );
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    let counts = domain.merge(&spaces, 0..pages, Permit::default());
    assert_eq!(
        counts.merged(),
        2 * pages,
        "all pages should merge: {counts:?}"
    );
    (a, b, domain)
}

fn assert_intact(peer: &mut Peer, pages: usize) {
    let changed = peer.run(move |own| own.memory.changed(SEED, pages, 0..pages));
    assert_eq!(changed, 0, "pages of peer {} changed", peer.pid());
}

/// Free memory grows by the pages saved, the peers' shares stay, contents stay.
fn merged_pages_become_free_memory_and_nothing_else_changes(_: &mut Context) {
    let mut a = Peer::filled(PAGES, SEED, PAGES);
    let mut b = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    let shares = [resident(a.pid()), resident(b.pid())];
    let classes = [counters(a.pid()), counters(b.pid())];
    let free = free_pages();

    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());

    assert_eq!(
        counts.merged(),
        2 * PAGES,
        "all pages should merge: {counts:?}"
    );
    let gained = free_pages() - free;
    let expected = signed(PAGES);
    assert!(
        (gained - expected).abs() <= FREE_NOISE,
        "{expected} pages should become free, {gained} did"
    );
    for (at, peer) in [&a, &b].into_iter().enumerate() {
        assert_eq!(
            resident(peer.pid()),
            shares[at],
            "the share of a peer should not change"
        );
        for (now, then) in counters(peer.pid()).into_iter().zip(classes[at]) {
            assert!(
                now.abs_diff(then) <= COUNTER_LAG,
                "a counter went from {then} to {now}"
            );
        }
    }
    let counted = domain.count(spaces[0], PAGES);
    assert_eq!(counted.pages[PageState::Frame as usize], PAGES as u64);
    assert_eq!(
        pagemap::pfns(a.pid(), 0..PAGES),
        pagemap::pfns(b.pid(), 0..PAGES),
        "merged pages should be the same physical pages"
    );
    assert!(
        pagemap::entries(a.pid(), 0..PAGES)
            .iter()
            .all(|entry| !entry.is_file()),
        "merged pages should still count as anonymous"
    );
    assert_intact(&mut a, PAGES);
    assert_intact(&mut b, PAGES);
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}

/// Merging, breaking, exiting and killing again and again takes no memory.
fn merging_over_and_over_leaks_nothing(_: &mut Context) {
    const ROUNDS: usize = 6;
    const FEW: usize = 1024;
    let round = || {
        let (mut a, b, mut domain) = merged_pair(FEW);
        a.run(|own| own.memory.flip(0..FEW / 2));
        a.exit();
        b.kill();
        domain.assert_all_frames_return();
    };
    round();
    let free = free_or_owned_pages();
    for _ in 0..ROUNDS {
        round();
    }
    let lost = free - free_or_owned_pages();
    let limit = 2 * FREE_NOISE;
    assert!(
        lost < limit,
        "{ROUNDS} rounds of {FEW} pages should lose less than {limit}: {lost}"
    );
}

/// A domain that is closed with its frames mapped gives them back when the last mapping goes.
fn frames_of_a_closed_domain_are_freed_with_their_last_mapping(_: &mut Context) {
    let free = free_or_owned_pages();
    let (a, b, domain) = merged_pair(PAGES);
    drop(domain);
    a.exit();
    b.exit();
    let lost = free - free_or_owned_pages();
    assert!(
        lost < FREE_NOISE,
        "frames should be freed with their mappings, {lost} pages are not"
    );
    pagemap::assert_no_merged_page_is_left();
}

/// Only the writer sees the write; the frame loses one mapping each.
fn a_write_to_a_merged_page_is_seen_by_the_writer_only(_: &mut Context) {
    const WRITTEN: usize = 500;
    let (mut a, mut b, mut domain) = merged_pair(PAGES);
    let space = domain.attach(&a);
    let frames = domain.sample(space, 0..PAGES, Lines { from: 0, to: 0 });
    let breaks = events("cow_ksm");

    a.run(|own| own.memory.flip(0..WRITTEN));

    assert_eq!(
        a.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        WRITTEN
    );
    assert_intact(&mut b, PAGES);
    assert_eq!(domain.in_state(space, 0..PAGES, PageState::Anon), WRITTEN);
    assert_eq!(
        domain.in_state(space, 0..PAGES, PageState::Frame),
        PAGES - WRITTEN
    );
    assert_eq!(domain.sharers(FrameId(frames[0].frame)), Some(1));
    assert_eq!(domain.sharers(FrameId(frames[WRITTEN].frame)), Some(2));
    let seen = events("cow_ksm") - breaks;
    assert!(
        seen >= WRITTEN as u64,
        "the kernel should count {WRITTEN} copies, it counts {seen}"
    );

    a.run(|own| own.memory.flip(0..WRITTEN));
    assert_intact(&mut a, PAGES);
    let entries: Vec<_> = (0..WRITTEN)
        .map(|page| entry(space, page, FoldKind::Frame(FrameId(frames[page].frame))))
        .collect();
    let again = domain.fold_with_retries(&entries, Permit::default());
    let merged = again
        .iter()
        .filter(|outcome| outcome.status == Status::Merged)
        .count();
    assert_eq!(merged, WRITTEN, "pages with the old contents merge again");
    assert_intact(&mut a, PAGES);
    assert_intact(&mut b, PAGES);
}

/// A page that was not written since soft-dirty was cleared is not reported as written.
fn merging_keeps_soft_dirty_bits(_: &mut Context) {
    const FEW: usize = 64;
    let (a, b) = (Peer::filled(FEW, SEED, FEW), Peer::filled(FEW, SEED, FEW));
    let clear = format!("/proc/{}/clear_refs", a.pid());
    crate::fixtures::accounting::set(&clear, "4");
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    let counts = domain.merge(&spaces, 0..FEW, Permit::default());
    assert_eq!(counts.merged(), 2 * FEW, "{counts:?}");
    let dirty = |peer: &Peer| {
        pagemap::entries(peer.pid(), 0..FEW)
            .iter()
            .filter(|entry| entry.is_soft_dirty())
            .count()
    };
    assert_eq!(dirty(&a), 0, "clean pages should stay clean");
    assert_eq!(dirty(&b), FEW, "written pages should stay written");
}

/// Children read merged pages; writes of children and parent stay their own.
fn forked_children_read_and_write_merged_pages_as_their_own(_: &mut Context) {
    let (mut a, mut b, mut domain) = merged_pair(PAGES);
    let space = domain.attach(&a);
    let status = a.run(|own| {
        let memory = &mut own.memory;
        wait(fork(|| {
            let mut wrong = memory.changed(SEED, PAGES, 0..PAGES);
            for page in (0..PAGES).step_by(3) {
                memory.flip(page..page + 1);
            }
            let changed = memory.changed(SEED, PAGES, 0..PAGES);
            wrong += changed.abs_diff(PAGES.div_ceil(3));
            i32::from(wrong != 0)
        }))
    });
    assert_eq!(
        status, 0,
        "the child should read the right pages and write its own"
    );
    assert_intact(&mut a, PAGES);
    assert_intact(&mut b, PAGES);

    let child = a.run(|_| fork(|| pause()));
    let frame = domain.sample(space, 0..1, Lines { from: 0, to: 0 })[0].frame;
    assert_eq!(
        domain.sharers(FrameId(frame)),
        Some(3),
        "a fork maps the frame once more"
    );
    a.run(|own| own.memory.flip(0..PAGES));
    assert_eq!(
        pagemap::pfns(child, 0..PAGES),
        pagemap::pfns(b.pid(), 0..PAGES),
        "a child should keep the frames that its parent left"
    );
    a.run(move |_| {
        signal(child, libc::SIGKILL);
        wait(child)
    });
    assert_intact(&mut b, PAGES);
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}

/// Pages that parent and child share by fork merge, and stay right in both.
fn pages_shared_by_fork_merge_in_parent_and_child(_: &mut Context) {
    const FEW: usize = 256;
    let mut a = Peer::filled(FEW, SEED, FEW);
    let child = a.run(|_| fork(|| pause()));
    let mut b = Peer::filled(FEW, SEED, FEW);
    let mut domain = Domain::open();
    let spaces = [
        domain.attach(&a),
        domain.attach_pid(child),
        domain.attach(&b),
    ];
    let counts = domain.merge(&spaces, 0..FEW, Permit::default());
    assert_eq!(counts.merged(), 3 * FEW, "{counts:?}");
    assert_eq!(
        pagemap::pfns(child, 0..FEW),
        pagemap::pfns(b.pid(), 0..FEW),
        "all three should map the frames"
    );
    a.run(move |_| {
        signal(child, libc::SIGKILL);
        wait(child)
    });
    assert_intact(&mut a, FEW);
    assert_intact(&mut b, FEW);
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}

/// Zeros become the zero page, which costs nothing and is copied on write.
fn zero_pages_are_mapped_to_the_zero_page(_: &mut Context) {
    let mut a = Peer::new(PAGES);
    a.run(|own| {
        own.memory.flip(0..PAGES);
        own.memory.flip(0..PAGES);
    });
    let mut domain = Domain::open();
    let space = domain.attach(&a);
    let (free, before) = (free_pages(), resident(a.pid()).anonymous);

    let counts = domain.merge_zero(space, 0..PAGES);

    assert_eq!(counts.of(Status::Zeroed), PAGES, "{counts:?}");
    let gained = free_pages() - free;
    assert!(
        gained >= signed(PAGES) - FREE_NOISE,
        "{PAGES} pages should become free, not {gained}"
    );
    let left = resident(a.pid()).anonymous;
    // The remaining pages are the program's own, which does nothing meanwhile.
    assert_eq!(
        left + PAGES as u64,
        before,
        "the zero page should not count as anonymous: {left} pages left"
    );
    assert_eq!(
        a.run(|own| own.memory.nonzero(0..PAGES)),
        0,
        "zeros should be read"
    );
    assert_eq!(domain.in_state(space, 0..PAGES, PageState::Zero), PAGES);

    a.run(|own| own.memory.flip(0..PAGES / 2));
    assert_eq!(domain.in_state(space, 0..PAGES, PageState::Anon), PAGES / 2);
    assert_eq!(domain.in_state(space, 0..PAGES, PageState::Zero), PAGES / 2);
    assert_eq!(a.run(|own| own.memory.nonzero(0..PAGES)), PAGES / 2);
    let again = domain.merge_zero(space, PAGES / 2..PAGES);
    assert_eq!(again.of(Status::Already), PAGES / 2, "{again:?}");
    a.exit();
}

/// Equal pages of one process are merged into one frame for each content.
fn merged_pages_of_one_process_count_as_self_shared(_: &mut Context) {
    const FEW: usize = 1024;
    const DISTINCT: usize = 64;
    let mut a = Peer::filled(FEW, SEED, DISTINCT);
    let mut domain = Domain::open();
    let space = domain.attach(&a);
    let free = free_pages();
    let mut frames = Vec::new();
    for first in (0..FEW).step_by(512) {
        let entries: Vec<_> = (first..first + 512)
            .map(|page| {
                let class = page % DISTINCT;
                let set = u16::try_from(class).expect("few classes");
                let kind = frames
                    .get(class)
                    .map_or(FoldKind::Set(set), |&f| FoldKind::Frame(f));
                entry(space, page, kind)
            })
            .collect();
        let outcomes = domain.fold_with_retries(&entries, Permit::default());
        assert!(
            outcomes
                .iter()
                .all(|outcome| outcome.status == Status::Merged),
            "{outcomes:?}"
        );
        frames = outcomes[..DISTINCT]
            .iter()
            .map(|outcome| FrameId(outcome.frame))
            .collect();
    }
    let listed = domain.frames(Lines { from: 0, to: 0 }, false);
    assert_eq!(listed.len(), DISTINCT, "one frame for each content");
    assert!(
        listed
            .iter()
            .all(|frame| frame.sharers as usize == FEW / DISTINCT),
        "{listed:?}"
    );
    let gained = free_pages() - free;
    let expected = signed(FEW - DISTINCT);
    assert!(
        (gained - expected).abs() <= FREE_NOISE,
        "{expected} should become free, not {gained}"
    );
    assert_eq!(a.run(|own| own.memory.changed(SEED, DISTINCT, 0..FEW)), 0);
}

/// BREAK gives pages their own copies with the same contents, and frees the frames.
fn broken_pages_keep_their_contents_and_free_their_frames(_: &mut Context) {
    let (mut a, mut b, mut domain) = merged_pair(PAGES);
    let spaces = [domain.attach(&a), domain.attach(&b)];
    for space in spaces {
        assert_eq!(domain.unmerge(space, 0..PAGES), PAGES as u64);
        assert_eq!(domain.in_state(space, 0..PAGES, PageState::Anon), PAGES);
        assert_eq!(
            domain.unmerge(space, 0..PAGES),
            0,
            "nothing is left to break"
        );
    }
    assert_eq!(domain.info().broken, 2 * PAGES as u64);
    domain.assert_all_frames_return();
    assert_intact(&mut a, PAGES);
    assert_intact(&mut b, PAGES);
}

/// A process that runs while it is merged never sees a wrong byte and never loses a write.
fn a_process_writing_all_the_time_loses_no_write_to_merging(_: &mut Context) {
    const FEW: usize = 128;
    const SECONDS: u64 = 2;
    let mut still = Peer::filled(FEW, SEED, FEW);
    let mut busy = Peer::filled(FEW, SEED, FEW);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&still), domain.attach(&busy)];
    let running = busy.begin(|own| write_and_check(&mut own.memory, SECONDS));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(SECONDS);
    let mut merged = 0;
    while std::time::Instant::now() < end {
        merged += domain.merge(&spaces, 0..FEW, Permit::default()).merged();
    }
    let (rounds, wrong) = running.end();
    assert_eq!(
        wrong, 0,
        "wrong words in {rounds} rounds with {merged} merges"
    );
    assert!(
        rounds > 10 && merged > FEW,
        "rounds {rounds} and merges {merged} should meet"
    );
    assert_intact(&mut still, FEW);
    assert_intact(&mut busy, FEW);
}
