//! `scripts/setup` installs missing packages, or names them, and leaves the rest alone.

mod fake_machine;

use fake_machine::{FakeMachine, ScriptOutcome};

/// The packages of Debian's Rust.
const RUST: &str = "cargo-web rust-web-clippy rustc-web rustfmt-web";

/// An `apt-get` that simulates its installations: refreshed lists, a new Rust.
const WORKING_APT: &str = r#"
case $* in
update*) touch "$PLACE/refreshed" ;;
*--simulate*) cat "$PLACE/removals" 2>/dev/null ;;
install*cargo-web*)
	printf '#!/bin/sh\necho "rustc 1.96.0 (abcdef012 2026-01-01)"\n' >"$PLACE/bin/rustc"
	printf '#!/bin/sh\nexit 0\n' >"$PLACE/bin/cargo"
	chmod +x "$PLACE/bin/rustc" "$PLACE/bin/cargo"
esac
exit 0"#;

/// Lists that offer an old Rust until they are refreshed.
const OLD_LISTS: &str = r#"
case $1 in policy)
	if [ -e "$PLACE/refreshed" ]; then echo "  Candidate: 1.96.0+dfsg1-1~deb12u2"
	else echo "  Candidate: 1.85.0+dfsg3-1~deb12u3"; fi
esac"#;

/// Gives the machine a Rust of some version, with clippy and fmt.
fn with_rust<'a>(machine: &'a FakeMachine, version: &str) -> &'a FakeMachine {
    let says = format!("echo 'rustc {version}.0 (abcdef012 2026-01-01)'");
    machine.with("rustc", &says).with("cargo", "exit 0")
}

fn setup(machine: &FakeMachine) -> ScriptOutcome {
    machine.run(&mut machine.command("setup"))
}

