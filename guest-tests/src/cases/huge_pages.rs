//! Huge pages: read in place, split only with permission, and gathered again by the kernel.
//!
//! # Problem
//! Distributions use huge pages everywhere. A merge must split them first, and khugepaged or
//! MADV_COLLAPSE may gather merged pages into a huge page again.
//!
//! # Approach
//! Peers with huge pages are sampled, folded without and with the right to split, and collapsed
//! after a merge; contents are checked each time.
//!
//! A kernel without huge pages (PREEMPT_RT) must report that in INFO, and merge the same memory
//! without a split.
//!
//! A page has 4 KiB; a huge page is 512 of them.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use uksm_policy::command::{FoldKind, Lines, PageFlags, PageState, Reason, SpaceId, Status};

use super::Context;
use crate::fixtures::accounting::{free_pages, numbers, set, signed, value};
use crate::fixtures::contents::{HUGE_PAGES, WORDS};
use crate::fixtures::domain::{Domain, Permit, entry};
use crate::fixtures::memory::Huge;
use crate::fixtures::peer::Peer;

cases! { "huge_pages":
    huge_pages_are_sampled_in_place Normal Stock 60,
    huge_pages_are_split_only_with_the_right_to_split Normal Stock 60,
    zeros_that_the_kernel_frees_at_a_split_are_counted_apart Normal Stock 60,
    collapsing_merged_pages_keeps_their_contents Normal Stock 60,
    khugepaged_over_merged_pages_keeps_their_contents Normal Stock 120,
}

const PAGES: usize = 4 * HUGE_PAGES;
const SEED: u64 = 16;
const MADV_COLLAPSE: i32 = 25;
const KHUGEPAGED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged";

/// The part of `pages` that is huge: all, or none on a kernel that has no huge pages.
fn huge_of(pages: usize) -> u64 {
    if Huge::exist() { pages as u64 } else { 0 }
}

fn huge_peer() -> Peer {
    let mut peer = Peer::with(PAGES, Huge::Always);
    peer.run(|own| own.memory.fill(SEED, PAGES));
    peer
}

fn pair() -> (Peer, Peer, Domain, [SpaceId; 2]) {
    let (a, b) = (huge_peer(), huge_peer());
    let domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    for space in spaces {
        let counted = domain.count(space, PAGES);
        assert_eq!(
            counted.huge,
            huge_of(PAGES),
            "the peer should have huge pages: {counted:?}"
        );
    }
    (a, b, domain, spaces)
}

fn assert_intact(peer: &mut Peer) {
    assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
}

fn huge_pages_are_sampled_in_place(_: &mut Context) {
    let (_a, _b, mut domain, spaces) = pair();
    let mut small = Peer::filled(PAGES, SEED, PAGES);
    let space = domain.attach(&small);
    let lines = Lines { from: 0, to: 64 };
    let huge = domain.sample(spaces[0], 0..PAGES, lines);
    let plain = domain.sample(space, 0..PAGES, lines);
    for (page, (huge, plain)) in huge.iter().zip(&plain).enumerate() {
        assert_eq!(
            huge.hash, plain.hash,
            "page {page} should hash alike in a huge page"
        );
        assert_eq!(huge.state, PageState::Anon);
        assert_eq!(huge.flags.any(PageFlags::HUGE), Huge::exist());
        assert!(!plain.flags.any(PageFlags::HUGE));
    }
    assert_eq!(
        domain.count(spaces[0], PAGES).huge,
        huge_of(PAGES),
        "sampling should not split"
    );
    assert_eq!(domain.info().splits, 0);
    assert_intact(&mut small);
}

fn huge_pages_are_split_only_with_the_right_to_split(_: &mut Context) {
    let (mut a, mut b, mut domain, spaces) = pair();
    let free = free_pages();
    if Huge::exist() {
        let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
        assert_eq!(
            counts.with(Status::Refused, Reason::Huge),
            PAGES,
            "{counts:?}"
        );
        assert_eq!(
            counts.with(Status::Differed, Reason::Alone),
            PAGES,
            "{counts:?}"
        );
        assert_eq!(domain.info().splits, 0);
    }

    let split = Permit {
        split: true,
        ..Permit::default()
    };
    let counts = domain.merge(&spaces, 0..PAGES, split);
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    assert_eq!(
        domain.info().splits,
        2 * huge_of(PAGES / HUGE_PAGES),
        "each huge page is split once"
    );
    let gained = free_pages() - free;
    assert!(
        gained > signed(PAGES) * 9 / 10,
        "{PAGES} pages should become free, not {gained}: {:?} {:?}",
        domain.info(),
        numbers("/proc/meminfo")
    );
    assert_intact(&mut a);
    assert_intact(&mut b);
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}

