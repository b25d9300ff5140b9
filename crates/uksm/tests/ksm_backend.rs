//! `uksm run --backend ksm` and `uksm exec`: whose knobs they are, however the daemon ends, and
//! what is refused.
//!
//! KSM's folder is one of files here, and the process file system one in which this test itself
//! stands for ksmd: nothing of the host is changed. What ksmd does with it all is measured by `make
//! native-ksm` and tested in guests.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};
use rustix::process::{Pid, Signal, kill_process};

#[path = "ksm_backend/waiting.rs"]
mod waiting;

const PATIENCE: Duration = Duration::from_secs(30);

/// The knobs of the fake, as they are before anything runs.
const KNOBS: [(&str, &str); 4] = [
    ("pages_to_scan", "123"),
    ("sleep_millisecs", "45"),
    ("advisor_mode", "none [scan-time]"),
    ("run", "1"),
];

struct Host {
    root: tempfile::TempDir,
}

impl Host {
    fn new() -> Host {
        let root = tempfile::tempdir().unwrap();
        let ksm = root.path().join("ksm");
        std::fs::create_dir(&ksm).unwrap();
        for (name, text) in KNOBS {
            std::fs::write(ksm.join(name), format!("{text}\n")).unwrap();
        }
        for name in [
            "full_scans",
            "pages_shared",
            "pages_sharing",
            "pages_unshared",
            "pages_volatile",
        ] {
            std::fs::write(ksm.join(name), "0\n").unwrap();
        }
        let pid = std::process::id();
        let folder = root.path().join(format!("proc/{pid}"));
        std::fs::create_dir_all(&folder).unwrap();
        let stat = format!("{pid} (ksmd) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 25 5 1 0 9 0 0 0\n");
        std::fs::write(folder.join("stat"), stat).unwrap();
        Host { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn knob(&self, name: &str) -> String {
        std::fs::read_to_string(self.path("ksm").join(name))
            .unwrap()
            .trim()
            .to_owned()
    }

    fn is_driven(&self) -> bool {
        self.knob("sleep_millisecs") == "0"
    }

    /// What was chosen; a fake takes one word where the kernel shows all.
    fn is_as_before(&self) -> bool {
        KNOBS.iter().all(|(name, text)| {
            let word = text.split(['[', ']']).nth(1).unwrap_or(text);
            [*text, word].contains(&self.knob(name).as_str())
        })
    }

    /// A run of its own at this socket.
    fn command(&self, socket: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
        command.args(["run", "--no-config", "--backend", "ksm"]);
        if !more.contains(&"--config") {
            command.args(["--comm", "nobody"]);
        }
        let places = [
            ("--socket", socket),
            ("--ksm-root", "ksm"),
            ("--ksm-before", "run/before.json"),
            ("--proc-root", "proc"),
        ];
        for (option, name) in places {
            command.arg(option).arg(self.path(name));
        }
        if !more.contains(&"--agent-socket") {
            command
                .arg("--agent-socket")
                .arg(self.path(&format!("{socket}.agents")));
        }
        command
            .args(more)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    fn start(&self) -> Child {
        self.start_with_log(Stdio::piped())
    }

    fn start_with_log(&self, log: Stdio) -> Child {
        // One that was killed has left it.
        let socket = self.path("run/uksm.sock");
        let _none = std::fs::remove_file(&socket);
        let mut command = self.command("run/uksm.sock", &[]);
        let mut child = command.stderr(log).spawn().unwrap();
        let begun = Instant::now();
        while !self.is_driven() || !socket.exists() {
            assert!(begun.elapsed() < PATIENCE, "it did not begin");
            assert!(child.try_wait().unwrap().is_none(), "{}", said(&mut child));
            std::thread::sleep(Duration::from_millis(10));
        }
        child
    }

    fn comes_back(&self) -> bool {
        let begun = Instant::now();
        let is_back = || self.is_as_before() && !self.path("run/before.json").exists();
        while begun.elapsed() < PATIENCE && !is_back() {
            std::thread::sleep(Duration::from_millis(10));
        }
        is_back()
    }

    fn refused(&self, more: &[&str], status: i32) -> String {
        let output = self.command("run/uksm.sock", more).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert!(self.is_as_before(), "nothing was changed");
        line_of(&output)
    }
}

fn line_of(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "not one line: {text}");
    text.trim_end().to_owned()
}

fn said(child: &mut Child) -> String {
    let mut text = String::new();
    let stderr = child.stderr.as_mut().unwrap();
    stderr.read_to_string(&mut text).unwrap();
    text
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// The watcher of a daemon: its only child.
fn watcher_of(daemon: u32) -> u32 {
    let path = format!("/proc/{daemon}/task/{daemon}/children");
    let children = std::fs::read_to_string(path).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

/// Waits until a process, which has just begun its program, has handlers for these signals.
fn await_caught(pid: u32, signals: &[Signal]) {
    let bits = signals.iter().map(|signal| 1_u64 << (signal.as_raw() - 1));
    let all: u64 = bits.sum();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:\t"));
        if u64::from_str_radix(caught.unwrap(), 16).unwrap() & all == all {
            return;
        }
        assert!(Instant::now() < end, "{status}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn settings_of_ksm_come_back_at_a_stop() {
    let host = Host::new();
    let mut daemon = host.start();
    assert_eq!(
        (host.knob("run"), host.knob("advisor_mode")),
        ("0".to_owned(), "none".to_owned())
    );
    assert!(host.path("run/before.json").exists());
    signal(daemon.id(), Signal::TERM);
    assert!(daemon.wait().unwrap().success());
    assert!(host.is_as_before() && !host.path("run/before.json").exists());
    let text = said(&mut daemon);
    for words in [
        "global: ",
        "one tree: ",
        "ksmd was running already",
        "are restored",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
}

#[test]
fn knobs_come_back_when_the_daemon_is_killed() {
    let host = Host::new();
    let mut daemon = host.start();
    // What a terminal or a service manager sends to all of them does not end the watcher.
    let watcher = watcher_of(daemon.id());
    await_caught(watcher, &[Signal::INT, Signal::TERM, Signal::HUP]);
    for ignored in [Signal::INT, Signal::TERM, Signal::HUP] {
        signal(watcher, ignored);
    }
    signal(daemon.id(), Signal::KILL);
    assert_eq!(daemon.wait().unwrap().signal(), Some(9));
    assert!(host.comes_back());
    // And the next one finds nothing to be mended.
    let mut next = host.start();
    signal(next.id(), Signal::TERM);
    assert!(next.wait().unwrap().success());
    assert!(!said(&mut next).contains("without putting"));
}

#[test]
fn knobs_come_back_at_the_next_start_if_the_watcher_was_killed_as_well() {
    let host = Host::new();
    let mut daemon = host.start();
    signal(watcher_of(daemon.id()), Signal::KILL);
    signal(daemon.id(), Signal::KILL);
    daemon.wait().unwrap();
    assert!(host.is_driven(), "nobody is left to put them back");
    let mut next = host.start();
    signal(next.id(), Signal::TERM);
    assert!(next.wait().unwrap().success());
    assert!(said(&mut next).contains("ended without restoring KSM's settings"));
    assert!(host.is_as_before());
}

#[test]
fn only_one_uksm_drives_ksm() {
    let host = Host::new();
    let mut daemon = host.start();
    let agents = host.path("run/uksm.sock.agents");
    let same = ["--agent-socket", agents.to_str().unwrap()];
    let second = host.command("run/other.sock", &same).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let line = line_of(&second);
    assert!(
        line.ends_with("another uksm drives KSM on this host: stop it first"),
        "{line}"
    );
    assert!(host.is_driven(), "the first one still does");
    assert!(agents.exists(), "and its agents find it");
    signal(daemon.id(), Signal::TERM);
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn a_file_in_the_place_of_a_socket_stays() {
    let host = Host::new();
    std::fs::create_dir(host.path("run")).unwrap();
    for name in ["run/uksm.sock", "run/uksm.sock.agents"] {
        std::fs::write(host.path(name), "precious").unwrap();
        let output = host.command("run/uksm.sock", &[]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot listen"), "{said}");
        assert!(host.is_as_before());
        assert_eq!(
            std::fs::read_to_string(host.path(name)).unwrap(),
            "precious"
        );
        std::fs::remove_file(host.path(name)).unwrap();
    }
}

/// Processor time that a process has used, in ticks of 10 ms.
fn used_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<u64> = fields
        .split(' ')
        .skip(11)
        .take(2)
        .map(|field| field.parse().unwrap())
        .collect();
    fields.iter().sum()
}

fn connected_to(path: &Path, flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(unix, kind, flags | SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

#[test]
fn agents_that_come_and_go_cost_no_more_than_the_governors_share() {
    let host = Host::new();
    let mut daemon = host
        .command("run/uksm.sock", &["--governor", "quiet"])
        .spawn()
        .unwrap();
    let agents = host.path("run/uksm.sock.agents");
    let begun = Instant::now();
    while !agents.exists() || !host.is_driven() {
        assert!(begun.elapsed() < PATIENCE, "it did not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    // What its start costs is done when it has used nothing for a second.
    let mut before = used_ticks(daemon.id());
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = used_ticks(daemon.id());
        if now == before {
            break;
        }
        before = now;
        assert!(begun.elapsed() < PATIENCE, "it did not come to rest");
    }
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < Duration::from_secs(8) {
        // A daemon whose share is overdrawn accepts none for a while: none is waited for.
        drop(connected_to(&agents, SocketFlags::NONBLOCK));
        count += 1;
        std::thread::sleep(Duration::from_micros(500));
    }
    let used = used_ticks(daemon.id()) - before;
    // 1 % of 8 s are 8 ticks; the rest is for questions of the clock and what a slow machine takes
    // besides.
    assert!(used <= 24, "{used} ticks for {count} connections in 8 s");
    signal(daemon.id(), Signal::TERM);
    assert!(daemon.wait().unwrap().success());
}

/// Run by [`silent_agents_do_not_delay_others`] alone: connects, says when it was advised, and
/// never answers.
#[test]
#[ignore = "a process for another test"]
fn silent_agent() {
    let path = PathBuf::from(std::env::var_os("AGENTS").unwrap());
    let memory = vec![7_u8; 16 << 20];
    println!("filled");
    let socket = loop {
        match connected_to(&path, SocketFlags::empty()) {
            Ok(socket) => break socket,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let mut bytes = [0; 1024];
    recv(&socket, &mut bytes, RecvFlags::empty()).unwrap();
    println!("advised");
    std::io::stdin().read_to_string(&mut String::new()).unwrap();
    assert!(memory.iter().all(|&byte| byte == 7));
}

#[test]
fn silent_agents_do_not_delay_others() {
    const COUNT: usize = 20;
    let host = Host::new();
    let socket = host.path("run/uksm.sock");
    let agents = host.path("run/uksm.sock.agents");
    let mut children = Vec::new();
    let mut options: Vec<String> = ["--governor", "full"].map(str::to_owned).to_vec();
    for _ in 0..COUNT {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "silent_agent", "--ignored", "--nocapture"])
            .env("AGENTS", &agents)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id().to_string();
        std::os::unix::fs::symlink(Path::new("/proc").join(&pid), host.path("proc").join(&pid))
            .unwrap();
        options.extend(["--pid".to_owned(), pid]);
        let output = BufReader::new(child.stdout.take().unwrap());
        children.push((child, output.lines()));
    }
    let said = |lines: &mut std::io::Lines<BufReader<std::process::ChildStdout>>, word: &str| {
        let mut lines = lines.map(Result::unwrap);
        assert!(
            lines.any(|line| line.contains(word)),
            "it did not say {word}"
        );
    };
    for (_, lines) in &mut children {
        said(lines, "filled");
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut daemon = host.command("run/uksm.sock", &options).spawn().unwrap();
    let mut slowest = Duration::ZERO;
    for (_, lines) in &mut children {
        said(lines, "advised");
        let begun = Instant::now();
        let mut status = Command::new(env!("CARGO_BIN_EXE_uksm"));
        let status = status.arg("status").arg("--socket").arg(&socket).output();
        assert!(status.unwrap().status.success());
        slowest = slowest.max(begun.elapsed());
    }
    // One of them after the other was waited for, for a second each.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    signal(daemon.id(), Signal::TERM);
    assert!(daemon.wait().unwrap().success());
    for (mut child, _) in children {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

#[test]
fn status_has_the_back_end_and_its_limits() {
    let host = Host::new();
    let mut daemon = host.start();
    let ask = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
        command
            .args(more)
            .arg("--socket")
            .arg(host.path("run/uksm.sock"));
        command.output().unwrap()
    };
    let text = String::from_utf8(ask(&["status"]).stdout).unwrap();
    assert!(
        text.contains("in-kernel KSM") && text.contains("limits     global: "),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_slice(&ask(&["status", "--json"]).stdout).unwrap();
    assert_eq!(
        (&json["backend"], &json["pid"]),
        (&"ksm".into(), &daemon.id().into())
    );
    for (command, words) in [
        (&["reload"][..], "keeps no groups apart"),
        (&["group", "list"], "no groups are configured"),
        (&["top", "--once"], "drives in-kernel KSM"),
        (&["metrics"], "drives in-kernel KSM"),
    ] {
        let output = ask(command);
        let line = line_of(&output);
        assert!(
            output.status.code() == Some(1) && line.contains(words),
            "{command:?}: {line}"
        );
    }
    signal(daemon.id(), Signal::TERM);
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn what_has_no_meaning_is_refused_and_named() {
    let host = Host::new();
    let line = host.refused(&["--merge", "between"], 2);
    assert_eq!(
        line,
        "uksm: --merge: has no meaning with --backend = ksm: leave it out, or load the module"
    );
    let line = host.refused(&["--dry-run"], 2);
    assert!(
        line.starts_with("uksm: --dry-run: has no meaning"),
        "{line}"
    );
    let line = host.refused(&["--backend", "kernel"], 2);
    assert!(line.contains("--backend"), "{line}");
}

#[test]
fn groups_are_refused() {
    let host = Host::new();
    let file = host.path("config.toml");
    std::fs::write(&file, "backend = \"ksm\"\n[group.web]\ncomm = \"x\"\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_uksm"))
        .args(["run", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let line = line_of(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        line.contains("config.toml:1: backend = ksm: in-kernel KSM has one tree"),
        "{line}"
    );
}

#[test]
fn unsuitable_host_is_reported() {
    let host = Host::new();
    std::fs::create_dir_all(host.path("run")).unwrap();
    std::fs::write(host.path("run/before.json"), "{}").unwrap();
    let line = host.refused(&[], 1);
    assert!(
        line.contains("before.json: does not contain settings of KSM"),
        "{line}"
    );
    std::fs::remove_file(host.path("run/before.json")).unwrap();
    let pid = std::process::id().to_string();
    std::fs::remove_dir_all(host.path("proc").join(pid)).unwrap();
    let line = host.refused(&[], 1);
    assert!(line.contains("cannot find ksmd"), "{line}");
    std::fs::rename(host.path("ksm"), host.path("no-ksm")).unwrap();
    let output = host.command("run/uksm.sock", &[]).output().unwrap();
    assert!(
        line_of(&output).contains("unsupported kernel: "),
        "{output:?}"
    );
}

#[test]
fn a_daemon_whose_log_cannot_be_written_runs_and_puts_the_knobs_back() {
    let host = Host::new();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut daemon = host.start_with_log(full.into());
    let pid = Pid::from_child(&daemon);
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert!(host.comes_back());
}

fn exec(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
    command.arg("exec").args(arguments).output().unwrap()
}

#[test]
fn exec_offers_all_memory_of_a_program_with_its_option() {
    let output = exec(&["--merge", "all", "--", "cat", "/proc/self/ksm_stat"]);
    match output.status.code() {
        Some(0) => {
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains("ksm_merge_any: yes"), "{text}");
        }
        // A kernel that cannot says so.
        _ => assert!(
            line_of(&output).starts_with("uksm: --merge all: "),
            "{output:?}"
        ),
    }
}

#[test]
fn exec_reports_why_a_program_cannot_cooperate() {
    let status = |arguments: &[&str], code: i32, words: &str| {
        let output = exec(arguments);
        let line = line_of(&output);
        assert!(
            output.status.code() == Some(code) && line.contains(words),
            "{line}"
        );
    };
    status(&[], 2, "<COMMAND>");
    status(&["--merge", "some", "--", "true"], 2, "--merge");
    status(
        &["--agent", "/none/x.so", "--", "true"],
        1,
        "/none/x.so: no agent there",
    );
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("agent.so");
    std::fs::write(&library, "").unwrap();
    let library = library.to_str().unwrap();
    status(
        &["--agent", library, "--", "/none/program"],
        1,
        "/none/program: No such file",
    );
}
