//! Runs the tests of a plan, each in its own process.
//!
//! Problem: tests fork, crash, hang and make the kernel complain.
//!
//! Approach: fork for each test; its result comes back through a pipe, so that a test that dies
//! without a result has failed. At its time bound it is killed. As pid 1 we then kill every
//! remaining process, load the module again if the test left it unloaded, and search the kernel log
//! for complaints: they fail the test, whatever its own result is. A child that cannot be killed (a
//! task stuck in the kernel) ends the run, because later results could not be trusted.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe, setsid};

use crate::case::{Context, Failure, TestCase};
use crate::kmsg;
use crate::modules::Modules;
use crate::ports::Reporter;
use uksm_vm_protocol::machine::MODULE;
use uksm_vm_protocol::messages::Event;

/// Time between two checks of a running test.
const POLL: Duration = Duration::from_millis(20);
/// Longest time until killed processes are gone; after it the kernel is at fault.
const REAP_BOUND: Duration = Duration::from_secs(120);
/// Limit of the bytes of a result: the pipe must hold them unread.
const MAX_TEXT: usize = 32 << 10;

/// State shared by all tests of a boot.
pub(super) struct Runner {
    /// `uname -r`.
    pub kernel: String,
    /// Seed of this boot.
    pub seed: u64,
    /// Factor of the tests' time bounds.
    pub time_factor: u32,
    /// Modules of the initramfs.
    pub modules: Modules,
    /// The connection to the harness.
    pub reporter: Reporter,
}

/// Counts of a boot.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Tests passed.
    pub passed: u64,
    /// Tests failed.
    pub failed: u64,
}

impl Runner {
    /// Runs the named tests in order; a name that is not in the table counts as failed.
    ///
    /// # Errors
    /// A process could not be killed: the run cannot go on.
    pub(super) fn run_all(&self, table: &[TestCase], names: &[String]) -> Result<Counts, String> {
        let mut counts = Counts::default();
        for name in names {
            let begin = Instant::now();
            let result = match table.iter().find(|case| case.name == name) {
                None => {
                    self.reporter.send(&Event::Started {
                        test: name.clone(),
                        bound: 0,
                    });
                    Err(Failure(format!(
                        "no test is named {name}: the guest was built from another table"
                    )))
                }
                Some(case) => {
                    let bound = case.bound.saturating_mul(u64::from(self.time_factor));
                    self.reporter.send(&Event::Started {
                        test: name.clone(),
                        bound,
                    });
                    let log_start = kmsg::last_sequence().unwrap_or(None);
                    let result = self.run_one(case, Duration::from_secs(bound))?;
                    result.and_then(|()| without_complaints(log_start))
                }
            };
            let seconds = begin.elapsed().as_secs_f64();
            match result {
                Ok(()) => {
                    counts.passed += 1;
                    self.reporter.send(&Event::Passed {
                        test: name.clone(),
                        seconds,
                    });
                }
                Err(Failure(message)) => {
                    counts.failed += 1;
                    self.reporter.send(&Event::Failed {
                        test: name.clone(),
                        message,
                        seconds,
                    });
                }
            }
        }
        Ok(counts)
    }

    /// Runs one test, and ends every process that it leaves.
    ///
    /// # Errors
    /// A process could not be killed.
    fn run_one(&self, case: &TestCase, bound: Duration) -> Result<Result<(), Failure>, String> {
        let started = self.start(case, bound);
        // Processes left by the test keep its pipe open, too: the pipe is read when they are gone.
        reap_everything()?;
        Ok(started.and_then(|(status, from_child)| result_of(status, from_child, bound)))
    }

    /// Starts a test in a process and waits until it has ended, or is killed at its bound; returns
    /// its status and its pipe.
    fn start(
        &self,
        case: &TestCase,
        bound: Duration,
    ) -> Result<(Option<WaitStatus>, OwnedFd), Failure> {
        self.modules.load(MODULE)?;
        let (from_child, to_parent) = pipe()?;
        // SAFETY: this process has one thread, so the child may do anything.
        match unsafe { fork() }? {
            ForkResult::Child => {
                drop(from_child);
                self.child(case, to_parent)
            }
            ForkResult::Parent { child } => {
                drop(to_parent);
                Ok((wait_bounded(child, bound)?, from_child))
            }
        }
    }

    fn child(&self, case: &TestCase, to_parent: OwnedFd) -> ! {
        let _own_session = setsid();
        let mut context = Context::new(
            case.name,
            &self.kernel,
            self.seed,
            self.modules.clone(),
            self.reporter.clone(),
        );
        let (text, status) = match catch_unwind(AssertUnwindSafe(|| (case.run)(&mut context))) {
            Ok(()) => ("passed".to_owned(), 0),
            Err(panic) => (format!("panicked: {}", panic_text(&*panic)), 1),
        };
        let text = &text.as_bytes()[..text.len().min(MAX_TEXT)];
        let mut pipe = File::from(to_parent);
        let written = pipe.write_all(text);
        std::process::exit(if written.is_ok() { status } else { 2 });
    }
}

/// The result of a test whose process has ended, from its status and its output.
fn result_of(
    status: Option<WaitStatus>,
    from_child: OwnedFd,
    bound: Duration,
) -> Result<(), Failure> {
    let Some(status) = status else {
        return Err(Failure(format!(
            "not finished within {} s",
            bound.as_secs()
        )));
    };
    let mut text = Vec::new();
    File::from(from_child).read_to_end(&mut text)?;
    match (status, &*String::from_utf8_lossy(&text)) {
        (WaitStatus::Exited(_, 0), "passed") => Ok(()),
        (WaitStatus::Exited(..), message) if !message.is_empty() => Err(Failure::new(message)),
        (status, _) => Err(Failure(format!(
            "the test's process ended without a result: {status:?}"
        ))),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text")
}

/// Waits for one child; `None` after the time bound (the child has been killed then). Orphans that
/// end meanwhile are reaped too, as pid 1 must.
fn wait_bounded(child: Pid, bound: Duration) -> nix::Result<Option<WaitStatus>> {
    let begin = Instant::now();
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => {
                if begin.elapsed() > bound {
                    kill(child, Signal::SIGKILL)?;
                    return Ok(None);
                }
                std::thread::sleep(POLL);
            }
            Ok(status) if status.pid() == Some(child) => return Ok(Some(status)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Kills every process but this one, and reaps them.
fn reap_everything() -> Result<(), String> {
    if std::process::id() != 1 {
        return Ok(());
    }
    let begin = Instant::now();
    loop {
        // From pid 1 this reaches all other processes. ESRCH: there is none.
        let _nobody = kill(Pid::from_raw(-1), Signal::SIGKILL);
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return Ok(()),
            Ok(WaitStatus::StillAlive) => {
                if begin.elapsed() > REAP_BOUND {
                    return Err(
                        "a killed process does not go away: it is stuck in the kernel".to_owned(),
                    );
                }
                std::thread::sleep(POLL);
            }
            _ => {}
        }
    }
}

fn without_complaints(log_start: Option<u64>) -> Result<(), Failure> {
    let complaints = kmsg::complaints_since(log_start)?;
    match complaints.first() {
        None => Ok(()),
        Some(first) => Err(Failure(format!(
            "the kernel complained {} times, first: {first}",
            complaints.len()
        ))),
    }
}