/// Newer kernels map the zero page for each zero page of a huge page that is split.
fn zeros_that_the_kernel_frees_at_a_split_are_counted_apart(_: &mut Context) {
    // The first page of each huge page is merged; of the others every second one is zero.
    let mut peers = [(); 2].map(|()| {
        let mut peer = huge_peer();
        peer.run(|own| {
            for page in (0..PAGES).filter(|page| page % 2 == 1) {
                for word in 0..WORDS {
                    own.memory.set_word(page, word, 0);
                }
            }
        });
        peer
    });
    let mut domain = Domain::open();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let set = |page: usize| {
        let number = u16::try_from(page / HUGE_PAGES).expect("few");
        spaces.map(|space| entry(space, page, FoldKind::Set(number)))
    };
    let entries: Vec<_> = (0..PAGES).step_by(HUGE_PAGES).flat_map(set).collect();
    let split = Permit {
        split: true,
        ..Permit::default()
    };
    let outcomes = domain.fold_with_retries(&entries, split);
    assert!(outcomes.iter().all(|page| page.status == Status::Merged));
    let zero: usize = spaces
        .iter()
        .map(|&space| domain.in_state(space, 0..PAGES, PageState::Zero))
        .sum();
    let info = domain.info();
    assert_eq!(info.splits, 2 * huge_of(PAGES / HUGE_PAGES));
    assert_eq!(
        info.split_zeroed, zero as u64,
        "what became the zero page without a FOLD of it"
    );
    assert!(
        zero == 0 || zero == PAGES,
        "a kernel frees all zero pages of a split, or none: {zero}"
    );
    assert_eq!(info.zeroed, 0, "and none of them is ours");
    for peer in &mut peers {
        let wrong = peer.run(|own| {
            (0..PAGES)
                .filter(|&page| {
                    if page % 2 == 1 {
                        !own.memory.is_zero(page)
                    } else {
                        own.memory.changed(SEED, PAGES, page..page + 1) != 0
                    }
                })
                .count()
        });
        assert_eq!(wrong, 0);
    }
}

fn merged_pair_to_collapse() -> (Peer, Peer, Domain, [SpaceId; 2]) {
    let (a, b, mut domain, spaces) = pair();
    let split = Permit {
        split: true,
        ..Permit::default()
    };
    let counts = domain.merge(&spaces, 0..PAGES, split);
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    (a, b, domain, spaces)
}

fn collapsing_merged_pages_keeps_their_contents(_: &mut Context) {
    let (mut a, mut b, mut domain, spaces) = merged_pair_to_collapse();
    // A few private pages in each huge range, since a range of shared pages only is left alone.
    a.run(|own| {
        for page in (0..PAGES).step_by(8) {
            own.memory.flip(page..page + 1);
            own.memory.flip(page..page + 1);
        }
    });
    let collapsed = a.run(|own| own.memory.advise(0..PAGES, MADV_COLLAPSE).is_ok());
    assert_intact(&mut a);
    assert_intact(&mut b);
    let counted = domain.count(spaces[0], PAGES);
    assert_eq!(counted.huge > 0, collapsed, "{counted:?}");
    a.run(|own| own.memory.flip(0..PAGES));
    assert_intact(&mut b);
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}

fn khugepaged_over_merged_pages_keeps_their_contents(context: &mut Context) {
    let (mut a, mut b, mut domain, _) = merged_pair_to_collapse();
    if !Huge::exist() {
        assert!(!Path::new(KHUGEPAGED).exists());
        context.note("this kernel has no khugepaged: nothing gathers merged pages");
        return;
    }
    a.run(|own| {
        own.memory.flip(0..PAGES / 2);
        own.memory.flip(0..PAGES / 2);
    });
    let scans = format!("{KHUGEPAGED}/full_scans");
    set(&format!("{KHUGEPAGED}/scan_sleep_millisecs"), "0");
    set(&format!("{KHUGEPAGED}/alloc_sleep_millisecs"), "0");
    set(&format!("{KHUGEPAGED}/max_ptes_shared"), "511");
    set(&format!("{KHUGEPAGED}/pages_to_scan"), "100000");
    let (start, end) = (value(&scans), Instant::now() + Duration::from_secs(40));
    while value(&scans) < start + 3 && Instant::now() < end {
        assert_intact(&mut a);
        sleep(Duration::from_millis(50));
    }
    let scanned = value(&scans) - start;
    set(&format!("{KHUGEPAGED}/pages_to_scan"), "4096");
    set(&format!("{KHUGEPAGED}/scan_sleep_millisecs"), "10000");
    set(&format!("{KHUGEPAGED}/alloc_sleep_millisecs"), "60000");
    set(&format!("{KHUGEPAGED}/max_ptes_shared"), "256");
    assert!(
        scanned >= 3,
        "khugepaged should have scanned all memory 3 times, not {scanned}"
    );
    assert_intact(&mut a);
    assert_intact(&mut b);
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
}
