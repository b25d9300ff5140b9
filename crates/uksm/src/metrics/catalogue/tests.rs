//! The catalogue, `docs/metrics.md`, the rules of alerts and the board name the same metrics.

use std::collections::BTreeSet;

use super::*;
use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

const DOCUMENT: &str = include_str!("../../../../../docs/metrics.md");
const RULES: &str = include_str!("../../../../../packaging/prometheus/uksm.rules.yml");
const BOARD: &str = include_str!("../../../../../packaging/grafana/uksm.json");

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
    assert!(
        written == expected,
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

/// The metrics that a query names. Names of recording rules have a colon, and are no metrics.
fn named(query: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = query.split(|c| !is_name(c));
    let names = words.filter(|word| word.starts_with("uksm_") && !word.contains(':'));
    names.map(ToOwned::to_owned).collect()
}

#[test]
fn names_in_a_query_are_found_whatever_stands_around_them() {
    let names = named("sum(rate(uksm_a_total{x=\"uksm\"}[5m])) - uksm_b/uksm:c:rate5m");
    assert_eq!(
        names,
        BTreeSet::from(["uksm_a_total".to_owned(), "uksm_b".to_owned()])
    );
}

#[test]
fn alert_rules_use_existing_metrics_and_describe_the_fault() {
    let rules = YamlLoader::load_from_str(RULES).unwrap();
    let groups = rules[0]["groups"].as_vec().unwrap();
    let rules: Vec<&Yaml> = groups
        .iter()
        .flat_map(|group| group["rules"].as_vec().unwrap())
        .collect();
    let mut alerts = BTreeSet::new();
    for rule in rules {
        let query = rule["expr"].as_str().unwrap();
        let names = named(query);
        assert!(!names.is_empty(), "{query}");
        assert_eq!(
            names.difference(&exported()).collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "{query}"
        );
        if rule["record"].is_badvalue() {
            let alert = rule["alert"].as_str().unwrap();
            assert!(alerts.insert(alert), "{alert} twice");
            assert!(rule["labels"]["severity"].as_str().is_some(), "{alert}");
            for text in ["summary", "description"] {
                assert!(
                    rule["annotations"][text].as_str().is_some(),
                    "{alert}: {text}"
                );
            }
        }
    }
    for alert in [
        "UksmDown",
        "UksmSavedFallsFast",
        "UksmWrittenAsFastAsMerged",
        "UksmBudgetExhausted",
        "UksmWorkerRestarts",
    ] {
        assert!(alerts.contains(alert), "{alert}");
    }
}

#[test]
fn the_board_asks_for_metrics_that_there_are() {
    let board: Value = serde_json::from_str(BOARD).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let queries = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries = queries.map(|target| target["expr"].as_str().unwrap());
    let variables = board["templating"]["list"].as_array().unwrap().iter();
    let variables = variables.map(|variable| variable["query"]["query"].as_str().unwrap());
    let queries: Vec<&str> = queries.chain(variables).collect();
    assert!(queries.len() > 10);
    for query in queries {
        let names = named(query);
        assert!(!names.is_empty(), "{query}");
        assert_eq!(
            names.difference(&exported()).collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "{query}"
        );
    }
    let numbers: BTreeSet<u64> = panels
        .iter()
        .map(|panel| panel["id"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers.len(), panels.len());
}
