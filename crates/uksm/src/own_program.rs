//! Processes of this program that the daemon starts for itself.
//!
//! # Problem
//! systemd gives the daemon variables that its workers must not have: the name of its socket, and
//! in `LISTEN_FDNAMES` the names of all groups whose frames it stores. A compromised worker reads
//! its environment.
//!
//! # Approach
//! The environment is emptied, except for the names listed here. Settings go to a worker by its
//! channel, and to the watcher as arguments.

use std::process::Command;

/// Variables that the runtime of Rust reads at a panic.
const KEPT_VARIABLES: [&str; 1] = ["RUST_BACKTRACE"];
/// This variable is set if standard error, inherited from the daemon, goes to the journal.
pub(crate) const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// This program, with only these variables of the environment and `KEPT_VARIABLES`.
pub(crate) fn command(kept: &[&str]) -> Command {
    emptied(Command::new("/proc/self/exe"), kept)
}

fn emptied(mut command: Command, kept: &[&str]) -> Command {
    command.env_clear();
    for name in KEPT_VARIABLES.iter().chain(kept) {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_the_daemon_inherits_only_what_is_kept() {
        let names = |kept: &[&str]| {
            let output = emptied(Command::new("/usr/bin/env"), kept)
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let names = text.lines().filter_map(|line| line.split_once('='));
            let mut names: Vec<String> = names.map(|(name, _)| name.to_owned()).collect();
            names.retain(|name| !KEPT_VARIABLES.contains(&name.as_str()));
            names
        };
        // A test has this variable as a daemon has LISTEN_FDNAMES.
        assert!(std::env::var_os("PATH").is_some());
        assert!(names(&[]).is_empty());
        assert_eq!(names(&["PATH"]), ["PATH"]);
    }
}
