//! Processes with known pages, which a test starts: its own program, to run [`child`] alone.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use uksm_testkit::page_holder::{PageHolder, hold_pages};

/// A process with these pages and these variables.
pub(crate) fn start(pages: &str, variables: &[(&str, &str)]) -> PageHolder {
    PageHolder::start("holder::child", pages, variables)
}

#[test]
#[ignore = "is what the other tests start"]
fn child() {
    hold_pages();
}

/// The error for a process named by `--pid` to which the program has no right, behind these
/// arguments: one line, which begins with that process. A test that runs as root starts the program
/// as user nobody and names a process of root; otherwise it names process 1.
pub(crate) fn refusal(arguments: &[&str]) -> String {
    let child = start("0..10", &[]);
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let pid = if is_root { child.pid() } else { 1 };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("uksm");
    // Nobody may not be able to reach the folder of the build.
    let open_to_all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open_to_all).unwrap();
    // Another program copies it, so that no fork of another test holds it open for writing.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_uksm"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(&program);
    command.args(arguments).args(["--pid", &pid.to_string()]);
    if is_root {
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), line.lines().count()),
        (Some(1), 1),
        "{line}"
    );
    assert!(line.starts_with(&format!("uksm: --pid {pid}: ")), "{line}");
    line
}
