//! Runs one program in the guest and sends its results out.
//!
//! Approach: its standard output and error are the ports themselves, so that the harness sees every
//! byte as it is written. As pid 1 we reap orphans while it runs. Afterwards `/results` goes out as
//! one tar stream.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, setsid};

use crate::ports;
use uksm_vm_protocol::messages::{FILES_PORT, RECEIVED, RESULT_DIR, STDERR_PORT, STDOUT_PORT};

/// Search path of programs in the guest.
pub(crate) const SEARCH_PATH: &str = "/bin";

/// Runs a program to its end; returns its status, 128 + signal if one ended it.
///
/// # Errors
/// It cannot be started, or a port is missing.
pub(crate) fn run(
    path: &str,
    arguments: &[String],
    environment: &[(String, String)],
) -> io::Result<i32> {
    let mut command = Command::new(path);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("HOME", "/tmp")
        .env("RESULTS", RESULT_DIR)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/tmp")
        .stdin(Stdio::null())
        .stdout(ports::open(STDOUT_PORT)?)
        .stderr(ports::open(STDERR_PORT)?);
    lead_a_session(&mut command);
    let child = command
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(ended, status)) if ended == pid => return Ok(status),
            Ok(WaitStatus::Signaled(ended, signal, _)) if ended == pid => {
                return Ok(128 + signal as i32);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The program will lead a session of its own.
pub(crate) fn lead_a_session(command: &mut Command) {
    let lead = || setsid().map(drop).map_err(io::Error::from);
    // SAFETY: setsid is async-signal-safe, and all that happens between fork and exec.
    unsafe { command.pre_exec(lead) };
}

/// The shell convention for an exit status: 128 + signal.
#[must_use]
pub(crate) fn shell_status(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Sends everything below `/results` to the harness, and waits for the confirmation.
///
/// # Errors
/// A file cannot be read, the port is missing, or the harness went away.
pub(crate) fn send_results() -> io::Result<()> {
    let port: File = ports::open(FILES_PORT)?;
    let mut answers = port.try_clone()?;
    let mut archive = tar::Builder::new(io::BufWriter::with_capacity(1 << 16, port));
    archive.append_dir_all(".", Path::new(RESULT_DIR))?;
    archive
        .into_inner()?
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error)?;
    let mut answer = [0];
    answers.read_exact(&mut answer)?;
    if answer == [RECEIVED] {
        Ok(())
    } else {
        Err(io::Error::other(format!("the harness answered {answer:?}")))
    }
}
