//! The catalogue, `docs/metrics.md`, the rules of alerts and the board name the same metrics.

use std::collections::BTreeSet;

use super::*;

const DOCUMENT: &str = include_str!("../../../../../docs/metrics.md");

/// The line of a row in the document.
fn line<T>(row: &Row<T>, labels: &[&'static str]) -> String {
    let labels: Vec<&str> = labels.iter().copied().chain(row.label).collect();
    let kind = row.kind.as_str();
    format!(
        "| `{}` | {kind} | {} | {} |",
        row.exported(),
        labels.join(", "),
        row.help
    )
}

fn lines() -> Vec<String> {
    let daemon = of_daemon();
    let groups = of_groups();
    let status = status::rows();
    let daemon = daemon.iter().map(|row| line(row, &[]));
    let groups = groups.iter().map(|row| line(row, &["group"]));
    let status = status.iter().map(|row| line(row, &["group"]));
    daemon.chain(groups).chain(status).collect()
}

fn exported() -> BTreeSet<String> {
    fn names<T>(rows: &[Row<T>]) -> Vec<String> {
        rows.iter().map(Row::exported).collect()
    }
    let all = [
        names(&of_daemon()),
        names(&of_groups()),
        names(&status::rows()),
    ];
    all.into_iter().flatten().collect()
}

#[test]
fn each_metric_is_a_line_of_the_document_and_each_line_a_metric() {
    let written: Vec<&str> = DOCUMENT
        .lines()
        .filter(|line| line.starts_with("| `uksm_"))
        .collect();
    let expected = lines();
    assert_eq!(
        written,
        expected,
        "the table must be:\n{}",
        expected.join("\n")
    );
}

#[test]
fn names_are_unique_and_as_prometheus_wants_them() {
    assert_eq!(exported().len(), lines().len());
    // A family's name is without `_total`, and must be unique as well.
    let families: Vec<String> = exported()
        .into_iter()
        .map(|name| name.replace("_total", ""))
        .collect();
    assert_eq!(
        families.iter().collect::<BTreeSet<_>>().len(),
        families.len()
    );
    for name in exported() {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.chars().all(is_plain), "{name}");
        let inner = name.strip_suffix("_total").unwrap_or(&name);
        assert!(!inner.contains("_total") && !inner.contains("__"), "{name}");
    }
}
