//! Changes of mappings after their pages were merged.
//!
//! # Problem
//! mremap, mprotect, munmap, madvise and mlock know pages by their kind; each must treat a merged
//! page as an ordinary private page.
//!
//! # Approach
//! Two peers share all their pages through merging; one of them changes its mapping, and the
//! contents of both are checked after each change.

use libc::{PROT_NONE, PROT_READ, PROT_WRITE};
use uksm_policy::command::{PageState, Reason, SpaceId, Status};

use super::Context;
use crate::fixtures::accounting::locked_pages;
use crate::fixtures::domain::{Domain, Permit};
use crate::fixtures::peer::Peer;

cases! { "mappings":
    merged_pages_move_with_mremap Normal Stock 60,
    merged_pages_obey_mprotect Normal Stock 60,
    a_write_after_mprotect_copies_the_merged_page Normal Stock 60,
    munmap_of_merged_pages_drops_their_sharers Normal Stock 60,
    dontneed_on_merged_pages_gives_zeros Normal Stock 60,
    lazy_freeing_merged_pages_keeps_or_zeroes_them Normal Stock 60,
    cold_and_pageout_leave_merged_pages_intact Normal Stock 60,
    mlocked_pages_are_refused_unless_asked_for Normal Stock 60,
    merged_pages_can_be_mlocked_and_unlocked Normal Stock 60,
    pages_of_a_read_only_mapping_merge_and_stay_read_only Normal Stock 60,
}

const PAGES: usize = 1024;
const SEED: u64 = 12;
const ALL: i32 = PROT_READ | PROT_WRITE;

/// A peer that changes its mapping, one that only checks, and their domain.
struct Pair {
    actor: Peer,
    witness: Peer,
    domain: Domain,
    spaces: [SpaceId; 2],
}

impl Pair {
    fn merged() -> Pair {
        let mut pair = Pair::apart();
        let counts = pair.merge();
        assert_eq!(counts, 2 * PAGES);
        pair
    }

    fn apart() -> Pair {
        let actor = Peer::filled(PAGES, SEED, PAGES);
        let witness = Peer::filled(PAGES, SEED, PAGES);
        let domain = Domain::open();
        let spaces = [domain.attach(&actor), domain.attach(&witness)];
        Pair {
            actor,
            witness,
            domain,
            spaces,
        }
    }

    fn merge(&mut self) -> usize {
        self.domain
            .merge(&self.spaces, 0..PAGES, Permit::default())
            .merged()
    }

    fn count(&self, state: PageState) -> usize {
        let counted = self.domain.count(self.spaces[0], 2 * PAGES);
        usize::try_from(counted.pages[state as usize]).expect("few pages")
    }

    fn assert_witness_intact(&mut self) {
        assert_eq!(
            self.witness
                .run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
            0
        );
    }

    fn assert_intact(&mut self) {
        assert_eq!(
            self.actor
                .run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
            0
        );
        self.assert_witness_intact();
    }

    fn end(mut self) {
        self.assert_witness_intact();
        self.actor.exit();
        self.witness.exit();
        self.domain.assert_all_frames_return();
    }
}

fn merged_pages_move_with_mremap(_: &mut Context) {
    const FROM: usize = 100;
    const COUNT: usize = 500;
    let mut pair = Pair::merged();
    let wrong = pair.actor.run(|own| {
        own.memory
            .relocate(FROM..FROM + COUNT, PAGES + 64)
            .expect("mremap away");
        let moved = |at| crate::fixtures::contents::Content::new(SEED, (FROM + at) as u64);
        (0..COUNT)
            .filter(|&at| !own.memory.holds(PAGES + 64 + at, moved(at)))
            .count()
    });
    assert_eq!(wrong, 0, "moved pages should keep their contents");
    assert_eq!(
        pair.count(PageState::Frame),
        PAGES,
        "moving should not unmerge"
    );
    pair.actor.run(|own| {
        own.memory
            .relocate(PAGES + 64..PAGES + 64 + COUNT, FROM)
            .expect("mremap back");
    });
    pair.assert_intact();
    pair.actor.run(|own| own.memory.flip(FROM..FROM + COUNT));
    pair.end();
}

fn merged_pages_obey_mprotect(_: &mut Context) {
    let mut pair = Pair::merged();
    for protection in [PROT_READ, PROT_NONE, ALL, PROT_NONE, ALL] {
        pair.actor.run(move |own| {
            own.memory
                .protect(0..PAGES / 2, protection)
                .expect("mprotect");
        });
        if protection != PROT_NONE {
            pair.assert_intact();
        }
    }
    assert_eq!(
        pair.count(PageState::Frame),
        PAGES,
        "mprotect should not unmerge"
    );
    pair.end();
}

fn a_write_after_mprotect_copies_the_merged_page(_: &mut Context) {
    const SOME: usize = PAGES / 2;
    let mut pair = Pair::merged();
    pair.actor.run(|own| {
        own.memory.protect(0..SOME, PROT_READ).expect("mprotect");
        own.memory.protect(0..SOME, ALL).expect("mprotect");
        own.memory.flip(0..SOME);
    });
    assert_eq!(
        pair.actor
            .run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        SOME
    );
    pair.assert_witness_intact();
    assert_eq!(pair.count(PageState::Anon), SOME);
    pair.end();
}

