//! Groups whose workers and supervisor die.
//!
//! # Problem
//! After any such death, no process may be harmed, no frame lost, and the next one must go on.
//!
//! # Approach
//! Both are killed as `kill -9` does, while processes write. The test stores the files that systemd
//! stores for its services.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Context;
use crate::fixtures::daemon::Daemon;
use crate::fixtures::fd_store::FdStore;
use crate::fixtures::pagemap::assert_no_merged_page_is_left;
use crate::fixtures::peer::Peer;
use crate::fixtures::process::signal;
use crate::fixtures::two_groups::{
    CONFIGURATION, NEARLY_ALL, PAGES, TwoGroups, assert_has_frames, assert_intact, await_that,
    frame_count, group, peer_in, shared, worker, worker_status,
};

cases! { "daemon::group_restarts":
    a_new_supervisor_gets_the_frames_that_systemd_kept Policy Stock 120,
    a_stored_domain_of_other_constants_is_given_up_and_its_processes_merge_again Policy Stock 180,
    workers_and_supervisors_killed_over_and_over_harm_nobody Policy Stock 240,
}

const KILLS: usize = 9;

fn pids(pair: &[Peer; 2]) -> [i32; 2] {
    [pair[0].pid(), pair[1].pid()]
}

/// Kills a daemon, and waits until the workers of a and b have ended as well.
fn kill_with_workers(daemon: Daemon) {
    let workers = [worker("a"), worker("b")];
    daemon.kill();
    let end = Instant::now() + Duration::from_secs(20);
    while workers
        .iter()
        .any(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists())
    {
        assert!(
            Instant::now() < end,
            "workers should end with their supervisor"
        );
        sleep(Duration::from_millis(20));
    }
}

fn a_new_supervisor_gets_the_frames_that_systemd_kept(context: &mut Context) {
    let mut store = FdStore::new();
    let mut host = TwoGroups::prepared(|command| store.serve(command));
    let mut pair = host.pair_in_a();
    let [one, two] = pids(&pair);
    host.wait_for("group a should merge", || shared(one, two) >= NEARLY_ALL);
    let frames = frame_count("a");
    assert_eq!(store.names(), ["domain-a", "domain-b"]);
    let TwoGroups { daemon, a, b } = host;
    kill_with_workers(daemon);
    assert!(
        shared(one, two) >= NEARLY_ALL,
        "what is merged stays merged"
    );

    let begin = Instant::now();
    let mut daemon = Daemon::start_prepared(CONFIGURATION, |command| store.serve(command));
    await_that(&mut daemon, "it should run", || {
        group("a")["status"].is_object()
    });
    context.note(format!("it ran after {} ms", begin.elapsed().as_millis()));
    assert_has_frames("a", frames);
    let adopted = &worker_status("a")["kernel"]["adopted"];
    assert_eq!(adopted, 0, "none was an orphan");
    pair[0].run(|own| own.memory.flip(0..PAGES / 2));
    pair[0].run(|own| own.memory.flip(0..PAGES / 2));
    await_that(&mut daemon, "it should merge", || {
        shared(one, two) >= NEARLY_ALL
    });
    assert_intact(&mut pair);
    daemon.stop();

    // A configuration without the group releases its frames.
    let text = "[group.b]\ncgroup = \"/uksm-b\"\n";
    std::fs::write(CONFIGURATION, text).expect("a configuration");
    let mut daemon = Daemon::start_prepared(CONFIGURATION, |command| store.serve(command));
    await_that(&mut daemon, "it should run", || {
        group("b")["status"].is_object()
    });
    assert_eq!(store.names(), ["domain-b"]);
    daemon.stop();
    drop((pair, store, a, b));
    assert_no_merged_page_is_left();
}

