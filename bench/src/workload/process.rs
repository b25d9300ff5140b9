//! The parent side of a workload: starts the child, sends commands, and reads the answers.

use super::Spec;
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use uksm_testkit::child_process::ChildExit as _;

/// A running workload. Dropping it ends the child and waits for it.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a workload; its memory is not there before [`Process::ready`] returns.
    pub(crate) fn start(spec: &Spec) -> Result<Process> {
        Process::start_as("workload", spec)
    }

    /// Starts this program with a hidden command and its configuration.
    pub(crate) fn start_as(command: &str, what: &impl Serialize) -> Result<Process> {
        Process::spawn(&[], command, what)
    }

    /// Starts a workload by a wrapper program that becomes it, with the wrapper's arguments;
    /// without one if the list is empty.
    pub(crate) fn start_under(wrapper: &[OsString], spec: &Spec) -> Result<Process> {
        Process::spawn(wrapper, "workload", spec)
    }

    fn spawn(wrapper: &[OsString], command: &str, what: &impl Serialize) -> Result<Process> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut words = wrapper.iter().cloned().chain([program.into_os_string()]);
        let first = words.next().context("no program")?;
        let mut child = Command::new(first)
            .args(words)
            .arg(command)
            .arg(serde_json::to_string(what)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a workload")?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("workload has no output")?);
        Ok(Process {
            child,
            input,
            output,
        })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the memory that is present from the start is filled.
    pub(crate) fn ready(&mut self) -> Result<()> {
        let line = self.line()?;
        ensure!(line == "ready", "workload said '{line}' instead of 'ready'");
        Ok(())
    }

    /// Makes the waiting parts appear, and waits until they are filled.
    pub(crate) fn appear(&mut self) -> Result<()> {
        self.command("appear")?;
        self.ready()
    }

    /// Makes the workload read all its memory; returns the number of unchanged pages.
    ///
    /// # Errors
    /// If one page is changed.
    pub(crate) fn verify(&mut self) -> Result<u64> {
        self.command("verify")?;
        let line = self.line()?;
        match line.split_once(' ') {
            Some(("verified", pages)) => pages
                .parse()
                .with_context(|| format!("workload said '{line}'")),
            _ => bail!(
                "workload {}: memory is not what was written: {line}",
                self.pid()
            ),
        }
    }

    /// Pages that the workload has written since it was filled.
    pub(crate) fn written(&mut self) -> Result<u64> {
        self.number("written", "written ")
    }

    /// Makes a busy process work; returns its result.
    pub(crate) fn work(&mut self) -> Result<u64> {
        self.number("work", "worked ")
    }

    /// Pages that a member of a group has read.
    pub(crate) fn done(&mut self) -> Result<u64> {
        self.number("done", "done ")
    }

    /// Makes the workload write all its pages without changing them; returns the CPU that this
    /// took.
    pub(crate) fn rewrite(&mut self) -> Result<Duration> {
        let nanoseconds = self.number("rewrite", "rewrote ")?;
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// Makes the workload write this percentage of its pages, at random places, without changing
    /// them; returns the pages that it has written since it was filled.
    pub(crate) fn rewrite_some(&mut self, percent: u32) -> Result<u64> {
        self.number(&format!("rewrite-some {percent}"), "written ")
    }

    /// Starts the work of a machine.
    pub(crate) fn go(&mut self) -> Result<()> {
        self.command("go")?;
        self.ready()
    }

    /// The largest delay of a machine's actions.
    pub(crate) fn late(&mut self) -> Result<Duration> {
        let nanoseconds = self.number("late", "late ")?;
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// The number in the workload's answer to a command, behind this word.
    fn number(&mut self, command: &str, word: &str) -> Result<u64> {
        self.command(command)?;
        let line = self.line()?;
        let number = line.strip_prefix(word).and_then(|rest| rest.parse().ok());
        number.with_context(|| format!("workload said '{line}'"))
    }

    fn command(&mut self, command: &str) -> Result<()> {
        let input = self.input.as_mut().context("workload's input is closed")?;
        writeln!(input, "{command}")
            .and_then(|()| input.flush())
            .with_context(|| format!("cannot send '{command}' to the workload"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self
            .output
            .read_line(&mut line)
            .context("cannot read from a workload")?;
        if read == 0 {
            let status = self.child.wait().context("cannot wait for a workload")?;
            bail!("a workload ended on its own: {status}");
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input.take();
        self.child.end();
    }
}
