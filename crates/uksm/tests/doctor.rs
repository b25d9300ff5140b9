//! `uksm doctor` as a program: exit status, what goes where, and that a pipe gets plain text.

use std::path::Path;
use std::process::{Command, Output};

fn doctor(root: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
    command.arg("doctor").arg("--root").arg(root).args(options);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A host of which nothing is known but what is written here.
fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

#[test]
fn a_host_without_the_module_is_status_1_and_one_line_that_names_checks() {
    let root = host(&[("proc/sys/kernel/osrelease", "6.12.1\n")]);
    let output = doctor(root.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let line = text(&output.stderr);
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(
        line.starts_with("uksm: doctor: uksm cannot merge here: ")
            && line.contains("module-loaded"),
        "{line}"
    );
    let said = text(&output.stdout);
    assert!(
        said.contains("\n  module-loaded: the module is not loaded"),
        "{said}"
    );
    assert!(said.contains("\nerrors: "), "{said}");
}

#[test]
fn a_pipe_gets_no_escape_codes_and_no_wide_lines_whatever_programs_are_called() {
    let name = "\u{1b}[31mred\u{1b}[0m".repeat(20);
    let status = format!("Name:\t{name}\nVmRSS:\t 65536 kB\nVmLck:\t 65536 kB\n");
    let root = host(&[("proc/7/status", &status)]);
    for options in [&[][..], &["--json"]] {
        let said = text(&doctor(root.path(), options).stdout);
        assert!(said.contains("[31mred"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said}");
    }
    let said = text(&doctor(root.path(), &[]).stdout);
    assert!(
        said.lines().all(|line| line.chars().count() <= 80),
        "{said}"
    );
}

#[test]
fn json_has_every_check_of_the_help() {
    let root = host(&[]);
    let output = doctor(root.path(), &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["version"], 1);
    let help = doctor(root.path(), &["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let help = text(&help.stdout);
    let checks = json["checks"].as_array().unwrap();
    assert!(checks.len() > 40, "{}", checks.len());
    for check in checks {
        let name = check["name"].as_str().unwrap();
        assert!(help.contains(&format!("\n  {name} (")), "{name} in {help}");
    }
}

#[test]
fn a_wrong_command_line_is_status_2_and_names_the_thing() {
    for (options, says) in [
        (&["--colour"][..], "--colour"),
        (
            &["--config", "/nonexistent/uksm.toml"],
            "/nonexistent/uksm.toml",
        ),
        (&["--root", "/nonexistent"], "/nonexistent"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
        let output = command.arg("doctor").args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let line = text(&output.stderr);
        assert!(line.lines().count() == 1 && line.contains(says), "{line}");
    }
}

#[test]
fn a_pipe_as_configuration_is_a_finding_without_waiting_for_a_writer() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let root = host(&[]);
    let pipe = root.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut command = Command::new("timeout");
    command.args([
        "60",
        env!("CARGO_BIN_EXE_uksm"),
        "doctor",
        "--json",
        "--config",
    ]);
    let output = command.arg(&pipe).arg("--root").arg(root.path()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1), "124: it waits for ever");
    let said = text(&output.stdout);
    assert!(said.contains("is a pipe, not a regular file"), "{said}");
}

#[test]
fn a_bad_line_of_a_configuration_that_was_named_is_the_finding() {
    let root = host(&[("elsewhere.toml", "governor = \"low\"\nlocked = maybe\n")]);
    let config = root.path().join("elsewhere.toml");
    let output = doctor(
        root.path(),
        &["--json", "--config", config.to_str().unwrap()],
    );
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut checks = json["checks"].as_array().unwrap().iter();
    let found = checks
        .find(|check| check["name"] == "configuration")
        .unwrap();
    assert_eq!(found["severity"], "error");
    let what = found["what"].as_str().unwrap();
    assert!(what.contains("elsewhere.toml:2: "), "{what}");
}
