//! `uksm top --once` and the call behind it report the true state of processes.
//!
//! # Problem
//! The figures of top are the daemon's view, and with groups two programs combine them. A list that
//! is off by a factor, or that names the wrong process, looks like any other.
//!
//! # Approach
//! Peers with a known amount of mergeable pages run beside a daemon that merges them; the figures
//! are read from the text as a person reads it, and from the socket. Output for a terminal is read
//! from a pseudoterminal, which has no size unless it is given one, and drawn on a terminal in
//! memory, so that a test sees the same as a person.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Context;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::contents::Content;
use crate::fixtures::daemon::{Daemon, PROGRAM, call_daemon, program_output};
use crate::fixtures::peer::Peer;
use crate::fixtures::two_groups::{PAGES, SEED, await_that, peer_in, start_daemon, status};

cases! { "daemon::top":
    a_process_is_listed_with_what_is_merged_of_it Policy Stock 120,
    processes_of_a_group_are_told_by_its_worker Policy Stock 120,
    a_terminal_that_does_not_know_its_size_is_no_empty_page Policy Stock 240,
    a_process_is_opened_on_a_terminal_which_is_given_back_though_the_daemon_was_killed Policy Stock 120,
}

/// Pages of any process besides those of the test: its program's data, and zeros.
const FEW: u64 = 256;

/// Waits until the daemon answers.
fn await_answers(daemon: &mut Daemon) {
    await_that(daemon, "it should answer", || !status().is_null());
}

/// The line of a process in the output of top, behind its id; none if it is not listed.
fn line_of(text: &str, pid: i32) -> Option<Vec<String>> {
    let pid = pid.to_string();
    let lines = text.lines().map(str::split_whitespace);
    let mut lines = lines.map(|words| words.map(str::to_owned).collect::<Vec<_>>());
    lines.find(|words| words.first() == Some(&pid) && words.len() == 7)
}

/// Its merged memory in MiB, and its share of a core in percent.
fn figures(text: &str, pid: i32) -> Option<(f64, f64)> {
    let line = line_of(text, pid)?;
    let number = |at: usize| line[at].parse().expect("a number");
    Some((number(2), number(4)))
}

/// The daemon's reply on a process; null if it is not listed.
fn process_figures(reply: &Value, pid: i32) -> Value {
    let processes = reply["parameters"]["processes"].as_array();
    let mut processes = processes.into_iter().flatten();
    let found = processes.find(|process| process["pid"] == pid);
    found.cloned().unwrap_or_default()
}

fn merged(process: &Value) -> u64 {
    process["merged_pages"].as_u64().unwrap_or(0)
}

/// Whether these are the filled pages, and few more.
fn is_as_filled(pages: u64) -> bool {
    let filled = PAGES as u64;
    pages >= filled * 95 / 100 && pages <= filled + FEW
}

fn a_process_is_listed_with_what_is_merged_of_it(context: &mut Context) {
    let pair = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut alone = Peer::new(PAGES);
    alone.run(|own| {
        for page in 0..PAGES {
            own.memory
                .fill_page(page, Content::new(SEED + 1, page as u64));
        }
    });
    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1], &alone], &[]);
    await_answers(&mut daemon);
    let replied = || call_daemon("uksm.Daemon1.Processes", "{}");
    await_that(&mut daemon, "both should be merged", || {
        let reply = replied();
        let is_merged = |peer: &Peer| is_as_filled(merged(&process_figures(&reply, peer.pid())));
        pair.iter().all(is_merged)
    });
    await_that(&mut daemon, "the other one should be read", || {
        process_figures(&replied(), alone.pid())["read_pages"].as_u64() >= Some(PAGES as u64)
    });
    let reply = replied();
    assert_eq!(reply["parameters"]["left_out"], 0, "{reply}");
    let other = process_figures(&reply, alone.pid());
    assert!(merged(&other) <= FEW, "{reply}");
    assert!(other["resident_pages"].as_u64() >= Some(PAGES as u64 * 9 / 10));
    let all = reply["parameters"]["processes"].as_array().expect("a list");
    assert_eq!(all.len(), 3, "the daemon's peers and nobody else: {reply}");
    let work = |process: &Value| process["work_seconds"].as_f64().unwrap_or(0.0);
    let sum: f64 = all.iter().map(work).sum();
    let used = status()["cpu"]["used_seconds"].as_f64().expect("seconds");
    assert!(sum > used / 10.0 && sum <= used, "{sum} of {used}: {reply}");
    context.note(format!("{sum:.3} s of {used:.3} s are divided"));

    let text = program_output(&["top", "--once"]);
    let first: Vec<&str> = text.lines().take(2).collect();
    assert!(first[0].starts_with("uksm "), "{text}");
    assert!(first[1].starts_with("process "), "{text}");
    let whole = PAGES as f64 / 256.0;
    for peer in &pair {
        let (merged, cpu) = figures(&text, peer.pid()).expect("it is listed");
        assert!(merged >= whole * 0.95 && merged <= whole + 1.0, "{text}");
        assert!(cpu > 0.0 && cpu <= 100.0, "{text}");
    }
    let (merged, _) = figures(&text, alone.pid()).expect("it is listed");
    assert!(merged <= 1.0, "{text}");
    assert!(text.contains("\nsaved "), "the status is there: {text}");
    // A process that ends is no longer listed.
    let gone = alone.pid();
    drop(alone);
    await_that(&mut daemon, "it should be gone", || {
        process_figures(&replied(), gone).is_null()
            && line_of(&program_output(&["top", "--once"]), gone).is_none()
    });
    daemon.stop();
}

