//! The daemon as a whole: merging real processes, killed during work, or started wrongly.
//!
//! # Problem
//! A killed daemon loses all its knowledge. No process may need any of it, and the next daemon must
//! save as much again. A daemon that is started wrongly must report it in one line.
//!
//! # Approach
//! `/bin/uksm run` merges pairs of peers with equal pages. The merged pages are counted in the
//! kernel's page maps and not by the daemon: pages that both map are one.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use uksm_linux::module::raw;
use uksm_vm_protocol::machine::MODULE;

use super::Context;
use crate::fixtures::accounting::{free_or_owned_pages, signed};
use crate::fixtures::capabilities::drop_the_right_to_trace;
use crate::fixtures::daemon::{Daemon, PROGRAM, forget_accounts, status_text};
use crate::fixtures::fault_switches::{OTHER_VERSION, with_faults};
use crate::fixtures::pagemap::{self, assert_no_merged_page_is_left};
use crate::fixtures::peer::Peer;

cases! { "daemon":
    a_daemon_killed_while_merging_harms_nobody_and_the_next_saves_as_much Normal Stock 240,
    a_stopped_daemon_leaves_pages_merged_and_ends_cleanly Normal Stock 120,
    a_target_killed_while_it_is_merged_does_not_stop_the_daemon Normal Stock 120,
    a_daemon_started_wrongly_says_so_in_one_line_and_changes_nothing Policy Stock 60,
    a_second_daemon_is_refused_what_the_first_has Policy Stock 90,
    a_module_of_another_version_is_refused Normal Faults 60,
}

const PAGES: usize = 4096;
const SEED: u64 = 31;
/// Longest time to merge nearly all on an emulated machine.
const BOUND: Duration = Duration::from_secs(60);

fn pair() -> [Peer; 2] {
    [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES))
}

/// Pages that both peers map.
fn shared(pair: &[Peer; 2]) -> usize {
    pagemap::shared(pair[0].pid(), pair[1].pid(), PAGES)
}

/// Waits until `pages` are shared; returns the number of shared pages.
fn await_shared(daemon: &mut Daemon, pair: &[Peer; 2], pages: usize) -> usize {
    let end = Instant::now() + BOUND;
    loop {
        let shared = shared(pair);
        if shared >= pages {
            return shared;
        }
        daemon.assert_running();
        assert!(
            Instant::now() < end,
            "{pages} of {PAGES} pages should be merged, {shared} are; the daemon's status: {}",
            status_text()
        );
        sleep(Duration::from_millis(10));
    }
}

fn assert_intact(pair: &mut [Peer; 2]) {
    for peer in pair {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}

const NEARLY_ALL: usize = PAGES * 95 / 100;

fn a_daemon_killed_while_merging_harms_nobody_and_the_next_saves_as_much(context: &mut Context) {
    let free = free_or_owned_pages();
    let mut pair = pair();
    // Slow enough to be killed during work.
    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], &["--cpu", "10%"]);
    let merged = await_shared(&mut daemon, &pair, PAGES / 10);
    daemon.kill();
    context.note(format!("killed with {merged} of {PAGES} pages merged"));
    assert!(
        merged < NEARLY_ALL,
        "the daemon should be killed in the middle"
    );
    assert_intact(&mut pair);

    // Without a daemon the processes go on: some merged pages are written.
    pair[0].run(|own| own.memory.flip(0..64));
    pair[0].run(|own| own.memory.flip(0..64));
    let mut daemon = Daemon::start(&[&pair[0], &pair[1]]);
    await_shared(&mut daemon, &pair, NEARLY_ALL);
    assert_intact(&mut pair);
    daemon.stop();
    assert_intact(&mut pair);
    for peer in pair {
        peer.exit();
    }
    assert_no_merged_page_is_left();
    context
        .unload(MODULE)
        .expect("the module should unload after two daemons");
    let lost = free - free_or_owned_pages();
    context.note(format!("{lost} pages fewer are free"));
    // A quarter of the frames; the kernel caches some 500 pages for two new processes.
    assert!(lost < signed(PAGES / 4), "{lost} pages should not be lost");
}

fn a_stopped_daemon_leaves_pages_merged_and_ends_cleanly(_: &mut Context) {
    forget_accounts();
    let mut pair = pair();
    let mut daemon = Daemon::start(&[&pair[0], &pair[1]]);
    await_shared(&mut daemon, &pair, NEARLY_ALL);
    daemon.stop();
    assert!(
        shared(&pair) >= NEARLY_ALL,
        "what is merged should stay merged"
    );
    assert_is_accounted_for();
    assert_intact(&mut pair);
    pair[0].run(|own| own.memory.flip(0..PAGES));
    assert_eq!(
        pair[1].run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        0
    );
}

