//! Groups: a supervisor, and a worker for each.
//!
//! # Problem
//! Two groups hold the same, and must share nothing, also when processes move between them; a
//! killed worker must harm no process.
//!
//! # Approach
//! `/bin/uksm run` with two groups in the configuration merges peers in two control groups.
//! Physical page numbers, read from the kernel's page maps, show which pages are shared.

use std::fs;
use std::time::Instant;

use super::Context;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::daemon::program_output;
use crate::fixtures::pagemap::assert_no_merged_page_is_left;
use crate::fixtures::process::{fork, pause, signal, wait};
use crate::fixtures::two_groups::{
    CONFIGURATION, NEARLY_ALL, PAGES, TWO_GROUPS, TwoGroups, assert_confined, assert_has_frames,
    assert_intact, await_that, frame_count, group, peer_in, shared, shared_in_one, start_daemon,
    worker, worker_status,
};

cases! { "daemon::groups":
    groups_share_nothing_and_a_killed_worker_is_replaced_with_its_frames Policy Stock 240,
    a_process_that_moves_shares_nothing_with_those_it_left Policy Stock 180,
    a_child_that_was_moved_at_once_shares_nothing_with_its_parent Normal Stock 180,
    a_group_waits_for_the_control_group_that_pays Policy Stock 120,
    a_reload_changes_what_the_file_changes_and_nothing_else Policy Stock 180,
}

fn groups_share_nothing_and_a_killed_worker_is_replaced_with_its_frames(context: &mut Context) {
    let mut host = TwoGroups::new();
    let mut a = host.pair_in_a();
    let mut b = [(); 2].map(|()| peer_in(&host.b));
    for pair in [&a, &b] {
        let [one, two] = [pair[0].pid(), pair[1].pid()];
        host.wait_for("each group should merge its own", || {
            shared(one, two) >= NEARLY_ALL
        });
    }
    for (one, two) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        assert_eq!(
            shared(a[one].pid(), b[two].pid()),
            0,
            "groups should share nothing"
        );
    }
    for name in ["a", "b"] {
        let path = format!("/proc/{}/cgroup", worker(name));
        let cgroup = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(
            cgroup.trim_end(),
            format!("0::/uksm-{name}"),
            "it is booked there"
        );
        assert_confined(worker(name));
    }

    let (frames, before) = (frame_count("a"), worker("a"));
    let begin = Instant::now();
    signal(before, libc::SIGKILL);
    let pids = [a[0].pid(), a[1].pid()];
    host.wait_for("the worker should be replaced", || {
        assert!(
            shared(pids[0], pids[1]) >= NEARLY_ALL,
            "sharing should survive"
        );
        ![0, before].contains(&worker("a")) && group("a")["status"].is_object()
    });
    context.note(format!(
        "a worker was replaced in {} ms",
        begin.elapsed().as_millis()
    ));
    assert_has_frames("a", frames);
    assert_eq!(group("a")["restarts"], 1);
    assert_eq!(group("b")["restarts"], 0, "nobody else should notice");

    a[0].run(|own| own.memory.flip(0..PAGES / 2));
    assert!(shared(pids[0], pids[1]) <= PAGES / 2);
    a[0].run(|own| own.memory.flip(0..PAGES / 2));
    host.wait_for("the new worker should merge as the old one did", || {
        shared(pids[0], pids[1]) >= NEARLY_ALL
    });
    assert_eq!(
        worker_status("a")["targets"]["processes"],
        2,
        "it should follow neither itself nor the supervisor"
    );
    assert_intact(&mut a);
    assert_intact(&mut b);
    host.daemon.stop();
    assert_intact(&mut a);
    drop((a, b));
    assert_no_merged_page_is_left();
}

fn a_process_that_moves_shares_nothing_with_those_it_left(context: &mut Context) {
    let mut host = TwoGroups::new();
    let mut a = host.pair_in_a();
    let mut b = [peer_in(&host.b)];
    let [stays, moves, other] = [a[0].pid(), a[1].pid(), b[0].pid()];
    host.wait_for("group a should merge", || {
        shared(stays, moves) >= NEARLY_ALL
    });
    let begin = Instant::now();
    host.b.take(moves);
    host.wait_for("what moved should merge where it is", || {
        shared_in_one(stays, moves, other) >= NEARLY_ALL
    });
    context.note(format!(
        "moved and merged in {} ms",
        begin.elapsed().as_millis()
    ));
    assert_eq!(shared(stays, moves), 0);
    assert_eq!(shared(stays, other), 0);
    let parted = worker_status("a")["targets"]["parted_pages"].as_u64();
    assert!(parted >= Some(NEARLY_ALL as u64), "{parted:?}");
    host.a.take(moves);
    host.wait_for("it should come back", || {
        shared(stays, moves) >= NEARLY_ALL && shared(moves, other) == 0
    });
    assert_intact(&mut a);
    assert_intact(&mut b);
    host.daemon.stop();
}

