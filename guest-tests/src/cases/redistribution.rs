//! Memory freed by a group's merging goes back to its members.
//!
//! # Problem
//! A limit that rises with the merged pages must fall with them, and be at the end the value that
//! the operator had set.
//!
//! # Approach
//! Two control groups of one group hold the same. Their `memory.high` is read from the kernel's
//! files, while their pages are merged, while they are written, and after the daemon has stopped.

use super::Context;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::daemon::Daemon;
use crate::fixtures::peer::Peer;
use crate::fixtures::two_groups::{
    CONFIGURATION, NEARLY_ALL, PAGES, assert_intact, await_that, peer_in, redistributed_bytes,
    shared,
};

cases! { "daemon::redistribution":
    a_limit_follows_what_was_merged_and_is_put_back Policy Stock 120,
}

const MIB: u64 = 1 << 20;
const BASE: u64 = 64 * MIB;
const FOUND: u64 = 300 * MIB;

const TOLD: &str = "v_life = \"off\"\n\
    [group.a]\ncgroup = [\"/uksm-one\", \"/uksm-two\"]\nbook = \"/uksm-pays\"\n\
    redistribute = \"entitlement\"\nredistribute_least = \"1MiB\"\n\
    [group.a.member.one]\ncgroup = \"/uksm-one\"\nbase = \"64MiB\"\n\
    [group.a.member.two]\ncgroup = \"/uksm-two\"\nbase = \"64MiB\"\n";

fn a_limit_follows_what_was_merged_and_is_put_back(context: &mut Context) {
    let [one, two, _payer] = ["one", "two", "pays"].map(Cgroup::new);
    one.set_high(FOUND);
    std::fs::write(CONFIGURATION, TOLD).expect("a configuration");
    let mut daemon = Daemon::start_configured(CONFIGURATION);
    await_that(&mut daemon, "both should have their base", || {
        [one.high(), two.high()] == [Some(BASE); 2]
    });
    let mut pair: [Peer; 2] = [peer_in(&one), peer_in(&two)];
    let pids = [pair[0].pid(), pair[1].pid()];
    let merged = (PAGES * 4096) as u64;
    await_that(
        &mut daemon,
        "what was merged should be given to both",
        || {
            let given = [one.high(), two.high()].map(|high| high.unwrap_or(0).saturating_sub(BASE));
            shared(pids[0], pids[1]) >= NEARLY_ALL
                && given.iter().all(|&given| given >= merged * 3 / 8)
        },
    );
    let given = [one.high(), two.high()].map(|high| high.expect("a limit") - BASE);
    context.note(format!(
        "{merged} bytes are merged, {} and {} are given",
        given[0], given[1]
    ));
    let (freed, _) = redistributed_bytes();
    assert!(given.iter().sum::<u64>() <= freed, "{given:?} of {freed}");

    pair[0].run(|own| own.memory.flip(0..PAGES));
    await_that(
        &mut daemon,
        "what is shared no more should come back",
        || {
            [one.high(), two.high()]
                .iter()
                .all(|high| high.is_some_and(|high| (BASE..BASE + MIB).contains(&high)))
        },
    );
    let (freed, given) = redistributed_bytes();
    assert!(given <= freed, "{given} of {freed}");
    pair[0].run(|own| own.memory.flip(0..PAGES));
    assert_intact(&mut pair);
    daemon.stop();
    assert_eq!(
        [one.high(), two.high()],
        [Some(FOUND), None],
        "what was there should be put back"
    );
}
