//! Merges that a domain permits: the zero page only, none within one space, only contents of
//! several spaces, or none between nodes of memory.
//!
//! The program that suggests merges may be compromised. The restrictions set at the creation of a
//! domain must hold for all its suggestions; and a sound daemon must make all permitted merges.
//!
//! # Approach
//! Sets of few and of enough spaces, with pages that differ, or change; entries that would bring
//! pages to frames that they do not name. Then daemons, beside peers that hold contents alone, in
//! pairs and all: the kernel's page maps show which pages are shared.
//!
//! # Source
//! `interface/uksm_ioctl.h`, CONFIGURE.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use uksm_linux::module::{Configuration, raw};
use uksm_policy::command::{
    FoldBatch, FoldEntry, FoldKind, FoldOutcome, FrameId, PageState, Reason, SpaceId, Status,
};
use uksm_policy::params::Contents;

use super::{Context, numa};
use crate::fixtures::contents::Content;
use crate::fixtures::daemon::{Daemon, status_text};
use crate::fixtures::domain::{Domain, Permit, entry};
use crate::fixtures::fold_sets::{CONTENT, MERGED, peer_with, statuses};
use crate::fixtures::pagemap::pfns;
use crate::fixtures::peer::Peer;

cases! { "daemon::policies":
    fewer_spaces_than_are_needed_make_no_frame Normal Stock 60,
    spaces_are_counted_by_what_they_hold_now Normal Stock 60,
    a_frame_that_exists_takes_whoever_holds_the_same Normal Stock 60,
    a_domain_of_zeros_refuses_everything_else Normal Stock 30,
    nobody_joins_a_frame_that_was_not_chosen Normal Stock 60,
    orphans_of_another_policy_are_not_adopted Normal Stock 60,
    a_policy_can_only_be_narrowed Normal Stock 30,
    a_daemon_merges_only_what_enough_processes_hold Policy Stock 240,
    a_daemon_merges_nothing_within_a_process Policy Stock 240,
    a_daemon_merges_across_nodes_only_if_it_may Policy Numa 240,
}

const SEED: u64 = 36;
const SPACES: (Status, Reason) = (Status::Differed, Reason::Spaces);
const ALONE: (Status, Reason) = (Status::Differed, Reason::Alone);
const ALREADY: (Status, Reason) = (Status::Already, Reason::None);
/// Longest time to merge nearly all on an emulated machine.
const BOUND: Duration = Duration::from_secs(90);

fn with(merge: Contents, least_spaces: u32) -> Domain {
    Domain::configured(Configuration {
        merge,
        least_spaces,
        ..Configuration::default()
    })
}

/// One page of each of these spaces, as one set.
fn one_of_each(pages: &[(SpaceId, usize)]) -> Vec<FoldEntry> {
    let page = |&(space, page): &(SpaceId, usize)| entry(space, page, FoldKind::Set(0));
    pages.iter().map(page).collect()
}

fn fold(domain: &mut Domain, pages: &[(SpaceId, usize)]) -> Vec<FoldOutcome> {
    domain.fold_with_retries(&one_of_each(pages), Permit::default())
}

fn fewer_spaces_than_are_needed_make_no_frame(_: &mut Context) {
    let mut domain = with(Contents::All, 3);
    let peers: Vec<(Peer, SpaceId)> = (0..3).map(|_| peer_with(&domain, [1, 1, 1])).collect();
    let [a, b, c] = [0, 1, 2].map(|at: usize| peers[at].1);
    let outcomes = fold(&mut domain, &[(a, 0), (b, 0)]);
    assert_eq!(statuses(&outcomes), [SPACES; 2]);
    // Many pages of two spaces count as two spaces.
    let many = [(a, 0), (a, 1), (a, 2), (b, 0), (b, 1), (b, 2)];
    assert_eq!(statuses(&fold(&mut domain, &many)), [SPACES; 6]);
    for &(_, space) in &peers {
        assert_eq!(domain.in_state(space, 0..3, PageState::Anon), 3);
    }
    assert_eq!((domain.info().frames_made, domain.info().merged), (0, 0));
    let enough = [(a, 0), (b, 0), (c, 0), (c, 1)];
    let outcomes = fold(&mut domain, &enough);
    assert_eq!(statuses(&outcomes), [MERGED; 4]);
    assert_eq!(domain.sharers(FrameId(outcomes[0].frame)), Some(4));
}

