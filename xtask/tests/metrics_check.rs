//! `scripts/metrics-check` uses an existing promtool, fetches one without installing it, or reports
//! the missing tool.

mod fake_machine;

use fake_machine::{FakeMachine, ScriptOutcome};

/// A machine whose cargo records the promtool that it is given.
fn machine() -> FakeMachine {
    let machine = FakeMachine::new();
    machine.noting("cargo", "echo \"promtool $PROMTOOL\" >>$PLACE/calls");
    // This machine may have one.
    machine.with("promtool", "").without(&["promtool"]);
    machine
}

fn check(machine: &FakeMachine) -> ScriptOutcome {
    let mut command = machine.command("metrics-check");
    machine.run(command.env("UKSM_CACHE", machine.path().join("cache")))
}

fn kept(machine: &FakeMachine) -> usize {
    let cache = std::fs::read_dir(machine.path().join("cache"));
    cache.map_or(0, Iterator::count)
}

#[test]
fn promtool_of_the_search_path_is_taken_and_nothing_fetched() {
    let machine = machine();
    machine.with("promtool", "echo promtool 1");
    let outcome = check(&machine);
    assert!(outcome.passed, "{outcome:?}");
    assert_eq!(outcome.stdout, "metrics-check: by promtool 1\n");
    let own = machine.path().join("bin/promtool");
    assert!(
        outcome
            .calls
            .contains(&format!("promtool {}", own.display())),
        "{outcome:?}"
    );
    let fetched = |call: &String| call.starts_with("apt-get");
    assert!(!outcome.calls.iter().any(fetched) && kept(&machine) == 0);
}

#[test]
fn where_there_is_none_the_package_is_unpacked_once_and_not_installed() {
    let machine = machine();
    machine.noting("apt-get", "touch prometheus_1_amd64.deb");
    machine.noting(
        "dpkg-deb",
        "mkdir -p $3/usr/bin; printf '#!/bin/sh\\necho promtool 2\\n' >$3/usr/bin/promtool; chmod +x $3/usr/bin/promtool",
    );
    for _ in 0..2 {
        let outcome = check(&machine);
        assert!(outcome.passed, "{outcome:?}");
        assert_eq!(outcome.stdout, "metrics-check: by promtool 2\n");
        let fetches = outcome
            .calls
            .iter()
            .filter(|call| call.starts_with("apt-get"));
        let fetches: Vec<_> = fetches.collect();
        assert!(
            fetches.len() == 1 && fetches[0].contains("download"),
            "{fetches:?}"
        );
        assert_eq!(kept(&machine), 1);
    }
}

#[test]
fn what_cannot_be_fetched_is_one_line_and_leaves_nothing() {
    let machine = machine();
    let outcome = check(&machine);
    assert!(!outcome.passed, "{outcome:?}");
    let line = outcome.stderr.lines().last().unwrap();
    assert!(
        line.starts_with(
            "metrics-check: the package prometheus, which has promtool, cannot be fetched"
        ),
        "{line}"
    );
    assert!(!outcome.calls.iter().any(|call| call.starts_with("cargo")));
    assert_eq!(kept(&machine), 0);
    machine.without(&["apt-get"]);
    let outcome = check(&machine);
    let line = outcome.stderr.lines().last().unwrap();
    assert!(
        line.starts_with("metrics-check: no promtool here, and no apt-get"),
        "{line}"
    );
}
