//! The time of a write reveals nothing about other groups.
//!
//! # Problem
//! A write to a merged page takes a fault, so that a process that guesses another's contents can
//! learn from the time whether the guess is right (docs/threat-model.md). Across groups it must
//! not.
//!
//! # Approach
//! A peer of group a holds pages of three kinds in turn: equal to pages of two peers of group b,
//! equal to pages of another peer of its own group, and unique ones. After all possible merges it
//! writes to each page once, in random order, and measures the time. Ranks of the times are
//! compared (Mann and Whitney's test): those of the first kind with those of the third, and for
//! control those of the second with those of the third.

use std::arch::x86_64::_rdtsc;
use std::thread::sleep;
use std::time::Duration;

use super::Context;
use crate::fixtures::contents::{Content, Random};
use crate::fixtures::peer::{Own, Peer};
use crate::fixtures::two_groups::{PAGES, SEED, TwoGroups, assert_intact, shared};

cases! { "daemon::group_timing":
    a_twin_in_another_group_does_not_show_in_the_time_of_a_write Normal Stock 120,
}

/// Kinds of pages: each three neighbors have one of each.
const ELSEWHERE: usize = 0;
const HERE: usize = 1;
const NOWHERE: usize = 2;
const KINDS: usize = 3;
const EACH: usize = PAGES / KINDS;
/// A page of no kind.
const REST: usize = EACH * KINDS;
const _: () = assert!(REST < PAGES);
/// The kind of a page. If kinds took turns, a page of one kind would lie behind each page that is
/// copied to when it is written, and a processor that reads ahead has the next page in its cache.
const fn kind_of(page: usize) -> usize {
    let turn = (page / KINDS).wrapping_mul(0x9E37_79B9) >> 16;
    (page + turn) % KINDS
}

/// By chance, a difference of more than this many standard deviations comes once in 16,000 runs.
const MAX_BY_CHANCE: f64 = 4.0;

/// A peer in no group yet, which has the common contents in its pages of this kind only.
fn peer_with(kind: usize) -> Peer {
    let mut peer = Peer::filled(PAGES, SEED, PAGES);
    peer.run(move |own| {
        for page in (0..PAGES).filter(|&page| kind_of(page) != kind) {
            let other = Content::new(SEED + 1 + kind as u64, page as u64);
            own.memory.fill_page(page, other);
        }
    });
    peer
}

/// The time of one write to each page, by kind.
fn times(own: &mut Own, seed: u64) -> [[u64; EACH]; KINDS] {
    let mut times = [[0; EACH]; KINDS];
    // In random order. A fault makes the write after it slower as well: that one goes to a page of
    // no kind.
    let mut order: Vec<usize> = (0..EACH * KINDS).collect();
    let mut random = Random::new(seed);
    order.sort_by_cached_key(|_| random.word());
    for page in order {
        own.memory.set_word(REST, 0, own.memory.word(REST, 0));
        // SAFETY: reads a counter.
        let begin = unsafe { _rdtsc() };
        own.memory.set_word(page, 0, own.memory.word(page, 0));
        // SAFETY: as above.
        let end = unsafe { _rdtsc() };
        times[kind_of(page)][page / KINDS] = end - begin;
    }
    times
}

/// The number of standard deviations by which the first are larger than the second, by their ranks.
fn difference(first: &[u64], second: &[u64]) -> f64 {
    let mut larger = 0.0;
    for a in first {
        for b in second {
            larger += match a.cmp(b) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    let pairs = (first.len() * second.len()) as f64;
    let deviation = (pairs * (first.len() + second.len() + 1) as f64 / 12.0).sqrt();
    (larger - pairs / 2.0) / deviation
}

/// The peer's answer: both differences, and the medians of all kinds.
fn measure(own: &mut Own, seed: u64) -> ([f64; 2], [u64; KINDS]) {
    let mut times = times(own, seed);
    let of = |kind: usize| difference(&times[kind], &times[NOWHERE]);
    let differences = [of(ELSEWHERE), of(HERE)];
    for kind in &mut times {
        kind.sort_unstable();
    }
    (differences, times.map(|kind| kind[EACH / 2]))
}

fn a_twin_in_another_group_does_not_show_in_the_time_of_a_write(context: &mut Context) {
    let mut host = TwoGroups::prepared(|_| ());
    // No page may be merged before it has its final contents: a page stays on its frame when others
    // leave that.
    let mut prober = Peer::filled(PAGES, SEED, PAGES);
    let same = peer_with(HERE);
    let others = [(); 2].map(|()| peer_with(ELSEWHERE));
    for (group, peer) in [(&host.a, &prober), (&host.a, &same)] {
        group.take(peer.pid());
    }
    for other in &others {
        host.b.take(other.pid());
    }
    let (a, b) = (
        [prober.pid(), same.pid()],
        [others[0].pid(), others[1].pid()],
    );
    host.wait_for("all that is equal in a group should be merged", || {
        shared(a[0], a[1]) >= EACH * 95 / 100 && shared(b[0], b[1]) >= PAGES * 95 / 100
    });
    // Time for any wrong merge to happen.
    sleep(Duration::from_secs(2));
    assert_eq!(shared(a[0], b[0]), 0);
    let seed = context.seed();
    let ([elsewhere, here], medians) = prober.run(move |own| measure(own, seed));
    let text = format!(
        "{EACH} pages of each kind: with a twin in another group {elsewhere:.1} standard deviations from \
         unique pages, with one in its own {here:.1}; medians {medians:?} cycles"
    );
    context.note(text.clone());
    assert!(elsewhere.abs() < MAX_BY_CHANCE, "{text}");
    assert!(
        here > 2.0 * MAX_BY_CHANCE,
        "the test should see a merged page: {text}"
    );
    assert_intact(&mut [prober]);
    host.daemon.stop();
}