fn spaces_are_counted_by_what_they_hold_now(_: &mut Context) {
    let mut domain = with(Contents::All, 3);
    let (_a, a) = peer_with(&domain, [1]);
    let (_b, b) = peer_with(&domain, [1]);
    let (mut third, c) = peer_with(&domain, [2]);
    // The third differs; in the second order it is the first page, to which the others are
    // compared.
    let outcomes = fold(&mut domain, &[(a, 0), (b, 0), (c, 0)]);
    assert_eq!(statuses(&outcomes), [SPACES, SPACES, CONTENT]);
    let outcomes = fold(&mut domain, &[(c, 0), (a, 0), (b, 0)]);
    assert_eq!(statuses(&outcomes), [SPACES, CONTENT, CONTENT]);
    third.run(|own| {
        let all = 0..1;
        own.memory
            .advise(all, libc::MADV_DONTNEED)
            .expect("MADV_DONTNEED");
    });
    let outcomes = fold(&mut domain, &[(a, 0), (b, 0), (c, 0)]);
    let gone = (Status::Gone, Reason::Unmapped);
    assert_eq!(statuses(&outcomes), [SPACES, SPACES, gone]);
    // A page with a changed hash is no witness either.
    third.run(|own| own.memory.fill_page(0, Content::new(24, 1)));
    let mut entries = one_of_each(&[(a, 0), (b, 0), (c, 0)]);
    for (entry, space) in entries.iter_mut().zip([a, b, c]) {
        let lines = uksm_policy::command::Lines { from: 0, to: 8 };
        entry.hash = domain.sample(space, 0..1, lines)[0].hash;
    }
    entries[2].hash ^= 1;
    let batch = |entries: &[FoldEntry]| FoldBatch {
        entries: entries.to_vec(),
        lines: 8,
        ..FoldBatch::default()
    };
    let outcomes = domain.device.fold(&batch(&entries)).expect("FOLD");
    let stale = (Status::Differed, Reason::Stale);
    assert_eq!(statuses(&outcomes), [SPACES, SPACES, stale]);
    assert_eq!(domain.info().frames_made, 0);
    entries[2].hash ^= 1;
    let outcomes = domain.fold_with_retries(&entries, Permit::default());
    assert_eq!(statuses(&outcomes), [MERGED; 3]);
}

fn a_frame_that_exists_takes_whoever_holds_the_same(_: &mut Context) {
    let mut domain = with(Contents::All, 2);
    let (_a, a) = peer_with(&domain, [1, 1]);
    let (_b, b) = peer_with(&domain, [1, 2]);
    let outcomes = fold(&mut domain, &[(a, 0), (b, 0)]);
    assert_eq!(statuses(&outcomes), [MERGED; 2]);
    let frame = FoldKind::Frame(FrameId(outcomes[0].frame));
    let joins = [entry(a, 1, frame), entry(b, 1, frame)];
    let outcomes = domain.fold_with_retries(&joins, Permit::default());
    assert_eq!(statuses(&outcomes), [MERGED, CONTENT]);
    // The same through a page that maps it.
    let outcomes = fold(&mut domain, &[(b, 0), (a, 1)]);
    assert_eq!(statuses(&outcomes), [ALREADY; 2]);
}

fn a_domain_of_zeros_refuses_everything_else(_: &mut Context) {
    let mut domain = with(Contents::Zero, 1);
    let (mut peer, space) = peer_with(&domain, [1, 1, 1]);
    peer.run(|own| {
        own.memory
            .advise(2..3, libc::MADV_DONTNEED)
            .expect("MADV_DONTNEED");
        // Written, and zero: a page of its own.
        own.memory.set_word(2, 0, 1);
        own.memory.set_word(2, 0, 0);
    });
    for kind in [FoldKind::Set(0), FoldKind::Frame(FrameId(1))] {
        let entries = vec![entry(space, 2, FoldKind::Zero), entry(space, 0, kind)];
        let batch = FoldBatch {
            entries,
            ..FoldBatch::default()
        };
        let refused = domain.device.fold(&batch).expect_err("it is refused");
        assert_eq!(refused.errno(), Some(Errno::PERM), "{kind:?}");
    }
    assert_eq!(domain.in_state(space, 0..3, PageState::Anon), 3);
    assert_eq!(domain.merge_zero(space, 2..3).of(Status::Zeroed), 1);
}

