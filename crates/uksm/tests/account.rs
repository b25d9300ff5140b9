//! `uksm account` reads a ledger without a daemon, has one that runs write first, and names what is
//! wrong.
//!
//! Ledgers are written here by hand, so that their form stays readable for those that were written
//! before.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A ledger, and a socket where no daemon is.
struct TestDaemon {
    root: tempfile::TempDir,
}

/// What the program said.
struct CommandOutput {
    status: Option<i32>,
    output: String,
    errors: String,
}

impl TestDaemon {
    fn new() -> TestDaemon {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("accounts")).unwrap();
        TestDaemon { root }
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("accounts")
    }

    fn socket(&self) -> PathBuf {
        self.root.path().join("uksm.sock")
    }

    fn write(&self, day: &str, text: &str) {
        let path = self.folder().join(format!("{day}.jsonl"));
        std::fs::write(path, text).unwrap();
    }

    /// Asks for an account of this ledger.
    fn account(&self, arguments: &[&str]) -> CommandOutput {
        let folder = self.folder();
        let mut all = vec!["--dir", text(&folder)];
        all.extend(arguments);
        self.ask(&all)
    }

    fn ask(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
        command.arg("account").arg("--socket").arg(self.socket());
        let output = command.args(arguments).output().unwrap();
        CommandOutput {
            status: output.status.code(),
            output: String::from_utf8(output.stdout).unwrap(),
            errors: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl CommandOutput {
    fn json(&self) -> serde_json::Value {
        assert_eq!(self.status, Some(0), "{}", self.errors);
        serde_json::from_str(&self.output).unwrap()
    }

    /// The last line on standard error, which is the only one but for that no daemon answers.
    fn refused(&self, status: i32) -> &str {
        assert_eq!(self.status, Some(status), "{}", self.errors);
        assert_eq!(self.output, "");
        let lines = self.errors.lines();
        let mut lines: Vec<&str> = lines.filter(|line| !line.contains("no daemon")).collect();
        assert_eq!(lines.len(), 1, "{}", self.errors);
        lines.remove(0)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A record of a minute, in which a GiB was saved for all the time.
fn record(group: &str, time: &str, cpu: f64) -> String {
    format!(
        "{{\"version\":1,\"time\":\"{time}\",\"unix_seconds\":0.0,\"group\":\"{group}\",\"worker\":7,\
         \"seconds\":60.0,\"cpu_seconds\":{cpu},\"merged_pages\":100,\"broken_pages\":2,\"freed_frames\":1,\
         \"saved_byte_seconds\":64424509440.0,\"index_byte_seconds\":0.0,\"frame_byte_seconds\":0.0,\
         \"restarts\":0,\"saved_bytes\":1073741824,\"index_bytes\":5,\"frame_bytes\":4096}}\n"
    )
}

fn two_days() -> TestDaemon {
    let place = TestDaemon::new();
    let first = record("web", "2026-03-01T12:00:00.000Z", 1.0);
    let first = first + &record("db", "2026-03-01T12:00:00.000Z", 0.5);
    place.write("2026-03-01", &first);
    let second = record("web", "2026-03-02T00:00:30.000Z", 2.0);
    place.write("2026-03-02", &second);
    place
}

#[test]
fn a_ledger_is_summed_by_group_without_a_daemon() {
    let place = two_days();
    let said = place.account(&["--json"]);
    let bill = said.json();
    assert_eq!(bill["version"], 1);
    assert_eq!(bill["groups"][0]["group"], "db");
    let web = &bill["groups"][1];
    assert_eq!(
        (&web["cpu_seconds"], &web["merged_pages"]),
        (&3.0.into(), &200.into())
    );
    assert!(
        said.errors.contains("no daemon answers") && said.errors.lines().count() == 1,
        "{}",
        said.errors
    );
    let said = place.account(&["--group", "web"]);
    let row = said.output.lines().last().unwrap();
    let row: Vec<&str> = row.split_whitespace().collect();
    let cells = ["web", "0.03", "3.00", "0.033", "0.033", "1024.0"];
    assert_eq!(row[..6], cells);
    assert_eq!(said.output.lines().count(), 3, "{}", said.output);
}

#[test]
fn a_span_takes_its_part_of_a_record() {
    let place = two_days();
    let bill = place.account(&["--since", "2026-03-02", "--json"]).json();
    let web = &bill["groups"][0];
    assert_eq!(
        (&web["cpu_seconds"], &web["seconds"]),
        (&1.0.into(), &30.0.into())
    );
    assert_eq!(bill["groups"].as_array().unwrap().len(), 1);
    let bill = place.account(&["--until", "2026-03-02", "--json"]).json();
    assert_eq!(bill["groups"][1]["cpu_seconds"], 2.0);
    assert_eq!(bill["until"], "2026-03-02T00:00:00.000Z");
    let said = place.account(&["--since", "1h"]);
    assert!(said.output.starts_with("no records in "), "{}", said.output);
}

#[test]
fn torn_record_is_reported_and_left_out() {
    let place = two_days();
    let whole = record("web", "2026-03-03T00:00:00.000Z", 4.0);
    place.write("2026-03-03", &whole[..whole.len() - 20]);
    let said = place.account(&["--json"]);
    let bill = said.json();
    assert_eq!(bill["groups"][1]["cpu_seconds"], 3.0);
    let torn = bill["torn"][0].as_str().unwrap();
    assert!(torn.ends_with("/2026-03-03.jsonl:1"), "{torn}");
    assert!(
        said.errors.contains("2026-03-03.jsonl:1: a torn record"),
        "{}",
        said.errors
    );
}

#[test]
fn what_is_wrong_is_named() {
    let place = two_days();
    let said = place.account(&["--since", "soon"]);
    let line = said.refused(2);
    assert!(
        line.starts_with("uksm: --since soon: must be a time like "),
        "{line}"
    );
    let said = place.account(&["--since", "2026-03-02", "--until", "2026-03-01"]);
    assert!(said.refused(2).contains("is not before --until 2026-03-01"));
    let said = place.account(&["--group", "mail"]);
    assert!(said.refused(1).contains("mail: this group has no record"));
    place.write("2026-03-04", "{}\n");
    let said = place.account(&[]);
    assert!(
        said.refused(1)
            .contains("2026-03-04.jsonl:1: not a record: missing field")
    );
    let none = place.root.path().join("none");
    let said = place.ask(&["--dir", text(&none)]);
    assert!(
        said.refused(1)
            .contains("/none: does not exist, so nothing is recorded yet")
    );
}

/// Answers one client with this, and tells what it asked.
fn daemon(place: &TestDaemon, answer: String) -> std::thread::JoinHandle<String> {
    let listener = UnixListener::bind(place.socket()).unwrap();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        BufReader::new(&client).read_until(0, &mut asked).unwrap();
        client.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(asked).unwrap()
    })
}

#[test]
fn running_daemon_is_asked_first_for_its_ledger() {
    let place = two_days();
    let folder = place.folder();
    let answer = format!("{{\"parameters\":{{\"folder\":{folder:?},\"fault\":null}}}}\0");
    let asked = daemon(&place, answer);
    let said = place.ask(&["--json"]);
    let asked = asked.join().unwrap();
    assert_eq!(
        asked,
        "{\"method\":\"uksm.Daemon1.Account\",\"parameters\":{}}\0"
    );
    assert_eq!(said.json()["groups"][1]["cpu_seconds"], 3.0);
    assert_eq!(said.errors, "");
}

#[test]
fn a_daemon_that_cannot_write_or_does_not_answer_is_no_reason_to_fail() {
    for (answer, says) in [
        ("", "the daemon's answer was not understood"),
        (
            "{\"parameters\":{\"folder\":\"/x\",\"fault\":\"/x: not written: full\"}}\0",
            "/x: not written: full",
        ),
        (
            "{\"parameters\":{\"folder\":null,\"fault\":null}}\0",
            "the daemon writes no accounts",
        ),
    ] {
        let place = two_days();
        let asked = daemon(&place, answer.to_owned());
        let said = place.account(&["--json"]);
        asked.join().unwrap();
        assert_eq!(said.json()["groups"][1]["cpu_seconds"], 3.0);
        let ends = "only records written so far are used\n";
        assert!(
            said.errors.contains(says) && said.errors.ends_with(ends),
            "{}",
            said.errors
        );
    }
}
