//! Figures of ledgers with known records.

use super::*;
use std::path::Path;

const MIB: f64 = 1024.0 * 1024.0;

/// A record that ends at this time of 2026-03-01, with this number of MiB saved all the time.
pub(in crate::report) fn record(group: &str, time: &str, seconds: f64, saved_mib: f64) -> Record {
    let mut record = Record {
        version: 1,
        time: format!("2026-03-01T{time}Z"),
        group: group.to_owned(),
        worker: 7,
        ..Record::default()
    };
    record.amounts.seconds = seconds;
    record.amounts.cpu_seconds = seconds / 100.0;
    record.amounts.merged_pages = 600;
    record.amounts.broken_pages = 6;
    record.amounts.written_pages = 3;
    record.amounts.saved_byte_seconds = saved_mib * MIB * seconds;
    record.amounts.worker_byte_seconds = MIB * seconds;
    // Tests save few MiB.
    #[allow(clippy::cast_possible_truncation)]
    let saved_bytes = (saved_mib * MIB) as i64;
    record.levels.saved_bytes = saved_bytes;
    record.levels.worker_bytes = 1 << 20;
    record.levels.index_bytes = 1;
    record
}

/// Writes them as the ledger of that day.
pub(in crate::report) fn write(folder: &Path, records: &[Record]) {
    let lines = records
        .iter()
        .map(|record| serde_json::to_string(record).unwrap() + "\n");
    std::fs::write(folder.join("2026-03-01.jsonl"), lines.collect::<String>()).unwrap();
}

fn at(time: &str) -> Timestamp {
    format!("2026-03-01T{time}Z").parse().unwrap()
}

/// The figures of these records.
pub(in crate::report) fn of(
    records: &[Record],
    bounds: (Option<&str>, Option<&str>),
    group: Option<&str>,
) -> Result<LedgerReport, String> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), records);
    let part = LedgerPart {
        bounds: (bounds.0.map(at), bounds.1.map(at)),
        folder: folder.path().to_owned(),
        group: group.map(ToOwned::to_owned),
    };
    figures(&part, at("13:00:00"))
}

fn close(found: Option<f64>, expected: f64) {
    let found = found.unwrap();
    assert!(
        (found - expected).abs() < 1e-6 * expected.max(1.0),
        "{found} is not {expected}"
    );
}

#[test]
fn a_step_has_the_mean_of_what_was_covered_of_it_and_nothing_where_nothing_was() {
    let records = [
        record("web", "12:01:00", 60.0, 64.0),
        record("db", "12:00:30", 30.0, 32.0),
        // There are no records from 12:01:00 to 12:03:30.
        record("web", "12:04:00", 30.0, 16.0),
    ];
    let report = of(&records, (Some("12:00:00"), Some("12:05:00")), None).unwrap();
    assert_eq!(report.step_seconds, 10.0);
    assert_eq!(report.covered_seconds, 90.0);
    assert_eq!(
        report
            .gaps
            .iter()
            .map(|gap| (gap.from.as_str(), gap.to.as_str()))
            .collect::<Vec<_>>(),
        [
            ("2026-03-01T12:01:00.000Z", "2026-03-01T12:03:30.000Z"),
            ("2026-03-01T12:04:00.000Z", "2026-03-01T12:05:00.000Z")
        ]
    );
    assert_eq!(report.steps.len(), 30);
    let step = &report.steps[2];
    close(step.saved_bytes, 96.0 * MIB);
    close(step.saved_bytes_by_group.get("db").copied(), 32.0 * MIB);
    close(step.cpu_share, 0.02);
    close(step.merged_pages, 100.0 + 200.0);
    close(report.steps[4].saved_bytes, 64.0 * MIB);
    let hole = &report.steps[10];
    assert_eq!(
        (hole.covered_seconds, hole.saved_bytes, hole.merged_pages),
        (0.0, None, None)
    );
    close(report.steps[22].saved_bytes, 16.0 * MIB);
    // The sums are those of the bill, and of the steps.
    let saved: f64 = report
        .steps
        .iter()
        .map(|step| step.saved_bytes.unwrap_or(0.0) * step.covered_seconds)
        .sum();
    close(Some(report.total.amounts.saved_byte_seconds), saved);
    close(Some(saved), (64.0 * 60.0 + 32.0 * 30.0 + 16.0 * 30.0) * MIB);
    close(
        report.total.cpu_seconds_per_saved_gib_hour,
        1.2 / (saved / GIB_HOUR),
    );
}

