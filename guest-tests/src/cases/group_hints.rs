//! Hints of I/O in groups: programs are loaded once, and each group receives its own hints.
//!
//! # Problem
//! A worker has no right to load programs, and reads of one group must not be visible to others.
//!
//! # Approach
//! Two groups with little time, each with two peers without equal pages. They read equal files into
//! their memory, first in one group, then in the other. Pages merged soon were hinted at; the
//! workers' counts show the receivers of hints.

use std::time::Duration;

use super::Context;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::daemon::Daemon;
use crate::fixtures::hinted_reads::{CACHE, READ, read_the_same};
use crate::fixtures::peer::Peer;
use crate::fixtures::two_groups::{
    CONFIGURATION, assert_confined, await_that, group, shared, worker, worker_status,
};

cases! { "daemon::group_hints":
    each_of_two_groups_is_told_of_what_its_own_processes_read Policy Stock 300,
}

const LOW: &str = "governor = \"low\"\n\
                   [group.a]\ncgroup = \"/uksm-a\"\n[group.b]\ncgroup = \"/uksm-b\"\n";

/// Hints that a group's worker has received.
fn taken_hints(name: &str) -> u64 {
    let hints = &worker_status(name)["hints"];
    hints["taken"].as_u64().unwrap_or(0)
}

fn pair_in(cgroup: &Cgroup, seeds: [u64; 2]) -> [Peer; 2] {
    seeds.map(|seed| {
        let peer = Peer::filled(CACHE, seed, CACHE);
        cgroup.take(peer.pid());
        peer
    })
}

fn each_of_two_groups_is_told_of_what_its_own_processes_read(context: &mut Context) {
    let [a, b] = ["a", "b"].map(Cgroup::new);
    std::fs::write(CONFIGURATION, LOW).expect("a configuration");
    let mut of_a = pair_in(&a, [1, 2]);
    let mut of_b = pair_in(&b, [3, 4]);
    let mut daemon = Daemon::start_configured(CONFIGURATION);
    for name in ["a", "b"] {
        await_that(&mut daemon, "the programs should be loaded", || {
            let source = group(name)["status"]["hints"]["source"].clone();
            source == "programs"
        });
        assert_confined(worker(name));
    }
    // First looks are over, and these regions will be read by thin samples only.
    std::thread::sleep(Duration::from_secs(14));
    let before = ["a", "b"].map(taken_hints);
    let first = read_the_same(&mut of_a, &mut daemon, Duration::from_secs(20));
    let between = ["a", "b"].map(taken_hints);
    let second = read_the_same(&mut of_b, &mut daemon, Duration::from_secs(20));
    let after = ["a", "b"].map(taken_hints);
    context.note(format!(
        "what two processes of a group read was merged after {} and {} ms; hints that a and b heard of: {before:?}, \
         {between:?} after a had read, {after:?} after b had",
        first.as_millis(),
        second.as_millis()
    ));
    let reads = 2 * READ as u64 / 32;
    assert!(
        between[0] >= before[0] + reads * 9 / 10,
        "{before:?} {between:?}"
    );
    assert!(
        after[1] >= between[1] + reads * 9 / 10,
        "{between:?} {after:?}"
    );
    // A process of the others may read a little by itself; reads of this group are not reported
    // there.
    assert!(
        between[1] - before[1] <= reads / 10,
        "{before:?} {between:?}"
    );
    assert!(after[0] - between[0] <= reads / 10, "{between:?} {after:?}");
    assert_eq!(shared(of_a[0].pid(), of_b[0].pid()), 0);
    daemon.stop();
    drop((of_a, of_b));
}
