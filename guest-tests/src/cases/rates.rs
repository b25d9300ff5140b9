//! Rates that follow what groups do.
//!
//! # Problem
//! A worker must take another share of a processor while it runs, keep to it, and keep what it has merged; and all together must not
//! have more than the host allows.
//!
//! # Approach
//! Two groups with dynamic rates. The processes of one write what was merged, over and over, so that its worker uses what it may; those
//! of the other do nothing. What each may use is read from the supervisor, and from the workers themselves.

use super::Context;
use super::daemon::Daemon;
use super::groups::{
    CONFIGURATION, PAGES, assert_intact, await_that, group, peer_in, said, shared, worker,
};
use crate::fixtures::cgroup::Cgroup;

cases! { "daemon::rates":
    a_busy_group_has_what_a_calm_one_leaves_and_no_worker_is_restarted Normal Stock 180,
}

const TOTAL: f64 = 0.2;
/// A quarter of an equal part, which a group keeps that uses nothing.
const KEPT: f64 = TOTAL / 8.0;

const TOLD: &str = "cpu_total = 0.2\nv_life = \"off\"\n";

/// What the supervisor says that groups a and b may use, at one moment.
fn shares() -> [f64; 2] {
    let status = said(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
    let groups = status["groups"].as_array().cloned().unwrap_or_default();
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

fn a_busy_group_has_what_a_calm_one_leaves_and_no_worker_is_restarted(context: &mut Context) {
    let [a, b] = ["a", "b"].map(Cgroup::new);
    let groups = ["a", "b"].map(|name| {
        format!("[group.{name}]\ncgroup = \"/uksm-{name}\"\nbook = \"/uksm-{name}\"\nrate = \"dynamic\"\ncpu = 0.1\n")
    });
    let told = TOLD.to_owned() + &groups.concat();
    std::fs::write(CONFIGURATION, told).expect("a configuration");
    let mut daemon = Daemon::start_configured(CONFIGURATION);
    let mut pair = [peer_in(&a), peer_in(&a)];
    let mut calm = [peer_in(&b), peer_in(&b)];
    await_that(&mut daemon, "both groups should merge", || {
        shared(pair[0].pid(), pair[1].pid()) > PAGES / 2
            && shared(calm[0].pid(), calm[1].pid()) > PAGES / 2
    });
    let workers = [worker("a"), worker("b")];
    for _ in 0..600 {
        daemon.assert_running();
        // Twice is what was there.
        for peer in &mut pair {
            peer.run(|own| {
                own.memory.flip(0..PAGES);
                own.memory.flip(0..PAGES);
            });
        }
        let [a, b] = shares();
        assert!(a + b <= TOTAL + 1e-6, "{a} and {b} of a core");
        if b < KEPT * 1.1 && a > TOTAL - KEPT * 1.5 {
            break;
        }
    }
    let [of_a, of_b] = shares();
    let line = said(&["status"]);
    assert!(of_b < KEPT * 1.1 && of_a > TOTAL - KEPT * 1.5, "{line}");
    assert!(line.contains("b: may use 2.5 % of a core"), "{line}");
    await_that(&mut daemon, "workers should know", || {
        let (told, own) = (shares(), own_shares());
        told.iter()
            .zip(own)
            .all(|(told, own)| (told - own).abs() < 1e-5)
    });
    assert_eq!([worker("a"), worker("b")], workers, "none was restarted");
    context.note(format!("{of_a} and {of_b} of a core"));
    assert_intact(&mut pair);
    assert_intact(&mut calm);
    daemon.stop();
}
