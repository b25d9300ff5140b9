//! The program that runs beside the programs of an arm: a daemon, the torturer, or a reader of all
//! mappings.
//!
//! # Problem
//! If the daemon or the torturer died early, the arm would pass without it.
//!
//! # Approach
//! After each program the runner checks that the companion still runs. At the end of the arm the
//! companion must end on request.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::schedule::{Allowed, Arm, RUNNER_PATH, TortureCounts};
use super::torturer::{ALLOWED_PATH, TORTURE_PATH};

/// The daemon of the idle arm: it follows every process, with the least activity.
const DAEMON: [&str; 8] = [
    "/bin/uksm",
    "run",
    "--no-config",
    "--all",
    "--governor",
    "quiet",
    "--log",
    "warn",
];
/// Longest time until a companion begins, and ends.
const TIME_FACTOR: Duration = Duration::from_secs(30);

/// The companion of one arm.
#[derive(Debug)]
pub struct Companion {
    arm: Arm,
    child: Option<Child>,
    allowed: Option<Allowed>,
}

impl Companion {
    /// Starts the arm's companion and waits until it works.
    ///
    /// # Errors
    /// It cannot be started, or does not begin.
    pub fn of(arm: Arm) -> Result<Self, String> {
        let own = std::process::id().to_string();
        let words: Vec<&str> = match arm {
            Arm::Bare => Vec::new(),
            Arm::Busy => vec![RUNNER_PATH, "read-mappings"],
            Arm::Idle => DAEMON.to_vec(),
            // Our parent is /init.
            Arm::Tortured => vec![RUNNER_PATH, "torture", "1", &own],
        };
        let child = match words.split_first() {
            None => None,
            Some((program, arguments)) => Some(
                Command::new(program)
                    .args(arguments)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .spawn()
                    .map_err(|e| format!("{program}: {e}"))?,
            ),
        };
        let mut companion = Self {
            arm,
            child,
            allowed: None,
        };
        companion.ask(Allowed::FULL)?;
        Ok(companion)
    }

    fn await_round(&mut self, round: u64) -> Result<(), String> {
        let end = Instant::now() + TIME_FACTOR;
        while self.torture().rounds < round {
            self.check()?;
            if Instant::now() >= end {
                return Err(format!("the torturer did not come to round {round}"));
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Fails if the companion has ended by itself.
    ///
    /// # Errors
    /// It has ended; the text has its status.
    pub fn check(&mut self) -> Result<(), String> {
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        match child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("the companion of arm {} ended: {status}", self.arm)),
            Err(error) => Err(format!("the companion of arm {}: {error}", self.arm)),
        }
    }

    /// Sends the torturer its permissions for the next program, and waits until they apply.
    ///
    /// # Errors
    /// The permissions cannot be written, or the torturer has ended.
    pub fn ask(&mut self, allowed: Allowed) -> Result<(), String> {
        if self.arm != Arm::Tortured || self.allowed == Some(allowed) {
            return Ok(());
        }
        let text = serde_json::to_string(&allowed).map_err(|e| e.to_string())?;
        let partial = format!("{ALLOWED_PATH}.new");
        fs::write(&partial, text)
            .and_then(|()| fs::rename(&partial, ALLOWED_PATH))
            .map_err(|e| format!("{ALLOWED_PATH}: {e}"))?;
        self.allowed = Some(allowed);
        // The present round may still use the old permissions.
        self.await_round(self.torture().rounds + 2)
    }

    /// The torturer's work so far; none for another companion.
    #[must_use]
    pub fn torture(&self) -> TortureCounts {
        if self.arm != Arm::Tortured {
            return TortureCounts::default();
        }
        fs::read_to_string(TORTURE_PATH)
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default()
    }

    /// Ends the companion.
    ///
    /// # Errors
    /// It had ended before, or a daemon did not end well.
    pub fn end(mut self) -> Result<(), String> {
        self.check()?;
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        if self.arm != Arm::Idle {
            child.kill().map_err(|e| e.to_string())?;
            return child.wait().map(drop).map_err(|e| e.to_string());
        }
        let pid = i32::try_from(child.id()).map_err(|e| e.to_string())?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGTERM)
            .map_err(|e| e.to_string())?;
        let end = Instant::now() + TIME_FACTOR;
        while Instant::now() < end {
            match child.try_wait().map_err(|e| e.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the daemon ended badly: {status}")),
                None => sleep(Duration::from_millis(20)),
            }
        }
        Err("the daemon did not end when it was asked to".to_owned())
    }
}

/// Reads the mappings of all processes until it is killed. That takes a whole processor, and the
/// lock of each process's mappings for reading, as the torturer does.
///
/// # Errors
/// There is no `/proc`.
pub fn read_mappings() -> Result<(), String> {
    loop {
        for entry in fs::read_dir("/proc").map_err(|e| format!("/proc: {e}"))? {
            let entry = entry.map_err(|e| format!("/proc: {e}"))?;
            if entry.file_name().as_encoded_bytes()[0].is_ascii_digit() {
                // The process may have ended.
                let _gone = fs::read(entry.path().join("smaps_rollup"));
            }
        }
    }
}