fn processes_of_a_group_are_told_by_its_worker(_: &mut Context) {
    let [a, b] = ["a", "b"].map(Cgroup::new);
    let text =
        "v_life = \"off\"\n[group.a]\ncgroup = \"/uksm-a\"\n[group.b]\ncgroup = \"/uksm-b\"\n";
    let mut daemon = start_daemon(text);
    await_answers(&mut daemon);
    let pair = [(); 2].map(|()| peer_in(&a));
    let other = peer_in(&b);
    let replied = |group: &str| {
        let parameters = format!("{{\"group\":{group}}}");
        call_daemon("uksm.Daemon1.Processes", &parameters)
    };
    await_that(&mut daemon, "the pair should be merged", || {
        let reply = replied("\"a\"");
        let is_merged = |peer: &Peer| is_as_filled(merged(&process_figures(&reply, peer.pid())));
        pair.iter().all(is_merged)
    });
    await_that(&mut daemon, "the other one should be told of", || {
        !process_figures(&replied("\"b\""), other.pid()).is_null()
    });
    let of_b = replied("\"b\"");
    assert!(
        merged(&process_figures(&of_b, other.pid())) <= FEW,
        "{of_b}"
    );
    assert!(process_figures(&of_b, pair[0].pid()).is_null(), "{of_b}");
    assert_eq!(
        process_figures(&of_b, other.pid())["comm"],
        process_figures(&replied("\"a\""), pair[0].pid())["comm"]
    );
    for (group, says) in [
        ("null", "which group? there are a, b"),
        ("\"c\"", "c: no such group: there are a, b"),
    ] {
        let refused = replied(group);
        assert_eq!(refused["error"], "uksm.Daemon1.Refused", "{refused}");
        assert_eq!(refused["parameters"]["reason"], says);
    }
    let text = program_output(&["top", "--once"]);
    assert!(text.contains("\ngroup a\nlevels "), "{text}");
    let line = |is_it: &dyn Fn(&str) -> bool| text.lines().position(is_it);
    let of_b = line(&|line| line == "group b").expect("both groups are there");
    let at = |peer: &Peer| line(&|line| line_of(line, peer.pid()).is_some());
    let (whole, _) = figures(&text, pair[0].pid()).expect("it is listed");
    assert!((7.6..=9.0).contains(&whole), "{text}");
    // Group a saves most and is first.
    assert!(
        at(&pair[0]).is_some_and(|at| at < of_b) && at(&other) > Some(of_b),
        "{text}"
    );
    daemon.stop();
}

/// Output of the program on a terminal without a size, and whether it succeeded.
fn said_on_terminal(arguments: &[&str], columns: Option<&str>) -> (bool, String) {
    let terminal = nix::pty::openpty(None, None).expect("a pseudoterminal");
    let mut command = Command::new(PROGRAM);
    command.arg("top").args(arguments).env("TERM", "vt100");
    match columns {
        Some(columns) => command.env("COLUMNS", columns),
        None => command.env_remove("COLUMNS"),
    };
    let slave = File::from(terminal.slave);
    command.stdin(Stdio::null());
    command.stdout(slave.try_clone().expect("a file"));
    command.stderr(slave);
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{PROGRAM}: {e}"));
    // It has the last copy of the other end.
    drop(command);
    let mut text = Vec::new();
    // Ends with an error when no process has the other end any more.
    let _ended = File::from(terminal.master).read_to_end(&mut text);
    let status = child.wait().expect("it ends");
    (
        status.success(),
        String::from_utf8_lossy(&text).replace("\r\n", "\n"),
    )
}

fn a_terminal_that_does_not_know_its_size_is_no_empty_page(_: &mut Context) {
    let peer = Peer::filled(PAGES, SEED, PAGES);
    let mut daemon = Daemon::start_on(&[&peer], &[]);
    await_that(&mut daemon, "it should be listed", || {
        line_of(&program_output(&["top", "--once"]), peer.pid()).is_some()
    });
    let begun = Instant::now();
    for (columns, head) in [
        (None, "potential MiB  cpu % memory MiB    read"),
        (Some("0"), "potential MiB  cpu % memory MiB    read"),
        // Names of 7 to 12 columns leave room for one more column in 37, and for no third in 38.
        (Some("38"), "merged MiB potential MiB"),
        (Some("24"), "merged MiB"),
    ] {
        let (is_done, text) = said_on_terminal(&["--once"], columns);
        assert!(is_done, "{text}");
        let found = text.lines().nth(1).unwrap_or_default();
        assert!(found.ends_with(head), "{columns:?}: {text}");
    }
    let (is_done, text) = said_on_terminal(&[], None);
    assert!(!is_done, "there is nothing to draw on: {text}");
    assert_eq!(
        text,
        "uksm: top: the terminal does not know its size: set it with `stty cols 80 rows 24`, or \
         use --once\n"
    );
    assert!(begun.elapsed() < Duration::from_secs(120));
    daemon.stop();
}