/// The stopped daemon, which was one group, must have written its costs and savings to the account.
fn assert_is_accounted_for() {
    let account = Command::new(PROGRAM).args(["account", "--json"]).output();
    let account = account.expect("an account").stdout;
    let bill: serde_json::Value = serde_json::from_slice(&account).expect("a bill");
    let all = &bill["groups"][0];
    assert_eq!(all["group"], "all", "{bill}");
    assert!(all["cpu_seconds"].as_f64() > Some(0.0), "{bill}");
    let least = Some(NEARLY_ALL as u64);
    assert!(all["merged_pages"].as_u64() >= least, "{bill}");
    let saved = all["saved_bytes"].as_u64().map(|bytes| bytes / 4096);
    assert!(saved >= least, "{bill}");
}

fn a_target_killed_while_it_is_merged_does_not_stop_the_daemon(_: &mut Context) {
    let (one, mut two) = (pair(), pair());
    let mut daemon = Daemon::start(&[&one[0], &one[1], &two[0], &two[1]]);
    await_shared(&mut daemon, &one, PAGES / 20);
    let [killed, mut stays] = one;
    killed.kill();
    await_shared(&mut daemon, &two, NEARLY_ALL);
    assert_eq!(
        stays.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        0
    );
    assert_intact(&mut two);
    daemon.stop();
}

/// Runs `uksm` to its end, which must come soon: (exit status, standard error).
fn fails(prepare: impl FnOnce(&mut Command)) -> (i32, String) {
    let mut command = Command::new(PROGRAM);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    prepare(&mut command);
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{PROGRAM}: {error}"));
    let end = Instant::now() + Duration::from_secs(20);
    while child.try_wait().expect("waiting for uksm").is_none() {
        if Instant::now() > end {
            let _gone = child.kill();
            panic!("{command:?} should end by itself");
        }
        sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().expect("what uksm said");
    assert_eq!(
        output.status.signal(),
        None,
        "{command:?}: {}",
        output.status
    );
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("a status"), errors)
}

fn assert_fails(what: &str, names: &str, prepare: impl FnOnce(&mut Command)) {
    let (status, errors) = fails(prepare);
    assert!(status != 0, "{what} should fail; its errors: {errors}");
    assert_eq!(
        errors.lines().count(),
        1,
        "{what} should be reported in one line: {errors}"
    );
    assert!(
        errors.contains(names),
        "{what} should name {names:?}: {errors}"
    );
}

fn a_daemon_started_wrongly_says_so_in_one_line_and_changes_nothing(context: &mut Context) {
    const NOBODY: &str = "4194000";
    let pair = pair();
    let pid = pair[0].pid().to_string();
    let run = |arguments: Vec<String>| {
        move |command: &mut Command| {
            command.args(["run", "--no-config"]).args(arguments);
        }
    };
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<_>>()
    };
    assert_fails(
        "an unknown option",
        "--no-such-option",
        run(words(&["--no-such-option"])),
    );
    assert_fails("no target", "target", run(words(&[])));
    assert_fails(
        "a share over 95 %",
        "cpu",
        run(words(&["--pid", &pid, "--cpu", "2"])),
    );
    assert_fails("a missing process", NOBODY, run(words(&["--pid", NOBODY])));
    assert_fails("a missing configuration", "/no/such/file", |command| {
        command.args(["run", "--config", "/no/such/file", "--pid", &pid]);
    });
    assert_fails("no rights", "CAP_SYS_PTRACE", |command| {
        command.args(["run", "--no-config", "--pid", &pid]);
        // SAFETY: the child has one thread, and changes its own capabilities only.
        unsafe {
            command.pre_exec(|| {
                drop_the_right_to_trace();
                Ok(())
            });
        }
    });
    assert_eq!(
        shared(&pair),
        0,
        "nothing should be merged by a daemon that did not start"
    );
    context.unload(MODULE).expect("unloading the module");
    assert_fails("a missing module", "module", run(words(&["--pid", &pid])));
    context.load(MODULE).expect("loading the module");
}

fn a_second_daemon_is_refused_what_the_first_has(_: &mut Context) {
    let mut pair = pair();
    let mut daemon = Daemon::start(&[&pair[0], &pair[1]]);
    await_shared(&mut daemon, &pair, NEARLY_ALL);
    let pid = pair[0].pid().to_string();
    assert_fails("a second daemon", "already running", |command| {
        command.args(["run", "--no-config", "--pid", &pid]);
    });
    assert_fails("another daemon's process", &pid, |command| {
        command.args([
            "run",
            "--no-config",
            "--socket",
            "/run/second",
            "--pid",
            &pid,
        ]);
    });
    assert!(shared(&pair) >= NEARLY_ALL, "nothing should be changed");
    daemon.assert_running();
    daemon.stop();
    assert_intact(&mut pair);
}

fn a_module_of_another_version_is_refused(context: &mut Context) {
    let pair = pair();
    let pid = pair[0].pid().to_string();
    let ours = raw::UKSM_API_VERSION;
    let versions = format!("version {}, this program version {ours}", ours + 1);
    with_faults(context, OTHER_VERSION, || {
        assert_fails("another version", &versions, |command| {
            command.args(["run", "--no-config", "--pid", &pid]);
        });
    });
    assert_eq!(shared(&pair), 0, "nothing should be merged");
}
