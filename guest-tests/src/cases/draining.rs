//! The rate at which a caller can empty the per-CPU lists of all processors.
//!
//! # Problem
//! Emptying them makes every processor of the machine work for the caller, who could request it
//! without pause, as could other callers.
//!
//! # Approach
//! Processes request it in a loop, each through a domain of its own or several through one. One
//! drain serves all its waiters, so the time of the calls of one process bounds the number of
//! drains, and its wait for those of others.

use std::time::{Duration, Instant};

use uksm_policy::command::{FoldBatch, FoldKind, SpaceId};

use super::Context;
use crate::fixtures::domain::{Domain, entry};
use crate::fixtures::peer::Peer;
use crate::fixtures::process::{fork, signal, wait};

cases! { "draining":
    two_callers_together_drain_at_most_50_times_a_second Normal Stock 60,
    many_callers_of_one_domain_do_not_keep_another_waiting Normal Stock 60,
}

const PAGES: usize = 16;
const SEED: u64 = 59;
/// Calls of each caller.
const CALLS: u32 = 30;
/// The interval that the contract promises.
const INTERVAL: Duration = Duration::from_millis(20);

fn fold_often(drain: bool) {
    let mut domain = Domain::open();
    let peer = Peer::filled(PAGES, SEED, PAGES);
    let space = domain.attach(&peer);
    fold_in(&mut domain, space, drain);
}

fn fold_in(domain: &mut Domain, space: SpaceId, drain: bool) {
    let batch = FoldBatch {
        entries: vec![entry(space, 0, FoldKind::Zero)],
        lines: 0,
        split: false,
        locked: false,
        drain,
    };
    for _ in 0..CALLS {
        domain.device.fold(&batch).expect("FOLD");
    }
}

/// The time of two callers together.
fn time_of(drain: bool) -> Duration {
    let begin = Instant::now();
    let callers: Vec<i32> = (0..2)
        .map(|_| {
            fork(|| {
                fold_often(drain);
                0
            })
        })
        .collect();
    let statuses: Vec<i32> = callers.into_iter().map(wait).collect();
    assert!(statuses.iter().all(|&status| status == 0), "{statuses:x?}");
    begin.elapsed()
}

fn two_callers_together_drain_at_most_50_times_a_second(context: &mut Context) {
    // A machine may halt for longer than the calls take.
    let without = [(); 3].map(|()| time_of(false)).into_iter().min();
    let (with, without) = (time_of(true), without.expect("three"));
    context.note(format!(
        "twice {CALLS} calls took {with:?}, without draining {without:?}"
    ));
    let least = (CALLS - 1) * INTERVAL;
    assert!(
        with >= least,
        "{CALLS} drains should take {least:?}, they took {with:?}"
    );
    assert!(
        without < least,
        "calls that ask for none should not wait: {without:?}"
    );
}

/// The time of the calls of one domain alone, and beside a domain whose many processes request
/// drains all the time.
fn many_callers_of_one_domain_do_not_keep_another_waiting(context: &mut Context) {
    const CROWD: usize = 8;
    let crowded = Domain::open();
    let peer = Peer::filled(PAGES, SEED, PAGES);
    let space = crowded.attach(&peer);
    let begin = Instant::now();
    fold_often(true);
    let alone = begin.elapsed();
    let crowd: Vec<i32> = (0..CROWD)
        .map(|_| {
            let mut domain = Domain {
                device: crowded.device.try_clone().expect("a descriptor"),
            };
            fork(move || {
                loop {
                    fold_in(&mut domain, space, true);
                }
            })
        })
        .collect();
    let begin = Instant::now();
    fold_often(true);
    let beside = begin.elapsed();
    for caller in crowd {
        signal(caller, libc::SIGKILL);
        wait(caller);
    }
    context.note(format!(
        "{CALLS} calls took {alone:?}, {beside:?} beside {CROWD} callers of another domain"
    ));
    // A drain that began before a call does not serve it; the next one does.
    let most = 2 * (alone + CALLS * INTERVAL);
    assert!(
        beside < most,
        "{CALLS} calls should take {most:?} at most, they took {beside:?}"
    );
}