/// The program on a terminal, and the contents of its screen.
struct Terminal {
    child: Child,
    keys: File,
    drawn: Receiver<Vec<u8>>,
    terminal: vt100::Parser,
}

impl Terminal {
    /// One with this many lines and columns.
    fn new((lines, columns): (u16, u16)) -> Terminal {
        let size = nix::pty::Winsize {
            ws_row: lines,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = nix::pty::openpty(Some(&size), None).expect("a pseudoterminal");
        let other = File::from(pair.slave);
        let end = || Stdio::from(other.try_clone().expect("a file"));
        let mut command = Command::new(PROGRAM);
        command.args(["top", "--interval", "200ms"]);
        command
            .env("TERM", "vt100")
            .env("NO_COLOR", "1")
            .env("LC_ALL", "C");
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap_or_else(|e| panic!("{PROGRAM}: {e}"));
        let some = |count| NonZeroU16::new(count).expect("a line and a column");
        let keys = File::from(pair.master);
        let mut output = keys.try_clone().expect("a file");
        let (sender, drawn) = channel();
        // Ends when no process has the other end any more.
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut some) {
                let _ended = sender.send(some[..count].to_vec());
            }
        });
        Terminal {
            child,
            keys,
            drawn,
            terminal: vt100::Parser::new(some(lines), some(columns), 0),
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it reads keys");
    }

    /// Waits until the screen fulfils a condition; returns its text.
    fn await_screen(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let screen = self.terminal.screen().contents();
            if is_so(&screen) {
                return screen;
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.drawn.recv_timeout(left) {
                Ok(bytes) => self.terminal.process(&bytes),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{what}; on the screen is: {screen}")
                }
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn a_process_is_opened_on_a_terminal_which_is_given_back_though_the_daemon_was_killed(
    _: &mut Context,
) {
    let pair = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], &[]);
    await_answers(&mut daemon);
    await_that(&mut daemon, "both should be merged", || {
        let text = program_output(&["top", "--once"]);
        let is_merged = |peer: &Peer| figures(&text, peer.pid()).is_some_and(|it| it.0 >= 7.6);
        pair.iter().all(is_merged)
    });
    let mut small = Terminal::new((5, 20));
    let first = pair[0].pid();
    // There is no room for the columns that [`line_of`] expects.
    let pid = first.to_string();
    let screen = small.await_screen("the list should be there", |screen| {
        let mut names = screen.lines().map(|line| line.split_whitespace().next());
        names.any(|name| name == Some(pid.as_str()))
    });
    let lines: Vec<&str> = screen.lines().collect();
    assert!(
        lines[0].starts_with("net ") && lines[1].starts_with("process "),
        "{screen}"
    );
    small.press("q");
    assert!(small.child.wait().expect("it ends").success());

    let mut watched = Terminal::new((24, 80));
    let screen = watched.await_screen("both should be listed", |screen| {
        pair.iter()
            .all(|peer| line_of(screen, peer.pid()).is_some())
    });
    assert!(screen.is_ascii(), "the locale is C: {screen}");
    // The second line is chosen and explained.
    let chosen = pair.iter().map(Peer::pid).max().expect("two");
    watched.press("n\x1b[B\r");
    let title = format!(" ({chosen})");
    watched.await_screen("it should be explained", |screen| {
        screen.contains("\n  merged  ") && screen.contains(&title)
    });
    watched.press("\x1b");
    watched.await_screen("the list should be there again", |screen| {
        line_of(screen, first).is_some()
    });
    daemon.kill();
    watched.await_screen("the daemon should be missed", |screen| {
        screen.contains("no daemon answers; the figures below are older")
            && line_of(screen, first).is_some()
    });
    // Another daemon has other figures, and the same list.
    let mut daemon = Daemon::start_on(&[&pair[0], &pair[1]], &[]);
    await_answers(&mut daemon);
    watched.await_screen("the new daemon should be shown", |screen| {
        !screen.contains("no daemon answers") && line_of(screen, first).is_some()
    });
    watched.press("q");
    assert!(watched.child.wait().expect("it ends").success());
    // The former contents are restored: none.
    watched.await_screen("the terminal should be given back", |screen| {
        screen.trim().is_empty()
    });
    assert!(!watched.terminal.screen().alternate_screen());
    daemon.stop();
}
