//! `uksm report` writes one file, or one line that names what is wrong.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A ledger, and a folder to write into.
struct Place {
    root: tempfile::TempDir,
}

/// A record of a minute.
fn record(time: &str, worker: u32) -> String {
    format!(
        "{{\"version\":1,\"time\":\"{time}\",\"unix_seconds\":0.0,\"group\":\"all\",\"worker\":{worker},\
         \"seconds\":60.0,\"cpu_seconds\":1.5,\"merged_pages\":100,\"broken_pages\":2,\"freed_frames\":1,\
         \"saved_byte_seconds\":64424509440.0,\"index_byte_seconds\":0.0,\"frame_byte_seconds\":0.0,\
         \"restarts\":0,\"saved_bytes\":1073741824,\"index_bytes\":5,\"frame_bytes\":4096}}\n"
    )
}

impl Place {
    fn new() -> Place {
        let root = tempfile::tempdir().unwrap();
        let place = Place { root };
        std::fs::create_dir(place.path("accounts")).unwrap();
        let text = record("2026-03-01T12:01:00.000Z", 7) + &record("2026-03-01T12:02:00.000Z", 8);
        place.write(&text);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path("accounts/2026-03-01.jsonl"), text).unwrap();
    }

    /// Asks for a report of this ledger, in this place.
    fn report(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
        command.current_dir(self.root.path());
        command.args(["report", "--ledger", "accounts", "--socket", "none.sock"]);
        command.args(arguments).output().unwrap()
    }

    fn page(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The line on standard error, but for that no daemon answers.
fn refused(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let lines = text(&output.stderr).lines();
    let lines: Vec<&str> = lines.filter(|line| !line.contains("no daemon")).collect();
    assert_eq!(lines.len(), 1, "{output:?}");
    lines[0].to_owned()
}

#[test]
fn a_page_is_written_without_a_daemon_and_over_its_restart() {
    let place = Place::new();
    let output = place.report(&[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        text(&output.stdout),
        "uksm-report.html: 0.0 h covered, 1 group: 0.033 GiB h saved, 0.033 net of the workers' memory, with 3.0 s of processor time, 90.0 s for each GiB h saved\n"
    );
    let page = place.page("uksm-report.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</body></html>\n"));
    for sentence in [
        "200 pages were merged, and at least 0 were written or unmapped",
        "4 were given their own copies again",
    ] {
        assert!(page.contains(sentence), "{sentence}");
    }
    let output = place.report(&["-o", "other.html"]);
    assert!(text(&output.stdout).starts_with("other.html: "));
    assert_eq!(place.page("other.html"), page);
    let output = place.report(&["--output", "-"]);
    assert_eq!(text(&output.stdout), page);
}

#[test]
fn the_same_figures_are_one_json_object_whose_fields_the_documents_explain() {
    let place = Place::new();
    let output = place.report(&["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["total"]["merged_pages"], 200);
    assert_eq!(report["total"]["cpu_seconds_per_saved_gib_hour"], 90.0);
    assert_eq!(report["steps"][0]["saved_bytes"], 1_073_741_824.0);
    assert_eq!(report["groups"][0]["group"], "all");
    assert!(!place.path("uksm-report.html").exists());
    let written = place.report(&["--json", "--output", "x.json"]);
    assert!(written.status.success(), "{written:?}");
    let same: serde_json::Value = serde_json::from_str(&place.page("x.json")).unwrap();
    assert_eq!(same, report);
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/report.md");
    let documents = std::fs::read_to_string(documents).unwrap();
    let help = Command::new(env!("CARGO_BIN_EXE_uksm"))
        .args(["account", "--help"])
        .output()
        .unwrap();
    let account = text(&help.stdout);
    let mut unexplained = Vec::new();
    for part in [
        &report,
        &report["total"],
        &report["groups"][0],
        &report["steps"][0],
    ] {
        for name in part.as_object().unwrap().keys() {
            let explained = documents.contains(&format!("`{name}`"))
                || account.contains(&format!("  {name}: "));
            if !explained {
                unexplained.push(name.clone());
            }
        }
    }
    assert_eq!(unexplained, Vec::<String>::new());
}

#[test]
fn torn_record_is_left_out_and_reported_on_the_page() {
    let place = Place::new();
    let whole = record("2026-03-01T12:01:00.000Z", 7);
    place.write(&(whole.clone() + &whole[..whole.len() - 20]));
    let output = place.report(&[]);
    assert!(output.status.success(), "{output:?}");
    assert!(
        text(&output.stderr).contains("accounts/2026-03-01.jsonl:2: a torn record is left out"),
        "{output:?}"
    );
    let page = place.page("uksm-report.html");
    assert!(
        page.contains("1 record was torn by a crash, and left out: accounts/2026-03-01.jsonl:2.")
    );
    assert!(page.contains("100 pages were merged"));
}

#[test]
fn what_is_wrong_is_one_line_and_an_older_page_stays() {
    let place = Place::new();
    std::fs::write(place.path("uksm-report.html"), "before").unwrap();
    for (arguments, status, says) in [
        (
            vec!["--since", "soon"],
            2,
            "uksm: --since soon: must be a time like ",
        ),
        (
            vec!["--since", "1h", "--until", "2h"],
            2,
            "is not before --until",
        ),
        (
            vec!["--since", "2026-03-02"],
            1,
            "uksm: accounts: no records in this span",
        ),
        (
            vec!["--group", "web"],
            1,
            "uksm: web: this group has no record in this span: accounts has records of all",
        ),
        (
            vec!["--output", "none/x.html"],
            1,
            "uksm: --output none/x.html: there is no folder none",
        ),
        (
            vec!["--output", "accounts"],
            1,
            "uksm: --output accounts: is a folder",
        ),
        (
            vec!["--output", "/dev/null"],
            1,
            "uksm: --output /dev/null: is not a regular file",
        ),
        (
            vec!["--output", "/proc/x.html"],
            1,
            "uksm: --output /proc/x.html: ",
        ),
    ] {
        let output = place.report(&arguments);
        let line = refused(&output, status);
        assert!(line.contains(says), "{line}");
        assert_eq!(place.page("uksm-report.html"), "before");
    }
    place.write("{}\n");
    let line = refused(&place.report(&[]), 1);
    assert!(
        line.starts_with("uksm: accounts/2026-03-01.jsonl:1: not a record: "),
        "{line}"
    );
    std::fs::remove_dir_all(place.path("accounts")).unwrap();
    let line = refused(&place.report(&[]), 1);
    assert!(
        line.starts_with("uksm: accounts: does not exist, so nothing is recorded yet"),
        "{line}"
    );
    let left = std::fs::read_dir(place.root.path()).unwrap().count();
    assert_eq!(left, 1, "the page of before, and nothing that was begun");
}
