//! A daemon with groups beside processes that hold their own locks, are stopped, or are busy in the
//! kernel.
//!
//! # Problem
//! One customer's process must not keep the groups of others from being merged, nor the daemon from
//! answering.
//!
//! # Approach
//! In group a one process holds the lock of its mappings, while memory freed by the group is
//! divided, for which the supervisor counts pages itself. In group b one is stopped, one is traced,
//! one is frozen, and one unmaps 64 MiB over and over. Pairs in both groups must merge as usual,
//! each query must be answered soon, and the status and `explain` must name the process that holds
//! its locks. The process that unmaps is ended before the daemon: the kernel removes the daemon's
//! programs when every task has left the kernel once (`synchronize_rcu_tasks()`), and this one
//! hardly does.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::accounting::set;
use crate::fixtures::daemon::program_output;
use crate::fixtures::fuse::FuseFile;
use crate::fixtures::held_locks::{hold_mappings, unmap_much_for_ever};
use crate::fixtures::memory::answer;
use crate::fixtures::peer::Peer;
use crate::fixtures::process::signal;
use crate::fixtures::two_groups::{
    NEARLY_ALL, TwoGroups, assert_intact, peer_in, shared, worker_status,
};

cases! { "daemon::held_locks":
    one_that_holds_its_locks_keeps_nobody_else_from_being_merged_or_answered Policy Stock 240,
}

const TOLD: &str = "v_life = \"off\"\n\
    [group.a]\ncgroup = \"/uksm-a\"\nbook = \"/uksm-a\"\nredistribute = \"entitlement\"\n\
    redistribute_least = \"1MiB\"\n[group.a.member.one]\ncgroup = \"/uksm-a\"\nbase = \"256MiB\"\n\
    [group.b]\ncgroup = \"/uksm-b\"\nbook = \"/uksm-b\"\n";

/// A query is answered within this time, on an emulated machine whose processors are all busy.
const SOON: Duration = Duration::from_secs(10);
const FROZEN: &str = "/sys/fs/cgroup/uksm-b/frozen";

/// Runs the program; returns its output and the time it took.
fn timed_output(arguments: &[&str]) -> (String, Duration) {
    let begin = Instant::now();
    let text = program_output(arguments);
    (text, begin.elapsed())
}

/// A control group that is frozen, with a process, until it is dropped.
struct FrozenGroup;

impl FrozenGroup {
    fn with(pid: i32) -> FrozenGroup {
        fs::create_dir(FROZEN).expect("a control group");
        set(&format!("{FROZEN}/cgroup.procs"), &pid.to_string());
        set(&format!("{FROZEN}/cgroup.freeze"), "1");
        FrozenGroup
    }

    fn thaw() {
        set(&format!("{FROZEN}/cgroup.freeze"), "0");
    }
}

impl Drop for FrozenGroup {
    fn drop(&mut self) {
        FrozenGroup::thaw();
        // Its process goes with the test.
        set(&format!("{FROZEN}/cgroup.kill"), "1");
        let end = Instant::now() + SOON;
        while fs::remove_dir(FROZEN).is_err() && Instant::now() < end {
            sleep(Duration::from_millis(20));
        }
    }
}

fn trace(pid: i32) {
    // SAFETY: the request takes no pointer.
    answer(unsafe { i32::try_from(libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0)).unwrap_or(-1) })
        .expect("PTRACE_SEIZE");
    // SAFETY: as above.
    answer(unsafe { i32::try_from(libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0)).unwrap_or(-1) })
        .expect("PTRACE_INTERRUPT");
}

fn one_that_holds_its_locks_keeps_nobody_else_from_being_merged_or_answered(context: &mut Context) {
    let mut host = TwoGroups::configured(TOLD);
    let mut holder: Peer = peer_in(&host.a);
    let mut still: Vec<Peer> = (0..3).map(|_| peer_in(&host.b)).collect();
    let mut unmapping = peer_in(&host.b);
    let mut file = FuseFile::new(context, 1, 1);
    hold_mappings(&mut holder, &mut file);
    signal(still[0].pid(), libc::SIGSTOP);
    trace(still[1].pid());
    let _frozen = FrozenGroup::with(still[2].pid());
    unmap_much_for_ever(&mut unmapping);

    let mut pairs = [&host.a, &host.b].map(|cgroup| [(); 2].map(|()| peer_in(cgroup)));
    let mut longest = Duration::ZERO;
    for [one, two] in &pairs {
        let pids = [one.pid(), two.pid()];
        host.wait_for("each group should merge its pair", || {
            let (_, took) = timed_output(&["status"]);
            longest = longest.max(took);
            shared(pids[0], pids[1]) >= NEARLY_ALL
        });
    }
    // It is named when it has held its locks for 5 s.
    let named = |status: &serde_json::Value| {
        let locked = status["targets"]["locked"].as_array().cloned();
        let pids = locked.unwrap_or_default().into_iter();
        pids.map(|entry| entry["pid"].as_i64().unwrap_or(0))
            .collect::<Vec<_>>()
    };
    let pid = i64::from(holder.pid());
    host.wait_for("the one that holds its locks should be named", || {
        let (_, took) = timed_output(&["status"]);
        longest = longest.max(took);
        named(&worker_status("a")) == [pid]
    });
    assert_eq!(named(&worker_status("b")), [0; 0], "nobody else is");
    let (text, took) = timed_output(&["explain", &holder.pid().to_string()]);
    assert!(text.contains("holds-its-locks"), "{text}");
    longest = longest.max(took);
    let (text, took) = timed_output(&["break", "--pid", &holder.pid().to_string()]);
    assert!(text.contains("held the lock of its own mappings"), "{text}");
    longest = longest.max(took);
    // It moves, and cannot be unmerged from its group while it holds its locks: the others are not
    // affected.
    let other = pairs[0][0].pid();
    host.b.take(other);
    let pids = [other, pairs[1][0].pid()];
    host.wait_for("what moves should be merged where it is", || {
        let (_, took) = timed_output(&["status"]);
        longest = longest.max(took);
        shared(pids[0], pids[1]) >= NEARLY_ALL
    });
    assert!(longest < SOON, "an answer took {longest:?}");
    context.note(format!("the slowest answer took {longest:?}"));
    drop(file);
    host.wait_for("it should be named no longer", || {
        named(&worker_status("a")).is_empty()
    });
    for pair in &mut pairs {
        assert_intact(pair);
    }
    FrozenGroup::thaw();
    signal(still[0].pid(), libc::SIGCONT);
    drop((holder, unmapping));
    host.daemon.stop();
    still.clear();
}
