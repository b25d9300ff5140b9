//! The verdict of Prometheus's own tool on metrics and rules. `make metrics-check` gets it and runs
//! these.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use super::asked;
use crate::control::Answer;
use crate::control::tests::fake;
use crate::metrics::exposition::{self, Format};

/// Runs it with this text on its standard input.
fn promtool(arguments: &[&str], input: &str) -> Output {
    let program = std::env::var_os("PROMTOOL").expect("PROMTOOL names it: run make metrics-check");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _closed = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn passes(arguments: &[&str], input: &str) {
    let output = promtool(arguments, input);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{shown}{complained}");
    assert!(complained.is_empty(), "{complained}");
}

#[test]
#[ignore = "make metrics-check runs it, which gets promtool"]
fn promtool_has_no_complaint_about_metrics() {
    let groups = fake::groups(vec![fake::group("db \"1\"", 512), fake::group("web", 7)]);
    for answer in [groups, Answer::Status(Box::new(fake::status(512)))] {
        let text = exposition::text(&asked(answer), Format::Prometheus);
        assert!(text.lines().count() > 100, "{text}");
        passes(&["check", "metrics"], &text);
    }
    // It would complain.
    let bad = "# HELP uksm_x counts\n# TYPE uksm_x counter\nuksm_x 1\n";
    assert!(!promtool(&["check", "metrics"], bad).status.success());
}

#[test]
#[ignore = "make metrics-check runs it, which gets promtool"]
fn promtool_has_no_complaint_about_rules() {
    let rules = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/prometheus/uksm.rules.yml"
    );
    passes(&["check", "rules", rules], "");
    let bad = tempfile::NamedTempFile::new().unwrap();
    let text = std::fs::read_to_string(rules).unwrap();
    let broken = text.replace("expr: ", "expr: ((");
    assert_ne!(broken, text);
    std::fs::write(bad.path(), broken).unwrap();
    let bad = promtool(&["check", "rules", bad.path().to_str().unwrap()], "");
    assert!(!bad.status.success());
}
