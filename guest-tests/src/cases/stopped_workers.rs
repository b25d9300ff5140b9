//! Groups whose workers are stopped by the control group that pays.
//!
//! # Problem
//! The owner of a worker's control group can freeze it. No other group may wait for it, lent memory
//! must come back, and actions reported as done must be done.
//!
//! # Approach
//! The worker of one group is frozen, and all requests are made to the daemon. Page maps show which
//! pages are shared; limits are the kernel's.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::daemon::{Daemon, PROGRAM, program_output};
use crate::fixtures::pagemap::assert_no_merged_page_is_left;
use crate::fixtures::peer::Peer;
use crate::fixtures::two_groups::{
    CONFIGURATION, NEARLY_ALL, PAGES, assert_intact, await_that, group, peer_in, shared,
    start_daemon, status, worker,
};

cases! { "daemon::stopped_workers":
    a_frozen_worker_holds_nobody_up_and_its_group_shares_nothing_once_that_is_said Policy Stock 240,
    lent_memory_comes_back_while_a_worker_is_frozen_and_pages_are_broken Policy Stock 180,
    lent_limits_are_put_back_where_no_daemon_can_start Policy Stock 180,
}

const MIB: u64 = 1 << 20;
const BASE: u64 = 64 * MIB;
const FOUND: u64 = 300 * MIB;

const LENDS: &str = "v_life = \"off\"\n\
    [group.a]\ncgroup = [\"/uksm-one\", \"/uksm-two\"]\nbook = \"/uksm-pays\"\n\
    redistribute = \"entitlement\"\nredistribute_least = \"1MiB\"\n\
    [group.a.member.one]\ncgroup = \"/uksm-one\"\nbase = \"64MiB\"\n\
    [group.a.member.two]\ncgroup = \"/uksm-two\"\nbase = \"64MiB\"\n";

/// Longest time of an answer, with a stopped worker and an emulated machine.
const SOON: Duration = Duration::from_secs(6);

fn a_frozen_worker_holds_nobody_up_and_its_group_shares_nothing_once_that_is_said(
    context: &mut Context,
) {
    let [a, b, pays] = ["a", "b", "pays"].map(Cgroup::new);
    let text = "v_life = \"off\"\n\
                [group.a]\ncgroup = \"/uksm-a\"\nbook = \"/uksm-pays\"\n\
                [group.b]\ncgroup = \"/uksm-b\"\n";
    let mut daemon = start_daemon(text);
    let mut in_a = [(); 2].map(|()| peer_in(&a));
    let mut in_b = [(); 2].map(|()| peer_in(&b));
    let ([one, two], [x, y]) = (pids(&in_a), pids(&in_b));
    await_that(&mut daemon, "both groups should merge", || {
        shared(one, two) >= NEARLY_ALL && shared(x, y) >= NEARLY_ALL
    });

    pays.freeze(true);
    let begin = Instant::now();
    let status = status();
    let taken = begin.elapsed();
    context.note(format!("a status took {} ms", taken.as_millis()));
    assert!(taken < SOON, "a status took {taken:?}");
    let groups = status["groups"].as_array().cloned().unwrap_or_default();
    let faults: Vec<&str> = groups.iter().filter_map(|g| g["fault"].as_str()).collect();
    assert_eq!(groups.len(), 2);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(
        faults[0].starts_with("the worker does not answer"),
        "{faults:?}"
    );
    let text = program_output(&["group", "show", "a"]);
    assert!(
        text.starts_with("uksm: group a: the worker does not answer"),
        "{text}"
    );
    in_b[0].run(|own| own.memory.flip(0..PAGES));
    in_b[0].run(|own| own.memory.flip(0..PAGES));
    await_that(&mut daemon, "the other group should merge as ever", || {
        shared(x, y) >= NEARLY_ALL
    });

    // Less may be merged: the daemon reports this only after it is true.
    let narrow = text_of_groups("merge = \"zero\"\n");
    std::fs::write(CONFIGURATION, narrow).expect("a configuration");
    let begin = Instant::now();
    let text = program_output(&["reload"]);
    context.note(format!("a reload took {} ms", begin.elapsed().as_millis()));
    assert_eq!(text, "reloaded; groups: 2\n");
    assert_eq!(shared(one, two), 0);
    assert!(shared(x, y) >= NEARLY_ALL, "the other one goes on");
    pays.freeze(false);
    await_that(&mut daemon, "it should run", || {
        group("a")["status"].is_object()
    });

    // The same holds if no worker can be started at all.
    std::fs::write(CONFIGURATION, text_of_groups("")).expect("a configuration");
    assert_eq!(program_output(&["reload"]), "reloaded; groups: 2\n");
    await_that(&mut daemon, "it should merge again", || {
        shared(one, two) >= NEARLY_ALL
    });
    pays.freeze(true);
    crate::fixtures::process::signal(worker("a"), libc::SIGKILL);
    // The next one is moved to the frozen control group at its start.
    let text = "v_life = \"off\"\n[group.b]\ncgroup = \"/uksm-b\"\n";
    std::fs::write(CONFIGURATION, text).expect("a configuration");
    assert_eq!(program_output(&["reload"]), "reloaded; groups: 1\n");
    assert_eq!(shared(one, two), 0);
    pays.freeze(false);
    assert_intact(&mut in_a);
    assert_intact(&mut in_b);
    daemon.stop();
    drop((in_a, in_b, a, b, pays));
    assert_no_merged_page_is_left();
}

