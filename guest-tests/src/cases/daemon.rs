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
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Context;
use super::attaching::drop_the_right_to_trace;
use super::negative_controls::{OTHER_VERSION, with_faults};
use crate::fixtures::accounting::{free_pages, signed};
use crate::fixtures::memory::answer;
use crate::fixtures::pagemap::{self, assert_no_merged_page_is_left};
use crate::fixtures::peer::{Peer, signal};
use crate::init::program::lead_a_session;
use uksm_linux::module::raw;
use uksm_vm_protocol::machine::MODULE;

cases! { "daemon":
    a_daemon_killed_while_merging_harms_nobody_and_the_next_saves_as_much Normal Stock 240,
    a_stopped_daemon_leaves_pages_merged_and_ends_cleanly Normal Stock 120,
    a_target_killed_while_it_is_merged_does_not_stop_the_daemon Normal Stock 120,
    a_daemon_started_wrongly_says_so_in_one_line_and_changes_nothing Normal Stock 60,
    a_second_daemon_is_refused_what_the_first_has Normal Stock 90,
    a_module_of_another_version_is_refused Normal Faults 60,
}

pub(super) const PROGRAM: &str = "/bin/uksm";
const PAGES: usize = 4096;
const SEED: u64 = 31;
/// Longest time to merge nearly all on an emulated machine.
const BOUND: Duration = Duration::from_secs(60);

/// A running daemon; it is killed when this is dropped.
pub(super) struct Daemon(Child);

/// The kernel stack of each thread of a process.
fn threads(pid: i32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let stacks = tasks.map(|task| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name));
        let [comm, stack] = ["comm", "stack"].map(|name| read(name).unwrap_or_default());
        format!("{}: {stack}", comm.trim())
    });
    stacks.collect()
}

impl Daemon {
    /// Starts one that merges these peers at once and at full rate.
    fn start(peers: &[&Peer]) -> Daemon {
        Daemon::start_on(peers, &[])
    }

    /// The same, with more arguments.
    pub(super) fn start_on(peers: &[&Peer], more: &[&str]) -> Daemon {
        let mut arguments = vec!["--v-life".to_owned(), "off".to_owned()];
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        for peer in peers {
            arguments.extend(["--pid".to_owned(), peer.pid().to_string()]);
        }
        Daemon::start_with("full", &arguments)
    }

    /// Starts one with this governor and these arguments.
    pub(super) fn start_with(governor: &str, arguments: &[String]) -> Daemon {
        Daemon::spawn(Command::new(PROGRAM), governor, arguments)
    }

    /// Starts one in a network namespace of its own, where the kernel reports no processes.
    pub(super) fn start_untold(governor: &str, arguments: &[String]) -> Daemon {
        let mut command = Command::new(PROGRAM);
        // SAFETY: the child has one thread, and leaves a namespace that it does not use.
        let leave = || answer(unsafe { libc::unshare(libc::CLONE_NEWNET) });
        // SAFETY: a system call is all that happens between fork and exec.
        unsafe { command.pre_exec(leave) };
        Daemon::spawn(command, governor, arguments)
    }

    /// Starts one for which the kernel does not publish the layout of its structures.
    pub(super) fn start_without_btf(governor: &str, arguments: &[String]) -> Daemon {
        let mut command = Command::new(PROGRAM);
        hide_btf(&mut command);
        Daemon::spawn(command, governor, arguments)
    }

    /// Starts one that leads a session of its own, as a service does.
    pub(super) fn start_leading(governor: &str, arguments: &[String]) -> Daemon {
        let mut command = Command::new(PROGRAM);
        lead_a_session(&mut command);
        Daemon::spawn(command, governor, arguments)
    }

    /// Starts one with all settings from a file.
    pub(super) fn start_configured(path: &str) -> Daemon {
        Daemon::start_prepared(path, |_| ())
    }

    /// As [`Daemon::start_configured`], after a change of its command.
    pub(super) fn start_prepared(path: &str, prepare: impl FnOnce(&mut Command)) -> Daemon {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--config", path]);
        prepare(&mut command);
        Daemon::begin(command)
    }

    fn spawn(mut command: Command, governor: &str, arguments: &[String]) -> Daemon {
        command.args(["run", "--no-config", "--governor", governor]);
        command.args(arguments);
        Daemon::begin(command)
    }

    fn begin(mut command: Command) -> Daemon {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{PROGRAM}: {error}"));
        Daemon(child)
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a process id")
    }

    pub(super) fn kill(mut self) {
        signal(self.pid(), libc::SIGKILL);
        self.0.wait().expect("waiting for the daemon");
    }

    /// Ends it as systemd does; it must end by itself, successfully.
    pub(super) fn stop(mut self) {
        signal(self.pid(), libc::SIGTERM);
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.0.try_wait().expect("waiting for the daemon") {
                assert!(
                    status.success(),
                    "a stopped daemon should succeed: {status}"
                );
                return;
            }
            if Instant::now() >= end {
                panic!("the daemon should stop on SIGTERM: {}", threads(self.pid()));
            }
            sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn assert_running(&mut self) {
        let ended = self.0.try_wait().expect("looking at the daemon");
        assert!(ended.is_none(), "the daemon should be running: {ended:?}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Hides the layout of the kernel's structures from this program.
pub(super) fn hide_btf(command: &mut Command) {
    let hide = || {
        // SAFETY: the child has one thread, and leaves a namespace that it does not use.
        answer(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        let (what, place, none) = (c"none", c"/sys/kernel/btf", std::ptr::null());
        // SAFETY: the texts outlive the call; what it covers is that of this process alone.
        answer(unsafe { libc::mount(what.as_ptr(), place.as_ptr(), c"tmpfs".as_ptr(), 0, none) })
    };
    // SAFETY: system calls are all that happens between fork and exec.
    unsafe { command.pre_exec(hide) };
}

fn pair() -> [Peer; 2] {
    [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES))
}

/// Pages that both peers map.
fn shared(pair: &[Peer; 2]) -> usize {
    pagemap::shared(pair[0].pid(), pair[1].pid(), PAGES)
}

/// Removes the accounts of groups that earlier daemons have written.
pub(super) fn forget_accounts() {
    let folder = "/var/lib/uksm/accounts";
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{folder}: {error}"),
        _ => {}
    }
}

/// The status output of the running daemon.
pub(super) fn status() -> String {
    let output = Command::new(PROGRAM).arg("status").output();
    let output = output.unwrap_or_else(|error| panic!("{PROGRAM}: {error}"));
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
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
            "{pages} of {PAGES} pages should be merged, {shared} are; the daemon says: {}",
            status()
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
    let free = free_pages();
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
    let lost = free - free_pages();
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
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("a status"), said)
}

fn assert_fails(what: &str, names: &str, prepare: impl FnOnce(&mut Command)) {
    let (status, said) = fails(prepare);
    assert!(status != 0, "{what} should fail, it said: {said}");
    assert_eq!(
        said.lines().count(),
        1,
        "{what} should be told in one line: {said}"
    );
    assert!(said.contains(names), "{what} should name {names:?}: {said}");
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
    let told = format!("version {}, this program version {ours}", ours + 1);
    with_faults(context, OTHER_VERSION, || {
        assert_fails("another version", &told, |command| {
            command.args(["run", "--no-config", "--pid", &pid]);
        });
    });
    assert_eq!(shared(&pair), 0, "nothing should be merged");
}
