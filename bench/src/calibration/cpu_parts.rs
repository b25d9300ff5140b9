//! The parts of the daemon's CPU, a saved page.
//!
//! # Problem
//! A total does not show the parts to improve, nor the possible gain.
//!
//! # Approach
//! Two things stand side by side. One is the kernel's account of the daemon (user and kernel time)
//! and the daemon's counters (pages sampled, pages tried). The other is the cost of one SAMPLE, one
//! FOLD and one cold compare alone (`sample-cost`, `fold-cost`, same kernel and accel). The rest
//! beyond the module's calls is policy, index, reading mappings, and waking up.
//!
//! # Units
//! Microseconds of CPU a saved page; on a clock of instructions, thousands of instructions.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::Value;
use uksm_results::clock::Clock;
use uksm_results::report::{Measured, Report};

use crate::units::MIB_PAGES;

/// Costs measured alone, in microseconds a page.
struct Floors {
    sample: Option<f64>,
    fold: Option<f64>,
    compare: Option<f64>,
}

/// Prints the profile of every variant of uksm in these results.
pub(crate) fn print(folder: &Path, names: &[&str]) -> Result<()> {
    // A cost counted by another clock does not apply to this result.
    let figure = |experiment: &str, variant: &str, clock: Clock| {
        let report = Report::read(&folder.join(format!("{experiment}.json"))).ok()?;
        let report = Some(report).filter(|report| report.clock() == clock)?;
        report
            .find(variant, "")?
            .figures
            .get("us_per_page")
            .copied()
    };
    let mut shown = 0;
    for name in names {
        let path = folder.join(format!("{name}.json"));
        if !path.exists() {
            println!("{name}: no result yet");
            continue;
        }
        let fold = if *name == "clone" {
            "pairs"
        } else {
            "into-a-frame"
        };
        // Both entries of a pair belong to one saved page.
        let entries = if *name == "clone" { 2.0 } else { 1.0 };
        let report = Report::read(&path)?;
        let figure = |experiment, variant| figure(experiment, variant, report.clock());
        let floors = Floors {
            sample: figure("sample-cost", "sample-1-lines"),
            fold: figure("fold-cost", fold).map(|cost| cost * entries),
            compare: figure("sample-cost", "cold-compare"),
        };
        for variant in report
            .variants
            .iter()
            .filter(|v| v.name.starts_with("uksm-"))
        {
            shown += usize::from(show(name, report.clock(), variant, &floors));
        }
    }
    ensure!(
        shown > 0,
        "{}: no finished variant of uksm to profile",
        folder.display()
    );
    Ok(())
}

/// Prints one variant; false if it saved nothing.
fn show(experiment: &str, clock: Clock, variant: &Measured, floors: &Floors) -> bool {
    let pages = variant.saved_mib * MIB_PAGES as f64;
    if pages < 1.0 {
        return false;
    }
    let separator = if variant.case.is_empty() { "" } else { ", " };
    println!(
        "{experiment}{separator}{}: {}, {} a saved page",
        variant.case,
        variant.name,
        match clock {
            Clock::Time => "us of CPU",
            Clock::Instructions => "thousands of instructions",
        }
    );
    let line = |what: &str, cost: Option<f64>| match cost {
        Some(cost) => println!("  {what:<42} {cost:>8.2}"),
        None => println!("  {what:<42}        -"),
    };
    // Time to 95 % is for 95 % of the pages; the split covers the whole run.
    let efficiency = variant.mib_per_cpu_second * MIB_PAGES as f64;
    line(
        "all, to 95 % merged",
        (efficiency > 0.0).then(|| 1e6 / efficiency),
    );
    let share = |name: &str| {
        variant
            .figures
            .get(name)
            .map(|seconds| seconds * 1e6 / pages)
    };
    line(
        "whole run: user (policy, index)",
        share("daemon_user_seconds"),
    );
    line("whole run: kernel", share("daemon_kernel_seconds"));
    let count = |name: &str| {
        variant
            .counters
            .as_ref()
            .and_then(|counters| number(counters, name))
    };
    let sampled = count("sampled").map(|sampled| sampled / pages);
    line("pages sampled for it (a count)", sampled);
    line(
        "SAMPLE of one line, alone",
        sampled.zip(floors.sample).map(|(n, cost)| n * cost),
    );
    line("FOLD, alone", floors.fold);
    line("one cold 4 KiB compare", floors.compare);
    true
}

/// The first number with this key, at any depth.
fn number(value: &Value, key: &str) -> Option<f64> {
    match value {
        Value::Object(fields) => fields
            .get(key)
            .and_then(Value::as_f64)
            .or_else(|| fields.values().find_map(|field| number(field, key))),
        Value::Array(items) => items.iter().find_map(|item| number(item, key)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_number_is_found_at_the_highest_level_that_has_it() {
        let value = json!({"levels": [{"sampled": 1}], "sampled": 9, "other": {"x": 2.5}});
        assert_eq!(number(&value, "sampled"), Some(9.0));
        assert_eq!(number(&value, "x"), Some(2.5));
        assert_eq!(number(&value, "y"), None);
    }
}
