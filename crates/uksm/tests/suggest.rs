//! `uksm group suggest` on processes with known contents, which this program starts.

use std::process::{Command, Output};

use uksm_testkit::page_holder::PageHolder;

mod holder;

/// The variable that names a boundary.
const TENANT: &str = "UKSM_TEST_TENANT";

fn start(pages: &str, tenant: Option<&str>) -> PageHolder {
    let tenant: Vec<(&str, &str)> = tenant.map(|tenant| (TENANT, tenant)).into_iter().collect();
    holder::start(pages, &tenant)
}

fn suggest(processes: &[&PageHolder], options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
    command.args(["group", "suggest"]);
    if !options.contains(&"--cpu") {
        command.args(["--cpu", "100%"]);
    }
    for process in processes {
        command.arg("--pid").arg(process.pid().to_string());
    }
    command.args(options).output().unwrap()
}

fn answer(processes: &[&PageHolder], options: &[&str]) -> serde_json::Value {
    let options = [options, &["--json"]].concat();
    let output = suggest(processes, &options);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The ids of a group's members, all of which are processes.
fn members(group: &serde_json::Value) -> Vec<u64> {
    let members = group["members"].as_array().unwrap();
    members
        .iter()
        .map(|member| member["pid"].as_u64().unwrap())
        .collect()
}

fn pids(processes: &[&PageHolder]) -> Vec<u64> {
    let mut pids: Vec<u64> = processes.iter().map(|one| one.pid().into()).collect();
    pids.sort_unstable();
    pids
}

fn is_between(found: &serde_json::Value, low: f64, high: f64) {
    let found = found.as_f64().unwrap();
    assert!(
        found >= low && found <= high,
        "{found}, not {low} to {high}"
    );
}

#[test]
fn three_that_share_are_a_group_and_the_fourth_is_none() {
    let a = start("0..640 10000..11000", None);
    let b = start("0..640 20000..21000", None);
    let c = start("0..640 30000..31000", None);
    let d = start("40000..44000", None);
    let answer = answer(&[&a, &b, &c, &d], &["--boundary", "all"]);
    let boundary = &answer["boundaries"][0];
    let [group] = &boundary["groups"].as_array().unwrap()[..] else {
        panic!("{answer:#}")
    };
    assert_eq!(members(group), pids(&[&a, &b, &c]), "{answer:#}");
    // The program's own memory may have equal pages as well.
    let besides = group["pages"].as_f64().unwrap() - 3.0 * 1640.0;
    assert!((0.0..1500.0).contains(&besides), "{answer:#}");
    is_between(&group["saved"]["pages"], 1280.0, 1280.0 + besides);
    assert_eq!(group["saved"]["error"].as_f64(), Some(0.0), "{answer:#}");
    is_between(&group["within"]["pages"], 0.0, besides);
    let alone = &boundary["alone"];
    assert_eq!(
        (alone[0]["pid"].as_u64(), alone.as_array().unwrap().len()),
        (Some(d.pid().into()), 1)
    );
    let configuration = answer["configuration"].as_str().unwrap();
    assert!(
        configuration.contains("[group.all-1]\npid = [\n"),
        "{configuration}"
    );
}

#[test]
fn processes_of_two_boundaries_are_never_together() {
    let own = |start: usize| format!("0..600 {start}..{}", start + 400);
    let a1 = start(&own(1000), Some("a"));
    let b1 = start(&own(2000), Some("b"));
    let a2 = start(&own(3000), Some("a"));
    let b2 = start(&own(4000), Some("b"));
    let rule = format!("env:{TENANT}");
    let answer = answer(&[&a1, &b1, &a2, &b2], &["--boundary", &rule]);
    let boundaries = answer["boundaries"].as_array().unwrap();
    assert_eq!(boundaries.len(), 2, "{answer:#}");
    for (boundary, of) in boundaries.iter().zip([[&a1, &a2], [&b1, &b2]]) {
        let groups = boundary["groups"].as_array().unwrap();
        assert_eq!(
            (groups.len(), members(&groups[0])),
            (1, pids(&of)),
            "{answer:#}"
        );
        is_between(&groups[0]["saved"]["pages"], 600.0, 1200.0);
    }
    let none = start("0..600", None);
    let refused = suggest(&[&a1, &none], &["--boundary", &rule]);
    let line = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{line}");
    let says = format!("is in no boundary by the rule {rule}, and was not read\n");
    assert!(
        line.starts_with(&format!("uksm: --pid {}: ", none.pid())) && line.ends_with(&says),
        "{line}"
    );
}

#[test]
fn small_groups_are_not_proposed_and_are_reported_as_lost() {
    let a = start("0..100 1000..2000", None);
    let b = start("0..100 2000..3000", None);
    let output = suggest(&[&a, &b], &["--boundary", "all", "--least-share", "60%"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.ends_with("\nno group would save enough to be proposed\n"),
        "{text}"
    );
    let lost = text.lines().find_map(|line| {
        line.strip_prefix("  2 processes in no group; one group of all would save ")
    });
    let mib: f64 = lost
        .and_then(|lost| lost.split(' ').next())
        .unwrap()
        .parse()
        .unwrap();
    assert!((0.3..3.0).contains(&mib), "{text}");
}

#[test]
fn larger_process_is_reported_as_read_in_part() {
    let a = start("0..4000 10000..10600", None);
    let b = start("0..4000 20000..20600", None);
    let options = ["--boundary", "all", "--pages-per-process", "2600"];
    let answer = answer(&[&a, &b], &options);
    let boundary = &answer["boundaries"][0];
    assert_eq!(boundary["read_in_part"].as_u64(), Some(2), "{answer:#}");
    assert!(boundary["read_pages"].as_u64().unwrap() <= 5200);
    is_between(&boundary["pages"], 9000.0, 12000.0);
}

#[test]
fn each_mistake_is_one_line_that_names_it() {
    let child = start("0..10", None);
    for (options, status, says) in [
        (
            vec!["--boundary", "users"],
            2,
            "'users' is not a boundary: write all, user, unit, ",
        ),
        (
            vec!["--boundary", "cgroup:0"],
            2,
            "'0' is not a depth of control groups (1 to 64)",
        ),
        (vec!["--cpu", "150%"], 2, "must be 0.1% to 100%"),
        (
            vec!["--pages-per-process", "1"],
            2,
            "must be 512 to 1073741824",
        ),
        (vec!["--least-saved", "x"], 2, "must be 4KiB to 1TiB"),
        (
            vec!["--exclude", "pid:x"],
            2,
            "--exclude 'x' is not a process id",
        ),
        (
            vec!["--pid", "4194304"],
            1,
            "--pid 4194304: no such process",
        ),
    ] {
        let output = suggest(&[&child], &options);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), line.lines().count()),
            (Some(status), 1),
            "{line}"
        );
        assert!(line.starts_with("uksm: ") && line.contains(says), "{line}");
        assert!(output.stdout.is_empty());
    }
    let none = suggest(&[], &[]);
    let line = String::from_utf8(none.stderr).unwrap();
    assert_eq!(none.status.code(), Some(2), "{line}");
    assert!(
        line.starts_with("uksm: no targets: name processes with --pid"),
        "{line}"
    );
    let nobody = suggest(&[], &["--comm", "no such program"]);
    let line = String::from_utf8(nobody.stderr).unwrap();
    assert_eq!(nobody.status.code(), Some(1), "{line}");
    assert!(
        line.starts_with("uksm: no running process matches the targets"),
        "{line}"
    );
}

#[test]
fn missing_right_to_a_process_is_reported_with_the_remedy() {
    let line = holder::refusal(&["group", "suggest", "--boundary", "all"]);
    assert!(
        line.contains("/mem: ") && line.contains("takes root (CAP_SYS_PTRACE)"),
        "{line}"
    );
}
