//! How often a caller can empty the per-CPU lists of all processors.
//!
//! # Problem
//! Emptying them makes every processor of the machine work for the caller, who could ask for it
//! without pause, and so could another.
//!
//! # Approach
//! Two processes ask in a loop, each through a domain of its own; the time that all their calls
//! take bounds how often it was done.

use std::time::{Duration, Instant};

use uksm_policy::command::{FoldBatch, FoldKind};

use super::Context;
use crate::fixtures::domain::{Domain, entry};
use crate::fixtures::peer::{Peer, fork, wait};

cases! { "draining":
    two_callers_together_drain_at_most_50_times_a_second Normal Stock 60,
}

const PAGES: usize = 16;
const SEED: u64 = 59;
/// Calls of each caller.
const CALLS: u32 = 30;
const CALLERS: u32 = 2;
/// What the contract promises.
const INTERVAL: Duration = Duration::from_millis(20);

fn fold_often(drain: bool) {
    let mut domain = Domain::open();
    let peer = Peer::filled(PAGES, SEED, PAGES);
    let space = domain.attach(&peer);
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

/// The time that all callers need together.
fn time_of(drain: bool) -> Duration {
    let begin = Instant::now();
    let callers: Vec<i32> = (0..CALLERS)
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
    // A machine may stand still for longer than the calls take.
    let without = [(); 3].map(|()| time_of(false)).into_iter().min();
    let (with, without) = (time_of(true), without.expect("three"));
    context.note(format!(
        "{} calls took {with:?}, without draining {without:?}",
        CALLERS * CALLS
    ));
    let least = (CALLERS * CALLS - 1) * INTERVAL;
    assert!(
        with >= least,
        "{} drains should take {least:?}, they took {with:?}",
        CALLERS * CALLS
    );
    assert!(
        without < least,
        "calls that ask for none should not wait: {without:?}"
    );
}