fn a_child_that_was_moved_at_once_shares_nothing_with_its_parent(_: &mut Context) {
    let mut host = TwoGroups::new();
    let mut a = host.pair_in_a();
    let [parent, other] = [a[0].pid(), a[1].pid()];
    host.wait_for("group a should merge", || {
        shared(parent, other) >= NEARLY_ALL
    });
    let child = a[0].run(|_| fork(|| pause()));
    // Read before the move, which is reported to the daemon at once.
    assert!(
        shared(parent, child) >= NEARLY_ALL,
        "fork shares as fork does"
    );
    host.b.take(child);
    host.wait_for("the child should share no frame of group a", || {
        shared(child, other) == 0
    });
    let parted = worker_status("b")["targets"]["parted_pages"].as_u64();
    assert!(parted >= Some(NEARLY_ALL as u64), "{parted:?}");
    a[0].run(move |_| {
        signal(child, libc::SIGKILL);
        wait(child)
    });
    assert_intact(&mut a);
    host.daemon.stop();
}

fn a_group_waits_for_the_control_group_that_pays(_: &mut Context) {
    let mut daemon = start_daemon(
        "v_life = \"off\"\n[group.a]\ncgroup = \"/uksm-a\"\nbook = \"/uksm-a\"\n\
         [group.b]\ncgroup = \"/uksm-b\"\n",
    );
    await_that(&mut daemon, "b should run", || {
        group("b")["status"].is_object()
    });
    assert_eq!(
        group("a")["fault"],
        "/sys/fs/cgroup/uksm-a: no such control group yet"
    );
    let error = program_output(&["group", "show", "c"]);
    assert_eq!(error, "uksm: c: no such group: there are a, b\n");
    let cgroup = Cgroup::new("a");
    // With groups below it, it holds no processes itself.
    let below = "/sys/fs/cgroup/uksm-a/below";
    fs::create_dir(below).expect("a control group");
    fs::write("/sys/fs/cgroup/uksm-a/cgroup.subtree_control", "+memory").expect("a controller");
    await_that(&mut daemon, "a should run, too", || {
        group("a")["status"].is_object()
    });
    let path = format!("/proc/{}/cgroup", worker("a"));
    let place = fs::read_to_string(&path).expect("a control group");
    assert_eq!(place.trim_end(), "0::/uksm-a/uksm", "in one of its own");
    daemon.stop();
    for folder in [below, "/sys/fs/cgroup/uksm-a/uksm"] {
        fs::remove_dir(folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    }
    drop(cgroup);
}

/// Rewrites the configuration and reloads it; returns the program's output.
fn reloaded(text: &str) -> String {
    fs::write(CONFIGURATION, text).expect("a configuration");
    program_output(&["reload"])
}

fn a_reload_changes_what_the_file_changes_and_nothing_else(_: &mut Context) {
    let mut host = TwoGroups::new();
    let mut a = host.pair_in_a();
    let mut b = [(); 2].map(|()| peer_in(&host.b));
    let ([stays, moves], [one, two]) = ([a[0].pid(), a[1].pid()], [b[0].pid(), b[1].pid()]);
    host.wait_for("both groups should merge", || {
        shared(stays, moves) >= NEARLY_ALL && shared(one, two) >= NEARLY_ALL
    });
    let workers = [worker("a"), worker("b")];

    // A bad line has no effect.
    let error = reloaded(&TWO_GROUPS.replace("cgroup = \"/uksm-b\"", "cgroups = 1"));
    assert!(error.starts_with("uksm: /tmp/groups.toml:"), "{error}");
    assert!(error.contains("cgroups: no such key"), "{error}");
    assert_eq!([worker("a"), worker("b")], workers);

    // One process goes to the other group: only that one is unmerged.
    let text = TWO_GROUPS.replace(
        "[group.b]",
        &format!("exclude = {{ pid = {moves} }}\n[group.b]"),
    ) + &format!("pid = {moves}\n");
    assert_eq!(reloaded(&text), "reloaded; groups: 2\n");
    host.wait_for("it should merge in the other group", || {
        shared_in_one(stays, moves, one) >= NEARLY_ALL
    });
    assert_eq!(
        [worker("a"), worker("b")],
        workers,
        "nobody was started again"
    );

    // Other settings: a new worker, the same frames.
    let text = text.replace("v_life", "governor = \"medium\"\nv_life");
    assert_eq!(reloaded(&text), "reloaded; groups: 2\n");
    assert!(
        shared(one, two) >= NEARLY_ALL,
        "what is merged stays merged"
    );
    assert_ne!(worker("b"), workers[1]);
    assert_eq!(group("b")["restarts"], 0, "nobody had died");
    let governor = worker_status("b")["governor"].clone();
    assert_eq!(governor, "medium");

    // A removed group shares nothing.
    let text = "[group.a]\ncgroup = \"/uksm-a\"\nbook = \"/uksm-a\"\n";
    assert_eq!(reloaded(text), "reloaded; groups: 1\n");
    for (x, y) in [(one, two), (one, moves), (two, moves)] {
        assert_eq!(shared(x, y), 0);
    }
    host.wait_for("the one that is back should merge", || {
        shared(stays, moves) >= NEARLY_ALL
    });
    assert_intact(&mut a);
    assert_intact(&mut b);
    host.daemon.stop();
    drop((a, b));
    assert_no_merged_page_is_left();
}
