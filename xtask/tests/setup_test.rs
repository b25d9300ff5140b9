//! `scripts/setup-test` refuses what it cannot do, ends with a verdict, and leaves no files behind.
//!
//! Only a real run can show its results in a clean Debian: here `debootstrap`, `chroot` and
//! namespaces are stand-ins, and the tests check its output and its deletions.

mod fake_machine;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fake_machine::{FakeMachine, ScriptOutcome};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Makes the folders of a clean Debian that the script writes to.
const DEBOOTSTRAP: &str = r#"for last; do root=$target target=$last; done; mkdir -p "$root/etc/apt/apt.conf.d" "$root/srv" "$root/usr/share" "$root/usr/local/share""#;

/// Limit of the time of an action that takes no time.
const TIME_FACTOR: Duration = Duration::from_secs(60);

/// A machine on which all programs succeed without an effect.
fn machine() -> FakeMachine {
    let machine = FakeMachine::new();
    machine
        .noting("apt-get", "[ $1 != indextargets ] || echo file:/nowhere")
        .with(
            "unshare",
            r#"while [ "$1" != -- ] && [ $# -gt 1 ]; do shift; done; shift; exec "$@""#,
        )
        .noting("debootstrap", DEBOOTSTRAP)
        .noting("chroot", "exit 0")
        .with(
            "apt-config",
            "echo 'Acquire::Languages \"none\";'; echo 'DPkg::Hook \"no-such\";'",
        )
        .with("mount", "exit 0")
        .with("findmnt", "echo /")
        .with("git", "exit 0")
        .with("df", "echo; echo none 1 1 999999999 1% /");
    machine
}

fn root(machine: &FakeMachine) -> PathBuf {
    machine.path().join("cache/setup-test/root")
}

fn command(machine: &FakeMachine) -> Command {
    let mut command = machine.command("setup-test");
    command.env("UKSM_CACHE", machine.path().join("cache"));
    command
}

