//! Rates that follow the work of groups.
//!
//! # Problem
//! A worker must take another share of a processor while it runs, keep to it, and keep its merged
//! pages; and all together must not exceed the host's limit.
//!
//! # Approach
//! Two groups with dynamic rates, at shares so small that merging takes long. One has processes
//! that rewrite merged pages, the other has none at first. The share of each is read from the
//! supervisor, and from the workers themselves.

use std::thread::sleep;
use std::time::Duration;

use super::Context;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::daemon::program_output;
use crate::fixtures::peer::Peer;
use crate::fixtures::two_groups::{
    PAGES, SEED, assert_intact, await_that, group, peer_in, start_daemon, status, worker,
};

cases! { "daemon::rates":
    a_busy_group_has_what_a_calm_one_leaves_and_no_worker_is_restarted Long Stock 180,
}

const TOTAL: f64 = 0.08;
/// A quarter of an equal part, which an idle group keeps.
const KEPT: f64 = TOTAL / 8.0;

/// The shares of groups a and b in the supervisor's status, at one moment.
fn shares() -> [f64; 2] {
    let groups = status()["groups"].as_array().cloned().unwrap_or_default();
    ["a", "b"].map(|name| {
        let group = groups.iter().find(|group| group["name"] == name);
        let share = group.and_then(|group| group["rate"]["share"].as_f64());
        share.unwrap_or(0.0)
    })
}

/// The same, by the workers themselves.
fn own_shares() -> [f64; 2] {
    ["a", "b"].map(|name| {
        let share = &group(name)["status"]["cpu"]["budget_share"];
        share.as_f64().unwrap_or(0.0)
    })
}

/// Whether the text of the status reports the small share of b, and its reason.
fn is_said_of_b() -> bool {
    let text = program_output(&["status"]);
    let mut lines = text.lines();
    lines.any(|line| {
        let line = line.trim_start();
        line.starts_with("b: may use 1.") && line.contains("because of: it uses no more")
    })
}

/// One second of a group with endless work: rewritten pages have to be merged again.
fn write_again(busy: &mut [Peer]) {
    for peer in busy {
        peer.run(|own| own.memory.fill(SEED, PAGES));
    }
    // Each query to the daemon takes some processor time of both workers.
    sleep(Duration::from_secs(1));
}

fn a_busy_group_has_what_a_calm_one_leaves_and_no_worker_is_restarted(context: &mut Context) {
    let [a, b] = ["a", "b"].map(Cgroup::new);
    let groups = ["a", "b"].map(|name| {
        format!(
            "[group.{name}]\ncgroup = \"/uksm-{name}\"\nbook = \"/uksm-{name}\"\n\
             rate = \"dynamic\"\ncpu = {}\ncpu_least = 0.01\n",
            TOTAL / 2.0
        )
    });
    let configuration = format!("cpu_total = {TOTAL}\nv_life = \"off\"\n{}", groups.concat());
    let mut daemon = start_daemon(&configuration);
    await_that(&mut daemon, "both workers should run", || {
        worker("a") > 0 && worker("b") > 0
    });
    let workers = [worker("a"), worker("b")];
    let mut busy = [(); 8].map(|()| peer_in(&a));
    let mut highest = [0.0_f64; 2];
    // A worker that has just started has work of its own, so b may have more again a second after
    // its minimum: the text is awaited like the shares.
    await_that(&mut daemon, "a should have what b leaves", || {
        write_again(&mut busy);
        let now = shares();
        assert!(now[0] + now[1] <= TOTAL + 1e-6, "{now:?} of a core");
        highest = now;
        now[0] > TOTAL - KEPT * 1.5 && now[1] < KEPT * 1.1 && is_said_of_b()
    });
    await_that(&mut daemon, "workers should know", || {
        write_again(&mut busy);
        let (sent, own) = (shares(), own_shares());
        sent.iter()
            .zip(own)
            .all(|(sent, own)| (sent - own).abs() < 1e-5)
    });
    context.note(format!("{highest:?} of a core"));
    let mut calm = [peer_in(&b), peer_in(&b)];
    await_that(&mut daemon, "who was calm should have more again", || {
        sleep(Duration::from_secs(1));
        shares()[1] > KEPT * 1.5
    });
    assert_eq!([worker("a"), worker("b")], workers, "none was restarted");
    assert_intact(&mut busy);
    assert_intact(&mut calm);
    daemon.stop();
}
