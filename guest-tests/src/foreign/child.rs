//! One program, with everything it starts, to its end.
//!
//! # Problem
//! Self-tests fork, hang, change folders and leave processes behind.
//!
//! # Approach
//! A program runs in a session, a cgroup and an empty folder of its own. Both its outputs go to one
//! file. At its end, or at its time bound, the kernel kills all processes left in the cgroup.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::unistd::setsid;

use super::schedule::Item;
use crate::init::program::shell_status;

/// Mount point of hugetlbfs.
pub const HUGETLBFS: &str = "/huge";
const GROUP: &str = "/sys/fs/cgroup/foreign";
const FOLDER: &str = "/tmp/foreign";
const SEARCH_PATH: &str = "/bin:/foreign/selftests";
/// Limit of the output that is kept: the beginning and the end of longer output.
const MAX_OUTPUT: u64 = 1 << 20;
/// Longest time until killed processes are gone.
const REAPING: Duration = Duration::from_secs(60);

/// The end of a program.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status, 128 + signal if one ended it; none after its time bound.
    pub status: Option<i32>,
    /// Its output.
    pub output: String,
}

/// Runs a program to its end, at most for `bound`.
///
/// # Errors
/// It cannot be started, or its processes cannot be killed.
pub fn run(item: &Item, bound: Duration) -> io::Result<Ended> {
    fs::create_dir_all(GROUP)?;
    let members = File::options()
        .write(true)
        .open(format!("{GROUP}/cgroup.procs"))?;
    if Path::new(FOLDER).exists() {
        fs::remove_dir_all(FOLDER)?;
    }
    fs::create_dir_all(FOLDER)?;
    // Some programs only look below their own folder.
    symlink(HUGETLBFS, format!("{FOLDER}/huge"))?;
    let mut output = File::options()
        .read(true)
        .append(true)
        .create(true)
        .open(format!("{FOLDER}.output"))?;
    output.set_len(0)?;
    let mut command = Command::new(&item.program);
    command
        .args(&item.arguments)
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("HOME", FOLDER)
        .current_dir(FOLDER)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?);
    let group = members.as_raw_fd();
    // SAFETY: between fork and exec the closure makes two system calls, both async-signal-safe, and
    // allocates nothing; the descriptor is open until the child has been started.
    unsafe {
        command.pre_exec(move || enter(group));
    }
    let mut child = command
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", item.program)))?;
    let end = Instant::now() + bound;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(shell_status(status));
        }
        if Instant::now() >= end {
            break None;
        }
        sleep(Duration::from_millis(10));
    };
    kill_all()?;
    child.wait()?;
    Ok(Ended {
        status,
        output: text(&mut output)?,
    })
}

/// Joins the cgroup and begins a session.
fn enter(group: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open, the buffer is a constant of one byte.
    if unsafe { libc::write(group, c"0".as_ptr().cast(), 1) } != 1 {
        return Err(io::Error::last_os_error());
    }
    setsid().map(|_| ()).map_err(io::Error::from)
}

fn kill_all() -> io::Result<()> {
    let end = Instant::now() + REAPING;
    loop {
        let events = fs::read_to_string(format!("{GROUP}/cgroup.events"))?;
        if events.lines().any(|line| line == "populated 0") {
            return Ok(());
        }
        let mut kill = File::options()
            .write(true)
            .open(format!("{GROUP}/cgroup.kill"))?;
        kill.write_all(b"1")?;
        if Instant::now() >= end {
            let left = fs::read_to_string(format!("{GROUP}/cgroup.procs"))?;
            return Err(io::Error::other(format!(
                "processes that cannot be killed: {}",
                left.split_whitespace().collect::<Vec<_>>().join(" ")
            )));
        }
        sleep(Duration::from_millis(10));
    }
}

fn text(output: &mut File) -> io::Result<String> {
    let length = output.metadata()?.len();
    let mut bytes = Vec::new();
    output.rewind()?;
    if length <= MAX_OUTPUT {
        output.read_to_end(&mut bytes)?;
    } else {
        output.take(MAX_OUTPUT / 2).read_to_end(&mut bytes)?;
        bytes.extend_from_slice(b"\n[...]\n");
        let half = i64::try_from(MAX_OUTPUT / 2).map_err(io::Error::other)?;
        output.seek(io::SeekFrom::End(-half))?;
        output.read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