fn nobody_joins_a_frame_that_was_not_chosen(_: &mut Context) {
    for (merge, then) in [(Contents::All, MERGED), (Contents::Between, ALONE)] {
        let mut domain = with(merge, 1);
        let (_a, a) = peer_with(&domain, [1, 1]);
        let (_b, b) = peer_with(&domain, [1, 1]);
        assert_eq!(statuses(&fold(&mut domain, &[(a, 0), (b, 0)])), [MERGED; 2]);
        // The caller does not know that a page of `b` maps the frame.
        let outcomes = fold(&mut domain, &[(a, 0), (b, 1)]);
        assert_eq!(statuses(&outcomes), [ALREADY, then], "{merge:?}");
    }
}

fn orphans_of_another_policy_are_not_adopted(_: &mut Context) {
    let of = |merge, least_spaces| {
        Domain::configured(Configuration {
            hash_seed: 4242,
            merge,
            least_spaces,
            ..Configuration::default()
        })
    };
    for (merge, least_spaces, adopts) in [
        (Contents::All, 1, true),
        (Contents::All, 2, false),
        (Contents::Between, 1, false),
    ] {
        let peers = [(); 2].map(|()| Peer::filled(8, SEED, 8));
        let mut domain = of(Contents::All, 1);
        let spaces = peers.each_ref().map(|peer| domain.attach(peer));
        let counts = domain.merge(&spaces, 0..8, Permit::default());
        assert_eq!(counts.merged(), 16, "{counts:?}");
        let before = pfns(peers[0].pid(), 0..8);
        drop(domain);
        let mut domain = of(merge, least_spaces);
        let spaces = peers.each_ref().map(|peer| domain.attach(peer));
        let counts = domain.merge(&spaces, 0..8, Permit::default());
        let all = counts.merged() + counts.of(Status::Already);
        assert_eq!(all, 16, "{merge:?} {least_spaces} {counts:?}");
        let adopted = domain.info().adopted;
        assert_eq!(
            adopted,
            if adopts { 8 } else { 0 },
            "{merge:?} {least_spaces}"
        );
        assert_eq!(pfns(peers[0].pid(), 0..8) == before, adopts);
    }
}

fn a_policy_can_only_be_narrowed(_: &mut Context) {
    let domain = with(Contents::Between, 5);
    domain
        .device
        .configure(Configuration {
            least_spaces: 2,
            ..Configuration::default()
        })
        .expect("CONFIGURE");
    let info = domain.info();
    let policy = (info.policy, info.least_spaces);
    assert_eq!(policy, (raw::UKSM_POLICY_BETWEEN, 5));
    assert_eq!(Domain::open().info().least_spaces, 1);
    let too_many = Configuration {
        least_spaces: raw::UKSM_MAX_LEAST_SPACES + 1,
        ..Configuration::default()
    };
    let refused = Domain::open().device.configure(too_many);
    let refused = refused.expect_err("it is refused");
    assert_eq!(refused.errno(), Some(Errno::INVAL));
}

/// Waits until `is_so`, and makes the assertions all the time.
fn wait_until(daemon: &mut Daemon, is_so: impl Fn() -> bool, assert: impl Fn()) {
    let end = Instant::now() + BOUND;
    loop {
        assert();
        if is_so() {
            return;
        }
        daemon.assert_running();
        assert!(Instant::now() < end, "not merged; {}", status_text());
        sleep(Duration::from_millis(100));
    }
}