fn a_stored_domain_of_other_constants_is_given_up_and_its_processes_merge_again(_: &mut Context) {
    let mut store = FdStore::new();
    let mut host = TwoGroups::prepared(|command| store.serve(command));
    let mut pair = host.pair_in_a();
    let mut other = [(); 2].map(|()| peer_in(&host.b));
    let ([one, two], [x, y]) = (pids(&pair), pids(&other));
    host.wait_for("both groups should merge", || {
        shared(one, two) >= NEARLY_ALL && shared(x, y) >= NEARLY_ALL
    });
    assert_eq!(store.names(), ["domain-a", "domain-b"]);
    let TwoGroups { daemon, a, b } = host;
    kill_with_workers(daemon);

    // Another policy of a, other limits of b, and another seed of a the time after.
    let text = std::fs::read_to_string(CONFIGURATION).expect("a configuration");
    let text = text.replace("[group.b]", "merge_spaces = 2\n[group.b]") + "max_frames = 3000\n";
    for text in [
        text.clone(),
        text.replace("[group.b]", "seed = 7\n[group.b]"),
    ] {
        std::fs::write(CONFIGURATION, text).expect("a configuration");
        let mut daemon = Daemon::start_prepared(CONFIGURATION, |command| store.serve(command));
        await_that(&mut daemon, "both should run", || {
            // The test reads in place of systemd: its socket holds ten messages.
            store.names();
            group("a")["status"].is_object() && group("b")["status"].is_object()
        });
        for peers in [&mut pair, &mut other] {
            peers[0].run(|own| own.memory.flip(0..PAGES));
            peers[0].run(|own| own.memory.flip(0..PAGES));
        }
        await_that(&mut daemon, "both should merge anew", || {
            store.names();
            shared(one, two) >= NEARLY_ALL && shared(x, y) >= NEARLY_ALL
        });
        let failed = &worker_status("a")["targets"]["failed"];
        assert_eq!(failed.as_array().map(Vec::len), Some(0), "{failed}");
        assert_eq!(worker_status("b")["frames"]["limit"], 3000);
        assert_eq!(store.names(), ["domain-a", "domain-b"], "each once");
        kill_with_workers(daemon);
    }
    assert_intact(&mut pair);
    assert_intact(&mut other);
    drop((pair, other, store, a, b));
    assert_no_merged_page_is_left();
}

fn workers_and_supervisors_killed_over_and_over_harm_nobody(context: &mut Context) {
    let host = TwoGroups::prepared(|_| ());
    let mut a = host.pair_in_a();
    let mut b = [(); 2].map(|()| peer_in(&host.b));
    let TwoGroups {
        mut daemon,
        a: in_a,
        b: in_b,
    } = host;
    let mut workers = 0;
    for round in 0..KILLS {
        let end = Instant::now() + Duration::from_secs(30);
        let name = ["a", "b"][round % 2];
        let pid = loop {
            match worker(name) {
                0 => assert!(Instant::now() < end, "group {name} should have a worker"),
                pid => break pid,
            }
            sleep(Duration::from_millis(10));
        };
        // It is killed at its start or at work, in turn.
        let some = PAGES / KILLS * round;
        for pair in [&mut a, &mut b] {
            pair[round % 2].run(move |own| own.memory.flip(some..some + PAGES / KILLS));
        }
        sleep(Duration::from_millis(37 * round as u64));
        if round % 3 == 2 {
            daemon.kill();
            daemon = Daemon::start_configured(CONFIGURATION);
        } else {
            workers += 1;
            signal(pid, libc::SIGKILL);
        }
        for pair in [&mut a, &mut b] {
            pair[round % 2].run(move |own| own.memory.flip(some..some + PAGES / KILLS));
        }
        daemon.assert_running();
    }
    let (one, two) = (pids(&a), pids(&b));
    await_that(
        &mut daemon,
        "both groups should be merged in the end",
        || shared(one[0], one[1]) >= NEARLY_ALL && shared(two[0], two[1]) >= NEARLY_ALL,
    );
    for x in one {
        for y in two {
            assert_eq!(shared(x, y), 0, "groups should share nothing");
        }
    }
    context.note(format!(
        "{workers} workers and {} supervisors were killed",
        KILLS - workers
    ));
    assert_intact(&mut a);
    assert_intact(&mut b);
    daemon.stop();
    drop((a, b, in_a, in_b));
    assert_no_merged_page_is_left();
}