/// Runs the script, which must fail before it makes anything; returns its one line.
fn refused(machine: &FakeMachine, command: &mut Command) -> String {
    let outcome = machine.run(command);
    assert!(!outcome.passed, "it should fail: {outcome:?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    let made = outcome
        .calls
        .iter()
        .any(|call| call.starts_with("debootstrap"));
    assert!(!made && !root(machine).exists(), "{outcome:?}");
    outcome.stderr
}

fn verdict(outcome: &ScriptOutcome) -> &str {
    outcome.stdout.lines().last().unwrap_or_default()
}

#[test]
fn all_stages_run_in_the_clean_debian_and_nothing_is_left() {
    let machine = machine();
    let outcome = machine.run(&mut command(&machine));
    assert!(outcome.passed, "{outcome:?}");
    assert_eq!(verdict(&outcome), "setup-test: passed");
    let inside: Vec<_> = outcome
        .calls
        .iter()
        .filter(|call| call.starts_with("chroot"))
        .filter_map(|call| call.rsplit(" && ").next())
        .collect();
    assert_eq!(inside, ["make demo", "make test"]);
    assert!(!root(&machine).exists());
}

#[test]
fn what_fails_inside_is_named_in_the_verdict_and_the_rest_still_runs() {
    let machine = machine();
    machine.noting("chroot", r#"case "$*" in *"make demo") exit 3 ;; esac"#);
    let outcome = machine.run(&mut command(&machine));
    assert!(!outcome.passed, "{outcome:?}");
    assert_eq!(verdict(&outcome), "setup-test: FAILED: make demo");
    assert!(
        outcome.calls.iter().any(|call| call.ends_with("make test")),
        "{outcome:?}"
    );
    assert!(!root(&machine).exists());
}

#[test]
fn a_clean_debian_that_cannot_be_made_ends_the_run_and_is_deleted() {
    let machine = machine();
    machine.noting("debootstrap", &format!("{DEBOOTSTRAP}; exit 1"));
    let outcome = machine.run(&mut command(&machine));
    assert!(!outcome.passed, "{outcome:?}");
    assert_eq!(verdict(&outcome), "setup-test: FAILED: a clean Debian 12");
    assert!(
        !outcome.calls.iter().any(|call| call.starts_with("chroot")),
        "{outcome:?}"
    );
    assert!(!root(&machine).exists());
}

#[test]
fn hooks_of_apt_stay_on_this_machine_and_settings_of_downloads_go_along() {
    let machine = machine();
    let outcome = machine.run(command(&machine).env("KEEP", "yes").env("ONLY", "demo"));
    assert!(outcome.passed, "{outcome:?}");
    let settings = fs::read_to_string(root(&machine).join("etc/apt/apt.conf.d/60machine")).unwrap();
    assert_eq!(settings, "Acquire::Languages \"none\";\n");
}

#[test]
fn nothing_is_deleted_while_something_is_mounted_in_it() {
    let machine = machine();
    machine.with(
        "findmnt",
        r#"echo /; echo "$PLACE/cache/setup-test/root/proc""#,
    );
    let kept = root(&machine).join("proc/file");
    machine.noting(
        "debootstrap",
        &format!("{DEBOOTSTRAP}; mkdir $root/proc; touch $root/proc/file"),
    );
    let outcome = machine.run(&mut command(&machine));
    assert!(!outcome.passed, "{outcome:?}");
    assert!(
        verdict(&outcome).contains("FAILED: the clean Debian could not be deleted"),
        "{outcome:?}"
    );
    assert!(kept.exists());

    // The next run does not delete it either.
    let outcome = machine.run(&mut command(&machine));
    assert!(
        outcome.stderr.contains("something is mounted in it"),
        "{outcome:?}"
    );
    assert!(!outcome.passed && kept.exists());
}

/// Starts the script and lets it get to `debootstrap`, which takes two minutes; returns the script,
/// and `debootstrap`.
fn begun(machine: &FakeMachine) -> (Child, Pid) {
    let began = machine.path().join("began");
    let wait = format!("{DEBOOTSTRAP}; echo $$ >$PLACE/began; exec sleep 120");
    machine.noting("debootstrap", &wait);
    let mut run = command(machine);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = run.spawn().unwrap();
    let since = Instant::now();
    loop {
        let written = fs::read_to_string(&began).unwrap_or_default();
        if let Ok(pid) = written.trim().parse() {
            return (child, Pid::from_raw(pid));
        }
        assert!(since.elapsed() < TIME_FACTOR, "debootstrap never began");
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_run_that_is_stopped_ends_what_it_began_and_leaves_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let machine = machine();
        let (child, below) = begun(&machine);
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        let stopped = Instant::now();
        let output = child.wait_with_output().unwrap();
        assert!(stopped.elapsed() < TIME_FACTOR, "it waited for the end");
        assert_eq!(output.status.code(), Some(128 + signal as i32));
        let stdout = String::from_utf8(output.stdout).unwrap();
        let verdict = "FAILED: stopped in: a clean Debian 12\n";
        assert!(stdout.ends_with(verdict), "{stdout}");
        assert!(kill(below, None).is_err(), "debootstrap still runs");
        assert!(!root(&machine).exists());
    }
}

#[test]
fn a_run_that_is_killed_ends_what_it_began_and_the_next_one_deletes_what_it_left() {
    let machine = machine();
    let (mut child, _below) = begun(&machine);
    child.kill().unwrap();
    let stopped = Instant::now();
    // The output is open as long as any started process runs.
    child.wait_with_output().unwrap();
    assert!(stopped.elapsed() < TIME_FACTOR, "debootstrap went on");
    assert!(root(&machine).exists(), "nobody was there to delete it");
    machine.noting("debootstrap", DEBOOTSTRAP);
    let outcome = machine.run(&mut command(&machine));
    assert_eq!(verdict(&outcome), "setup-test: passed", "{outcome:?}");
}

#[test]
fn a_second_run_at_once_is_refused() {
    let machine = machine();
    let place = machine.path().join("cache/setup-test");
    fs::create_dir_all(&place).unwrap();
    let lock = File::create(place.join("lock")).unwrap();
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
    let error = refused(&machine, &mut command(&machine));
    assert!(error.contains("another run has not ended"), "{error}");
}

#[test]
fn who_is_not_root_is_told_how_to_run_it() {
    let machine = machine();
    machine.with("id", "echo 1000");
    let error = refused(&machine, &mut command(&machine));
    assert!(
        error.contains("needs root; run: sudo make setup-test"),
        "{error}"
    );
}

#[test]
fn a_part_that_does_not_exist_is_refused() {
    let machine = machine();
    let error = refused(&machine, command(&machine).env("ONLY", "build"));
    assert!(
        error.contains("ONLY=build: it is setup, demo or test"),
        "{error}"
    );
}

#[test]
fn a_release_that_is_not_known_is_refused() {
    let machine = machine();
    let error = refused(&machine, command(&machine).env("RELEASE", "11"));
    assert!(error.contains("RELEASE=11: it is 12 or 13"), "{error}");
}

#[test]
fn another_release_has_its_own_suites_on_the_machine_s_servers() {
    let own = fs::read_to_string("/etc/os-release").unwrap();
    for (release, suite) in [("12", "bookworm"), ("13", "trixie")] {
        let machine = machine();
        let mut run = command(&machine);
        run.envs([("RELEASE", release), ("KEEP", "yes"), ("ONLY", "demo")]);
        let outcome = machine.run(&mut run);
        assert!(outcome.passed, "{outcome:?}");
        let made = |call: &String| call.starts_with("debootstrap") && call.contains(suite);
        assert!(outcome.calls.iter().any(made), "{outcome:?}");
        if own.contains(&format!("VERSION_CODENAME={suite}")) {
            continue;
        }
        let sources = fs::read_to_string(root(&machine).join("etc/apt/sources.list")).unwrap();
        let suites: Vec<&str> = sources
            .lines()
            .map(|line| line.rsplit(' ').nth(1).unwrap())
            .collect();
        let expected = [
            suite.to_owned(),
            format!("{suite}-updates"),
            format!("{suite}-security"),
        ];
        assert_eq!(suites, expected);
        assert!(sources.lines().all(|line| line.contains(" file:/nowhere ")));
    }
}

#[test]
fn a_disk_that_is_too_full_is_named_with_what_is_needed() {
    let machine = machine();
    machine.with("df", "echo; echo none 1 1 2097152 99% /");
    let error = refused(&machine, &mut command(&machine));
    assert!(error.contains("has 2 GiB free"), "{error}");
    assert!(error.contains("are needed"), "{error}");
}

#[test]
fn a_machine_without_namespaces_is_named() {
    let machine = machine();
    machine.with("unshare", "exit 1");
    let error = refused(&machine, &mut command(&machine));
    assert!(error.contains("namespaces cannot be made here"), "{error}");
}

#[test]
fn package_sources_without_the_release_are_named() {
    let machine = machine();
    let error = refused(machine.with("apt-get", "exit 0"), &mut command(&machine));
    assert!(error.contains("have no Debian main"), "{error}");
}

#[test]
fn a_missing_debootstrap_is_installed() {
    let machine = machine();
    machine.without(&["debootstrap"]).noting(
        "apt-get",
        r#"case $1 in
indextargets) echo file:/nowhere ;;
install) printf '#!/bin/sh\nexit 1\n' >"$PLACE/bin/debootstrap"; chmod +x "$PLACE/bin/debootstrap" ;;
esac"#,
    );
    let outcome = machine.run(&mut command(&machine));
    let installs = |call: &String| call.contains("install") && call.ends_with(" debootstrap");
    assert!(outcome.calls.iter().any(installs), "{outcome:?}");
    assert!(verdict(&outcome).contains("a clean Debian"), "{outcome:?}");
}
