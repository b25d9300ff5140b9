//! Merged pages outlive the module, the daemon and each other's processes.
//!
//! # Problem
//! The module may be unloaded, the daemon killed and targets killed at any time; no process's
//! memory may depend on them.
//!
//! # Approach
//! After a merge the device is closed, the module unloaded, processes killed; contents, writes and
//! forks are checked in between, and a new module finds the frames of the old one (orphans).

use uksm_policy::command::{Lines, PageState};
use uksm_vm_protocol::machine::MODULE;

use super::Context;
use crate::fixtures::accounting::free_or_owned_pages;
use crate::fixtures::domain::{Domain, Permit};
use crate::fixtures::pagemap;
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, wait};

cases! { "survival":
    merged_pages_survive_the_module_and_a_new_one_adopts_them Normal Stock 90,
    an_open_device_keeps_the_module_loaded Normal Stock 30,
    killing_one_sharer_leaves_the_others_right Normal Stock 60,
    orphans_of_a_closed_domain_merge_and_break_like_ordinary_pages Normal Stock 60,
}

const PAGES: usize = 1024;
const SEED: u64 = 17;
const STATES: Lines = Lines { from: 0, to: 0 };

fn merged_pair() -> (Peer, Peer, Domain) {
    let (a, b) = (
        Peer::filled(PAGES, SEED, PAGES),
        Peer::filled(PAGES, SEED, PAGES),
    );
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    (a, b, domain)
}

fn assert_intact(peer: &mut Peer) {
    assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
}

fn merged_pages_survive_the_module_and_a_new_one_adopts_them(context: &mut Context) {
    const WRITTEN: usize = 200;
    let before = free_or_owned_pages();
    let (mut a, mut b, domain) = merged_pair();
    drop(domain);
    context
        .unload(MODULE)
        .expect("the module should unload while its pages are mapped");
    assert!(!context.is_loaded(MODULE));

    assert_intact(&mut a);
    assert_intact(&mut b);
    a.run(|own| own.memory.flip(0..WRITTEN));
    assert_intact(&mut b);
    a.run(|own| own.memory.flip(0..WRITTEN));
    let status = b.run(|own| {
        let memory = &mut own.memory;
        wait(fork(|| {
            memory.flip(0..PAGES);
            i32::from(memory.changed(SEED, PAGES, 0..PAGES) != PAGES)
        }))
    });
    assert_eq!(
        status, 0,
        "a fork should copy what it writes without the module"
    );
    assert_intact(&mut b);

    context.load(MODULE).expect("the module should load again");
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b)];
    assert_eq!(
        domain.in_state(spaces[1], 0..PAGES, PageState::Orphan),
        PAGES
    );
    assert_eq!(
        domain.in_state(spaces[0], 0..PAGES, PageState::Orphan),
        PAGES - WRITTEN
    );
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(
        counts.merged(),
        2 * PAGES,
        "orphans should merge like other pages: {counts:?}"
    );
    assert_eq!(
        pagemap::pfns(a.pid(), 0..PAGES),
        pagemap::pfns(b.pid(), 0..PAGES)
    );
    assert_intact(&mut a);
    assert_intact(&mut b);
    a.exit();
    b.exit();
    domain.assert_all_frames_return();
    drop(domain);
    let lost = before - free_or_owned_pages();
    assert!(
        lost < 192,
        "nothing should be left of two modules and two processes: {lost} pages"
    );
}

fn an_open_device_keeps_the_module_loaded(context: &mut Context) {
    let domain = Domain::open();
    assert!(
        context.unload(MODULE).is_err(),
        "a module in use should not unload"
    );
    drop(domain);
    context
        .unload(MODULE)
        .expect("the module should unload when the device is closed");
    context.load(MODULE).expect("the module should load again");
}

fn killing_one_sharer_leaves_the_others_right(_: &mut Context) {
    let (a, mut b, mut domain) = merged_pair();
    a.kill();
    assert_intact(&mut b);
    assert!(
        domain
            .frames(STATES, false)
            .iter()
            .all(|frame| frame.sharers == 1)
    );
    b.run(|own| own.memory.flip(0..PAGES / 2));
    b.kill();
    domain.assert_all_frames_return();
}

fn orphans_of_a_closed_domain_merge_and_break_like_ordinary_pages(_: &mut Context) {
    let (mut a, mut b, domain) = merged_pair();
    let mut c = Peer::filled(PAGES, SEED, PAGES);
    drop(domain);
    let mut domain = Domain::open();
    let spaces = [domain.attach(&a), domain.attach(&b), domain.attach(&c)];
    assert_eq!(
        domain.in_state(spaces[0], 0..PAGES, PageState::Orphan),
        PAGES
    );
    let orphans = domain.sample(spaces[0], 0..PAGES, Lines { from: 0, to: 64 });
    let ordinary = domain.sample(spaces[2], 0..PAGES, Lines { from: 0, to: 64 });
    for (orphan, page) in orphans.iter().zip(&ordinary) {
        assert_eq!(
            orphan.hash, page.hash,
            "an orphan should hash as its contents do"
        );
    }
    let half = PAGES / 2;
    assert_eq!(
        domain.unmerge(spaces[0], 0..half),
        half as u64,
        "orphans should break"
    );
    assert_eq!(domain.in_state(spaces[0], 0..half, PageState::Anon), half);
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 3 * PAGES, "{counts:?}");
    for peer in [&mut a, &mut b, &mut c] {
        assert_intact(peer);
    }
    for peer in [a, b, c] {
        peer.exit();
    }
    domain.assert_all_frames_return();
}