fn munmap_of_merged_pages_drops_their_sharers(_: &mut Context) {
    const GONE: usize = 100;
    let mut pair = Pair::merged();
    pair.actor
        .run(|own| own.memory.unmap(PAGES - GONE..PAGES).expect("munmap"));
    let none = uksm_policy::command::Lines { from: 0, to: 0 };
    let frames = pair.domain.frames(none, false);
    assert_eq!(
        frames.iter().filter(|frame| frame.sharers == 1).count(),
        GONE
    );
    assert_eq!(
        frames.iter().filter(|frame| frame.sharers == 2).count(),
        PAGES - GONE
    );
    assert_eq!(
        pair.actor
            .run(|own| own.memory.changed(SEED, PAGES, 0..PAGES - GONE)),
        0
    );
    pair.end();
}

fn dontneed_on_merged_pages_gives_zeros(_: &mut Context) {
    const SOME: usize = PAGES / 2;
    let mut pair = Pair::merged();
    let nonzero = pair.actor.run(|own| {
        own.memory
            .advise(0..SOME, libc::MADV_DONTNEED)
            .expect("MADV_DONTNEED");
        own.memory.nonzero(0..SOME)
    });
    assert_eq!(nonzero, 0, "dropped pages should read as zeros");
    assert_eq!(
        pair.actor
            .run(|own| own.memory.changed(SEED, PAGES, SOME..PAGES)),
        0
    );
    pair.end();
}

fn lazy_freeing_merged_pages_keeps_or_zeroes_them(_: &mut Context) {
    let mut pair = Pair::merged();
    let wrong = pair.actor.run(|own| {
        own.memory
            .advise(0..PAGES, libc::MADV_FREE)
            .expect("MADV_FREE");
        let content = |page| crate::fixtures::contents::Content::new(SEED, page as u64);
        let memory = &own.memory;
        (0..PAGES)
            .filter(|&page| !memory.holds(page, content(page)) && !memory.is_zero(page))
            .count()
    });
    assert_eq!(
        wrong, 0,
        "a lazily freed page holds its old contents or zeros"
    );
    pair.end();
}

fn cold_and_pageout_leave_merged_pages_intact(_: &mut Context) {
    let mut pair = Pair::merged();
    pair.actor.run(|own| {
        own.memory
            .advise(0..PAGES, libc::MADV_COLD)
            .expect("MADV_COLD");
        own.memory
            .advise(0..PAGES, libc::MADV_PAGEOUT)
            .expect("MADV_PAGEOUT");
    });
    pair.assert_intact();
    pair.end();
}

fn mlocked_pages_are_refused_unless_asked_for(_: &mut Context) {
    const LOCKED: usize = 256;
    let mut pair = Pair::apart();
    let before = locked_pages();
    pair.actor
        .run(|own| own.memory.lock(0..LOCKED).expect("mlock"));
    let counts = pair.domain.merge(&pair.spaces, 0..PAGES, Permit::default());
    assert_eq!(
        counts.with(Status::Refused, Reason::Locked),
        LOCKED,
        "{counts:?}"
    );
    // Their partners in the other process are alone then.
    assert_eq!(
        counts.with(Status::Differed, Reason::Alone),
        LOCKED,
        "{counts:?}"
    );
    assert_eq!(counts.merged(), 2 * (PAGES - LOCKED), "{counts:?}");

    let permit = Permit {
        locked: true,
        ..Permit::default()
    };
    let counts = pair.domain.merge(&pair.spaces, 0..LOCKED, permit);
    assert_eq!(counts.merged(), 2 * LOCKED, "{counts:?}");
    pair.assert_intact();
    pair.actor.run(|own| own.memory.flip(0..LOCKED));
    pair.actor.run(|own| own.memory.flip(0..LOCKED));
    pair.assert_intact();
    pair.actor
        .run(|own| own.memory.unlock(0..PAGES).expect("munlock"));
    pair.end();
    assert_eq!(
        locked_pages(),
        before,
        "the count of locked pages should return"
    );
}

fn merged_pages_can_be_mlocked_and_unlocked(_: &mut Context) {
    let mut pair = Pair::merged();
    let before = locked_pages();
    pair.actor
        .run(|own| own.memory.lock(100..PAGES).expect("mlock"));
    pair.assert_intact();
    pair.actor
        .run(|own| own.memory.unlock(100..PAGES / 2).expect("munlock"));
    pair.actor.run(|own| own.memory.flip(0..PAGES));
    assert_eq!(
        pair.actor
            .run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        PAGES
    );
    pair.end();
    assert_eq!(
        locked_pages(),
        before,
        "the count of locked pages should return"
    );
}

fn pages_of_a_read_only_mapping_merge_and_stay_read_only(_: &mut Context) {
    let mut pair = Pair::apart();
    pair.actor
        .run(|own| own.memory.protect(0..PAGES, PROT_READ).expect("mprotect"));
    assert_eq!(pair.merge(), 2 * PAGES);
    pair.assert_intact();
    let killed = pair.actor.run(|own| {
        let memory = &mut own.memory;
        crate::fixtures::process::wait(crate::fixtures::process::fork(|| {
            memory.flip(7..8);
            0
        }))
    });
    assert!(
        libc::WIFSIGNALED(killed),
        "writing to a read-only page should end in SIGSEGV"
    );
    pair.actor
        .run(|own| own.memory.protect(0..PAGES, ALL).expect("mprotect"));
    pair.actor.run(|own| own.memory.flip(0..PAGES));
    pair.end();
}
