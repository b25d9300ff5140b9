//! What keeps a daemon that drives in-kernel KSM from its work, or does not: processes that hold
//! their locks or have ended, and the end of its terminal.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use super::{Host, PATIENCE, said, signal};

/// A process of the fake host.
fn process(host: &Host, pid: u32, comm: &str) {
    let folder = host.path(&format!("proc/{pid}"));
    std::fs::create_dir(&folder).unwrap();
    let stat = format!("{pid} ({comm}) S 1 0 0 0 -1 4194560 0 0 0 0 0 0 0 0 25 5 1 0 9 0 0 0\n");
    std::fs::write(folder.join("stat"), stat).unwrap();
    std::fs::write(
        folder.join("status"),
        format!("Name:\t{comm}\nTgid:\t{pid}\n"),
    )
    .unwrap();
    std::fs::write(folder.join("statm"), "100 50 0 0 0 0 0\n").unwrap();
}

fn status(host: &Host) -> serde_json::Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
    command
        .args(["status", "--json", "--socket"])
        .arg(host.path("run/uksm.sock"));
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn await_end(child: &mut Child) -> std::process::ExitStatus {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < end, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn processes_that_hold_their_locks_stop_neither_the_daemon_nor_its_answers() {
    let host = Host::new();
    // Two that were named and one that was not. Opening such a file never ends.
    for (pid, comm) in [
        (4_000_001, "nobody"),
        (4_000_002, "nobody"),
        (4_000_003, "other"),
    ] {
        process(&host, pid, comm);
        for file in ["ksm_stat", "smaps", "maps"] {
            let path = host.path(&format!("proc/{pid}/{file}"));
            mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        }
    }
    let mut daemon = host.start();
    let begun = Instant::now();
    while status(&host)["processes"]["locked"] != 3 {
        assert!(begun.elapsed() < 2 * PATIENCE, "{}", status(&host));
        std::thread::sleep(Duration::from_millis(200));
    }
    signal(daemon.id(), Signal::TERM);
    assert!(await_end(&mut daemon).success());
    assert!(host.is_as_before());
    let log = said(&mut daemon);
    for pid in [4_000_001, 4_000_002, 4_000_003] {
        let line = format!("process {pid} holds the lock of its own mappings");
        assert_eq!(log.matches(&line).count(), 1, "{log}");
    }
}

#[test]
fn ended_process_of_the_configuration_does_not_prevent_the_start() {
    let host = Host::new();
    process(&host, 4_000_001, "other");
    let config = host.path("config.toml");
    let text = "backend = \"ksm\"\n[targets]\npid = [4000001, 4000002]\n";
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
    command.arg("run").arg("--config").arg(&config);
    for (option, name) in [
        ("--socket", "run/uksm.sock"),
        ("--agent-socket", "run/agents"),
        ("--ksm-root", "ksm"),
        ("--ksm-before", "run/before.json"),
        ("--proc-root", "proc"),
    ] {
        command.arg(option).arg(host.path(name));
    }
    let mut daemon = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !host.is_driven() {
        assert!(begun.elapsed() < PATIENCE, "it did not begin");
        assert!(
            daemon.try_wait().unwrap().is_none(),
            "{}",
            said(&mut daemon)
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(daemon.id(), Signal::TERM);
    assert!(await_end(&mut daemon).success());
    let log = said(&mut daemon);
    assert!(log.contains("--pid 4000002: no such process"), "{log}");
    assert!(!log.contains("4000001"), "{log}");
}

/// Both ends of a terminal, which no other process that is started has.
fn terminal() -> (File, File) {
    let open = |path: &str| {
        let mut how = File::options();
        how.read(true).write(true).custom_flags(libc::O_NOCTTY);
        how.open(path).unwrap()
    };
    let ours = open("/dev/ptmx");
    let (unlocked, mut number) = (0_i32, 0_u32);
    // SAFETY: the call reads the number, and writes nothing here.
    let done = unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) };
    assert_eq!(done, 0);
    // SAFETY: the call writes the number, and nothing else.
    let done = unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTN, &raw mut number) };
    assert_eq!(done, 0);
    (ours, open(&format!("/dev/pts/{number}")))
}

#[test]
fn the_end_of_its_terminal_ends_a_run_without_a_configuration() {
    let host = Host::new();
    let (ours, theirs) = terminal();
    let number = theirs.as_raw_fd();
    let mut command = host.command("run/uksm.sock", &[]);
    command.stdin(theirs.try_clone().unwrap());
    let own = move || {
        rustix::process::setsid()?;
        // SAFETY: the call takes numbers only.
        match unsafe { libc::ioctl(number, libc::TIOCSCTTY, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes two system calls.
    unsafe { command.pre_exec(own) };
    let mut daemon = command.spawn().unwrap();
    let begun = Instant::now();
    while !host.is_driven() || !host.path("run/uksm.sock").exists() {
        assert!(begun.elapsed() < PATIENCE, "it did not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(theirs);
    drop(ours);
    assert!(await_end(&mut daemon).success(), "{}", said(&mut daemon));
    assert!(host.comes_back());
}

#[test]
fn a_hangup_does_not_end_a_run_without_a_terminal() {
    let host = Host::new();
    let mut daemon = host.start();
    signal(daemon.id(), Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    assert!(daemon.try_wait().unwrap().is_none() && host.is_driven());
    signal(daemon.id(), Signal::TERM);
    assert!(await_end(&mut daemon).success());
    assert!(said(&mut daemon).contains("SIGHUP is ignored"));
}