#[test]
fn sums_go_on_over_a_restart_of_the_daemon() {
    let mut second = record("all", "12:02:00", 30.0, 64.0);
    second.worker = 8;
    let records = [record("all", "12:01:00", 60.0, 64.0), second];
    let report = of(&records, (None, None), None).unwrap();
    assert_eq!(
        (report.from.as_str(), report.to.as_str()),
        ("2026-03-01T12:00:00.000Z", "2026-03-01T12:02:00.000Z")
    );
    assert_eq!(report.total.amounts.merged_pages, 1200);
    assert_eq!(report.total.amounts.seconds, 90.0);
    let amounts = report.total.amounts;
    assert_eq!(
        (amounts.written_pages, report.total.net_bytes),
        (6, 63 << 20)
    );
    assert!(report.gaps.is_empty(), "half a minute is none to speak of");
    assert_eq!(
        report.headline(),
        "0.0 h covered, 1 group: 0.002 GiB h saved, 0.002 net of the workers' memory, with 0.9 s of processor time, 576.0 s for each GiB h saved"
    );
}

#[test]
fn records_at_the_bounds_count_in_part_and_one_group_alone_can_be_asked_for() {
    let records = [
        record("web", "12:01:00", 60.0, 64.0),
        record("web", "12:02:00", 60.0, 64.0),
        record("db", "12:02:00", 60.0, 32.0),
    ];
    let report = of(&records, (Some("12:00:30"), Some("12:01:30")), Some("web")).unwrap();
    assert_eq!(report.groups.len(), 1);
    assert_eq!(report.total.amounts.merged_pages, 600);
    close(report.steps[0].saved_bytes, 64.0 * MIB);
    let report = of(&records, (None, None), Some("web")).unwrap();
    let written = report.steps.iter().filter_map(|step| step.written_pages);
    close(Some(written.sum()), 6.0);
    let since = of(&records, (Some("12:00:00"), None), None).unwrap();
    assert_eq!(since.to, "2026-03-01T13:00:00.000Z", "up to now");
    assert_eq!(since.gaps.len(), 1);
}

#[test]
fn what_is_not_there_is_one_line() {
    let records = [record("web", "12:01:00", 60.0, 64.0)];
    let line = of(&records, (Some("12:30:00"), None), None).unwrap_err();
    assert!(line.ends_with(": no records in this span"), "{line}");
    let line = of(&records, (None, None), Some("db")).unwrap_err();
    assert!(
        line.starts_with("db: this group has no record in "),
        "{line}"
    );
    let part = LedgerPart {
        bounds: (None, None),
        folder: "/no such".into(),
        group: None,
    };
    let line = figures(&part, at("13:00:00")).unwrap_err();
    assert!(
        line.starts_with("/no such: does not exist, so nothing is recorded yet"),
        "{line}"
    );
}

#[test]
fn a_moment_counts_where_it_is() {
    let mut moment = record("web", "12:00:20", 0.0, 0.0);
    moment.amounts.merged_pages = 9;
    let records = [record("web", "12:01:00", 60.0, 64.0), moment];
    let report = of(&records, (None, None), None).unwrap();
    let steps = report.steps.iter();
    let merged: Vec<f64> = steps.filter_map(|step| step.merged_pages).collect();
    assert_eq!(merged.len(), 6);
    for (merged, expected) in merged
        .into_iter()
        .zip([100.0, 100.0, 109.0, 100.0, 100.0, 100.0])
    {
        close(Some(merged), expected);
    }
}

#[test]
fn pages_written_on_the_host_are_summed_over_all_groups_where_they_are_known() {
    let with = |group, time, pages| Record {
        host_written_pages: pages,
        ..record(group, time, 60.0, 1.0)
    };
    let records = [
        with("web", "12:01:00", None),
        with("web", "12:02:00", Some(30)),
        with("db", "12:02:00", Some(0)),
        with("db", "12:03:00", Some(12)),
    ];
    let report = of(&records, (None, Some("12:02:30")), None).unwrap();
    let written = report.host_written.unwrap();
    assert_eq!((written.pages, written.seconds), (Some(30), 60.0));
    let report = of(&records[..1], (None, None), None).unwrap();
    assert_eq!(report.host_written.as_ref().unwrap().pages, None);
    let json = serde_json::to_value(report).unwrap();
    assert!(json.get("host_written_pages").unwrap().is_null());
    let report = of(&records, (None, None), Some("web")).unwrap();
    let json = serde_json::to_string(&report).unwrap();
    assert!(!json.contains("host_written"), "of all groups: {json}");
}
