//! Groups that a rule forms.
//!
//! # Problem
//! These groups are not configured by name: they come with their first process and go with the
//! last. Meanwhile they must behave as any group.
//!
//! # Approach
//! A rule forms a group for each control group. Physical page numbers show which pages are shared.
//! Processes start, move and end; control groups appear beyond the limit of the rule.

use std::fs;

use super::Context;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::daemon::program_output;
use crate::fixtures::pagemap::assert_no_merged_page_is_left;
use crate::fixtures::peer::Peer;
use crate::fixtures::two_groups::{
    CONFIGURATION, NEARLY_ALL, assert_intact, await_that, group, peer_in, shared, shared_in_one,
    start_daemon, status, worker, worker_status,
};

cases! { "daemon::formed_groups":
    a_rule_forms_groups_that_share_nothing_and_part_from_whom_they_lose Policy Stock 240,
    a_group_that_nobody_is_in_is_dissolved_and_makes_room Policy Stock 180,
}

const BY_CGROUP: &str = "v_life = \"off\"\n\
                         [rule.t]\nby = \"cgroup:1\"\ncgroup = \"/uksm-*\"\nbook = \"self\"\n\
                         dissolve_after = \"2s\"\nmost = 2\n";
const A: &str = "t@uksm-a";
const B: &str = "t@uksm-b";

/// The names of the present groups.
fn names() -> Vec<String> {
    let groups = status()["groups"].as_array().cloned().unwrap_or_default();
    let name = |group: &serde_json::Value| group["name"].as_str().map(str::to_owned);
    let mut names: Vec<String> = groups.iter().filter_map(name).collect();
    names.sort();
    names
}

fn a_rule_forms_groups_that_share_nothing_and_part_from_whom_they_lose(context: &mut Context) {
    let [in_a, in_b] = ["a", "b"].map(Cgroup::new);
    let mut daemon = start_daemon(BY_CGROUP);
    let mut a = [(); 2].map(|()| peer_in(&in_a));
    let mut b = [(); 2].map(|()| peer_in(&in_b));
    let ([stays, moves], [one, two]) = ([a[0].pid(), a[1].pid()], [b[0].pid(), b[1].pid()]);
    await_that(&mut daemon, "each should merge its own", || {
        shared(stays, moves) >= NEARLY_ALL && shared(one, two) >= NEARLY_ALL
    });
    for (x, y) in [(stays, one), (stays, two), (moves, one), (moves, two)] {
        assert_eq!(shared(x, y), 0, "formed groups should share nothing");
    }
    assert_eq!(names(), [A, B]);
    assert_eq!(group(A)["origin"], "rule t, cgroup:1 /uksm-a");
    for (name, place) in [(A, "0::/uksm-a"), (B, "0::/uksm-b")] {
        let path = format!("/proc/{}/cgroup", worker(name));
        let cgroup = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(cgroup.trim_end(), place, "its own control group should pay");
        let processes = &worker_status(name)["targets"]["processes"];
        assert_eq!(*processes, 2, "a worker is in no group");
    }
    let workers = [worker(A), worker(B)];

    in_b.take(moves);
    await_that(&mut daemon, "what moved should merge where it is", || {
        shared_in_one(stays, moves, one) >= NEARLY_ALL
    });
    let parted = worker_status(A)["targets"]["parted_pages"].as_u64();
    assert!(parted >= Some(NEARLY_ALL as u64), "{parted:?}");
    assert_eq!([worker(A), worker(B)], workers, "nobody was started again");

    // The rule is gone, and its groups with it.
    let rest = "[group.a]\ncgroup = \"/uksm-a\"\n";
    fs::write(CONFIGURATION, rest).expect("a configuration");
    let text = program_output(&["reload"]);
    assert_eq!(text, "reloaded; groups: 1\n");
    for (x, y) in [(one, two), (one, moves), (stays, moves)] {
        assert_eq!(shared(x, y), 0, "nothing should be left of a group");
    }
    assert_eq!(names(), ["a"]);
    context.note("two groups were formed, parted from who moved, and were dissolved");
    assert_intact(&mut a);
    assert_intact(&mut b);
    daemon.stop();
    drop((a, b));
    assert_no_merged_page_is_left();
}

fn a_group_that_nobody_is_in_is_dissolved_and_makes_room(_: &mut Context) {
    let [in_a, in_b, in_c] = ["a", "b", "c"].map(Cgroup::new);
    let mut daemon = start_daemon(BY_CGROUP);
    let mut a = [(); 2].map(|()| peer_in(&in_a));
    let b = peer_in(&in_b);
    let merging = |pair: &[Peer; 2]| shared(pair[0].pid(), pair[1].pid()) >= NEARLY_ALL;
    await_that(&mut daemon, "two groups should be formed", || {
        merging(&a) && names() == [A, B]
    });
    // The third is one too many. It is in no group, and so shares nothing with a or b.
    let mut c = [(); 2].map(|()| peer_in(&in_c));
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(names(), [A, B]);
    assert_eq!(shared(c[0].pid(), c[1].pid()), 0);

    b.exit();
    await_that(&mut daemon, "the third should have the room", || {
        names() == [A, "t@uksm-c"] && merging(&c)
    });
    assert_eq!(shared(a[0].pid(), c[0].pid()), 0);
    assert!(merging(&a), "nobody else should notice");
    let seeds = fs::read_dir("/run/uksm").expect("the daemon's folder");
    let is_of_b = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().contains("uksm-b");
    let left = seeds.flatten().filter(is_of_b).count();
    assert_eq!(left, 0, "nothing should be left of a group that is gone");
    assert_intact(&mut a);
    assert_intact(&mut c);
    daemon.stop();
}