/// Runs the script, which must change nothing and print one line; returns the line.
fn refused(machine: &FakeMachine) -> String {
    let outcome = setup(machine);
    assert!(!outcome.passed, "it should fail: {outcome:?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    let changes = |call: &String| call.contains("install") && !call.contains("--simulate");
    assert!(!outcome.calls.iter().any(changes), "{outcome:?}");
    outcome.stderr
}

/// The calls of `apt-get` that are no trial.
fn changes(outcome: &ScriptOutcome) -> Vec<&str> {
    let real = outcome
        .calls
        .iter()
        .filter(|call| !call.contains("--simulate"));
    real.map(String::as_str).collect()
}

#[test]
fn packages_that_are_missing_are_named_to_who_is_not_root() {
    let machine = FakeMachine::new();
    with_rust(&machine, "1.96").with("id", "echo 1000");
    let error = refused(machine.without(&["pahole", "bison"]));
    assert!(
        error.contains("sudo apt-get update && sudo apt-get install"),
        "{error}"
    );
    assert!(error.ends_with(" bison dwarves\n"), "{error}");
}

#[test]
fn lists_without_the_security_updates_are_refreshed() {
    let machine = FakeMachine::new();
    with_rust(&machine, "1.96")
        .noting("apt-get", WORKING_APT)
        .with(
            "apt-cache",
            r#"[ "$2" != linux-source-6.12 ] || [ -e "$PLACE/refreshed" ]"#,
        );
    let outcome = setup(&machine);
    assert!(outcome.passed, "{outcome:?}");
    assert_eq!(outcome.calls, ["apt-get update -q"]);
}

#[test]
fn a_good_rust_is_left_alone_and_nothing_is_said() {
    let machine = FakeMachine::new();
    let outcome = setup(with_rust(&machine, "1.88").with("rustup", "exit 1"));
    assert!(outcome.passed, "{outcome:?}");
    assert_eq!((outcome.stdout + &outcome.stderr).as_str(), "");
    assert!(outcome.calls.is_empty(), "{:?}", outcome.calls);
}

#[test]
fn a_missing_rust_is_named_to_who_is_not_root() {
    let machine = FakeMachine::new();
    let error = refused(machine.with("id", "echo 1000"));
    assert!(error.contains("no cargo found"), "{error}");
    assert!(error.contains("rustup"), "{error}");
    assert!(
        error.ends_with(&format!("--no-install-recommends {RUST}\n")),
        "{error}"
    );
}

#[test]
fn a_missing_rust_is_installed_as_root() {
    let machine = FakeMachine::new();
    let outcome = setup(machine.noting("apt-get", WORKING_APT));
    assert!(outcome.passed, "{outcome:?}");
    let [install] = changes(&outcome)[..] else {
        panic!("one call: {outcome:?}")
    };
    assert!(install.contains(" --no-remove "), "{install}");
    assert!(install.ends_with(RUST), "{install}");
}

#[test]
fn lists_that_offer_an_old_rust_are_refreshed_before_it_is_installed() {
    let machine = FakeMachine::new();
    machine.with("apt-cache", OLD_LISTS);
    let outcome = setup(machine.noting("apt-get", WORKING_APT));
    assert!(outcome.passed, "{outcome:?}");
    let [refresh, install] = changes(&outcome)[..] else {
        panic!("two calls: {outcome:?}")
    };
    assert_eq!(refresh, "apt-get update -q");
    assert!(install.ends_with(RUST), "{install}");
}

#[test]
fn sources_that_offer_only_an_old_rust_are_named_and_it_is_not_installed() {
    let machine = FakeMachine::new();
    machine.noting("apt-get", WORKING_APT);
    let error = refused(machine.with("apt-cache", "echo '  Candidate: 1.85.0+dfsg3-1'"));
    assert!(error.contains("offer 1.85"), "{error}");
    assert!(error.contains("security updates"), "{error}");
}

#[test]
fn an_old_rust_of_rustup_is_left_alone_and_its_update_named() {
    let machine = FakeMachine::new();
    machine
        .noting("apt-get", WORKING_APT)
        .with("rustup", "exit 1");
    let error = refused(with_rust(&machine, "1.70"));
    assert!(error.contains("rustc is 1.70, older than 1."), "{error}");
    assert!(
        error.ends_with("run: rustup update stable && rustup default stable\n"),
        "{error}"
    );
}

#[test]
fn a_rustup_without_clippy_is_named_with_the_command_that_adds_it() {
    let machine = FakeMachine::new();
    with_rust(&machine, "1.96").with("rustup", "exit 1");
    let error = refused(machine.with("cargo", r#"[ "$1" != clippy ]"#));
    assert!(error.contains("cargo has no clippy"), "{error}");
    assert!(
        error.ends_with("run: rustup component add clippy rustfmt\n"),
        "{error}"
    );
}

#[test]
fn an_old_rust_of_debian_gives_way_to_the_new_one() {
    let machine = FakeMachine::new();
    with_rust(&machine, "1.63")
        .with("dpkg", "exit 0")
        .noting("apt-get", WORKING_APT);
    std::fs::write(
        machine.path().join("removals"),
        "Remv cargo [0.66]\nRemv rustc [1.63]\n",
    )
    .unwrap();
    let outcome = setup(&machine);
    assert!(outcome.passed, "{outcome:?}");
    assert!(
        outcome.stdout.contains("gives way: cargo rustc"),
        "{outcome:?}"
    );
    assert!(changes(&outcome)[0].ends_with(RUST), "{outcome:?}");
}

#[test]
fn nothing_but_an_older_rust_is_removed() {
    let machine = FakeMachine::new();
    with_rust(&machine, "1.63")
        .with("dpkg", "exit 0")
        .noting("apt-get", WORKING_APT);
    std::fs::write(
        machine.path().join("removals"),
        "Remv cargo [0.66]\nRemv editor [1]\n",
    )
    .unwrap();
    let error = refused(&machine);
    assert!(error.contains("would remove cargo editor;"), "{error}");
}

#[test]
fn an_old_rust_of_unknown_origin_is_left_alone_and_its_path_named() {
    let machine = FakeMachine::new();
    machine.noting("apt-get", WORKING_APT);
    let error = refused(with_rust(&machine, "1.70"));
    let path = machine.path().join("bin/cargo");
    assert!(error.contains("older than"), "{error}");
    assert!(error.contains(&path.display().to_string()), "{error}");
}
