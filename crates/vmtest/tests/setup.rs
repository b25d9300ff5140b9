//! `scripts/setup` says what is missing, whoever runs it and whatever that is.
//!
//! Problem: the script meets machines that this one is not: without packages, without Rust, with
//! an old one. Approach: it runs with a search path of links to this machine's programs, without
//! some of them, or with others in their place; a fake `id` says that it is not root's, so that
//! nothing is installed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Folders of programs; all tools of the script are in these.
const PROGRAMS: [&str; 2] = ["/usr/bin", "/usr/sbin"];

/// Runs the script where programs are missing and others are scripts: what it said, which must be
/// one line, and that it failed.
fn refused(missing: &[&str], replaced: &[(&str, &str)]) -> String {
    let place = tempfile::tempdir().unwrap();
    let path = place.path();
    for program in PROGRAMS
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
    {
        let program = program.unwrap();
        let name = program.file_name();
        let mut left_out = missing.iter().chain(replaced.iter().map(|(name, _)| name));
        if !left_out.any(|other| name == **other) {
            // What is in both folders is the same program.
            let _there = symlink(program.path(), path.join(&name));
        }
    }
    for &(name, text) in replaced.iter().chain(&[("id", "echo 1000")]) {
        let script = path.join(name);
        let _link = fs::remove_file(&script);
        fs::write(&script, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup");
    let output = Command::new("/bin/sh")
        .arg(script)
        .env("PATH", path)
        .env("HOME", path)
        .env("CARGO_HOME", path)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "it should fail: {said}");
    assert_eq!(said.lines().count(), 1, "one line: {said}");
    said
}

#[test]
fn packages_that_are_missing_are_named_to_who_is_not_root() {
    let said = refused(&["pahole", "bison"], &[]);
    assert!(said.contains("apt-get install"), "{said}");
    assert!(said.ends_with(" bison dwarves\n"), "{said}");
}

#[test]
fn a_missing_rust_is_named_with_what_to_install() {
    let said = refused(&["cargo", "rustc"], &[]);
    assert!(said.contains("no cargo found; install Rust 1."), "{said}");
}

#[test]
fn an_old_rust_is_named_with_what_to_install() {
    let old = "echo 'rustc 1.63.0 (4b91a6ea7 2022-08-08)'";
    let said = refused(&[], &[("rustc", old), ("cargo", "exit 0")]);
    assert!(said.contains("rustc is 1.63, older than"), "{said}");
    assert!(said.contains("rustup"), "{said}");
}
