//! Processes of this program that the daemon starts for itself.
//!
//! # Problem
//! systemd gives the daemon variables that its workers must not have: the name of its socket, and
//! in `LISTEN_FDNAMES` the names of all groups whose frames it stores. A worker that is taken over
//! reads what it has inherited.
//!
//! # Approach
//! The environment is emptied, but for names that are listed here. Settings go to a worker by its
//! channel, and to the watcher as arguments.

use std::process::Command;

/// What the runtime of Rust reads when a program panics.
const KEPT: [&str; 1] = ["RUST_BACKTRACE"];
/// By this variable a process knows that its standard error, inherited from the daemon, is read by
/// the journal.
pub(crate) const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// This program, without the environment of this process but for what is kept.
pub(crate) fn command(kept: &[&str]) -> Command {
    emptied(Command::new("/proc/self/exe"), kept)
}

fn emptied(mut command: Command, kept: &[&str]) -> Command {
    command.env_clear();
    for name in KEPT.iter().chain(kept) {
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
            names.retain(|name| !KEPT.contains(&name.as_str()));
            names
        };
        // A test has this variable as a daemon has LISTEN_FDNAMES.
        assert!(std::env::var_os("PATH").is_some());
        assert!(names(&[]).is_empty());
        assert_eq!(names(&["PATH"]), ["PATH"]);
    }
}
