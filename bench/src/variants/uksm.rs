//! The uksm daemon as a system under test.
//!
//! Its CPU is counted from its exec on, so starting up, finding the processes and reading their
//! mappings are part of a variant's cost. The module works inside the daemon's system calls, so the
//! daemon's clock includes the module's work.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use uksm_testkit::child_process::ChildExit;

use super::running_system::System;
use crate::measure::cpu::{CpuClock, split};

/// Time after its start at which the daemon has loaded its programs: it does so after five seconds,
/// for 0.3·10⁹ instructions.
pub(crate) const LOADED: Duration = Duration::from_secs(8);
/// Longest wait for the daemon to end after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The daemon, running.
pub(crate) struct Uksm {
    child: Child,
    program: PathBuf,
    socket: PathBuf,
    clock: CpuClock,
    ended: Option<Duration>,
}

impl Uksm {
    /// Starts the daemon on these processes, or on all present and future ones.
    pub(crate) fn start(program: &Path, options: &[String], pids: &[u32]) -> Result<Uksm> {
        let named = pids
            .iter()
            .flat_map(|pid| ["--pid".to_owned(), pid.to_string()]);
        let mut targets: Vec<String> = named.collect();
        if targets.is_empty() {
            targets.push("--all".to_owned());
        }
        Uksm::start_on(program, options, &targets)
    }

    /// Starts the daemon on the processes that these options name.
    pub(crate) fn start_on(program: &Path, options: &[String], targets: &[String]) -> Result<Uksm> {
        let mut command = Command::new(program);
        let words = ["run", "--no-config"];
        command.args(words).args(options).args(targets);
        Uksm::spawn(program, command)
    }

    /// Starts the daemon with this configuration.
    pub(crate) fn start_configured(program: &Path, configuration: &Path) -> Result<Uksm> {
        let mut command = Command::new(program);
        command.args(["run", "--config"]).arg(configuration);
        Uksm::spawn(program, command)
    }

    fn spawn(program: &Path, mut command: Command) -> Result<Uksm> {
        let socket = std::env::temp_dir().join("uksm-bench.sock");
        command
            .args(["--log", "warn", "--socket"])
            .arg(&socket)
            .stdin(Stdio::null());
        lead_a_session(&mut command);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {} run", program.display()))?;
        let clock = CpuClock::of(child.id())?;
        Ok(Uksm {
            child,
            program: program.to_owned(),
            socket,
            clock,
            ended: None,
        })
    }

    /// The answer to a command of the program that queries this daemon.
    ///
    /// # Errors
    /// The command fails: the text is its output.
    pub(crate) fn asked(&self, words: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--socket").arg(&self.socket);
        let output = command.output().context("cannot ask the daemon")?;
        if !output.status.success() {
            bail!("{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        serde_json::from_slice(&output.stdout).with_context(|| format!("{words:?}"))
    }

    /// The daemon's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// Makes a program lead a session of its own, as systemd does for a service: where the kernel
/// shares processors between sessions first (autogroup, sched(7)), it would otherwise share the
/// harness's part with all measured processes, unlike ksmd, which is in no session.
fn lead_a_session(command: &mut Command) {
    let lead = || rustix::process::setsid().map(drop).map_err(io::Error::from);
    // SAFETY: a system call is all that happens between fork and exec.
    unsafe { command.pre_exec(lead) };
}

/// A value in kB of /proc/PID/status, as MiB.
pub(crate) fn status_mib(pid: u32, field: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

impl System for Uksm {
    fn cpu(&self) -> Result<Duration> {
        match self.ended {
            Some(cpu) => Ok(cpu),
            None => self
                .clock
                .now()
                .context("the uksm daemon ended on its own: see its messages"),
        }
    }

    fn adjust(&mut self) -> Result<()> {
        if let Some(status) = self
            .child
            .try_wait()
            .context("cannot wait for the daemon")?
        {
            bail!("the uksm daemon ended on its own: {status}");
        }
        Ok(())
    }

    fn own_mib(&self) -> f64 {
        status_mib(self.pid(), "VmRSS").unwrap_or(0.0)
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        if let Some((user, kernel)) = split(self.pid()) {
            figures.insert("daemon_user_seconds".to_owned(), user);
            figures.insert("daemon_kernel_seconds".to_owned(), kernel);
        }
        figures
    }

    fn report(&self) -> Option<Value> {
        let status = self.asked(&["status", "--json"]);
        status.map_err(|error| eprintln!("{error:#}")).ok()
    }

    fn stop(&mut self) -> Result<()> {
        if self.ended.is_some() {
            return Ok(());
        }
        self.ended = Some(self.clock.now().unwrap_or_default());
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, Signal::TERM).context("cannot stop the daemon")?;
        let begin = Instant::now();
        loop {
            if let Some(status) = self
                .child
                .try_wait()
                .context("cannot wait for the daemon")?
            {
                if status.success() {
                    return Ok(());
                }
                bail!("the uksm daemon ended with {status}");
            }
            if begin.elapsed() > STOP_LIMIT {
                self.child.end();
                bail!(
                    "the uksm daemon did not end within {} s",
                    STOP_LIMIT.as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Uksm {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.child.end();
        }
    }
}