fn text_of_groups(of_a: &str) -> String {
    format!(
        "v_life = \"off\"\n\
         [group.a]\ncgroup = \"/uksm-a\"\nbook = \"/uksm-pays\"\n{of_a}\
         [group.b]\ncgroup = \"/uksm-b\"\n"
    )
}

fn pids(pair: &[Peer; 2]) -> [i32; 2] {
    [pair[0].pid(), pair[1].pid()]
}

/// A daemon that lends two control groups the memory that merging in them frees, and processes in
/// them.
fn lending([one, two]: [&Cgroup; 2]) -> (Daemon, [Peer; 2]) {
    let mut daemon = start_daemon(LENDS);
    let pair: [Peer; 2] = [peer_in(one), peer_in(two)];
    await_given(&mut daemon, [one, two]);
    (daemon, pair)
}

fn await_given(daemon: &mut Daemon, members: [&Cgroup; 2]) {
    let merged = (PAGES * 4096) as u64;
    await_that(daemon, "what was merged should be given", || {
        let given = members.map(|member| member.high().unwrap_or(0).saturating_sub(BASE));
        given
            .iter()
            .all(|&given| (merged * 3 / 8..MIB << 10).contains(&given))
    });
}

fn lent_memory_comes_back_while_a_worker_is_frozen_and_pages_are_broken(context: &mut Context) {
    let [one, two, pays] = ["one", "two", "pays"].map(Cgroup::new);
    let (mut daemon, mut pair) = lending([&one, &two]);
    let pids = pids(&pair);
    pays.freeze(true);
    let begin = Instant::now();
    let mut breaking = Command::new(PROGRAM)
        .args(["break", "--pid", &pids[1].to_string()])
        .stdin(Stdio::null())
        .spawn()
        .expect("uksm break");
    pair[0].run(|own| own.memory.flip(0..PAGES));
    await_that(&mut daemon, "what was lent should come back", || {
        let is_base = |high: u64| (BASE..BASE + MIB).contains(&high);
        [one.high(), two.high()]
            .iter()
            .all(|high| high.is_some_and(is_base))
    });
    context.note(format!(
        "it came back after {} ms",
        begin.elapsed().as_millis()
    ));
    let ended = breaking.wait().expect("uksm break");
    context.note(format!(
        "pages were broken after {} ms",
        begin.elapsed().as_millis()
    ));
    assert!(ended.success(), "{ended}");
    pair[0].run(|own| own.memory.flip(0..PAGES));
    assert_eq!(shared(pids[0], pids[1]), 0);
    pays.freeze(false);
    assert_intact(&mut pair);
    daemon.stop();
}

fn lent_limits_are_put_back_where_no_daemon_can_start(_: &mut Context) {
    let [one, two, _pays] = ["one", "two", "pays"].map(Cgroup::new);
    one.set_high(FOUND);
    let (daemon, mut pair) = lending([&one, &two]);
    let found = [Some(FOUND), None];
    daemon.kill();
    assert_ne!([one.high(), two.high()], found);
    // The configuration is bad.
    std::fs::write(CONFIGURATION, "groups = 1\n").expect("a configuration");
    let text = program_output(&["run", "--config", CONFIGURATION]);
    assert!(text.contains("groups: no such key"), "{text}");
    assert_eq!([one.high(), two.high()], found, "{text}");

    for (arguments, says) in [
        // The module is missing.
        (
            &["run", "--config", CONFIGURATION, "--device", "/dev/none"][..],
            "/dev/none",
        ),
        (&["run", "--put-back"], "again, as before"),
    ] {
        let mut daemon = start_daemon(LENDS);
        await_given(&mut daemon, [&one, &two]);
        // The command has no effect while a daemon runs.
        assert_eq!(program_output(&["run", "--put-back"]), "");
        await_given(&mut daemon, [&one, &two]);
        daemon.kill();
        assert_ne!([one.high(), two.high()], found);
        let text = program_output(arguments);
        assert!(text.contains(says), "{arguments:?}: {text}");
        assert_eq!([one.high(), two.high()], found, "{arguments:?}: {text}");
    }
    assert_intact(&mut pair);
}
