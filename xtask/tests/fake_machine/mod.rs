//! A simulated machine for the scripts of this tree.
//!
//! Problem: the scripts must work on other machines than this one: without packages, without Rust,
//! with old lists. Approach: they run with a search path of links to this machine's programs,
//! without those that distinguish machines; each test puts scripts in their place. Programs that
//! would change this machine are always scripts, and each of their calls is recorded.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Folders of programs; all tools of the scripts are in these.
const PROGRAMS: [&str; 2] = ["/usr/bin", "/usr/sbin"];

/// Programs that are never this machine's own: they distinguish machines, or change them.
const REPLACED: [&str; 12] = [
    "apt-cache",
    "apt-get",
    "cargo",
    "cargo-clippy",
    "cargo-fmt",
    "chroot",
    "debootstrap",
    "dpkg",
    "mount",
    "rustc",
    "rustup",
    "unshare",
];

/// Records its call.
const NOTE: &str = r#"echo "${0##*/} $*" >>"$PLACE/calls""#;

/// The machine; gone when dropped.
pub(crate) struct FakeMachine {
    place: TempDir,
}

/// The result of a script.
#[derive(Debug)]
pub(crate) struct ScriptOutcome {
    /// It ended with success.
    pub passed: bool,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Calls of `apt-get` and other programs that note them, one each.
    pub calls: Vec<String>,
}

impl FakeMachine {
    /// A machine with root's rights, all packages, complete lists, and no Rust.
    pub(crate) fn new() -> Self {
        let machine = Self {
            place: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(machine.path().join("bin")).unwrap();
        for program in PROGRAMS
            .iter()
            .flat_map(|folder| fs::read_dir(folder).unwrap())
        {
            let program = program.unwrap();
            if !REPLACED.iter().any(|name| program.file_name() == *name) {
                // A program in both folders is the same program.
                let _there = symlink(program.path(), machine.program(program.file_name()));
            }
        }
        machine.with("id", "echo 0");
        machine.with("dpkg", "exit 1");
        machine.with("apt-get", &format!("{NOTE}\nexit 1"));
        machine.with(
            "apt-cache",
            "case $1 in policy) echo '  Candidate: 1.96.0+dfsg1-1~deb12u2' ;; esac",
        );
        machine
    }

    /// The folder that scripts know as `$PLACE`.
    pub(crate) fn path(&self) -> &Path {
        self.place.path()
    }

    fn program(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join("bin").join(name)
    }

    /// Removes programs.
    pub(crate) fn without(&self, names: &[&str]) -> &Self {
        for name in names {
            fs::remove_file(self.program(name)).unwrap();
        }
        self
    }

    /// Puts a script in a program's place.
    pub(crate) fn with(&self, name: &str, text: &str) -> &Self {
        let script = self.program(name);
        let _link = fs::remove_file(&script);
        fs::write(&script, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// Puts a script in a program's place that records its calls.
    pub(crate) fn noting(&self, name: &str, text: &str) -> &Self {
        self.with(name, &format!("{NOTE}\n{text}"))
    }

    /// A script of this tree, to be run on the machine. It receives all signals, even if the caller
    /// of the tests (nohup, a shell's background) ignores them.
    pub(crate) fn command(&self, script: &str) -> Command {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut command = Command::new("/usr/bin/env");
        command
            .args(["--default-signal", "/bin/sh"])
            .arg(tree.join("scripts").join(script))
            .env_clear()
            .env("PATH", self.path().join("bin"))
            .env("PLACE", self.path())
            .env("HOME", self.path());
        command
    }

    /// Runs a command; it must have been made by `command`.
    pub(crate) fn run(&self, command: &mut Command) -> ScriptOutcome {
        let output = command.output().unwrap();
        ScriptOutcome {
            passed: output.status.success(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            calls: fs::read_to_string(self.path().join("calls"))
                .unwrap_or_default()
                .lines()
                .map(str::to_owned)
                .collect(),
        }
    }
}