fn a_daemon_merges_only_what_enough_processes_hold(_: &mut Context) {
    const PAGES: usize = 1024;
    const HALF: usize = PAGES / 2;
    // The first half is common to all three, the second to two.
    let peers = [0, 0, 1].map(|own: u64| {
        let mut peer = Peer::filled(PAGES, SEED, PAGES);
        peer.run(move |it| {
            for page in HALF..PAGES {
                let content = Content::new(SEED + 1 + own, page as u64);
                it.memory.fill_page(page, content);
            }
        });
        peer
    });
    let maps = |pages: std::ops::Range<usize>| {
        [0, 1, 2].map(|at: usize| BTreeSet::from_iter(pfns(peers[at].pid(), pages.clone())))
    };
    let assert_apart = || {
        let [a, b, _] = maps(HALF..PAGES);
        assert_eq!(a.intersection(&b).count(), 0, "what two hold is shared");
    };
    let is_shared = || {
        let [a, b, c] = maps(0..HALF);
        let in_two: BTreeSet<u64> = a.intersection(&b).copied().collect();
        in_two.intersection(&c).count() >= HALF * 9 / 10
    };
    let targets = [&peers[0], &peers[1], &peers[2]];
    let mut daemon = Daemon::start_on(&targets, &["--merge-spaces", "3"]);
    wait_until(&mut daemon, is_shared, assert_apart);
    sleep(Duration::from_secs(2));
    assert_apart();
    daemon.stop();
}

fn a_daemon_merges_nothing_within_a_process(_: &mut Context) {
    const PAGES: usize = 1024;
    const CONTENTS: usize = PAGES / 2;
    // Each of them holds everything twice.
    let mut peers = [0, 1, 2].map(|_| Peer::filled(PAGES, SEED, CONTENTS));
    let maps = |peers: &[Peer; 3]| [0, 1, 2].map(|at: usize| pfns(peers[at].pid(), 0..PAGES));
    // A page map is read in parts, and a page can change hands in between: only a state seen three
    // times counts.
    let assert_apart = |peers: &[Peer; 3]| {
        let within_itself = |at: usize| {
            let map = pfns(peers[at].pid(), 0..PAGES);
            let mapped: Vec<u64> = map.into_iter().filter(|&pfn| pfn != 0).collect();
            mapped.len() - BTreeSet::from_iter(&mapped).len()
        };
        for at in 0..peers.len() {
            let shared = [(); 3].map(|()| within_itself(at));
            assert!(
                shared.contains(&0),
                "process {at} shares {shared:?} pages with itself"
            );
        }
    };
    let saves = |peers: &[Peer; 3], percent: usize| {
        let all: Vec<u64> = maps(peers).into_iter().flatten().collect();
        let saved = all.len() - BTreeSet::from_iter(&all).len();
        saved * 100 >= 2 * PAGES * percent
    };
    let targets = [&peers[0], &peers[1], &peers[2]];
    let mut daemon = Daemon::start_on(&targets, &["--merge", "between"]);
    wait_until(&mut daemon, || saves(&peers, 95), || assert_apart(&peers));
    // Pages that are written, and hold the same again, go to other frames, which fewer share.
    for _ in 0..2 {
        for peer in &mut peers {
            peer.run(|it| {
                for page in (0..PAGES).step_by(3) {
                    it.memory
                        .fill_page(page, Content::new(SEED + 9, page as u64));
                    let twin = (page % CONTENTS) as u64;
                    it.memory.fill_page(page, Content::new(SEED, twin));
                }
            });
        }
        wait_until(&mut daemon, || saves(&peers, 60), || assert_apart(&peers));
    }
    daemon.stop();
}

fn a_daemon_merges_across_nodes_only_if_it_may(_: &mut Context) {
    assert_eq!(numa::nodes(), 2, "the guest should have two nodes");
    let peers = numa::two_peers_on_each_node();
    let frames = || {
        let all = peers
            .iter()
            .flat_map(|peer| pfns(peer.pid(), 0..numa::PAGES));
        all.collect::<BTreeSet<u64>>().len()
    };
    let targets = peers.each_ref();
    for (across, most) in [
        ("false", numa::PAGES * 21 / 10),
        ("true", numa::PAGES * 11 / 10),
    ] {
        let option = format!("--merge-across-nodes={across}");
        let mut daemon = Daemon::start_on(&targets, &[&option]);
        let end = Instant::now() + BOUND;
        while frames() > most {
            daemon.assert_running();
            assert!(Instant::now() < end, "not merged; {}", status_text());
            if across == "false" {
                assert_eq!(numa::strays(&peers), 0);
            }
            sleep(Duration::from_millis(100));
        }
        if across == "false" {
            sleep(Duration::from_secs(2));
            assert_eq!(numa::strays(&peers), 0);
            assert!(frames() >= 2 * numa::PAGES, "{}", status_text());
            assert!(status_text().contains(" on node 1"), "{}", status_text());
        }
        daemon.stop();
    }
}
