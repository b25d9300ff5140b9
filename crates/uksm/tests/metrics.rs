//! `uksm metrics` and `uksm top` as they are called: what is refused, with which status, and what
//! is said without a daemon.

use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

fn uksm(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
    command.args(words).stdin(Stdio::null()).output().unwrap()
}

/// The one line of what was refused with this status.
fn refused(words: &[&str], status: i32) -> String {
    let output = uksm(words);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{words:?}: {errors}");
    assert_eq!(errors.lines().count(), 1, "{words:?}: {errors}");
    assert!(output.stdout.is_empty(), "{words:?}");
    errors
}

#[test]
fn without_a_daemon_it_is_down_and_that_is_no_failure() {
    let root = tempfile::tempdir().unwrap();
    let socket = root.path().join("uksm.sock");
    let socket = socket.to_str().unwrap();
    let output = uksm(&["metrics", "--socket", socket]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("\nuksm_up 0\n") && text.ends_with("# EOF\n"),
        "{text}"
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        format!("uksm: {socket}: no daemon answers: uksm_up is 0\n")
    );

    let file = root.path().join("uksm.prom");
    let output = uksm(&[
        "metrics",
        "--socket",
        socket,
        "--textfile",
        file.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(0));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("\nuksm_up 0\n") && !text.contains("# EOF"),
        "{text}"
    );
}

#[test]
fn places_that_cannot_be_had_are_named_with_status_1() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("none/uksm.prom");
    let socket = root.path().join("uksm.sock");
    let socket = socket.to_str().unwrap();
    let file = file.to_str().unwrap();
    let line = refused_after_note(&["metrics", "--socket", socket, "--textfile", file]);
    assert!(
        line.starts_with(&format!("uksm: --textfile {file}: cannot write: ")),
        "{line}"
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let line = refused(&["metrics", "--listen", &address], 1);
    assert!(
        line.starts_with(&format!("uksm: --listen {address}: cannot listen: ")),
        "{line}"
    );
}

/// The last line of a failure, behind the note that no daemon runs.
fn refused_after_note(words: &[&str]) -> String {
    let output = uksm(words);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    let (note, line) = errors.split_once('\n').unwrap();
    assert!(
        note.ends_with("no daemon answers: uksm_up is 0"),
        "{errors}"
    );
    line.to_owned()
}

#[test]
fn a_wrong_command_line_is_named_with_status_2() {
    for (words, says) in [
        (
            &["metrics", "--listen", "0.0.0.0:9465"][..],
            "take --public to allow it",
        ),
        (&["metrics", "--listen", "here"], "must be PORT"),
        (&["metrics", "--public"], "--listen"),
        (
            &["metrics", "--listen", "1", "--textfile", "x"],
            "cannot be used with",
        ),
        (&["top", "--interval", "1ms"], "must be 100ms to 1h"),
    ] {
        let line = refused(words, 2);
        assert!(line.contains(says), "{words:?}: {line}");
    }
}

#[test]
fn top_wants_a_daemon_and_a_terminal() {
    let root = tempfile::tempdir().unwrap();
    let socket = root.path().join("uksm.sock");
    let line = refused(&["top", "--once", "--socket", socket.to_str().unwrap()], 1);
    assert!(line.contains("no daemon answers"), "{line}");
    let line = refused(&["top", "--socket", socket.to_str().unwrap()], 1);
    assert!(
        line.contains("standard output is not a terminal: use --once"),
        "{line}"
    );
}
